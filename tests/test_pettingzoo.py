"""Games of PettingZoo: the same bits as their own loop, plans of two players, joint actions, and refusals."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from marks import slow_after
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo import make as make_game

import planvec
from planvec.pettingzoo import JointGame, TurnGame
from planvec.planners import load_plan, save_plan

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def turns(name: str, **kwargs: Any) -> Any:
    return functools.partial(make_game, "aec", name, **kwargs)


def parallel(name: str, **kwargs: Any) -> Any:
    return functools.partial(make_game, "parallel", name, **kwargs)


def particles(name: str, **kwargs: Any) -> Any:
    return functools.partial(make_particles, name, **kwargs)


def make_particles(name: str, **kwargs: Any) -> Any:
    return importlib.import_module(f"mpe2.{name}").parallel_env(**kwargs)


TICTACTOE, CONNECT_FOUR = turns("classic/tictactoe-v3"), turns("classic/connect_four-v3")


# -- two players who take turns ------------------------------------------------------------------------

GAMES = {"tictactoe": TICTACTOE, "connect_four": CONNECT_FOUR}


def played_alone(factory: Any, seed: int) -> tuple[list[int], list[Any], list[int], dict[str, float]]:
    """A random episode by PettingZoo's own loop: actions, observations, players, sums of rewards."""
    game, rng = factory(), np.random.default_rng(seed)
    game.reset(seed=seed)
    actions, seen, players, sums = [], [], [], dict.fromkeys(game.possible_agents, 0.0)
    for agent in game.agent_iter():
        observation, reward, terminated, truncated, _ = game.last()
        sums[agent] += reward
        action = None
        if not (terminated or truncated):
            seen.append(observation["observation"])
            players.append(game.possible_agents.index(agent))
            action = int(rng.choice(np.flatnonzero(observation["action_mask"])))
            actions.append(action)
        game.step(action)
    return actions, seen, players, sums


@pytest.mark.parametrize("codec", [None, "replay"])
@pytest.mark.parametrize("name", GAMES)
def test_a_game_of_two_is_that_of_its_own_loop(name: str, codec: Any) -> None:
    with planvec.make(GAMES[name], num_workers=1, codec=codec) as env:
        for seed in range(3):
            actions, seen, players, sums = played_alone(GAMES[name], seed)
            start = env.reset(seed=seed)
            state, observation, total = start.state, start.observation, 0.0
            for action, expected, player in zip(actions, seen, players, strict=True):
                np.testing.assert_array_equal(observation, expected)
                assert state.player == player
                out = env.step_batch(np.array([action]), state)
                state, observation = out.new_states[0], out.observations[0]
                total += out.rewards[0]
            assert out.terminated[0]
            assert state.player == -1
            first, second = sums.values()
            assert total == first == -second


def test_an_illegal_action_stands_for_a_legal_one() -> None:
    with planvec.make(TICTACTOE, num_workers=0) as env:
        state = env.step_batch(np.array([0]), env.reset(seed=0).state).new_states[0]
        assert [*state.action_mask] == [0, *[1] * 8]
        out = env.step_batch(np.array([0, 1]), np.array([state, state]))
        assert out.new_states[0] == out.new_states[1]  # number 0 of those that are legal


def best_return(board: tuple[int, ...], player: int) -> int:
    """The return of player 0 in perfect play of tic-tac-toe; cells hold 0, or 1 and 2 for the players."""
    lines = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
    for line in lines:
        owners = {board[cell] for cell in line}
        if len(owners) == 1 and owners != {0}:
            return 1 if owners == {1} else -1
    if all(board):
        return 0
    values = [
        best_return((*board[:cell], player + 1, *board[cell + 1 :]), 1 - player)
        for cell in range(9)
        if not board[cell]
    ]
    return (max, min)[player](values)


