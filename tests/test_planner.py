"""The base class of all planners: the loop that runs searches, budgets, several roots, errors."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from marks import needs_box2d
from older_gymnasium import since

import planvec
from planvec.planners import PLANNERS

SMALL_OPTIONS: dict[str, dict[str, Any]] = {
    "mcts": {"num_simulations": 40, "rollout_horizon": 5},
    "swarm": {"num_walkers": 8, "num_iterations": 5},
    "swarm-wave": {"num_walkers": 8, "num_iterations": 5},
    "random-shooting": {"num_trajectories": 8, "horizon": 5},
    "cem": {"num_trajectories": 8, "num_elites": 3, "horizon": 5},
    "icem": {"num_trajectories": 8, "num_elites": 3, "horizon": 5},
    "mppi": {"num_trajectories": 8, "horizon": 5},
}
every_planner = pytest.mark.parametrize(
    "planner",
    [planner(**SMALL_OPTIONS.get(name, {})) for name, planner in PLANNERS.items()],
    ids=PLANNERS.keys(),
)


class GreedySearch(planvec.Search):
    def __init__(self, env: Any, state: Any) -> None:
        self.actions = np.arange(env.action_space.n)
        self.state = state

    def simulate(self) -> Any:
        self.out = yield planvec.StepRequest(self.actions, np.repeat(self.state, len(self.actions)))
        self.num_simulations += len(self.actions)
        self.stop_reason = "num_simulations"

    def plan(self) -> planvec.Plan:
        best = int(self.out.rewards.argmax())
        return planvec.Plan(action=self.actions[best], value=float(self.out.rewards[best]))


class Greedy(planvec.Planner):
    """Tries every action once."""

    def begin(
        self, env: Any, state: Any, generator: Any, *, previous: Any = None, info: Any = None
    ) -> planvec.Search:
        return GreedySearch(env, state)


def test_a_planner_of_ones_own_is_a_begin_a_simulate_and_a_plan() -> None:
    with planvec.PlanEnv("CliffWalking-v1") as env:
        plan = Greedy().plan(env, env.reset(seed=0).state)
        assert plan.action != 1  # into the cliff
        assert plan.num_env_steps == plan.num_simulations == 4
        assert plan.stop_reason == "num_simulations"
        assert plan.elapsed > 0
        assert planvec.run_episode(env, Greedy(), seed=0, max_steps=3).num_env_steps == 12


class StepsAtOnce(GreedySearch):
    def simulate(self) -> Any:
        return planvec.StepRequest(self.actions, np.repeat(self.state, len(self.actions)))


class YieldsActions(GreedySearch):
    def simulate(self) -> Any:
        yield self.actions


class YieldsActionsLater(GreedySearch):
    def simulate(self) -> Any:
        yield planvec.StepRequest(self.actions, np.repeat(self.state, len(self.actions)))
        yield self.actions


class ReturnsAnAction(GreedySearch):
    def plan(self) -> Any:
        return 0


@pytest.mark.parametrize(
    ("search", "message"),
    [
        (StepsAtOnce, "StepsAtOnce.simulate: expected a generator, got StepRequest"),
        (YieldsActions, "YieldsActions.simulate: expected it to yield StepRequests.*got ndarray"),
        (YieldsActionsLater, "YieldsActionsLater.simulate: expected it to yield StepRequests.*got ndarray"),
        (ReturnsAnAction, "ReturnsAnAction.plan: expected a planvec.Plan, got int"),
    ],
)
def test_a_mistake_in_a_search_of_ones_own_is_named(search: type[planvec.Search], message: str) -> None:
    class Mistaken(planvec.Planner):
        def begin(self, env: Any, state: Any, generator: Any, **options: Any) -> planvec.Search:
            return search(env, state)  # type: ignore[call-arg]

    with (
        planvec.PlanEnv("CliffWalking-v1") as env,
        pytest.raises(TypeError, match=message),
    ):
        Mistaken().plan(env, env.reset(seed=0).state)


def test_the_documentation_shows_a_planner_of_ones_own_in_25_lines() -> None:
    page = (Path(__file__).parent.parent / "docs" / "your-own.md").read_text()
    (block,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "planvec.Search" in block
    )
    assert len(block.splitlines()) <= 25
    assert set(re.findall(r"planvec\.(\w+)", block)) <= set(planvec.__all__)


def test_several_roots_of_a_planner_of_ones_own_share_a_batch() -> None:
    with planvec.PlanEnv("CliffWalking-v1") as env:
        states = np.repeat(env.reset(seed=0).state, 2)
        assert [plan.num_env_steps for plan in Greedy().plan_batch(env, states)] == [4, 4]


def test_the_optional_fields_of_a_plan_are_empty_or_unknown() -> None:
    plan = planvec.Plan(action=1, value=2.0)
    assert (len(plan.root_actions), len(plan.best_actions), plan.search_data) == (0, 0, None)
    assert np.isnan(plan.best_return)
    assert (plan.num_simulations, plan.stop_reason) == (0, None)


def test_a_search_without_further_requests_is_exhausted() -> None:
    class Once(GreedySearch):
        def simulate(self) -> Any:
            if not self.num_simulations:
                yield from super().simulate()
                self.stop_reason = None

    class OncePlanner(Greedy):
        def begin(self, env: Any, state: Any, *_: Any, **__: Any) -> planvec.Search:
            return Once(env, state)

    with planvec.PlanEnv("CliffWalking-v1") as env:
        assert OncePlanner().plan(env, env.reset(seed=0).state).stop_reason == "exhausted"


def test_a_request_takes_one_step_per_action_by_default() -> None:
    request = planvec.StepRequest(np.zeros(2, int), np.zeros(2))
    assert (request.dt, request.seeds) == (1, None)
    rollout = planvec.RolloutRequest(np.zeros(2), 5)
    assert (rollout.action_seed, rollout.discount) == (None, 1.0)


def env_for(planner: planvec.Planner) -> str:
    """Return an environment whose actions the planner supports."""
    return "Acrobot-v1" if isinstance(planner, (planvec.IW, planvec.RolloutIW)) else "Pendulum-v1"


@every_planner
def test_every_planner_gives_the_same_plan_with_any_number_of_workers(planner: planvec.Planner) -> None:
    plans = []
    for num_workers in (0, 2):
        with planvec.make(env_for(planner), num_workers=num_workers) as env:
            states = np.array([env.reset(seed=seed).state for seed in (0, 1)])
            plans.append(
                [planner.plan(env, states[0], seed=7), *planner.plan_batch(env, states, seeds=[7, 8])]
            )
    for one, other in zip(*plans, strict=True):
        for name in ("action", "value", "root_actions", "visit_counts", "action_values", "best_actions"):
            assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name
        assert (one.num_env_steps, one.best_return) == (other.num_env_steps, other.best_return)
    assert np.array_equal(plans[0][0].action_values, plans[0][1].action_values, equal_nan=True)


@every_planner
def test_every_planner_plays_an_episode(planner: planvec.Planner) -> None:
    with planvec.PlanEnv(env_for(planner)) as env:
        episodes = [planvec.run_episode(env, planner, seed=3, max_steps=4) for _ in range(2)]
    assert episodes[0].num_steps == 4
    assert np.array_equal(episodes[0].actions, episodes[1].actions)


def test_a_worker_that_dies_changes_no_plan() -> None:
    planner = planvec.MCTS(num_simulations=300, rollout_horizon=20)
    with planvec.make("CartPole-v1", num_workers=2, start_method="spawn") as env:
        state = env.reset(seed=0).state
        expected = planner.plan(env, state, seed=1)
        kills = iter(range(3))

        def kill(num_simulations: int, num_env_steps: int) -> None:
            if next(kills, None) is not None:
                env.workers[0].kill()

        decision = planner.plan(env, state, seed=1, callback=kill)
        assert env.stats.restarts >= 1
    assert decision.visit_counts.tolist() == expected.visit_counts.tolist()
    assert decision.action_values.tolist() == expected.action_values.tolist()


@pytest.mark.parametrize("where", ["callback", "value_fn"])
def test_after_an_error_on_the_way_the_environment_can_be_used_on(where: str) -> None:
    calls = []

    def fail(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) > 3:
            raise KeyboardInterrupt
        return None if where == "callback" else np.zeros(len(arguments[0]))

    planner = planvec.MCTS(num_simulations=200, value_fn=fail if where == "value_fn" else None)
    with planvec.make("CartPole-v1", num_workers=2) as env:
        state = env.reset(seed=0).state
        with pytest.raises(KeyboardInterrupt):
            planner.plan(env, state, callback=fail if where == "callback" else None)
        found = planvec.Swarm(num_walkers=4, num_iterations=3).plan(env, state, seed=1)
    with planvec.PlanEnv("CartPole-v1") as alone:
        expected = planvec.Swarm(num_walkers=4, num_iterations=3).plan(alone, state, seed=1)
    assert found.num_simulations == 12
    assert found.num_env_steps == expected.num_env_steps
    assert np.array_equal(found.action_values, expected.action_values, equal_nan=True)


def test_budgets_are_per_root() -> None:
    planner = planvec.MCTS(max_env_steps=50, rollout_horizon=0, batch_size=4)
    with planvec.PlanEnv("CartPole-v1") as env:
        states = np.array([env.reset(seed=seed).state for seed in range(3)])
        plans = planner.plan_batch(env, states, seeds=[1, 2, 3])
    assert [plan.stop_reason for plan in plans] == ["max_env_steps"] * 3
    assert all(50 <= plan.num_env_steps < 58 for plan in plans)


def test_arguments_of_several_roots_have_to_agree() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        states = np.repeat(env.reset(seed=0).state, 3)
        with pytest.raises(planvec.InvalidBatchError, match=r"seeds: expected one per state \(3\), got 2"):
            planvec.Swarm().plan_batch(env, states, seeds=[1, 2])
        assert planvec.Swarm().plan_batch(env, states[:0]) == []


@pytest.mark.parametrize("seed", [-1, 1.5, "x", 2**64])
def test_a_wrong_seed_is_named(seed: Any) -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        state = env.reset(seed=0).state
        message = r"seed: expected an integer in \[0, 2\*\*64\), got"
        with pytest.raises(planvec.InvalidBatchError, match=message):
            planvec.IW().plan(env, state, seed=seed)
        with pytest.raises(planvec.InvalidBatchError, match=message):
            planvec.run_episode(env, planvec.IW(), seed=seed, max_steps=1)


def test_a_wrong_limit_of_an_episode_is_named() -> None:
    message = "max_steps: expected an integer of at least 1, got 2.5"
    with (
        planvec.PlanEnv("CartPole-v1") as env,
        pytest.raises(planvec.InvalidBatchError, match=message),
    ):
        planvec.run_episode(env, planvec.IW(), seed=0, max_steps=2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("env_id", "options", "is_stochastic"),
    [
        ("CartPole-v1", {}, False),
        ("FrozenLake-v1", {}, True),
        ("FrozenLake-v1", {"is_slippery": False}, False),
        ("Taxi-v4", {}, False),
        pytest.param("Taxi-v4", {"is_rainy": True}, True, marks=since("1.2", "rain in Taxi")),
        pytest.param("Taxi-v4", {"fickle_passenger": True}, True, marks=since("1.2", "fickle passengers")),
        ("Blackjack-v1", {}, True),
        pytest.param("LunarLander-v3", {}, True, marks=needs_box2d),
        ("ALE/Breakout-v5", {}, True),
        ("ALE/Breakout-v5", {"repeat_action_probability": 0.0}, False),
    ],
)
def test_it_is_known_whether_a_step_has_one_outcome(
    env_id: str, options: dict[str, Any], is_stochastic: bool
) -> None:
    with planvec.PlanEnv(env_id, env_kwargs=options) as env:
        assert env.is_stochastic is is_stochastic
        start = np.repeat(env.reset(seed=0).state, 30)
        actions = np.full(30, int(env.action_space.n) - 1)
        out = env.step_batch(actions, start, dt=4, seeds=np.arange(30))
        if not is_stochastic:
            assert len(set(out.rewards.tolist())) == 1
            assert (out.observations == out.observations[:1]).all()
