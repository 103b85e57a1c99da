"""Batches end at their deadline, and planners decide by what they know then."""

from __future__ import annotations

import dataclasses
import math
import time
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from backends import BACKENDS, DEFAULT, Backend, quick_or_slow
from compare import assert_same, same_states
from faulty import ARMED, Faulty, actions_with
from gymnasium import spaces

import planvec
from planvec import InvalidBatchError, PlanEnv, Planner
from planvec.planners import search as searching
from planvec.stepping import env_stepper, row_loop

NUM_ROWS = 40
CLOCK = SimpleNamespace(now=0.0)
"""The time that steps of `Slow` take, so that tests do not depend on the machine."""


CACHED = planvec.Copied(caches=["test_deadlines.CLOCK"])


class Slow(gymnasium.Env[Any, Any]):
    """Walks on a line. A step takes a millisecond of `CLOCK`."""

    observation_space = spaces.Box(-100.0, 100.0, (1,), np.float64)
    action_space: Any = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = 0.0
        return np.array([self.place]), {}

    def step(self, action: Any) -> Any:
        CLOCK.now += 1e-3
        self.place += float(np.sum(action)) - 1.0
        return np.array([self.place]), self.place, False, False, {"place": self.place}


DRAWN = [True]


class DrawsOnce(Slow):
    """Draws from a global generator once, as a finalizer of another object would."""

    def step(self, action: Any) -> Any:
        if not DRAWN[0]:
            DRAWN[0] = True
            np.random.random()  # noqa: NPY002
        return super().step(action)


class Pushed(Slow):
    """The same with continuous actions."""

    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    CLOCK.now = 100.0
    for module in (row_loop, env_stepper):
        monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: CLOCK.now))
    return CLOCK


def actions_of(env: Any, num_rows: int = NUM_ROWS) -> np.ndarray:
    env.action_space.seed(3)
    return np.array([env.action_space.sample() for _ in range(num_rows)])


@pytest.mark.parametrize("backend", quick_or_slow(BACKENDS, DEFAULT))
def test_no_row_is_stepped_after_the_deadline(backend: Backend) -> None:
    """All rows keep their states; with time enough, all are as ever. Ray, with its own clocks, steps all."""
    with backend.open("CartPole-v1") as env:
        states, actions = np.repeat(np.atleast_1d(env.reset(seed=1).state), NUM_ROWS), actions_of(env)
        expected = env.step_batch(actions, states, 3, blocking=True)
        later = time.perf_counter() + 60
        out = env.step_batch(actions, states, 3, deadline=later, blocking=True)
        assert_same(out.infos, expected.infos)
        assert_same(out.rewards, expected.rewards)
        assert same_states(out.new_states, expected.new_states)
        out = env.step_batch(actions, states, 3, deadline=0.0, blocking=True)
        if backend.name == "ray":
            assert_same(out.infos, expected.infos)
            assert same_states(out.new_states, expected.new_states)
            return
        assert (out.infos["num_steps"] == -1).all()
        assert not out.rewards.any()
        assert not (out.terminated | out.truncated).any()
        assert same_states(out.new_states, states)
        rolled = env.rollout_batch(states, 9, deadline=0.0, blocking=True)
        assert (rolled.num_steps == -1).all()
        assert not rolled.returns.any()
        assert same_states(rolled.final_states, states)


def test_the_rows_that_are_left_at_the_deadline_are_one_chunk() -> None:
    """Each would take some time: 2,048 sequences of MsPacman were 18 ms late."""
    with planvec.make("CartPole-v1", num_workers=2, timeout=60.0) as env:
        states, actions = np.repeat(np.atleast_1d(env.reset(seed=1).state), 200), actions_of(env, 200)
        env.step_batch(actions, states)
        before = env.stats.num_chunks
        out = env.step_batch(actions, states, deadline=0.0)
        assert (out.infos["num_steps"] == -1).all()
        assert env.stats.num_chunks == before + 1


def test_rows_that_are_complete_at_the_deadline_count(clock: SimpleNamespace) -> None:
    with PlanEnv(Slow, codec=CACHED) as env:
        states = np.repeat(np.atleast_1d(env.reset(seed=0).state), NUM_ROWS)
        actions = actions_of(env)
        expected = env.step_batch(actions, states)
        out = env.step_batch(actions, states, deadline=clock.now + 12.5e-3)
        done = out.infos["num_steps"] > 0
        assert done.tolist() == [True] * 13 + [False] * (NUM_ROWS - 13)
        for got, wanted in zip(out[:5], expected[:5], strict=True):
            assert np.asarray(got)[done].tolist() == np.asarray(wanted)[done].tolist()
        assert out.infos["place"][done].tolist() == expected.infos["place"][done].tolist()
        assert not out.infos["_place"][~done].any()
        assert same_states(out.new_states[~done], states[~done])