@pytest.mark.parametrize("codec", slow_after(1, [None, "replay"]))
def test_values_of_a_whole_tree_are_those_of_perfect_play(codec: Any) -> None:
    planner = planvec.MCTS(num_simulations=600, rollout_horizon=0, backup="max", transpositions=True)
    rng = np.random.default_rng(1)
    with planvec.make(TICTACTOE, num_workers=0, codec=codec) as env:
        for number in range(3):
            state = None
            while state is None or state.player < 0:
                board, state = [0] * 9, env.reset(seed=0).state
                for player, action in zip(
                    [0, 1] * 3, rng.permutation(9)[: 5 + number % 2].tolist(), strict=False
                ):
                    if state.player >= 0:
                        board[action] = player + 1
                        state = env.step_batch(np.array([action]), state).new_states[0]
            value = best_return(tuple(board), state.player)
            plan = planner.plan(env, state, seed=0)
            assert plan.value == (-value if state.player == 1 else value)


@pytest.mark.slow
def test_plans_are_those_of_opened_records_with_workers_and_by_replay() -> None:
    plans = []
    for kwargs in ({"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "codec": "replay"}):
        with planvec.make(CONNECT_FOUR, **kwargs) as env:
            state = env.reset(seed=0).state
            plan = planvec.MCTS(num_simulations=150, transpositions=False).plan(env, state, seed=3)
            plans.append((plan.action, plan.value, plan.visit_counts.tolist()))
    assert plans[0] == plans[1] == plans[2]


def test_a_tree_of_two_players_goes_on_from_its_file(tmp_path: Path) -> None:
    planner = planvec.MCTS(num_simulations=60)
    with planvec.make(TICTACTOE, num_workers=0) as env:
        state = env.step_batch(np.array([4]), env.reset(seed=0).state).new_states[0]
        plan = planner.plan(env, state, seed=0)
        save_plan(tmp_path / "plan.npz", plan, env)
        loaded = load_plan(tmp_path / "plan.npz", env)
        root = loaded.search_data.saved_states[0]
        assert root == state
        assert root.player == state.player == 1
        again = [planner.resume(env, one.search_data, seed=1) for one in (plan, loaded)]
        assert again[0].value == again[1].value


def test_an_episode_against_itself_tells_the_values_of_player_0() -> None:
    planner = planvec.MCTS(num_simulations=200)
    with planvec.make(TICTACTOE, num_workers=0) as env:
        episode = planvec.run_episode(env, planner, seed=0)
    assert episode.has_players
    assert episode.total_return == 0
    signs = np.where(np.arange(episode.num_steps) % 2, -1, 1)
    np.testing.assert_array_equal(episode.values_of_player_0, episode.values * signs)


@pytest.mark.parametrize("planner", [planvec.CEM(horizon=4), planvec.Swarm(), planvec.Explorer()])
def test_planners_for_one_player_refuse_a_game_of_two(planner: Any) -> None:
    with planvec.make(TICTACTOE, num_workers=0) as env:
        plan = (
            functools.partial(planner.plan, env, env.reset(seed=0).state)
            if hasattr(planner, "plan")
            else None
        )
        call = plan or functools.partial(planner.run, env, max_env_steps=10)
        with pytest.raises(planvec.UnsupportedEnvError, match="expected an environment with one player"):
            call()


class Shared(AECEnv):  # type: ignore[type-arg]
    """Rewards both players for each move: they do not play against each other."""

    metadata = {"name": "shared"}  # noqa: RUF012
    spaces_of_agents = spaces.Discrete(3)

    def __init__(self, num_agents: int = 2) -> None:
        super().__init__()
        self.possible_agents = [f"player_{number}" for number in range(num_agents)]

    def observation_space(self, agent: str) -> Any:
        return self.spaces_of_agents

    action_space = observation_space

    def observe(self, agent: str) -> Any:
        return np.int64(self.count % 3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = [*self.possible_agents]
        self.count, self.agent_selection = 0, self.agents[0]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}

    def step(self, action: Any) -> None:
        self.count += 1
        self._cumulative_rewards[self.agent_selection] = 0.0
        self.rewards = dict.fromkeys(self.agents, 1.0)
        self._accumulate_rewards()
        self.agent_selection = self.agents[self.count % 2]


def test_players_with_other_interests_are_an_error_that_says_so() -> None:
    with planvec.make(Shared, num_workers=0) as env:
        state = env.reset(seed=0).state
        with pytest.raises(
            planvec.EnvError, match="against each other, got one with other interests.* 1 and 1"
        ):
            env.step_batch(np.array([0]), state)


def refusal(factory: Any) -> str:
    with pytest.raises(planvec.UnsupportedEnvError) as caught:
        planvec.make(factory, num_workers=0)
    return str(caught.value)


def test_what_is_no_game_of_two_who_take_turns_is_refused() -> None:
    assert "pass its `parallel_env`" in refusal(turns("classic/rps-v2"))
    assert "got one of 3" in refusal(functools.partial(Shared, 3))
    with pytest.raises(TypeError, match=r"game: expected a pettingzoo\.AECEnv"):
        TurnGame(parallel("classic/rps-v2")())
    with pytest.raises(TypeError, match=r"game: expected a pettingzoo\.ParallelEnv"):
        JointGame(turns("classic/rps-v2")())


class Duel(Shared):
    """Player 0 gets the number of each action, and player 1 the same with the other sign."""

    spaces_of_agents = spaces.Discrete(3, start=2)

    def observe(self, agent: str) -> Any:
        return np.int64(2)

    def step(self, action: Any) -> None:
        mover, self.count = self.agent_selection, self.count + 1
        self.last_action = int(action)
        self._cumulative_rewards[mover] = 0.0
        self.rewards = dict(zip(self.agents, (float(action), -float(action)), strict=True))
        self._accumulate_rewards()
        self.infos = {agent: {"action_mask": [0, 1, 1], "odd": None} for agent in self.agents}
        self.agent_selection = self.agents[self.count % 2]


def test_masks_of_actions_count_from_the_first_action() -> None:
    with planvec.make(Duel, num_workers=0) as env:
        state = env.step_batch(np.array([2]), env.reset(seed=0).state).new_states[0]
        out = env.step_batch(np.array([2, 3, 4]), np.array([state] * 3))
        np.testing.assert_array_equal(out.rewards, [3, 3, 4])  # the first one is illegal


class MaskedDuel(Duel):
    """Reports masks in observations that hold more."""

    def observation_space(self, agent: str) -> Any:
        return spaces.Dict(
            {"action_mask": spaces.MultiBinary(3), "count": spaces.Discrete(9), "x": spaces.Discrete(2)}
        )

    def observe(self, agent: str) -> Any:
        return {"action_mask": np.array([1, 0, 0], np.int8), "count": np.int64(0), "x": np.int64(0)}


def test_masks_may_lie_in_observations_beside_other_things() -> None:
    with planvec.make(MaskedDuel, num_workers=0) as env:
        out = env.step_batch(np.array([2, 3, 4]), np.array([env.reset(seed=0).state] * 3))
        np.testing.assert_array_equal(out.rewards, [2, 2, 2])


class OneLeaves(Duel):
    """Ends for the first player alone."""

    def step(self, action: Any) -> None:
        super().step(action)
        self.terminations["player_0"] = True


def test_a_game_that_ends_for_one_player_is_an_error_that_says_so() -> None:
    with (
        planvec.make(OneLeaves, num_workers=0) as env,
        pytest.raises(planvec.EnvError, match="ends for both players at once, got one in which player_1"),
    ):
        env.step_batch(np.array([2]), env.reset(seed=0).state)


def test_a_game_that_has_not_begun_is_not_stepped() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded):
        TurnGame(TICTACTOE()).step(0)


class Nameless(Shared):
    def __init__(self) -> None:
        super().__init__()
        del self.possible_agents


def test_a_game_without_names_of_agents_is_refused() -> None:
    assert "named in `possible_agents`" in refusal(Nameless)


class HiddenCards(Shared):
    """Counts as one of PettingZoo's card games."""


HiddenCards.__module__ = "pettingzoo.classic.rlcard_envs.cards"


def test_hidden_information_is_refused_unless_allowed() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="allow_hidden=True"):
        TurnGame(HiddenCards())
    assert TurnGame(HiddenCards(), allow_hidden=True).metadata["num_players"] == 2


