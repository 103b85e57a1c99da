"""Games of PettingZoo as Gymnasium environments: `planvec.make(connect_four_v3.env)`.

`planvec.make` turns what a factory returns into one of two classes:

    AECEnv        `TurnGame`: two players take turns, and play against each other
    ParallelEnv   `JointGame`: all agents act at once, and one decision chooses the actions of all

Letters: A actions, N agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.errors import EnvError, UnsupportedEnvError
from planvec.extras import install_command
from planvec.rows import ACTION_MASK_FIELD, PLAYER_FIELD, blank, mask_of_info

__all__ = ["JointGame", "TurnGame", "as_gymnasium"]

try:
    from pettingzoo.utils.env import AECEnv, ParallelEnv
except ModuleNotFoundError as error:
    raise ImportError(f"planvec.pettingzoo needs PettingZoo: {install_command('pettingzoo')}") from error

# PettingZoo does not declare what players see. In these modules they do not see the cards of the others.
_HIDDEN, _COOPERATIVE = "pettingzoo.classic.rlcard_envs.", "pettingzoo.classic.hanabi."


class _Game(gymnasium.Env[Any, Any]):
    """Holds a game of PettingZoo."""

    game: Any

    def render(self) -> Any:
        """Return what the game renders."""
        return self.game.render()

    def close(self) -> None:
        """Close the game."""
        self.game.close()

    def _adopt_generator(self) -> None:
        """Let the generator from which the game draws count as that of the environment: so it is reseeded."""
        generator = getattr(self.game.unwrapped, "np_random", None)
        if isinstance(generator, np.random.Generator):
            self._np_random = generator


class TurnGame(_Game):
    """Plays a game of PettingZoo in which two players take turns, and play against each other.

    One environment plays both sides: each step is an action of the player to move. Player 0 is the first of
    `possible_agents`. `planvec.MCTS` plans against the other one.

    - The action space is that of a player. An action that is illegal stands for the legal one of number
      `action % num_legal`, so that every action of the space can be taken.
    - The observation is that of the player to move (at the end, of player 0), without its mask.
    - The reward is that of *player 0*, whoever moves: what the step adds to his sum. That of player 1 is the
      same with the other sign.
    - The info holds `current_player`, an int, -1 at the end; `action_mask`, `[A]` int8, 1 for the legal
      actions, if the game has masks; and what the game reports for the player to move.

    Args:
        game: The game, a `pettingzoo.AECEnv`.
        allow_hidden: Whether players may hide something from each other, such as their cards. States hold
            all of it, so a search plans as if each player saw it.

    Attributes:
        game: As given.
        action_space: The action space of both players, a `Discrete`.
        observation_space: The observation space of both players.

    Raises:
        TypeError: `game` is something else.
        UnsupportedEnvError: It has not two players; or they act at once, hide something, or have other spaces
            than each other.
    """

    def __init__(self, game: AECEnv[Any, Any, Any], *, allow_hidden: bool = False) -> None:
        if not isinstance(game, AECEnv):
            raise TypeError(f"game: expected a pettingzoo.AECEnv, got {game!r}")
        self.game = game
        self._players = list(getattr(game, "possible_agents", None) or ())
        reason = _why_not(game, self._players)
        module = f"{type(game.unwrapped).__module__}."
        if not reason and module.startswith(_COOPERATIVE):
            reason = "who play against each other, got one whose players work together"
        if not reason and not allow_hidden and module.startswith(_HIDDEN):
            reason = (
                "who see everything, got one with hidden information: a search of its states would see it. "
                "To plan as if all was seen, pass a function that returns "
                "planvec.pettingzoo.TurnGame(game, allow_hidden=True)"
            )
        if reason:
            raise UnsupportedEnvError(f"{game}: expected a game of two players who take turns, {reason}")
        first = self._players[0]
        self.action_space: Any = game.action_space(first)
        space = game.observation_space(first)
        self._is_masked = _holds_mask(space)  # whether an observation is a dict of it and a mask
        self.observation_space = space["observation"] if self._is_masked else space
        self.render_mode = getattr(game, "render_mode", None)
        self.metadata = {**_metadata_of(game), "num_players": 2}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a game.

        Args:
            seed: Seeds the game.
            options: For the game.
        """
        super().reset(seed=seed)
        self.game.reset(seed=seed, options=options)
        self._adopt_generator()
        observation, mask = self._look()
        return observation, self._info(mask)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take an action of the player to move.

        Raises:
            gymnasium.error.ResetNeeded: The game is over, or has not begun.
            EnvError: The players do not play against each other: their rewards differ in more than the sign.
        """
        game = self.game
        if not self._goes_on():
            raise gymnasium.error.ResetNeeded("step: expected a game that goes on; call reset() first")
        mask, start = self._look()[1], self.action_space.start
        if mask is not None and not mask[int(action) - start]:
            legal = np.flatnonzero(mask)
            action = start + legal[(int(action) - start) % len(legal)]
        # What `last` will return to each player is summed up in `_cumulative_rewards`, and that of the player
        # who moves begins anew. (Some games leave old values in `rewards`.)
        before = {**game._cumulative_rewards, game.agent_selection: 0}
        game.step(np.int64(action))
        self._adopt_generator()  # the game may have made another one
        gained = [float(game._cumulative_rewards[player] - before[player]) for player in self._players]
        if abs(gained[0] + gained[1]) > 1e-9 * abs(gained[0]):
            raise EnvError(
                f"{game}: expected a game of two players against each other, got one with other interests: "
                f"a step has rewarded them with {gained[0]:g} and {gained[1]:g}"
            )
        truncated = any(game.truncations.values())
        terminated = any(game.terminations.values()) or not (game.agents or truncated)
        have_ended = [game.terminations[player] or game.truncations[player] for player in game.agents]
        if any(have_ended) and not all(have_ended):
            raise EnvError(
                f"{game}: expected a game that ends for both players at once, got one in which "
                f"{game.agents[have_ended.index(False)]} goes on alone"
            )
        observation, mask = self._look()
        return observation, gained[0], terminated, truncated and not terminated, self._info(mask)

    def _goes_on(self) -> bool:
        game = self.game
        if not getattr(game, "agents", ()):  # it has not begun, or all have left
            return False
        return not (any(game.terminations.values()) or any(game.truncations.values()))

    def _player(self) -> int:
        """Return the player to move; -1 at the end."""
        return self._players.index(self.game.agent_selection) if self._goes_on() else -1

    def _look(self) -> tuple[Any, NDArray[np.int8] | None]:
        """Return the observation of the player to move, and the mask of his actions."""
        player = self._players[max(self._player(), 0)]
        observation = self.game.observe(player)
        mask = mask_of_info(self.action_space, self.game.infos.get(player) or {}, observation)
        if self._is_masked:
            observation = observation["observation"]
        return observation, None if mask is None else np.asarray(mask, np.int8)

    def _info(self, mask: NDArray[np.int8] | None) -> dict[str, Any]:
        player = self._player()
        info = {**(self.game.infos.get(self._players[max(player, 0)]) or {}), PLAYER_FIELD: player}
        return info if mask is None else {**info, ACTION_MASK_FIELD: mask}


def _why_not(game: AECEnv[Any, Any, Any], players: list[Any]) -> str:
    """Return why `TurnGame` cannot play a game; "" if it can."""
    if _metadata_of(game).get("is_parallelizable", False):
        return (
            "got one whose agents act at once; if they work together, pass its `parallel_env`, whose agents "
            "are played by one decision (planvec.pettingzoo.JointGame; its `weights` say whose rewards count)"
        )
    if len(players) != 2:
        return f"got one of {len(players)} (named in `possible_agents`)"
    first, second = players
    actions, others = game.action_space(first), game.action_space(second)
    if not isinstance(actions, spaces.Discrete) or actions != others:
        return f"with one Discrete space of actions, got {actions} and {others}"
    seen, others = game.observation_space(first), game.observation_space(second)
    if seen != others:
        return f"with one space of observations, got {seen} and {others}"
    return ""


def _metadata_of(game: Any) -> dict[str, Any]:
    """Return the metadata of a game. PettingZoo declares them and gives no default."""
    return getattr(game, "metadata", None) or {}


def _holds_mask(space: spaces.Space[Any]) -> bool:
    """Return whether observations are dicts of an observation and a mask."""
    return isinstance(space, spaces.Dict) and {*space.spaces} == {"observation", ACTION_MASK_FIELD}


class JointGame(_Game):
    """Plays a parallel environment of PettingZoo: one decision chooses the actions of all its agents.

    - The action holds one for each of `possible_agents`, in their order: a `MultiDiscrete` if all are
      `Discrete`, one flat `Box` if all are `Box` of one dtype, else a `Dict` by agent. That of an agent which
      has left the game has no influence.
    - The observation is a `Dict` by agent. That of an agent which has left is zeros.
    - The reward is the sum of the agents' rewards, or a weighted one.
    - The episode ends when all agents have left: truncated if any of the last ones was, else terminated.
    - The info holds `rewards`, `[N]` float64; `has_left`, `[N]` bool; `action_mask`, if agents report masks
      (in the order of the action space; of an agent that has left, only the first action is legal); and by
      its name what each agent reports.

    Args:
        game: The environment, a `pettingzoo.ParallelEnv`.
        weights: Agent -> factor of its reward in the sum; None: 1 for each. 0 for those left out.

    Attributes:
        game: As given.
        agents: `possible_agents`, which all arrays follow.
        action_space: As described.
        observation_space: As described.

    Raises:
        TypeError: `game` is something else.
        ValueError: `weights` names another agent.
        UnsupportedEnvError: The environment does not name its agents.
    """

    def __init__(
        self, game: ParallelEnv[Any, Any, Any], *, weights: Mapping[Any, float] | None = None
    ) -> None:
        if not isinstance(game, ParallelEnv):
            raise TypeError(f"game: expected a pettingzoo.ParallelEnv, got {game!r}")
        self.agents: list[Any] = list(getattr(game, "possible_agents", None) or ())
        if not self.agents:
            raise UnsupportedEnvError(
                f"{game}: expected an environment with `possible_agents`, a list of all agents, got none"
            )
        unknown = sorted(map(str, {*(weights or ())}.difference(self.agents)))
        if unknown:
            raise ValueError(f"weights: expected agents of {self.agents}, got {', '.join(unknown)}")
        self.game = game
        self._weights = np.array([1.0 if weights is None else weights.get(a, 0.0) for a in self.agents])
        self._spaces = [game.action_space(agent) for agent in self.agents]
        self.action_space = _joined(self.agents, self._spaces)
        seen = {str(agent): game.observation_space(agent) for agent in self.agents}
        self.observation_space = spaces.Dict(seen)
        self._nothing = {name: blank(space) for name, space in seen.items()}
        self._ends = np.cumsum([max(int(np.prod(space.shape or ())), 1) for space in self._spaces])[:-1]
        self.render_mode = getattr(game, "render_mode", None)
        # Its agents act at once: it is no game of two players who take turns.
        self.metadata = {key: item for key, item in _metadata_of(game).items() if key != "num_players"}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode.

        Args:
            seed: Seeds the environment.
            options: For the environment.
        """
        super().reset(seed=seed)
        observations, infos = self.game.reset(seed=seed, options=options)
        self._adopt_generator()
        return self._seen(observations), self._info(observations, {}, infos)

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take one action of each agent.

        Raises:
            gymnasium.error.ResetNeeded: All agents have left, or the episode has not begun.
        """
        if not getattr(self.game, "agents", ()):
            raise gymnasium.error.ResetNeeded("step: expected an episode that goes on; call reset() first")
        outcome = self.game.step(self._actions(action))
        observations, rewards, terminations, truncations, infos = outcome
        self._adopt_generator()  # the game may have made another one
        still_there = [
            agent for agent in self.game.agents if terminations.get(agent) or truncations.get(agent)
        ]
        if still_there:
            raise EnvError(
                f"{self.game}: expected agents that have ended to leave `agents`, got {still_there} in it"
            )
        has_ended = not self.game.agents
        truncated = has_ended and any(truncations.values())
        info = self._info(observations, rewards, infos)
        reward = float(self._weights @ info["rewards"])
        return self._seen(observations), reward, has_ended and not truncated, truncated, info

    def _actions(self, action: Any) -> dict[Any, Any]:
        """Return the action of each agent that is in the game."""
        if isinstance(self.action_space, spaces.Dict):
            return {agent: action[str(agent)] for agent in self.agents if agent in self.game.agents}
        if isinstance(self.action_space, spaces.MultiDiscrete):
            parts = [*np.asarray(action)]
        else:
            split = np.split(np.asarray(action), self._ends)
            parts = [part.reshape(space.shape or ()) for part, space in zip(split, self._spaces, strict=True)]
        return {
            agent: part.copy()  # an environment may keep it
            for agent, part in zip(self.agents, parts, strict=True)
            if agent in self.game.agents
        }

    def _seen(self, observations: Mapping[Any, Any]) -> dict[str, Any]:
        return {str(agent): observations.get(agent, self._nothing[str(agent)]) for agent in self.agents}

    def _info(
        self, observations: Mapping[Any, Any], rewards: Mapping[Any, Any], infos: Mapping[Any, Any]
    ) -> dict[str, Any]:
        has_left = np.array([agent not in self.game.agents for agent in self.agents])
        info: dict[str, Any] = {str(agent): dict(infos[agent]) for agent in self.agents if infos.get(agent)}
        info["rewards"] = np.array([float(rewards.get(agent, 0.0)) for agent in self.agents])
        info["has_left"] = has_left
        if isinstance(self.action_space, spaces.MultiDiscrete) and not has_left.all():
            masks = [
                mask_of_info(space, infos.get(agent) or {}, observations.get(agent))
                for agent, space in zip(self.agents, self._spaces, strict=True)
            ]
            if has_left.any() or any(mask is not None for mask in masks):
                info[ACTION_MASK_FIELD] = tuple(
                    _whole_mask(int(size), mask, bool(left))
                    for size, mask, left in zip(self.action_space.nvec, masks, has_left, strict=True)
                )
        return info


def _joined(agents: list[Any], each: list[spaces.Space[Any]]) -> spaces.Space[Any]:
    """Return the space of the actions of all agents."""
    if all(isinstance(space, spaces.Discrete) for space in each):
        discrete: list[Any] = each
        return spaces.MultiDiscrete(
            [space.n for space in discrete], start=[space.start for space in discrete]
        )
    if all(isinstance(space, spaces.Box) and space.dtype == each[0].dtype for space in each):
        boxes: list[Any] = each
        low, high = (
            np.concatenate([getattr(space, name).reshape(-1) for space in boxes]) for name in ("low", "high")
        )
        return spaces.Box(low, high, dtype=boxes[0].dtype)
    return spaces.Dict({str(agent): space for agent, space in zip(agents, each, strict=True)})


def _whole_mask(size: int, mask: Any, has_left: bool) -> NDArray[np.int8]:
    """Return a mask of one agent's actions."""
    if not has_left:
        return np.ones(size, np.int8) if mask is None else np.asarray(mask, np.int8)
    only_first = np.zeros(size, np.int8)
    only_first[0] = 1
    return only_first


def as_gymnasium(game: Any) -> gymnasium.Env[Any, Any]:
    """Return a game of PettingZoo as a Gymnasium environment.

    Args:
        game: An `AECEnv`, which becomes a `TurnGame`, or a `ParallelEnv`, which becomes a `JointGame`.

    Raises:
        TypeError: `game` is something else.
        UnsupportedEnvError: It cannot be played so.
    """
    if isinstance(game, AECEnv):
        return TurnGame(game)
    return JointGame(game)