def test_a_row_that_is_under_way_at_the_deadline_is_not_complete(clock: SimpleNamespace) -> None:
    with PlanEnv(Slow, codec=CACHED) as env:
        states = np.repeat(np.atleast_1d(env.reset(seed=0).state), 4)
        out = env.step_batch(np.zeros(4, int), states, 10, deadline=clock.now + 25.5e-3)
        assert out.infos["num_steps"].tolist() == [10, 10, -1, -1]
        rolled = env.rollout_batch(states, 10, action_seed=0, deadline=clock.now + 25.5e-3)
        assert rolled.num_steps.tolist() == [10, 10, -1, -1]
        expected = env.rollout_batch(states, 10, action_seed=0)
        assert rolled.returns.tolist() == [*expected.returns[:2].tolist(), 0.0, 0.0]
        assert same_states(rolled.final_states[2:], states[2:])


def test_late_rows_are_not_audited() -> None:
    with planvec.make("CartPole-v1", num_workers=2, audit=1.0) as env:
        states = np.repeat(np.atleast_1d(env.reset(seed=0).state), NUM_ROWS)
        for _ in range(30):
            env.step_batch(actions_of(env), states, 50, deadline=time.perf_counter() + 1e-3)
        env.step_batch(actions_of(env), states, 50)


def test_failed_rows_before_the_deadline_are_flagged_and_named(clock: SimpleNamespace) -> None:
    class Fails(Slow):
        def step(self, action: Any) -> Any:
            out = super().step(action)
            if self.place > 0:
                raise RuntimeError("too far")
            return out

    with PlanEnv(Fails, codec=CACHED) as env:
        states = np.repeat(np.atleast_1d(env.reset(seed=0).state), 8)
        actions = np.array([0, 0, 0, 2, 0, 0, 0, 0])
        out = env.step_batch(actions, states, on_error="mask", deadline=clock.now + 5.5e-3)
        assert out.infos["_error"].tolist() == [False] * 3 + [True] + [False] * 4
        assert out.infos["num_steps"].tolist() == [1, 1, 1, 0, 1, 1, -1, -1]
        with pytest.raises(planvec.EnvError, match="too far") as raised:
            env.step_batch(actions, states, deadline=clock.now + 5.5e-3)
        assert (raised.value.row, raised.value.action) == (3, 2)


@pytest.mark.parametrize("deadline", ["soon", True, math.nan])
def test_a_deadline_that_is_no_time_is_refused(deadline: Any) -> None:
    with PlanEnv("CartPole-v1") as env:
        for call in (env.step_batch, env.rollout_batch):
            arguments = {"actions": [0]} if call == env.step_batch else {"horizon": 3}
            with pytest.raises(
                InvalidBatchError, match=r"deadline: expected a time of time.perf_counter\(\)"
            ):
                call(**arguments, deadline=deadline)  # type: ignore[operator]


# -- planners ------------------------------------------------------------------------------------

DISCRETE: dict[str, Planner] = {
    "mcts": planvec.MCTS(),
    "priors": planvec.MCTS(selection="puct", prior_fn=lambda seen: np.tile([0.1, 0.9], (len(seen), 1))),
    "open loop": planvec.MCTS(chance="open_loop"),
    "shooting": planvec.RandomShooting(),
    "cem": planvec.CEM(),
    "swarm": planvec.Swarm(),
    "wave": planvec.SwarmWave(),
    "iw": planvec.IW(),
    "rollout iw": planvec.RolloutIW(),
}
CONTINUOUS: dict[str, Planner] = {
    "mcts": planvec.MCTS(),
    "cem": planvec.CEM(),
    "icem": planvec.ICEM(),
    "mppi": planvec.MPPI(),
    "swarm": planvec.Swarm(),
}


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("env_id", "name"),
    [("CartPole-v1", name) for name in DISCRETE] + [("Pendulum-v1", name) for name in CONTINUOUS],
)
def test_a_planner_without_time_takes_an_action_and_goes_on_at_the_next_decision(
    env_id: str, name: str, num_workers: int
) -> None:
    planner = (DISCRETE if env_id == "CartPole-v1" else CONTINUOUS)[name]
    hurried = dataclasses.replace(planner, max_seconds=1e-9)
    with planvec.make(env_id, num_workers=num_workers) as env:
        state, plan = env.reset(seed=0).state, None
        for seed in range(3):
            plan = hurried.plan(env, state, seed=seed, previous=plan)
            assert env.action_space.contains(plan.action)
            assert (plan.num_simulations, plan.stop_reason) == (0, "max_seconds")
        plan = dataclasses.replace(planner, max_env_steps=500).plan(env, state, seed=9, previous=plan)
        assert plan.num_simulations > 0