def test_a_game_itself_is_opened_in_this_process_alone() -> None:
    with pytest.raises(TypeError, match="pass a factory"):
        planvec.make(TICTACTOE())
    with planvec.BatchEnv(planvec.PlanEnv(TICTACTOE())) as env:
        assert env.reset(seed=0).info["current_player"] == 0


def test_a_game_can_be_rendered() -> None:
    with planvec.make(lambda: CONNECT_FOUR(render_mode="rgb_array"), num_workers=0) as env:
        state = env.reset(seed=0).state
        after = env.step_batch(np.array([3]), state).new_states[0]
        before, then = env.render(np.array([state, after]))
    assert before.ndim == 3
    assert (before != then).any()


# -- an environment of one's own that is a game of two players -----------------------------------------


class Nim(gymnasium.Env[Any, Any]):
    """Two players take one to three of ten stones in turn; who takes the last one wins."""

    metadata = {"num_players": 2}  # noqa: RUF012
    action_space = spaces.Discrete(3)
    observation_space = spaces.Discrete(11)
    reports = True

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.stones, self.player = (options or {}).get("stones", 10), 0
        return self.stones, self._info()

    def step(self, action: Any) -> Any:
        self.stones = max(self.stones - 1 - int(action), 0)
        reward = 0.0 if self.stones else (1.0, -1.0)[self.player]
        self.player = 1 - self.player
        return self.stones, reward, self.stones == 0, False, self._info()

    def _info(self) -> dict[str, Any]:
        return {"current_player": self.player} if self.reports else {}


