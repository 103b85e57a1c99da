"""What all planners share: the loop that serves searches, budgets, several roots, errors on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import planvec
from planvec.planners.driver import Search, Simulation, StepRequest

PLANNERS: dict[str, planvec.Planner] = {
    "MCTS": planvec.MCTS(num_simulations=40, rollout_horizon=5),
    "Swarm": planvec.Swarm(num_walkers=8, horizon=5),
    "SwarmWave": planvec.SwarmWave(num_walkers=8, horizon=5),
    "RandomShooting": planvec.RandomShooting(num_trajectories=8, horizon=5),
    "CEM": planvec.CEM(num_trajectories=8, num_elites=3, horizon=5),
    "ICEM": planvec.ICEM(num_trajectories=8, num_elites=3, horizon=5),
    "MPPI": planvec.MPPI(num_trajectories=8, horizon=5),
}


class GreedySearch(Search):
    def __init__(self, env: Any, state: Any) -> None:
        self.actions = np.arange(env.action_space.n)
        self.state = state

    def simulate(self) -> Simulation:
        count = len(self.actions)
        self.out = yield StepRequest(self.actions, np.repeat(self.state, count), np.ones(count, int), None)
        self.num_simulations += count
        self.stop_reason = "num_simulations"

    def plan(self, elapsed: float) -> planvec.Plan:
        rewards = self.out.rewards
        best = int(rewards.argmax())
        return planvec.Plan(
            action=self.actions[best],
            value=float(rewards[best]),
            root_actions=self.actions,
            visit_counts=np.ones(len(rewards), int),
            action_values=rewards,
            standard_errors=np.full(len(rewards), np.nan),
            best_actions=self.actions[[best]],
            best_num_steps=np.ones(1, int),
            best_return=float(rewards[best]),
            depth_histogram=np.array([0, len(rewards)]),
            num_simulations=self.num_simulations,
            num_env_steps=self.num_env_steps,
            elapsed=elapsed,
            stop_reason=str(self.stop_reason),
            search=None,
        )


@dataclass(frozen=True)
class Greedy(planvec.Planner):
    """Tries every action once."""

    def begin(
        self, env: Any, state: Any, generator: Any, *, previous: Any = None, info: Any = None
    ) -> Search:
        return GreedySearch(env, state)


def test_a_planner_of_ones_own_is_a_begin_a_simulate_and_a_plan() -> None:
    with planvec.PlanEnv("CliffWalking-v1") as env:
        plan = Greedy().plan(env, env.reset(seed=0).state)
        assert plan.action != 1  # into the cliff
        assert plan.num_env_steps == plan.num_simulations == 4
        assert planvec.run_episode(env, Greedy(), seed=0, max_steps=3).num_env_steps == 12


@pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS.keys())
def test_every_planner_gives_the_same_plan_with_any_number_of_workers(planner: planvec.Planner) -> None:
    found = []
    for num_workers in (0, 2):
        with planvec.make("Pendulum-v1", num_workers=num_workers) as env:
            states = np.array([env.reset(seed=seed).state for seed in (0, 1)])
            found.append(
                [planner.plan(env, states[0], seed=7), *planner.plan_batch(env, states, seeds=[7, 8])]
            )
    for one, other in zip(*found, strict=True):
        for name in ("action", "value", "root_actions", "visit_counts", "action_values", "best_actions"):
            assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name
        assert (one.num_env_steps, one.best_return) == (other.num_env_steps, other.best_return)
    assert np.array_equal(found[0][0].action_values, found[0][1].action_values, equal_nan=True)


@pytest.mark.parametrize("planner", PLANNERS.values(), ids=PLANNERS.keys())
def test_every_planner_plays_an_episode(planner: planvec.Planner) -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        episodes = [planvec.run_episode(env, planner, seed=3, max_steps=4) for _ in range(2)]
    assert episodes[0].num_steps == 4
    assert np.array_equal(episodes[0].actions, episodes[1].actions)


def test_a_worker_that_dies_changes_no_plan() -> None:
    planner = planvec.MCTS(num_simulations=300, rollout_horizon=20)
    with planvec.make("CartPole-v1", num_workers=2, start_method="forkserver") as env:
        state = env.reset(seed=0).state
        expected = planner.plan(env, state, seed=1)
        kills = iter(range(3))

        def kill(num_simulations: int, num_env_steps: int) -> None:
            if next(kills, None) is not None:
                env.workers[0].kill()

        found = planner.plan(env, state, seed=1, callback=kill)
        assert env.stats.restarts >= 1
    assert found.visit_counts.tolist() == expected.visit_counts.tolist()
    assert found.action_values.tolist() == expected.action_values.tolist()


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
        assert planvec.Swarm(num_walkers=4, horizon=3).plan(env, state).num_simulations == 12


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


@pytest.mark.parametrize(
    ("env_id", "options", "is_stochastic"),
    [
        ("CartPole-v1", {}, False),
        ("FrozenLake-v1", {}, True),
        ("FrozenLake-v1", {"is_slippery": False}, False),
        ("Taxi-v4", {}, False),
        ("Taxi-v4", {"is_rainy": True}, True),
        ("Taxi-v4", {"fickle_passenger": True}, True),
        ("Blackjack-v1", {}, True),
        ("LunarLander-v3", {}, True),
        ("ALE/Breakout-v5", {}, True),
        ("ALE/Breakout-v5", {"repeat_action_probability": 0.0}, False),
    ],
)
def test_it_is_known_whether_a_step_has_one_outcome(
    env_id: str, options: dict[str, Any], is_stochastic: bool
) -> None:
    with planvec.PlanEnv(env_id, **options) as env:
        assert env.is_stochastic is is_stochastic
        start = np.repeat(env.reset(seed=0).state, 30)
        actions = np.full(30, int(env.action_space.n) - 1)
        out = env.step_batch(actions, start, dt=4, seeds=np.arange(30))
        if not is_stochastic:
            assert len(set(out.rewards.tolist())) == 1
            assert (out.observations == out.observations[:1]).all()
