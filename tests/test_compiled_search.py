"""Tree search in a compiled loop finds the plan that the search in Python finds, bit for bit."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same, same_plans

import planvec
from planvec import MCTS, InvalidBatchError, Plan, PlanEnv
from planvec.planners.mcts import compiled as compiled_search
from planvec.planners.mcts.compiled import SearchRun
from planvec.stepping.row_loop import RowLoop

SLIPPERY = "FrozenLake8x8-v1"


def values(observations: np.ndarray) -> np.ndarray:
    """Numbers with many digits that differ between observations."""
    flat = observations.reshape(len(observations), -1)
    return np.sin(flat @ np.arange(1.0, flat.shape[1] + 1.0))


def priors_of(num_actions: int) -> Callable[[np.ndarray], np.ndarray]:
    """A function that gives other priors for each observation, not scaled to a sum of 1."""
    return lambda observations: 1.5 + np.sin(np.outer(values(observations), np.arange(1.0, num_actions + 1)))


def evaluate_for(num_actions: int) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """A function that gives values and priors, in the dtype of networks."""
    priors = priors_of(num_actions)
    return lambda seen: (values(seen).astype(np.float32), priors(seen).astype(np.float32))


def shown(options: dict[str, Any]) -> str:
    """The options in words that are the same in every process."""
    return str({key: key if callable(value) else value for key, value in options.items()})


PUCT = {"selection": "puct", "evaluate_fn": evaluate_for(2)}


class Driven(PlanEnv):
    """Searches on it run through the driver: planvec cannot know what a subclass does in `step_batch`."""

    def step_batch(self, *args: Any, **options: Any) -> Any:
        return super().step_batch(*args, **options)


def record(has_kernel: bool, monkeypatch: pytest.MonkeyPatch) -> list[SearchRun]:
    """Return a list to which the runs with a kernel are added, or those without."""
    made: list[SearchRun] = []
    load = SearchRun.load

    def loaded(self: SearchRun) -> None:
        if (self._use is not None) == has_kernel:
            made.append(self)
        load(self)

    monkeypatch.setattr(SearchRun, "load", loaded)
    return made


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[SearchRun]:
    """The searches that were run in a compiled loop with a kernel."""
    return record(True, monkeypatch)


@pytest.fixture
def row_runs(monkeypatch: pytest.MonkeyPatch) -> list[SearchRun]:
    """The searches that were run without a driver, but also without a kernel."""
    return record(False, monkeypatch)


def both(env_id: str, **options: Any) -> tuple[PlanEnv, PlanEnv]:
    """The same environment, with searches through the driver, and with those in a compiled loop."""
    plain = Driven(lambda: gymnasium.make(env_id, **options), compiled=False)
    return plain, PlanEnv(lambda: gymnasium.make(env_id, **options), compiled=True)


def check_equal_plans(
    env_id: str, config: MCTS, runs: list[SearchRun], seeds: range = range(2), **options: Any
) -> None:
    """Check that a search finds the same plan and the same tree with and without the driver and a kernel."""
    plain, fast = both(env_id, **options)
    rows = PlanEnv(lambda: gymnasium.make(env_id, **options), compiled=False)
    with plain, fast, rows:
        state = plain.reset(seed=1).state
        for seed in seeds:
            expected = config.plan(plain, state, seed=seed)
            check_same_plan(expected, config.plan(rows, state, seed=seed))
            assert len(runs) == seed - seeds[0]
            got = config.plan(fast, state, seed=seed)
            assert len(runs) == seed - seeds[0] + 1
            check_same_plan(expected, got)


def check_same_plan(expected: Plan, got: Plan) -> None:
    """Check that all but the time of two plans is the same, the trees included."""
    assert same_plans(expected, got)
    for name in ("num_simulations", "num_env_steps", "stop_reason", "best_return", "value"):
        assert getattr(expected, name) == getattr(got, name), name
    first, second = expected.search_data, got.search_data
    num_nodes, num_outcomes = first.arrays.counters[:2]
    for name, array in first.arrays.named().items():
        other = getattr(second.arrays, name)
        rows = len(array)
        if array.shape == (1, 1):
            continue  # without priors or masks
        if rows == len(first.arrays.visits):
            rows = num_outcomes if "outcome" in name and name != "first_outcomes" else num_nodes
        np.testing.assert_array_equal(array[:rows], other[:rows], err_msg=name)
    if first.states is not None:
        assert first.states[:num_nodes].tobytes() == second.states[:num_nodes].tobytes()


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {"rollout_horizon": 0}),
    ("CartPole-v1", {"batch_size": 1}),
    ("CartPole-v1", {"batch_size": 5, "discount": 0.95, "value_scale": "node"}),
    ("CartPole-v1", {"rollout_horizon": 0, "dt": 4, "discount": 0.9}),
    ("CartPole-v1", {"selection": "puct", "root_noise": (0.3, 0.25), "max_depth": 3}),
    ("Acrobot-v1", {"rollout_horizon": 20, "widening": (1.5, 0.4)}),
    ("MountainCar-v0", {"transpositions": True, "rollout_horizon": 7}),
    ("FrozenLake-v1", {"chance": "foresee", "transpositions": True, "rollout_horizon": 0}),
    ("FrozenLake-v1", {"backup": "max", "outcome_widening": (1.0, 1.0), "value_scale": 1.0}),
    (SLIPPERY, {}),
    (SLIPPERY, {"batch_size": 1, "max_depth": 6}),
    (SLIPPERY, {"chance": "open_loop"}),
    (SLIPPERY, {"chance": "open_loop", "rollout_horizon": 0, "batch_size": 1}),
    (SLIPPERY, {"chance": "foresee", "rollout_horizon": 10}),
    (SLIPPERY, {"transpositions": True, "rollout_horizon": 0, "discount": 0.99}),
    (SLIPPERY, {"transpositions": True, "backup": "max", "selection": "puct"}),
    ("CliffWalking-v1", {"transpositions": True, "rollout_horizon": 30}),
    ("Taxi-v4", {"transpositions": True, "rollout_horizon": 0, "max_depth": 40}),
    ("Taxi-v4", {"batch_size": 64, "rollout_horizon": 5}),
    ("CartPole-v1", PUCT),
    ("CartPole-v1", {**PUCT, "batch_size": 1, "discount": 0.9}),
    ("CartPole-v1", {**PUCT, "batch_size": 5, "dt": 3, "root_noise": (0.3, 0.25)}),
    ("CartPole-v1", {**PUCT, "root_selection": "gumbel", "transpositions": True}),
    ("CartPole-v1", {"selection": "puct", "prior_fn": priors_of(2)}),
    ("CartPole-v1", {"value_fn": values, "max_depth": 4}),
    (SLIPPERY, {"value_fn": values, "selection": "puct", "value_bounds": (-9.0, 9.0)}),
    (SLIPPERY, {"prior_fn": priors_of(4), "selection": "puct", "rollout_horizon": 4}),
    (SLIPPERY, {"evaluate_fn": evaluate_for(4), "selection": "puct", "transpositions": True}),
    ("Taxi-v4", {"evaluate_fn": evaluate_for(6), "selection": "puct", "transpositions": True}),
    ("Blackjack-v1", {}),
    ("Blackjack-v1", {"chance": "open_loop", "transpositions": False, "batch_size": 2}),
]


SLOW = ("Acrobot-v1", "MountainCar-v0", "FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1")
"""Their loops take seconds to compile."""


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        pytest.param(name, o, id=f"{name} {shown(o)}", marks=[pytest.mark.slow] * (name in SLOW or "dt" in o))
        for name, o in OPTIONS
    ],
)
def test_the_plan_and_the_tree_are_those_of_the_search_in_python(
    env_id: str, options: dict[str, Any], runs: list[SearchRun]
) -> None:
    check_equal_plans(env_id, MCTS(num_simulations=700, **options), runs)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_simulations": None, "max_env_steps": 333}, "max_env_steps"),
        ({"num_simulations": None, "max_env_steps": 10_000, "rollout_horizon": 3}, "max_env_steps"),
        ({"num_simulations": 50, "max_env_steps": 10_000}, "num_simulations"),
        (
            {"num_simulations": None, "max_seconds": 60, "max_memory": 120_000, "rollout_horizon": 0},
            "max_memory",
        ),
        (
            {"num_simulations": None, "max_seconds": 60, "max_depth": 3, "rollout_horizon": 0},
            "exhausted",
        ),
    ],
)
def test_budgets_end_the_search_at_the_same_simulation(
    options: dict[str, Any], reason: str, runs: list[SearchRun]
) -> None:
    plain, fast = both("CartPole-v1")
    with plain, fast:
        state = plain.reset(seed=1).state
        expected, got = (MCTS(**options).plan(env, state, seed=3) for env in (plain, fast))
    assert len(runs) == 1
    assert got.stop_reason == reason
    check_same_plan(expected, got)


def test_seconds_end_the_search(runs: list[SearchRun]) -> None:
    config = MCTS(num_simulations=None, max_seconds=0.05, rollout_horizon=0)
    with PlanEnv("CartPole-v1", compiled=True) as env:
        config.plan(env, env.reset(seed=0).state, seed=0)  # loads the loop
        plan = config.plan(env, env.reset(seed=0).state, seed=0)
    assert plan.stop_reason == "max_seconds"
    assert plan.num_simulations == plan.search_data.arrays.visits[0]
    assert not plan.search_data.arrays.unobserved[: plan.search_data.num_nodes].any()
    assert len(runs) == 2


@pytest.mark.parametrize("compiled", [False, True])
def test_seconds_are_shared_by_all_roots(compiled: bool) -> None:
    """No root waits for the end of the others, of which there are more than threads."""
    config = MCTS(num_simulations=None, max_seconds=0.3, rollout_horizon=0, max_memory=10**8)
    with PlanEnv("CartPole-v1", compiled=compiled) as env:
        states = np.repeat(env.reset(seed=0).state, 6)
        config.plan(env, states[0], seed=0)  # loads the loop
        plans = config.plan_batch(env, states, seeds=range(6))
    counts = [plan.num_simulations for plan in plans]
    assert min(counts) > max(counts) / 10
    assert all(plan.stop_reason == "max_seconds" for plan in plans)


@pytest.mark.parametrize("env_id", ["CartPole-v1", SLIPPERY])
def test_searches_in_this_process_need_no_driver(
    env_id: str, row_runs: list[SearchRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A callback sees the same numbers, rows are counted and audited, and errors are told."""
    plans, calls = [], []
    driven = Driven(env_id, compiled=False)
    rows = planvec.make(env_id, num_workers=0, compiled=False, audit=1.0)
    for env in (driven, rows):
        seen: list[tuple[int, int]] = []

        def callback(*numbers: int, seen: list[Any] = seen) -> bool:
            seen.append(numbers)
            return numbers[0] > 500

        with env:
            state = env.reset(seed=1).state
            plans.append(MCTS(num_simulations=1000).plan(env, state, seed=0, callback=callback))
        calls.append(seen)
    assert calls[0] == calls[1]
    assert len(row_runs) == 1
    check_same_plan(*plans)
    assert rows.stats.num_rows >= plans[1].num_simulations
    assert rows.stats.num_chunks > 0
    assert rows.stats.audited_rows > 0