class SilentNim(Nim):
    reports = False


@pytest.mark.parametrize("codec", [None, "replay"])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_a_game_of_ones_own_says_so_in_its_metadata(codec: Any, is_wrapped: bool) -> None:
    planner = planvec.MCTS(num_simulations=300, rollout_horizon=0, backup="max", transpositions=True)

    def make() -> Any:
        return gymnasium.wrappers.TimeLimit(Nim(), 20) if is_wrapped else Nim()

    with planvec.make(make, num_workers=0, codec=codec) as env:
        for stones in range(1, 8):
            state = env.reset(seed=0, options={"stones": stones}).state
            plan = planner.plan(env, state, seed=0)
            assert plan.value == (1 if stones % 4 else -1)
            if stones % 4 and stones > 4:
                assert plan.action == stones % 4 - 1
            out = env.step_batch(np.array([0]), state)
            if not out.terminated[0]:
                assert planner.plan(env, out.new_states[0], seed=0).value == (1 if (stones - 1) % 4 else -1)


@pytest.mark.parametrize("codec", [None, "replay"])
def test_a_game_that_a_time_limit_cuts_keeps_its_player(codec: Any) -> None:
    with planvec.make(lambda: gymnasium.wrappers.TimeLimit(Nim(), 2), num_workers=0, codec=codec) as env:
        first = env.step_batch(np.array([0]), env.reset(seed=0).state)
        second = env.step_batch(np.array([0]), first.new_states)
    assert [first.new_states[0].player, second.new_states[0].player] == [1, 0]
    assert second.truncated[0]


def test_a_game_that_reports_no_player_is_an_error_that_says_so() -> None:
    with pytest.raises(planvec.PlanvecError, match=r"info\['current_player'\]: expected the player to move"):
        planvec.make(SilentNim, num_workers=0)


@pytest.mark.slow
def test_a_game_of_openspiel_keeps_its_players_by_replay() -> None:
    with planvec.make("OpenSpiel/tic_tac_toe", num_workers=0, codec="replay") as env:
        corner = env.reset(seed=0, options={"history": [0]}).state
        assert corner.player == 1
        planner = planvec.MCTS(num_simulations=3000, value_bounds=(-1, 1))
        assert planner.plan(env, corner, seed=0).action == 4  # only the centre draws


