"""Games of OpenSpiel as Gymnasium environments: `planvec.make("OpenSpiel/connect_four")`.

Importing this module registers the id `OpenSpiel/<name>` of each game that needs no parameters. Opening one
that planvec does not support says why.

Letters: A actions, P players.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError
from planvec.extras import install_command

__all__ = ["Game"]

try:
    import pyspiel
    from open_spiel.python.observation import make_observation
except ModuleNotFoundError as error:
    raise ImportError(f"planvec.openspiel needs OpenSpiel: {install_command('openspiel')}") from error

_TYPE = pyspiel.GameType
_PERFECT, _SEQUENTIAL = _TYPE.Information.PERFECT_INFORMATION, _TYPE.Dynamics.SEQUENTIAL
_KNOWN_CHANCE = (_TYPE.ChanceMode.DETERMINISTIC, _TYPE.ChanceMode.EXPLICIT_STOCHASTIC)
_OPPOSED = (_TYPE.Utility.ZERO_SUM, _TYPE.Utility.CONSTANT_SUM)


class Game(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Plays a game of OpenSpiel, for one player, or for two who take turns.

    One environment plays all sides: each step is an action of the player to move. Chance (dice, cards) is
    drawn from `np_random`, as part of the step before it, or of the reset.

    - The action is one of the A distinct actions of the game. One that is illegal stands for the legal one
      of number `action % num_legal`, so that every action of the space can be taken.
    - The observation is `observation_tensor` of the player to move (at the end, of player 0), float32.
    - The reward is the change of the return of *player 0*, whoever moves. In a game of two players, the
      return of player 1 is the rest: a constant, mostly 0, minus that of player 0.
    - The info holds `current_player`, an int, -1 at the end; `action_mask`, `[A]` int8, 1 for the legal
      actions; and `returns`, `[P]` float64, the returns so far.

    planvec's states hold the history of the game, so they compare equal where the same actions led there.

    Args:
        game: Name of the game, with parameters in brackets or without: `"go(board_size=9)"`.
        render_mode: None, or "ansi": the text of the state.
        **parameters: Parameters of the game, such as `board_size=9`.

    Attributes:
        game: The game, a `pyspiel.Game`.
        state: Its state, a `pyspiel.State`. Steps replace it and never change it.
        num_players: P.
        has_chance: Whether chance decides about anything.
        action_space: Discrete(A).
        observation_space: A Box of the shape of the observation tensor.

    Raises:
        UnsupportedEnvError: OpenSpiel has no such game. Or players move at once, do not see everything, do
            not play against each other, are more than two, the game has no observation tensor, or it draws
            what its type does not declare (noise).
        ValueError: `render_mode` is another one.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  # as in Gymnasium

    def __init__(self, game: str, *, render_mode: str | None = None, **parameters: object) -> None:
        if render_mode not in (None, "ansi"):
            raise ValueError(f"render_mode: expected None or 'ansi', got {render_mode!r}")
        self.render_mode = render_mode
        self.metadata = {**type(self).metadata}
        self.game = _load(game, parameters)
        self.num_players: int = self.game.num_players()
        self.metadata["num_players"] = self.num_players
        self.has_chance = self.game.get_type().chance_mode != _TYPE.ChanceMode.DETERMINISTIC
        self._pays_at_end = self.game.get_type().reward_model == _TYPE.RewardModel.TERMINAL
        self._num_actions: int = self.game.num_distinct_actions()
        self._shape = tuple(self.game.observation_tensor_shape())
        self._tensor = make_observation(self.game)
        self.action_space = spaces.Discrete(self._num_actions)
        self.observation_space = spaces.Box(-np.inf, np.inf, self._shape, np.float32)
        self.state: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start a game.

        Args:
            seed: Seeds `np_random`, as in Gymnasium.
            options: `{"history": [...]}` starts after these actions, those of chance among them. Chance then
                draws on from there.

        Raises:
            ValueError: An action of the history is illegal, or the game is over after it.
        """
        super().reset(seed=seed)
        state = self.game.new_initial_state()
        for number, action in enumerate((options or {}).get("history", ())):
            if action not in state.legal_actions():
                raise ValueError(
                    f"history: expected a legal action, one of {state.legal_actions()}, got {action} at "
                    f"index {number}"
                )
            state.apply_action(int(action))
        if state.is_terminal():
            raise ValueError("history: expected one that leaves the game unfinished, got one that ends it")
        self._draw(state)
        self.state = state
        return self.observe(), self._info()

    def step(self, action: object) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Take an action of the player to move, and draw the chance after it.

        Raises:
            gymnasium.error.ResetNeeded: The game is over, or has not begun.
        """
        observation, reward, terminated, truncated, _ = self.step_without_info(action)
        return observation, reward, terminated, truncated, self._info()

    def step_without_info(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Do the same as `step`, with an empty info."""
        before = self.state
        legal = [] if before is None else before.legal_actions()
        if not legal:
            raise gymnasium.error.ResetNeeded("step: expected a game that goes on; call reset() first")
        action = int(action)
        state = before.child(action if action in legal else legal[action % len(legal)])
        self._draw(state)
        self.state = state
        reward = self._return_of(state) - self._return_of(before)
        return self.observe(), reward, state.is_terminal(), False, {}

    def roll_out(
        self, numbers: Iterable[int], max_steps: int, discount: float
    ) -> tuple[float, int, bool, bool]:
        """Take legal actions at random, up to the end of the game. See `planvec.Codec.roll_out`."""
        state = self.state.clone()
        legal_actions, apply_action = state.legal_actions, state.apply_action
        total, weight, count = 0.0, 1.0, 0
        has_chance, pays_on_the_way = self.has_chance, not self._pays_at_end
        before, legal = self._return_of(state), legal_actions()
        for number in islice(numbers, max_steps):
            apply_action(legal[number * len(legal) >> 32])
            if has_chance:
                self._draw(state)
            count += 1
            legal = legal_actions()
            if pays_on_the_way or not legal:
                after = self._return_of(state)
                total += weight * (after - before)
                before = after
            if not legal:
                break
            weight *= discount
        self.state = state
        return total, count, state.is_terminal(), False

    def observe(self) -> NDArray[np.float32]:
        """Return the observation of the player to move; at the end, of player 0."""
        self._tensor.set_from(self.state, max(self.state.current_player(), 0))
        observation: NDArray[np.float32] = self._tensor.tensor.copy()
        return observation.reshape(self._shape)

    def render(self) -> Any:
        """Return the text of the state; None without a render mode."""
        return str(self.state) if self.render_mode == "ansi" else None

    def _info(self) -> dict[str, Any]:
        state = self.state
        mask = np.zeros(self._num_actions, np.int8)
        mask[state.legal_actions()] = 1
        player = -1 if state.is_terminal() else state.current_player()
        return {"current_player": player, "action_mask": mask, "returns": np.array(state.returns())}

    def _draw(self, state: Any) -> None:
        """Draw what chance does next, in place."""
        while state.is_chance_node():
            if not self.has_chance:
                raise UnsupportedEnvError(
                    f"{self.game}: expected a game that declares its chance, got one with chance after the "
                    f"actions {state.history()}"
                )
            remaining = float(self.np_random.random())
            chosen = 0
            for outcome, probability in state.chance_outcomes():
                chosen = outcome
                remaining -= probability
                if remaining < 0:
                    break
            state.apply_action(chosen)

    def _return_of(self, state: Any) -> float:
        """Return the return of player 0 so far."""
        if self._pays_at_end and not state.is_terminal():
            return 0.0
        value: float = state.returns()[0]
        return value