def test_searches_without_driver_use_a_kernel_that_is_there(
    row_runs: list[SearchRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("the environment has stepped itself")

    with PlanEnv(SLIPPERY) as env:
        env.stepper.kernel.load()
        monkeypatch.setattr(RowLoop, "step", never)
        monkeypatch.setattr(RowLoop, "rollout", never)
        MCTS(num_simulations=100).plan(env, env.reset(seed=0).state, seed=0)
    assert len(row_runs) == 1


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("how", ["forwards", "replaced"])
def test_batches_that_do_more_are_not_passed_over(how: str, compiled: bool) -> None:
    calls = []

    class Forwards:
        def __init__(self, env: PlanEnv) -> None:
            self._env = env

        def __getattr__(self, name: str) -> Any:
            return getattr(self._env, name)

        def step_batch(self, *args: Any, **options: Any) -> Any:
            calls.append(1)
            return self._env.step_batch(*args, **options)

    with PlanEnv("CartPole-v1", compiled=compiled) as env:
        stepper: Any = Forwards(env) if how == "forwards" else env
        if how == "replaced":
            inner = env.step_batch
            stepper.step_batch = lambda *args, **options: (calls.append(1), inner(*args, **options))[1]
        MCTS(num_simulations=40, rollout_horizon=0).plan(stepper, env.reset(seed=0).state, seed=0)
    assert len(calls) >= 5


def test_an_error_of_the_environment_ends_a_search_without_driver(row_runs: list[SearchRun]) -> None:
    with PlanEnv("CartPole-v1", compiled=False) as env:
        state = env.reset(seed=0).state
        base: Any = env.env.unwrapped
        base.length = 0.0
        with pytest.raises(planvec.EnvError, match="divide by zero"):
            MCTS(num_simulations=400, rollout_horizon=0).plan(env, state, seed=0)
        base.length = 0.5
        assert MCTS(num_simulations=4, rollout_horizon=0).plan(env, state, seed=0).num_simulations == 4
    assert len(row_runs) == 2
    with pytest.raises(planvec.ClosedError):
        MCTS(num_simulations=4).plan(env, state)


def test_a_fault_of_the_loop_without_kernel_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> int:
        raise RuntimeError("a fault")

    monkeypatch.setattr(compiled_search, "load_loop", lambda *_: fails)
    with PlanEnv("CartPole-v1", compiled=False) as env, pytest.raises(RuntimeError, match="a fault"):
        MCTS(num_simulations=400, rollout_horizon=0).plan(env, env.reset(seed=0).state, seed=0)


@pytest.mark.parametrize("compiled", [False, True])
def test_states_of_another_environment_are_refused(compiled: bool) -> None:
    """No batch looks at the states of such searches."""
    with (
        PlanEnv("CartPole-v1", compiled=compiled) as env,
        PlanEnv("MountainCar-v0") as other,
        pytest.raises(InvalidBatchError, match="states: expected dtype"),
    ):
        MCTS(num_simulations=50).plan(env, other.reset(seed=0).state, seed=0)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_tree_with_other_actions_is_refused(compiled: bool) -> None:
    planner = MCTS(num_simulations=50)
    with PlanEnv(SLIPPERY, compiled=compiled) as env:
        tree = planner.plan(env, env.reset(seed=0).state, seed=0).search_data
        for actions in (tree.actions + 1, tree.actions.astype(np.int32)):
            with pytest.raises(InvalidBatchError, match="tree: expected the 4 actions of Discrete"):
                planner.resume(env, dataclasses.replace(tree, actions=actions), seed=0)
        planner.resume(env, tree, seed=0)


def test_a_callback_gets_the_same_numbers_and_stops_the_search_at_the_same_one(
    runs: list[SearchRun],
) -> None:
    plain, fast = both(SLIPPERY)
    calls: dict[PlanEnv, list[tuple[int, int]]] = {plain: [], fast: []}

    def plan(env: PlanEnv) -> Plan:
        def callback(num_simulations: int, num_env_steps: int) -> bool:
            calls[env].append((num_simulations, num_env_steps))
            return num_simulations > 200

        return MCTS(num_simulations=1000).plan(env, env.reset(seed=1).state, seed=0, callback=callback)

    with plain, fast:
        expected, got = plan(plain), plan(fast)
    assert len(runs) == 1
    assert calls[plain] == calls[fast]
    assert got.stop_reason == "callback"
    check_same_plan(expected, got)


def test_several_roots_on_threads_give_the_plans_that_each_gives_alone(runs: list[SearchRun]) -> None:
    config = MCTS(num_simulations=400)
    plain, fast = both(SLIPPERY)
    with plain, fast:
        states = np.array([plain.reset(seed=seed).state for seed in range(5)])
        expected = config.plan_batch(plain, states, seeds=range(5))
        got = config.plan_batch(fast, states, seeds=range(5))
    assert len(runs) == 5
    for first, second in zip(expected, got, strict=True):
        check_same_plan(first, second)


@pytest.mark.parametrize("env_id", ["CartPole-v1", SLIPPERY])
@pytest.mark.parametrize("options", [{}, {"transpositions": True, "rollout_horizon": 0}])
def test_an_episode_that_reuses_its_trees_is_the_same(
    env_id: str, options: dict[str, Any], runs: list[SearchRun]
) -> None:
    plain, fast = both(env_id)
    config = MCTS(num_simulations=150, **options)
    with plain, fast:
        expected = planvec.run_episode(plain, config, seed=0, max_steps=12)
        got = planvec.run_episode(fast, config, seed=0, max_steps=12)
    assert len(runs) == len(expected.actions) == len(got.actions)
    for name in ("actions", "rewards", "num_env_steps"):
        assert_same(getattr(got, name), getattr(expected, name))


def test_a_search_goes_on_with_a_tree_of_the_other_kind(runs: list[SearchRun]) -> None:
    config = MCTS(num_simulations=300, transpositions=True)
    plain, fast = both(SLIPPERY)
    with plain, fast:
        state = plain.reset(seed=1).state
        trees = [config.plan(env, state, seed=0).search_data for env in (plain, fast)]
        expected = config.resume(plain, trees[1], seed=5)
        got = config.resume(fast, trees[0], seed=5)
    assert len(runs) == 2
    check_same_plan(expected, got)


def test_the_generator_is_left_where_the_search_in_python_leaves_it() -> None:
    plain, fast = both(SLIPPERY)
    config, states = MCTS(num_simulations=100), []
    with plain, fast:
        root = np.atleast_1d(plain.reset(seed=0).state)
        for env in (plain, fast):
            generator = np.random.default_rng(3)
            search = config.begin(env, root, generator)
            config._run(env, [search], 0.0, None)
            states.append(generator.bit_generator.state)
    assert states[0] == states[1]


def test_states_that_the_kernel_refuses_are_stepped_by_the_environment(runs: list[SearchRun]) -> None:
    """A cart far outside is stepped by the environment: its kernel is written for states of episodes."""
    plain, fast = both("CartPole-v1")
    with plain, fast:
        state = plain.reset(seed=1).state
        state["physics"][2] = 2e6  # the kernel takes angles up to a million
        config = MCTS(num_simulations=40, rollout_horizon=2)
        expected, got = (config.plan(env, state, seed=0) for env in (plain, fast))
    assert len(runs) == 1
    check_same_plan(expected, got)


@pytest.mark.slow
def test_rollouts_that_the_kernel_refuses_are_made_by_the_environment(runs: list[SearchRun]) -> None:
    """Kernels leave rows of more than a million steps to the environment, which Ctrl-C can interrupt."""
    config = MCTS(num_simulations=6, rollout_horizon=1_000_001, batch_size=2)
    check_equal_plans("CliffWalking-v1", config, runs, range(1))


def test_an_ended_state_is_refused() -> None:
    with PlanEnv("CartPole-v1", compiled=True) as env:
        state = env.reset(seed=0).state
        state["terminated"] = True
        with pytest.raises(InvalidBatchError, match="one that has ended"):
            MCTS(num_simulations=8).plan(env, state)


def test_rows_count_in_the_stats_and_are_audited() -> None:
    with planvec.make("CartPole-v1", num_workers=0, compiled=True, audit=1.0) as env:
        state = env.reset(seed=0).state
        plan = MCTS(num_simulations=20_000, rollout_horizon=0).plan(env, state, seed=0)
        assert env.stats.num_rows == plan.num_env_steps
        assert env.stats.num_chunks > 0
        assert env.stats.audited_rows > 0


def test_an_environment_that_is_changed_by_a_callback_is_told() -> None:
    env = PlanEnv("CartPole-v1", compiled=True)

    def change(num_simulations: int, num_env_steps: int) -> None:
        del env.env.unwrapped.gravity  # type: ignore[attr-defined]

    with env, pytest.raises(planvec.PlanvecError, match="does not change during a search"):
        MCTS(num_simulations=100).plan(env, env.reset(seed=0).state, callback=change)


def test_attributes_that_were_changed_before_count(runs: list[SearchRun]) -> None:
    plain, fast = both("CartPole-v1")
    with plain, fast:
        state = plain.reset(seed=1).state
        for env in (plain, fast):
            env.env.unwrapped.gravity = 20.0  # type: ignore[attr-defined]
        expected, got = (MCTS(num_simulations=200).plan(env, state, seed=0) for env in (plain, fast))
    assert len(runs) == 1
    check_same_plan(expected, got)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [
        (SLIPPERY, {"value_fn": values, "chance": "open_loop"}),
        ("CartPole-v1", {"value_fn": values, "legal_actions": lambda seen: np.ones((len(seen), 2), bool)}),
        ("CartPole-v1", {"rollout_policy": lambda observations: np.zeros(len(observations), int)}),
        ("CartPole-v1", {"dt": 2}),  # its rollouts repeat actions that NumPy draws
        ("CartPole-v1", {"transpositions": lambda states: np.arange(len(states))}),
        ("Pendulum-v1", {}),  # its actions are drawn
    ],
)
def test_searches_that_need_python_run_in_python(
    env_id: str, options: dict[str, Any], runs: list[SearchRun]
) -> None:
    plain, fast = both(env_id)
    with plain, fast:
        state = plain.reset(seed=1).state
        config = MCTS(num_simulations=60, **options)
        expected, got = (config.plan(env, state, seed=0) for env in (plain, fast))
    assert not runs
    check_same_plan(expected, got)


def test_the_loop_is_loaded_when_searches_have_taken_a_second(
    runs: list[SearchRun], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_search, "_SECONDS_TO_LOAD", 0.1)
    config = MCTS(num_simulations=1000, rollout_horizon=0)
    with PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=0).state
        env.step_batch(np.zeros(400_000, int), np.repeat(state, 400_000))  # loads the kernel
        plans = [config.plan(env, state, seed=0) for _ in range(7)]
    assert len(runs) == 3
    for plan in plans:
        check_same_plan(plans[0], plan)