def test_a_state_keeps_its_player_in_pickles() -> None:
    with planvec.make(Nim, num_workers=0, codec="replay") as env:
        state = env.step_batch(np.array([1]), env.reset(seed=0).state).new_states[0]
    assert state.player == 1
    assert pickle.loads(pickle.dumps(state)).player == 1


# -- parallel environments as one joint action ---------------------------------------------------------

PARALLEL = {
    "spread": (particles("simple_spread_v3", max_cycles=8), None),
    "spread, continuous": (particles("simple_spread_v3", continuous_actions=True, max_cycles=8), None),
    "speaker": (particles("simple_speaker_listener_v4"), None),
    "rps": (parallel("classic/rps-v2"), None),
    "pistonball": (parallel("butterfly/pistonball-v6", n_pistons=3), "replay"),
    "zombies": (
        parallel(
            "butterfly/knights_archers_zombies-v11",
            **{"spawn_delay": 2, "num_archers": 1, "num_knights": 1},
        ),
        None,
    ),
    "multiwalker": (parallel("sisl/multiwalker-v9", n_walkers=2), "replay"),
    "pursuit": (parallel("sisl/pursuit-v5", n_pursuers=2, n_evaders=2), None),
}
SLOW = ("zombies", "multiwalker", "pursuit", "pistonball")