def test_the_action_with_the_highest_prior_is_taken_without_time() -> None:
    with PlanEnv("CartPole-v1") as env:
        plan = dataclasses.replace(DISCRETE["priors"], max_seconds=1e-9).plan(env, env.reset(seed=0).state)
        assert plan.action == 1


@pytest.mark.parametrize(
    "options", [{"rollout_horizon": 30}, {"rollout_horizon": 0}, {"chance": "open_loop"}]
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_search_that_is_cut_leaves_nothing_in_flight(num_workers: int, options: dict[str, Any]) -> None:
    """Its tree is that of its completed simulations, with which the next decision goes on."""
    with planvec.make("Acrobot-v1", num_workers=num_workers, compiled=False) as env:
        state, plan = env.reset(seed=0).state, None
        planner = planvec.MCTS(max_seconds=0.004, batch_size=6, **options)
        for seed in range(12):
            plan = planner.plan(env, state, seed=seed, previous=plan)
            tree = plan.search_data
            if tree is None:
                continue
            arrays = tree.arrays.used()
            assert not arrays.unobserved.any()
            assert not arrays.edge_unobserved.any()
            assert not arrays.pending.any()
            assert planvec.Tree.from_arrays(tree.to_arrays(), env.action_space).num_nodes == tree.num_nodes
            if not options.get("chance"):
                tried = arrays.first_outcomes >= 0
                np.testing.assert_array_equal(arrays.edge_samples > 0, tried)
        resumed = dataclasses.replace(planner, max_seconds=None, num_simulations=100)
        assert resumed.plan(env, state, seed=0, previous=plan).num_simulations == 100


@pytest.mark.parametrize("legal", ["function", "info"])
def test_the_action_that_is_taken_without_time_is_legal(legal: str) -> None:
    def only_one(seen: np.ndarray) -> np.ndarray:
        return np.tile([False, True], (len(seen), 1))

    legal_actions: Any = only_one if legal == "function" else "mask"
    info = {"mask": np.array([0, 1])}
    planner = planvec.MCTS(max_seconds=1e-9, legal_actions=legal_actions)
    with PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=0).state
        assert {planner.plan(env, state, seed=seed, info=info).action for seed in range(20)} == {1}


def test_several_roots_are_not_cut() -> None:
    """They share the time, of which preparing all of them takes a part."""
    planner = planvec.MCTS(max_seconds=1e-3)
    with PlanEnv("CartPole-v1", compiled=False) as env:
        states = np.repeat(np.atleast_1d(env.reset(seed=0).state), 20)
        plans = planner.plan_batch(env, states)
    assert min(plan.num_simulations for plan in plans) > 0
    assert {plan.stop_reason for plan in plans} == {"max_seconds"}


def test_a_worker_that_hangs_is_blamed_on_the_row_also_with_a_deadline() -> None:
    with planvec.make(Faulty, num_workers=1, timeout=1.0, max_restarts=0) as env:
        states = np.repeat(np.atleast_1d(env.reset(seed=0, options=ARMED).state), 8)
        actions = actions_with("hang")
        with pytest.raises(planvec.WorkerTimeoutError) as raised:
            env.step_batch(actions, states, deadline=time.perf_counter() + 60)
    assert "row 5" in str(raised.value)


def test_a_batch_without_rows_has_no_deadline() -> None:
    with PlanEnv("CartPole-v1") as env:
        states = np.atleast_1d(env.reset(seed=0).state)[:0]
        out = env.step_batch(np.zeros(0, int), states, np.zeros(0, int), deadline=0.0)
    assert len(out.rewards) == 0


def test_an_environment_in_whose_process_somebody_drew_is_not_refused_for_its_deadline(
    clock: SimpleNamespace,
) -> None:
    with PlanEnv(
        DrawsOnce, codec=planvec.Copied(caches=["test_deadlines.CLOCK", "test_deadlines.DRAWN"])
    ) as env:
        states = np.repeat(np.atleast_1d(env.reset(seed=0).state), 4)
        DRAWN[0] = False
        out = env.step_batch(np.zeros(4, int), states, deadline=clock.now + 2.5e-3)
    assert out.infos["num_steps"].tolist() == [1, 1, -1, -1]  # the first row was repeated


def test_a_wave_whose_check_is_cut_goes_on() -> None:
    planner = planvec.SwarmWave(num_walkers=16, num_iterations=30)
    with PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=0).state
        plan = planner.plan(env, state, seed=0)
        after = env.step_batch([plan.action], np.array([state])).new_states[0]
        hurried = dataclasses.replace(planner, max_seconds=1e-9).plan(env, after, seed=1, previous=plan)
    rest = np.repeat(plan.best_actions, plan.best_num_steps)[1:]
    assert hurried.action == rest[0]
    np.testing.assert_array_equal(np.repeat(hurried.best_actions, hurried.best_num_steps), rest)