def test_a_batch_env_in_this_process_runs_it_and_workers_do_not(runs: list[SearchRun]) -> None:
    config = MCTS(num_simulations=100)
    plans = []
    for num_workers in (0, 1):
        with planvec.make("CartPole-v1", num_workers=num_workers, compiled=True) as env:
            plans.append(config.plan(env, env.reset(seed=0).state, seed=0))
            assert len(runs) == 1
    check_same_plan(*plans)


def test_ctrl_c_ends_the_searches_of_all_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    bind, calls = SearchRun.bind, itertools.count()

    def bound(self: SearchRun) -> None:
        if next(calls) == 20:
            raise KeyboardInterrupt
        bind(self)

    monkeypatch.setattr(SearchRun, "bind", bound)
    with PlanEnv("CartPole-v1", compiled=True) as env:
        states = np.repeat(env.reset(seed=0).state, 4)
        with pytest.raises(KeyboardInterrupt):
            MCTS(max_seconds=60, num_simulations=None, max_memory=10**8).plan_batch(env, states)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("batch_size", [1, 5, 16])
def test_functions_get_the_batches_that_the_search_in_python_gives_them(
    batch_size: int, compiled: bool
) -> None:
    """A network may give a row other bits in a batch of another size."""
    calls: list[list[np.ndarray]] = []

    def evaluate(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls[-1].append(seen.copy())
        return evaluate_for(2)(seen)

    config = MCTS(num_simulations=150, selection="puct", evaluate_fn=evaluate, batch_size=batch_size)
    for env in (Driven("CartPole-v1", compiled=False), PlanEnv("CartPole-v1", compiled=compiled)):
        with env:
            calls.append([])
            config.plan(env, env.reset(seed=3).state, seed=0)
    expected, got = calls
    assert len(expected) == len(got) > 150 // batch_size
    for first, second in zip(expected, got, strict=True):
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("compiled", [False, True])
def test_observations_that_a_function_keeps_are_not_overwritten(compiled: bool) -> None:
    kept, copies = [], []

    def evaluate(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kept.append(seen[-1:, :2])
        copies.append(seen[-1:, :2].copy())
        return evaluate_for(2)(seen)

    with PlanEnv("CartPole-v1", compiled=compiled) as env:
        config = MCTS(num_simulations=200, selection="puct", evaluate_fn=evaluate)
        config.plan(env, env.reset(seed=3).state, seed=0)
    assert len(kept) > 10
    np.testing.assert_array_equal(kept, copies)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_functions_evaluate_the_nodes_of_all_roots_in_one_call(num_workers: int) -> None:
    sizes: list[int] = []

    def evaluate(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(len(seen))
        return evaluate_for(2)(seen)

    config = MCTS(num_simulations=60, selection="puct", evaluate_fn=evaluate, batch_size=4)
    with planvec.make("CartPole-v1", num_workers=num_workers, compiled=False) as env:
        states = np.array([env.reset(seed=seed).state for seed in range(7)])
        together = config.plan_batch(env, states, seeds=range(7))
        num_calls, largest = len(sizes), max(sizes)
        alone = [config.plan(env, state, seed=seed) for seed, state in enumerate(states)]
    assert sizes[0] == 7  # the roots
    assert largest == 7 * 2  # half of the simulations in flight of each root
    assert num_calls < 60
    for first, second in zip(together, alone, strict=True):
        check_same_plan(first, second)


WRONG: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "nan": (lambda seen: (np.full(len(seen), np.nan), np.ones((len(seen), 2))), "values: .* NaN at"),
    "negative": (lambda seen: (values(seen), -np.ones((len(seen), 2))), "priors: .* at least 0"),
    "infinite": (lambda seen: (values(seen), np.full((len(seen), 2), np.inf)), "priors: .* finite"),
    "zeros": (lambda seen: (values(seen), np.zeros((len(seen), 2))), "priors: .* a row of zeros"),
    "shape": (lambda seen: (values(seen), np.ones((len(seen), 3))), "priors: .* of shape"),
    "rows": (lambda seen: (np.zeros(len(seen) + 1), np.ones((len(seen), 2))), "values: .* of shape"),
}


@pytest.mark.parametrize("compiled", [None, False, True])
@pytest.mark.parametrize("name", WRONG)
def test_what_a_function_gives_wrongly_is_told(name: str, compiled: bool | None) -> None:
    wrong, message = WRONG[name]
    calls = itertools.count()

    def evaluate(seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return wrong(seen) if next(calls) == 5 else evaluate_for(2)(seen)

    config = MCTS(num_simulations=60, selection="puct", evaluate_fn=evaluate, batch_size=4)
    env = Driven("CartPole-v1") if compiled is None else PlanEnv("CartPole-v1", compiled=compiled)
    with env, pytest.raises(InvalidBatchError, match=f"evaluate_fn, {message}"):
        config.plan(env, env.reset(seed=3).state, seed=0)


@pytest.mark.parametrize("num_actions", [1, 7, 8, 15, 18, 100, 128])
def test_priors_are_scaled_as_numpy_scales_them(num_actions: int) -> None:
    """NumPy, which scales those of the root, adds 8 and more numbers in another order than one by one."""

    class Many(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Discrete(5)
        action_space = gymnasium.spaces.Discrete(num_actions)
        cell = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
            super().reset(seed=seed)
            self.cell = 0
            return 0, {}

        def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
            self.cell = (self.cell + 1) % 5
            return self.cell, 0.0, False, False, {}

    priors = np.random.default_rng(0).random((5, num_actions))
    config = MCTS(num_simulations=6, selection="puct", prior_fn=lambda seen: priors[seen], rollout_horizon=0)
    with PlanEnv(Many) as env:
        tree = config.plan(env, env.reset(seed=0).state, seed=0).search_data
        cells = env.observe(tree.states[: tree.num_nodes])
    scaled = priors / priors.sum(axis=1, keepdims=True)
    np.testing.assert_array_equal(tree.arrays.priors[: tree.num_nodes], scaled[cells])


@pytest.mark.parametrize("compiled", [False, True])
def test_seconds_end_a_search_whose_function_is_slow(compiled: bool, runs: list[SearchRun]) -> None:
    def slow(seen: np.ndarray) -> np.ndarray:
        time.sleep(0.01)
        return values(seen)

    with PlanEnv("CartPole-v1", compiled=compiled) as env:
        config = MCTS(value_fn=slow, max_seconds=0.1)
        plan = config.plan(env, env.reset(seed=0).state, seed=0)
    assert plan.stop_reason == "max_seconds"
    assert plan.num_simulations <= 12 * 8
    assert len(runs) == compiled


def test_a_callback_sees_a_search_with_functions_as_the_driver_shows_it(runs: list[SearchRun]) -> None:
    plain, fast = both("CartPole-v1")
    config, plans, calls = MCTS(num_simulations=400, **PUCT), [], []
    for env in (plain, fast):
        seen: list[tuple[int, int]] = []

        def callback(*numbers: int, seen: list[Any] = seen) -> bool:
            seen.append(numbers)
            return numbers[0] > 100

        with env:
            state = env.reset(seed=1).state
            plans.append(config.plan(env, state, seed=0, callback=callback))
        calls.append(seen)
    assert len(runs) == 1
    assert calls[0] == calls[1]
    assert plans[1].stop_reason == "callback"
    check_same_plan(*plans)