def agents_actions(game: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Random actions of all possible agents."""
    return {
        agent: np.int64(rng.integers(space.n))
        if isinstance(space := game.action_space(agent), spaces.Discrete)
        else rng.uniform(space.low, space.high).astype(space.dtype)
        for agent in game.possible_agents
    }


def joint(actions: dict[str, Any]) -> np.ndarray:
    parts = [np.atleast_1d(part) for part in actions.values()]
    return np.concatenate(parts)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in PARALLEL]
)
def test_a_parallel_environment_is_that_of_its_own_loop(name: str) -> None:
    factory, codec = PARALLEL[name]
    num_steps, rng = 40, np.random.default_rng(0)
    game = factory()
    with planvec.make(factory, num_workers=2, codec=codec) as env:
        expected, _ = game.reset(seed=4)
        start = env.reset(seed=4)
        state, seen, states, given, outcomes = start.state, start.observation, [], [], []
        for _ in range(num_steps):
            for agent in game.possible_agents:
                if agent in expected:
                    np.testing.assert_array_equal(seen[agent], expected[agent])
                else:
                    assert not np.any(seen[agent])
            actions = agents_actions(game, rng)
            live = {agent: action for agent, action in actions.items() if agent in game.agents}
            expected, rewards, _, truncations, _ = game.step(live)
            states.append(state)
            given.append(joint(actions))
            out = env.step_batch(given[-1][None], state)
            assert out.rewards[0] == sum(map(float, rewards.values()))
            assert (out.terminated[0] or out.truncated[0]) == (not game.agents)
            if not game.agents:
                assert out.truncated[0] == any(truncations.values())
            state = out.new_states[0]
            seen = {agent: part[0] for agent, part in out.observations.items()}
            outcomes.append(out)
            if not game.agents:
                break
        batch = env.step_batch(np.array(given)[::-1], np.array(states)[::-1])  # all at once, in another order
        np.testing.assert_array_equal(batch.rewards, [out.rewards[0] for out in outcomes[::-1]])
        for agent, part in batch.observations.items():
            for row, out in enumerate(outcomes[::-1]):
                np.testing.assert_array_equal(part[row], out.observations[agent][0])
    game.close()


class Leavers(ParallelEnv):  # type: ignore[type-arg]
    """One agent leaves after each step; the last one is truncated if `at_limit`."""

    metadata = {"name": "leavers"}  # noqa: RUF012
    render_mode = None

    def __init__(self, at_limit: bool = False, has_masks: bool = False) -> None:
        self.possible_agents, self.at_limit, self.has_masks = ["a", "b", "c"], at_limit, has_masks

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3 + (agent == "b"))

    def _told(self) -> Any:
        seen = {agent: np.full(2, len(self.agents), np.float32) for agent in self.agents}
        mask = {"action_mask": np.array([0, 1, 1, 1])}
        return seen, {agent: dict(mask) if agent == "b" and self.has_masks else {} for agent in self.agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = [*self.possible_agents]
        return self._told()

    def step(self, actions: Any) -> Any:
        assert {*actions} == {*self.agents}
        left, now = self.agents[0], [*self.agents]
        self.agents = self.agents[1:]
        seen, infos = self._told()
        is_last = not self.agents
        terminations = {agent: agent == left and not (is_last and self.at_limit) for agent in now}
        truncations = {agent: agent == left and is_last and self.at_limit for agent in now}
        return seen, {agent: float(actions[agent]) for agent in now}, terminations, truncations, infos


@pytest.mark.parametrize("at_limit", [False, True])
def test_agents_that_leave_see_zeros_and_the_last_ends_the_episode(at_limit: bool) -> None:
    with planvec.make(functools.partial(Leavers, at_limit), num_workers=0) as env:
        state, action = env.reset(seed=0).state, np.array([[1, 2, 2]])
        rewards, ends = [], []
        for _ in range(3):
            out = env.step_batch(action, state)
            state = out.new_states[0]
            rewards.append(out.rewards[0])
            ends.append((out.terminated[0], out.truncated[0]))
        assert rewards == [5, 4, 2]
        assert ends == [(False, False)] * 2 + [(not at_limit, at_limit)]
        first = env.step_batch(action, env.reset(seed=0).state)
        np.testing.assert_array_equal(first.observations["a"], [[0, 0]])
        np.testing.assert_array_equal(first.observations["c"], [[2, 2]])
        np.testing.assert_array_equal(first.infos["has_left"], [[True, False, False]])
        np.testing.assert_array_equal(first.infos["rewards"], [[1, 2, 2]])


class Stayers(Leavers):
    """Does not take agents that have ended out of the list."""

    def step(self, actions: Any) -> Any:
        outcome = super().step(actions)
        self.agents = [*self.possible_agents]
        return outcome


def test_agents_that_stay_after_their_end_are_an_error_that_says_so() -> None:
    with (
        planvec.make(Stayers, num_workers=0) as env,
        pytest.raises(
            planvec.EnvError, match=r"expected agents that have ended to leave `agents`, got \['a'\]"
        ),
    ):
        env.step_batch(np.array([[0, 0, 0]]), env.reset(seed=0).state)


class NewGenerators(Leavers):
    """Draws from a generator that each step makes anew."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.np_random = np.random.default_rng(seed)
        return super().reset(seed)

    def step(self, actions: Any) -> Any:
        drawn = float(self.np_random.integers(1000))
        self.np_random = np.random.default_rng(int(self.np_random.integers(1000)))
        seen, rewards, *rest = super().step(actions)
        return seen, dict.fromkeys(rewards, drawn), *rest


@pytest.mark.parametrize("codec", [None, "replay"])
def test_seeds_decide_about_a_generator_that_steps_replace(codec: Any) -> None:
    with planvec.make(NewGenerators, num_workers=0, codec=codec) as env:
        actions = np.zeros((6, 3), np.int64)
        states = env.step_batch(actions[:1], env.reset(seed=0).state).new_states.repeat(6)
        assert len({*env.step_batch(actions, states, seeds=np.arange(6)).rewards.tolist()}) == 6


def test_masks_of_agents_become_one_mask() -> None:
    with planvec.make(functools.partial(Leavers, has_masks=True), num_workers=0) as env:
        state = env.reset(seed=0).state
        assert [*state.action_mask] == [1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
        after = env.step_batch(np.array([[0, 1, 0]]), state).new_states[0]
        assert [*after.action_mask] == [1, 0, 0, 0, 1, 1, 1, 1, 1, 1]  # the first agent has left
        plan = planvec.MCTS(num_simulations=400).plan(env, state, seed=0)
        np.testing.assert_array_equal(plan.action, [2, 3, 2])


def test_rewards_may_be_weighted() -> None:
    def make() -> Any:
        return JointGame(Leavers(), weights={"a": 10.0, "b": -1.0})

    with planvec.make(make, num_workers=0) as env:
        assert env.step_batch(np.array([[1, 3, 2]]), env.reset(seed=0).state).rewards[0] == 7
    with pytest.raises(ValueError, match=r"weights: expected agents of \['a', 'b', 'c'\], got x"):
        JointGame(Leavers(), weights={"x": 1.0})


class Mixed(Leavers):
    def action_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (), np.float32) if agent == "b" else spaces.Discrete(3)


def test_agents_with_different_spaces_take_a_dict_of_actions() -> None:
    with planvec.make(Mixed, num_workers=0) as env:
        assert isinstance(env.action_space, spaces.Dict)
        actions = {"a": np.array([1]), "b": np.array([0.5], np.float32), "c": np.array([2])}
        assert env.step_batch(actions, env.reset(seed=0).state).rewards[0] == 3.5


def test_seeds_decide_about_the_chance_of_a_game() -> None:
    factory = parallel("sisl/pursuit-v5", n_pursuers=1, n_evaders=3)
    with planvec.make(factory, num_workers=0) as env:
        states = np.repeat(np.array([env.reset(seed=0).state]), 8)
        actions = np.zeros((8, 1), np.int64)
        out = env.step_batch(actions, states, seeds=np.arange(8))
        again = env.step_batch(actions, states, seeds=np.arange(8))
        assert len({bytes(state) for state in out.new_states}) > 1
        assert len({row.tobytes() for row in out.observations["pursuer_0"]}) > 1
        assert [*out.new_states] == [*again.new_states]


class Bare(ParallelEnv):  # type: ignore[type-arg]
    """Declares no metadata; or the number of its agents, who do not take turns."""

    def __init__(self, agents: Any = ("one", "two"), **members: Any) -> None:
        self.possible_agents = agents
        vars(self).update(members)

    def action_space(self, agent: Any) -> Any:
        return spaces.Discrete(3)

    def observation_space(self, agent: Any) -> Any:
        return spaces.Box(-99, 99, (1,), np.float32)

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents, self.sum = [*self.possible_agents], 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.sum += sum(map(int, actions.values()))
        now, has_ended = [*self.agents], self.sum > 20
        outcome = [dict.fromkeys(now, value) for value in (1.0, has_ended, False)]
        seen = self._seen()
        self.agents = [] if has_ended else now
        return seen, *outcome, {agent: {} for agent in now}

    def _seen(self) -> Any:
        return {agent: np.array([self.sum], np.float32) for agent in self.agents}


@pytest.mark.parametrize("members", [{}, {"metadata": {"num_players": 2}}])
def test_a_parallel_environment_needs_no_metadata(members: Any) -> None:
    with planvec.make(functools.partial(Bare, **members), num_workers=0) as env:
        out = env.step_batch([[1, 2]], env.reset(seed=0).state)
    assert out.rewards.tolist() == [2.0]
    assert out.new_states[0].player is None


def test_a_game_without_the_names_of_its_agents_is_refused() -> None:
    assert "possible_agents" in refusal(functools.partial(Bare, agents=None))


# -- surfaces of pygame --------------------------------------------------------------------------------


class Painter(gymnasium.Env[Any, Any]):
    """Draws on a surface, and observes it."""

    action_space = spaces.Discrete(5)
    observation_space = spaces.Box(0, 255, (12, 9, 3), np.uint8)

    def __init__(self, depth: int = 32, alpha: bool = False, font: bool = False, rle: bool = False) -> None:
        import pygame

        self.pygame = pygame
        self.depth, self.flags, self.rle = depth, pygame.SRCALPHA if alpha else 0, rle
        self.clock = pygame.time.Clock()
        if font:
            pygame.font.init()
            self.font = pygame.font.Font(None, 12)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.surface = self.pygame.Surface((9, 12), self.flags, self.depth)
        self.surface.set_clip((1, 1, 7, 9))
        self.surface.set_colorkey((1, 2, 3), self.pygame.RLEACCEL if self.rle else 0)
        if hasattr(self, "font"):  # its rows are filled up with other bytes than those of a new surface
            self.label = self.font.render("a label", True, (9, 8, 7))
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.clock.tick()
        x, y = self.np_random.integers(9, size=2).tolist()
        color = tuple(self.np_random.integers(256, size=4).tolist())
        self.surface.fill(color, (x, y, 1 + int(action), 2))
        if hasattr(self, "font"):
            self.surface.blit(self.font.render(str(action), False, color), (x, y))
        return self._seen(), float(self.surface.get_at((4, 4))[0]), False, False, {}

    def _seen(self) -> Any:
        return self.pygame.surfarray.array3d(self.surface).swapaxes(0, 1)


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"depth": 24}, {"depth": 16}, {"alpha": True}, {"font": True}],
    ids=lambda kwargs: str(kwargs),
)
def test_surfaces_are_saved_by_content(kwargs: dict[str, Any]) -> None:
    with planvec.make(functools.partial(Painter, **kwargs), num_workers=1) as env:
        alone = Painter(**kwargs)
        start, (seen, _) = env.reset(seed=0), alone.reset(seed=0)
        np.testing.assert_array_equal(start.observation, seen)
        state, states, actions, expected = start.state, [], [], []
        for number in range(20):
            states.append(state)
            actions.append(number % 5)
            expected.append(alone.step(number % 5)[:2])
            state = env.step_batch(np.array([number % 5]), state).new_states[0]
        out = env.step_batch(np.array(actions)[::-1], np.array(states)[::-1])
        for row, (seen, reward) in enumerate(expected[::-1]):
            np.testing.assert_array_equal(out.observations[row], seen)
            assert out.rewards[row] == reward