def _load(name: str, parameters: Mapping[str, object]) -> Any:
    """Return a game that `Game` can play."""
    try:
        game = pyspiel.load_game(name, dict(parameters)) if parameters else pyspiel.load_game(name)
        start = game.new_initial_state()  # where some check their parameters
    except (pyspiel.SpielError, TypeError, IndexError) as error:
        raise UnsupportedEnvError(f"{name}: {error}") from error
    reason = _why_not(game, start)
    if reason:
        raise UnsupportedEnvError(
            f"{name}: expected a game for one player, or for two who take turns, {reason}"
        )
    return game


def _why_not(game: Any, start: Any) -> str:
    """Return why a game is not supported; "" if it is."""
    kind, num_players = game.get_type(), game.num_players()
    if num_players not in (1, 2):
        return f"got one for {num_players}"
    if kind.dynamics != _SEQUENTIAL:
        return "got one in which players move at once"
    if kind.information != _PERFECT:
        return "who see everything, got one with hidden information: a search of its states would see it"
    if num_players == 2 and kind.utility not in _OPPOSED:
        return "against each other, got one with other interests"
    if kind.chance_mode not in _KNOWN_CHANCE:
        return "with known chances, got one that draws by itself"
    if not kind.provides_observation_tensor:
        return "with an observation tensor, got one without"
    # The types of some transformed games say that nothing is random.
    if "add_noise(" in str(game):
        return "got one whose returns have noise that is drawn when an end is seen for the first time"
    if start.is_chance_node() and kind.chance_mode == _TYPE.ChanceMode.DETERMINISTIC:
        return "with known chances, got one that declares none and begins with chance"
    return ""


def _register() -> None:
    """Register the id of each game that needs no parameters; `Game` says which ones are not supported."""
    for kind in pyspiel.registered_games():
        if kind.default_loadable:
            env_id = f"OpenSpiel/{kind.short_name}"
            gymnasium.register(env_id, "planvec.openspiel:Game", kwargs={"game": kind.short_name})


_register()
