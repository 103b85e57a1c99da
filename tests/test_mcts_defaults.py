"""MCTS without settings: a look at the environment chooses shared nodes and rollouts."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import same_plans
from gymnasium import spaces
from marks import slow_after

import planvec
from planvec import MCTS
from planvec.planners.mcts.tree import AS_GIVEN, GRAPH, SHORT_ROLLOUTS, STATES, Tree

PLANNER = MCTS(max_env_steps=1000)
LAKE: dict[str, Any] = {"map_name": "8x8", "is_slippery": False}


def choice(env_id: Any, planner: MCTS = PLANNER, **env_kwargs: Any) -> int:
    with planvec.PlanEnv(env_id, env_kwargs=env_kwargs) as env:
        plan = planner.plan(env, env.reset(seed=0).state, seed=0)
    number: int = plan.search_data.kind.choice
    return number


@pytest.mark.parametrize(
    ("env_id", "env_kwargs", "seed", "best"),
    slow_after(
        2,
        [
            ("CliffWalking-v1", {}, 0, -13),
            ("FrozenLake-v1", LAKE, 0, 1),
            ("Taxi-v4", {}, 101, 4),
            ("CartPole-v1", {}, 3, 500),
            ("MiniGrid-DoorKey-5x5-v0", {}, 0, 0.9),
        ],
        unpack=True,
    ),
)
def test_small_tasks_are_solved_without_settings(
    env_id: str, env_kwargs: dict[str, Any], seed: int, best: float
) -> None:
    with planvec.make(env_id, num_workers=0, env_kwargs=env_kwargs) as env:
        assert planvec.run_episode(env, PLANNER, seed=seed, max_steps=500).total_return >= best


@pytest.mark.parametrize(
    ("env_id", "env_kwargs", "number"),
    slow_after(
        3,
        [
            ("CliffWalking-v1", {}, GRAPH),
            ("CartPole-v1", {}, SHORT_ROLLOUTS),
            ("FrozenLake-v1", {}, AS_GIVEN),
            ("Blackjack-v1", {}, AS_GIVEN),
            ("Acrobot-v1", {}, AS_GIVEN),
            ("Pendulum-v1", {}, AS_GIVEN),
        ],
        unpack=True,
    ),
)
def test_states_are_shared_where_they_repeat_and_chance_is_not_seen(
    env_id: str, env_kwargs: dict[str, Any], number: int
) -> None:
    assert choice(env_id, MCTS(num_simulations=100), **env_kwargs) == number


class Hidden(gymnasium.Env[Any, Any]):
    """The observation is a place; every third step moves the other way, which observations do not show."""

    observation_space = spaces.Discrete(5)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.time = 2, 0
        return 2, {}

    def step(self, action: Any) -> Any:
        self.time += 1
        move = (2 * int(action) - 1) * (-1 if self.time % 3 == 0 else 1)
        self.place = min(max(self.place + move, 0), 4)
        return self.place, 0.0, False, False, {}


def test_states_that_observations_do_not_tell_apart_are_not_shared() -> None:
    assert choice(Hidden) == AS_GIVEN


class Paying(gymnasium.Env[Any, Any]):
    """Nine places in a row. The first one pays 1 a step, the last one 2, and 60 steps are an episode."""

    observation_space = spaces.Discrete(9)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 3
        return 3, {}

    def step(self, action: Any) -> Any:
        self.place = min(max(self.place + int(action) - 1, 0), 8)
        return self.place, {0: 1.0, 8: 2.0}.get(self.place, 0.0), False, False, {}


def test_states_are_not_shared_where_a_cycle_pays_for_ever() -> None:
    with planvec.PlanEnv(lambda: gymnasium.wrappers.TimeLimit(Paying(), 60)) as env:
        state = env.reset(seed=0).state
        plan = MCTS(num_simulations=200).plan(env, state, seed=0)
        assert plan.search_data.kind.choice == AS_GIVEN
        assert plan.value <= 2 * 56  # four steps to the last place, and 56 there
        discounted = MCTS(num_simulations=200, discount=0.9).plan(env, state, seed=0)
        assert discounted.search_data.kind.choice == GRAPH
        assert discounted.value <= 2 / (1 - 0.9)


@pytest.mark.parametrize(
    "options",
    [{"rollout_horizon": 50}, {"transpositions": False}, {"backup": "mean"}, {"selection": "puct"}],
)
def test_explicit_options_keep_their_meaning(options: dict[str, Any]) -> None:
    assert choice("CliffWalking-v1", MCTS(num_simulations=60, **options)) == AS_GIVEN


def test_a_look_that_changes_nothing_costs_its_steps_only() -> None:
    with planvec.PlanEnv("Acrobot-v1") as env:
        state = env.reset(seed=0).state
        looked = MCTS(num_simulations=40).plan(env, state, seed=1)
        given = MCTS(num_simulations=40, rollout_horizon=50).plan(env, state, seed=1)
        small = MCTS(max_env_steps=200).plan(env, state, seed=1)
        explicit = MCTS(max_env_steps=200, rollout_horizon=50).plan(env, state, seed=1)
    assert looked.num_env_steps == given.num_env_steps + 6 * 24
    assert (looked.visit_counts == given.visit_counts).all()
    assert (looked.action_values == given.action_values).all()
    assert same_plans(small, explicit)  # too few steps for a look


class HiddenKey(gymnasium.Env[Any, Any]):
    """Places in a row. The door at the right end opens for who has a key from the left end: not seen."""

    action_space = spaces.Discrete(3)

    def __init__(self, num_places: int = 9) -> None:
        self.observation_space = spaces.Discrete(num_places)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.has_key = 3, False
        return 3, {}

    def step(self, action: Any) -> Any:
        last = int(self.observation_space.n) - 1
        self.place = min(max(self.place + int(action) - 1, 0), last)
        self.has_key |= self.place == 0
        opens = self.has_key and self.place == last
        return self.place, float(opens), opens, False, {}


@pytest.mark.parametrize("num_places", [9, 15])
def test_a_key_that_observations_do_not_show_is_found(
    num_places: int, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level("INFO", "planvec"),
        planvec.make(lambda: HiddenKey(num_places), num_workers=0) as env,
    ):
        episode = planvec.run_episode(env, MCTS(max_env_steps=2000), seed=0, max_steps=60)
        plan = MCTS(max_env_steps=2000).plan(env, env.reset(seed=0).state, seed=0)
    assert plan.search_data.kind.choice == STATES
    assert "the observations do not show the whole state" in caplog.text
    assert (episode.total_return, episode.num_steps) == (1.0, 3 + num_places - 1)  # no step too many


class Slippery(HiddenKey):
    """The same row, seen as a whole, in which one of five steps goes the other way."""

    def step(self, action: Any) -> Any:
        is_turned = self.np_random.random() < 0.2
        return super().step(2 - int(action) if is_turned else action)


def test_what_happens_by_chance_is_not_taken_for_something_hidden() -> None:
    for seed in range(5):
        with planvec.make(Slippery, num_workers=0) as env:
            plan = MCTS(max_env_steps=2000, num_simulations=10).plan(env, env.reset(seed=0).state, seed=seed)
        assert plan.search_data.kind.choice == AS_GIVEN


@pytest.mark.parametrize("env_id", slow_after(1, ["CartPole-v1", "CliffWalking-v1", HiddenKey]))
def test_workers_kills_and_compiled_steps_do_not_change_what_is_chosen(env_id: Any) -> None:
    planner, plans = MCTS(max_env_steps=1000, num_simulations=200), []
    in_process = ((0, False), (0, True if isinstance(env_id, str) else None))  # some have no kernel
    for num_workers, compiled in (*in_process, (2, False), (2, False)):
        with planvec.make(env_id, num_workers=num_workers, compiled=compiled) as env:
            state = env.reset(seed=0).state
            if len(plans) == 3:
                os.kill(env.workers[0].pid, signal.SIGKILL)
            plans.append(planner.plan(env, state, seed=1))
    assert all(same_plans(plans[0], plan) for plan in plans[1:])
    assert plans[0].search_data.kind.choice != AS_GIVEN


@pytest.mark.parametrize("env_id", ["CliffWalking-v1", "CartPole-v1"])
def test_a_saved_search_goes_on_with_what_was_chosen(env_id: str, tmp_path: Path) -> None:
    planner = MCTS(num_simulations=100)
    with planvec.PlanEnv(env_id) as env:
        tree = planner.plan(env, env.reset(seed=0).state, seed=0).search_data
        tree.save(tmp_path / "tree.npz")
        loaded = Tree.load(tmp_path / "tree.npz")
        again = planner.resume(env, loaded, seed=5)
        assert same_plans(planner.resume(env, tree, seed=5), again)
        assert again.search_data.kind == tree.kind
        with pytest.raises(planvec.InvalidBatchError, match="expected one that was searched with the same"):
            MCTS(num_simulations=10, rollout_horizon=50).resume(env, tree)


def test_the_graph_is_reused_at_states_that_differ_only_in_their_step_counter() -> None:
    with planvec.PlanEnv("FrozenLake-v1", env_kwargs=LAKE) as env:
        states = np.array([env.reset(seed=0).state])
        first = PLANNER.plan(env, states, seed=0)
        after = env.step_batch([first.action], states).new_states
        after["elapsed_steps"] += 7
        second = PLANNER.plan(env, after, seed=1, previous=first)
    assert second.num_env_steps < first.num_env_steps / 4
    assert second.search_data.states[0] == after[0]


def test_observations_can_be_named_as_what_states_share() -> None:
    planner = MCTS(num_simulations=2000, transpositions="observation", rollout_horizon=0)
    with planvec.PlanEnv("FrozenLake-v1", env_kwargs=LAKE) as env:
        tree = planner.plan(env, env.reset(seed=0).state, seed=0).search_data
    cells = tree.states["cell"][: tree.num_nodes]
    assert len(set(cells.tolist())) == len(cells) <= 64