def test_a_screen_on_which_nothing_is_drawn_takes_few_bytes() -> None:
    with planvec.make(particles("simple_spread_v3"), num_workers=0) as env:
        assert env.reset(seed=0).state.nbytes < 20_000  # its pixels are 2 MB


class PartOfASurface(Painter):
    """Draws on a part of another surface."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.whole = self.pygame.Surface((20, 20))
        self.surface = self.whole.subsurface((0, 0, 9, 12))
        return self._seen(), {}


def test_surfaces_that_are_drawn_with_other_roundings_are_refused() -> None:
    assert 'codec="replay"' in refusal(functools.partial(Painter, rle=True))
    assert "it has the flag RLEACCEL" in refusal(functools.partial(Painter, rle=True))


class Underlines(Painter):
    """Changes its font, late or for a moment."""

    def __init__(self, late: bool) -> None:
        super().__init__(font=True)
        self.late, self.num_steps = late, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.font.underline, self.num_steps = False, 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        self.font.underline = not self.late or self.num_steps > 400
        outcome = super().step(action)
        self.font.underline = self.font.underline and self.late
        return outcome


@pytest.mark.parametrize("late", [False, True])
def test_a_setting_of_a_font_that_a_step_leaves_changed_is_refused(late: bool) -> None:
    with planvec.make(functools.partial(Underlines, late), num_workers=0) as env:
        state = env.reset(seed=0).state
        for _ in range(400):
            state = env.step_batch([1], state).new_states[0]
        if late:
            with pytest.raises(planvec.PlanvecError, match=r"change a setting of Underlines\.font"):
                env.step_batch([1], state)
        else:
            env.step_batch([1], state)


def test_a_part_of_another_surface_is_refused() -> None:
    assert "pygame.surface.Surface" in refusal(PartOfASurface)
    assert 'codec="replay"' in refusal(PartOfASurface)
    assert "it is a part of another one" in refusal(PartOfASurface)