def test_sequences_that_were_rolled_out_in_time_count(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "time", SimpleNamespace(perf_counter=lambda: CLOCK.now))
    planner = planvec.RandomShooting(num_trajectories=20, horizon=10, max_seconds=0.0655)
    with PlanEnv(Pushed, codec=CACHED) as env:
        state = np.atleast_1d(env.reset(seed=0).state)
        search: Any = planner.begin(env, state, np.random.default_rng(0))
        searching.drive(env, [search], clock.now, None, None, planner.max_seconds)
        plan = search.plan()
        sequences = planner.begin(env, state, np.random.default_rng(0))
        request = next(sequences.simulate())
        assert isinstance(request, planvec.RolloutRequest)
        assert request.actions is not None
        returns = env.rollout_batch(np.repeat(state, 6), 10, actions=request.actions[:6]).returns
    assert (search.num_simulations, search.stop_reason) == (6, "max_seconds")
    assert plan.best_return == returns.max()
    np.testing.assert_array_equal(plan.best_actions, request.actions[returns.argmax()])


@pytest.mark.parametrize(("num_complete", "learns"), [(9, False), (10, True)])
def test_a_distribution_is_fitted_if_half_of_the_sequences_are_complete(
    num_complete: int, learns: bool, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "time", SimpleNamespace(perf_counter=lambda: CLOCK.now))
    seconds = 0.01 * num_complete + 5e-3
    planner = planvec.MPPI(20, 10, dt=1, noise_beta=1.0, max_seconds=seconds)
    with PlanEnv(Pushed, codec=CACHED) as env:
        state = np.atleast_1d(env.reset(seed=0).state)
        search: Any = planner.begin(env, state, np.random.default_rng(0))
        searching.drive(env, [search], clock.now, None, None, seconds)
        assert search.num_simulations == num_complete
        assert bool(search.plan().search_data.mean.any()) == learns


def test_a_stepper_and_a_search_that_know_no_deadlines_are_waited_for() -> None:
    class Forwards:
        def __init__(self, env: PlanEnv) -> None:
            self._env = env

        def __getattr__(self, name: str) -> Any:
            return getattr(self._env, name)

        def step_batch(
            self, actions: Any, states: Any = None, dt: Any = 1, *, seeds: Any = None, blocking: bool
        ) -> Any:
            return self._env.step_batch(actions, states, dt, seeds=seeds, blocking=blocking)

    class Plain:
        """Forwards nothing but what the protocol demands."""

        def __init__(self, env: PlanEnv) -> None:
            self.env = env
            self.observation_space, self.action_space = env.observation_space, env.action_space
            self.state_dtype, self.is_stochastic = env.state_dtype, env.is_stochastic
            self.reset, self.get_state, self.observe = env.reset, env.get_state, env.observe

        def step_batch(
            self, actions: Any, states: Any = None, dt: Any = 1, *, seeds: Any = None, blocking: bool
        ) -> Any:
            return self.env.step_batch(actions, states, dt, seeds=seeds, blocking=blocking)

        def rollout_batch(
            self, states: Any, horizon: Any, actions: Any, action_seed: Any, *, blocking: bool, **rest: Any
        ) -> Any:
            assert "deadline" not in rest
            return self.env.rollout_batch(
                states, horizon, actions=actions, action_seed=action_seed, blocking=blocking, **rest
            )

    with PlanEnv("CartPole-v1") as env:
        stepper: Any = Plain(env)
        forwards: Any = Forwards(env)
        for one in (stepper, forwards):
            planner = planvec.MCTS(max_seconds=1e-9, rollout_horizon=0)
            assert planner.plan(one, env.reset(seed=0).state).num_simulations > 0


def test_a_decision_that_was_late_lets_the_next_search_end_earlier() -> None:
    planner = planvec.MCTS(max_seconds=0.02)
    with PlanEnv("CartPole-v1", compiled=False) as env:
        state = env.reset(seed=0).state
        reserves = []
        for seed in range(6):
            late = planner.plan(env, state, seed=seed).elapsed - 0.02
            gain = 0.3 if late > 0 else 0.05
            expected = (reserves[-1] if reserves else 0.0) + gain * min(late, 2e-3)
            reserves.append(planner._reserve)
            assert reserves[-1] == pytest.approx(min(max(expected, 0.0), 0.005))
        assert dataclasses.replace(planner, batch_size=8)._reserve == 0.0
    assert planvec.MCTS(max_seconds=0.02) == planner
