"""The shooting planners: distributions, closed forms, and the tasks that they solve."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import same_plans
from environments import Warehouse
from gymnasium import spaces
from marks import slow_after

import planvec
from planvec.planners.shooting import (
    Categorical,
    Gaussian,
    colored_noise,
    mppi_weights,
    timescale_of,
    weighted_mean,
)

RANDOM = planvec.RandomShooting(num_trajectories=12, horizon=10)
CEM = planvec.CEM(num_trajectories=12, num_iterations=2, num_elites=4, horizon=10)
ICEM = planvec.ICEM(12, 10, dt=1, num_iterations=3, num_elites=4, noise_beta=1.0)
MPPI = planvec.MPPI(num_trajectories=12, num_iterations=2, horizon=10, dt=1, noise_beta=1.0)
EVERY = [RANDOM, CEM, ICEM, MPPI]
BOX = spaces.Box(np.array([-2, 0], np.float32), np.array([2, 1], np.float32))

every_planner = pytest.mark.parametrize("planner", EVERY, ids=lambda planner: type(planner).__name__)


class Spy:
    """Records the rollouts."""

    def __init__(self, env: planvec.PlanEnv) -> None:
        self.env = env
        self.calls: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def rollout_batch(self, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(kwargs)
        return self.env.rollout_batch(*args, **kwargs)


class Linear(gymnasium.Env[Any, Any]):
    """A double integrator with a quadratic cost, as in the textbook."""

    A, B = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([0.005, 0.1])
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = np.array([1.0, 0.0])
        return self.x.copy(), {}

    def step(self, action: Any) -> Any:
        cost = self.x @ self.x + 0.1 * action @ action
        self.x = self.A @ self.x + self.B * action[0]
        return self.x.copy(), -float(cost), False, False, {}


# -- noise ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("num_numbers", [64, 65])
def test_noise_has_the_slope_that_was_asked_for(beta: float, num_numbers: int) -> None:
    noise = colored_noise(np.random.default_rng(0), beta, (4000,), num_numbers)
    power = (np.abs(np.fft.rfft(noise)) ** 2).mean(axis=0)[1:32]
    slope = np.polyfit(np.log(np.fft.rfftfreq(num_numbers)[1:32]), np.log(power), 1)[0]
    assert slope == pytest.approx(-beta, abs=0.03)


@pytest.mark.parametrize("beta", [0.0, 0.25, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("num_numbers", [1, 2, 3, 30])
def test_every_number_of_the_noise_has_variance_1(beta: float, num_numbers: int) -> None:
    noise = colored_noise(np.random.default_rng(0), beta, (20_000,), num_numbers)
    assert np.abs(noise.var(axis=0) - 1).max() < 0.06
    assert np.abs(noise.mean(axis=0)).max() < 0.04


@pytest.mark.parametrize("num_numbers", [6, 7])
def test_coloured_noise_is_a_sum_of_waves(num_numbers: int) -> None:
    noise = colored_noise(np.random.default_rng(3), 1.5, (), num_numbers)
    frequencies = [max(k, 1) / num_numbers for k in range(num_numbers // 2 + 1)]
    cosines, sines = np.random.default_rng(3).standard_normal((2, len(frequencies)))
    naive, variance = np.zeros(num_numbers), 0.0
    for k, frequency in enumerate(frequencies):
        size, angle = frequency**-0.75, 2 * np.pi * k * np.arange(num_numbers) / num_numbers
        if k in (0, num_numbers / 2):
            naive += np.sqrt(2) * size * cosines[k] * np.cos(angle)
            variance += 2 * size**2
        else:
            naive += 2 * size * (cosines[k] * np.cos(angle) - sines[k] * np.sin(angle))
            variance += 4 * size**2
    np.testing.assert_allclose(noise, naive / np.sqrt(variance), rtol=1e-12)


# -- distributions --------------------------------------------------------------------------------


def gaussian(num_actions: int = 4, dt: int = 1, space: Any = BOX, std: Any = 0.5) -> Gaussian:
    return Gaussian.initial(space, num_actions, dt, std, 0.0, "std")


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 5], start=[1, -2]),
        spaces.MultiDiscrete([[2, 3], [4, 1]]),
        spaces.MultiBinary((2, 2)),
        BOX,
        spaces.Box(0, 255, (2,), np.uint8),
    ],
    ids=str,
)
def test_what_is_drawn_and_its_centre_are_in_the_space(space: Any) -> None:
    first = CEM.initial_distribution(space)
    drawn = first.sample(np.random.default_rng(0), 50)
    learnt = first.refit(drawn[:5], 0.1)
    for sequences in (drawn, learnt.sample(np.random.default_rng(1), 50), learnt.mode()[None]):
        assert sequences.dtype == space.dtype
        assert sequences.shape[1:] == (10, *space.shape)
        assert all(space.contains(action) for sequence in sequences for action in sequence)


def test_a_fraction_is_of_half_the_range_and_an_array_in_units_of_the_action() -> None:
    first = gaussian()
    assert (first.mean == [0, 0.5]).all()
    assert (first.std == [1, 0.25]).all()
    unbounded = gaussian(space=spaces.Box(-np.inf, np.inf, (2,)), std=(3.0, 4.0))
    assert (unbounded.mean == 0).all()
    assert (unbounded.std == [3, 4]).all()
    drawn = unbounded.sample(np.random.default_rng(0), 5000)
    np.testing.assert_allclose(drawn.std(axis=(0, 1)), [3, 4], rtol=0.05)


def test_a_normal_is_refitted_to_mean_and_std() -> None:
    first = gaussian()
    elites = first.sample(np.random.default_rng(0), 7)
    refitted = first.refit(elites, 0.25)
    np.testing.assert_allclose(refitted.mean, 0.25 * first.mean + 0.75 * elites.mean(0), rtol=1e-6)
    np.testing.assert_allclose(refitted.std, 0.25 * first.std + 0.75 * elites.std(0), rtol=1e-6)
    assert refitted.elites is elites


def test_categories_are_refitted_to_how_often_elites_take_them() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 5])
    first = Categorical.initial(space, 4, 1)
    elites = first.sample(np.random.default_rng(0), 9)
    refitted = first.refit(elites, 0.2)
    for step in range(4):
        for number, count in enumerate(space.nvec):
            for category in range(3):
                taken = sum(elites[:, step, number] == category + space.start[number])
                fitted = (taken + 1 / count) / 10 if category < count else 0
                was = 1 / count if category < count else 0
                got = refitted.probabilities[step, number, category]
                assert got == pytest.approx(0.2 * was + 0.8 * fitted)
    drawn = refitted.sample(np.random.default_rng(1), 20_000) - space.start
    often = (drawn[..., None] == np.arange(3)).mean(axis=0)
    np.testing.assert_allclose(often, refitted.probabilities, atol=0.02)


def test_the_next_decision_goes_on_one_step_later() -> None:
    first = gaussian()
    before = first.refit(first.sample(np.random.default_rng(0), 5), 0.0)
    after = first.shifted(before)
    assert np.array_equal(after.mean, before.mean[[1, 2, 3, 3]])
    assert np.array_equal(after.elites, before.elites[:, [1, 2, 3, 3]])
    assert np.array_equal(after.std, first.std)

    categories = Categorical.initial(spaces.Discrete(2), 3, 1)
    sure = dataclasses.replace(categories, probabilities=np.array([[1.0, 0], [0, 1], [1, 0]]))
    mixed = categories.shifted(sure).probabilities
    assert mixed.tolist() == [[0.25, 0.75], [0.75, 0.25], [0.75, 0.25]]


def test_a_held_action_goes_on_until_its_time_is_over() -> None:
    first = gaussian(num_actions=3, dt=3)
    best = first.sample(np.random.default_rng(0), 1)
    before = first.refit(best, 0.0)
    steps = list(before.elites[0][before.action_index(9)])
    for passed in range(1, 8):
        before = first.shifted(before)
        then = before.elites[0][before.action_index(9)]
        assert np.array_equal(then, (steps + [steps[-1]] * passed)[passed:])


@pytest.mark.parametrize("num_actions", [2, 6])
def test_a_decision_with_another_horizon_is_cut_or_held_on(num_actions: int) -> None:
    before = gaussian(num_actions=4)
    before = before.refit(before.sample(np.random.default_rng(0), 5), 0.0)
    after = gaussian(num_actions=num_actions).shifted(before)
    assert np.array_equal(after.mean, before.mean[[1, 2, 3, 3, 3, 3][:num_actions]])


# -- MPPI in closed form --------------------------------------------------------------------------


def test_mppi_matches_its_closed_form() -> None:
    """On `J = u'Hu/2 + g'u`, where the weighted normal is a normal again."""
    generator = np.random.default_rng(0)
    hessian = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])
    gradient, mean = np.array([1.0, -0.5, 0.3]), np.array([0.2, -0.1, 0.4])
    covariance = np.array([[0.5, 0.1, 0.0], [0.1, 0.4, 0.05], [0.0, 0.05, 0.3]])
    samples = generator.multivariate_normal(mean, covariance, 400_000)
    cost = 0.5 * np.einsum("bi,ij,bj->b", samples, hessian, samples) + samples @ gradient
    for temperature in (0.5, 2.0):
        inverse = np.linalg.inv(covariance)
        expected = np.linalg.solve(inverse + hessian / temperature, inverse @ mean - gradient / temperature)
        got = weighted_mean(samples, mppi_weights(-cost, temperature))
        np.testing.assert_allclose(got, expected, atol=0.005)
        assert np.abs(expected - mean).max() > 0.1


def test_mppi_equals_its_definition() -> None:
    generator = np.random.default_rng(0)
    samples, returns = generator.normal(size=(6, 4, 2)), generator.normal(1e6, 3, 6)
    exponents = [np.exp((each - max(returns)) / 0.7) for each in returns]
    expected = sum(w * sample for w, sample in zip(exponents, samples, strict=True)) / sum(exponents)
    mean = weighted_mean(samples, mppi_weights(returns, 0.7))
    np.testing.assert_allclose(mean, expected, rtol=1e-12)


def test_mppi_weighs_infinite_returns() -> None:
    assert mppi_weights(np.array([0.0, -np.inf, 0.0]), 1.0).tolist() == [0.5, 0, 0.5]
    assert mppi_weights(np.full(4, -np.inf), 1.0).tolist() == [0.25] * 4
    assert mppi_weights(np.array([np.inf, 0.0]), 1.0).tolist() == [1, 0]


def test_a_relative_temperature_does_not_mind_the_scale_of_rewards() -> None:
    first = MPPI.initial_distribution(BOX)
    sequences, returns = first.sample(np.random.default_rng(0), 20), np.random.default_rng(1).normal(size=20)
    means = [MPPI.learn(first, sequences, scale * returns)[0].mean for scale in (1.0, 1e6)]  # type: ignore[attr-defined]
    np.testing.assert_allclose(*means, rtol=1e-9)
    even = MPPI.learn(first, sequences, np.full(20, 7.0))
    np.testing.assert_allclose(even[0].mean, sequences.mean(axis=0, dtype=float))  # type: ignore[attr-defined]
    assert even[1] == pytest.approx(7)


# -- the LQR optimum ------------------------------------------------------------------------------

GAIN, COST = np.array([2.585701, 3.443436]), 13.317224


def riccati(horizon: int = 500) -> tuple[Any, Any]:
    """Return the optimal gain for so many remaining steps, and the matrix of their cost."""
    a, b, cost = Linear.A, Linear.B, np.zeros((2, 2))
    for _ in range(horizon):
        gain = b @ cost @ a / (0.1 + b @ cost @ b)
        cost = np.eye(2) + a.T @ cost @ (a - np.outer(b, gain))
    return gain, cost


def test_the_linear_quadratic_optimum_is_what_the_textbook_says() -> None:
    gain, cost = riccati()
    np.testing.assert_allclose(gain, GAIN, atol=1e-6)
    assert cost[0, 0] == pytest.approx(COST, abs=1e-6)


@pytest.mark.parametrize(
    "planner",
    slow_after(
        1,
        [
            planvec.MPPI(64, 20, dt=1, num_iterations=4, std=(0.5,), noise_beta=0.0),
            planvec.ICEM(
                40, 20, dt=1, num_elites=5, num_iterations=6, initial_std=(1.0,), noise_beta=0, momentum=0
            ),
        ],
    ),
    ids=["MPPI", "ICEM"],
)
def test_an_episode_costs_little_more_than_the_linear_quadratic_optimum(planner: Any) -> None:
    with planvec.PlanEnv(Linear) as env:
        episode = planvec.run_episode(env, planner, seed=0, max_steps=25)
    final = episode.observations[-1]
    cost = final @ riccati()[1] @ final - episode.total_return
    assert COST <= cost < 1.04 * COST


@pytest.mark.slow
def test_the_first_action_comes_close_to_the_linear_quadratic_optimum() -> None:
    gain, cost = riccati(25)
    with planvec.PlanEnv(Linear) as env:
        for planner, tolerance in (
            (
                planvec.MPPI(
                    150, 25, dt=1, num_iterations=20, std=(0.3,), noise_beta=0, temperature=0.1, fine=0
                ),
                0.12,
            ),
            (planvec.CEM(120, 25, num_iterations=20, num_elites=12, initial_std=(3.0,)), 0.2),
        ):
            decision = planner.plan(env, env.reset(seed=0).state, seed=0)
            assert decision.action[0] == pytest.approx(-gain @ [1.0, 0.0], abs=tolerance)
            assert cost[0, 0] <= -decision.best_return < 1.02 * cost[0, 0]


# -- whole plans ----------------------------------------------------------------------------------


OPEN = [planvec.ICEM(max_env_steps=400), planvec.MPPI(max_env_steps=400)]
"""Planners that choose the horizon and the rest themselves."""


@pytest.mark.parametrize("planner", [*EVERY, *OPEN], ids=repr)
def test_a_plan_does_not_depend_on_the_number_of_workers_nor_on_other_roots(planner: Any) -> None:
    plans = []
    for num_workers in (0, 2):
        with planvec.make("Pendulum-v1", num_workers=num_workers) as env:
            states = np.array([env.reset(seed=seed).state for seed in range(3)])
            first = planner.plan_batch(env, states, seeds=[5, 6, 7])
            then = planner.plan_batch(env, states, seeds=[8, 9, 10], previous=first)
            alone = planner.plan(env, states[1], seed=9, previous=first[1])
            assert same_plans(alone, then[1])
            plans.append(then)
    assert all(same_plans(one, other) for one, other in zip(*plans, strict=True))
    for one, other in zip(*plans, strict=True):
        assert np.array_equal(one.search_data.elites, other.search_data.elites)
    assert not same_plans(plans[0][0], plans[0][1])


@every_planner
@pytest.mark.parametrize("dt", [1, 3])
def test_the_best_sequence_has_the_return_that_it_claims(planner: Any, dt: int) -> None:
    planner = dataclasses.replace(planner, dt=dt, discount=0.9)
    with planvec.PlanEnv("Pendulum-v1") as env:
        state, decision = env.reset(seed=0).state, None
        for step in range(3):
            decision = planner.plan(env, state, seed=step, previous=decision)
            states, total, weight = np.repeat(state, 1), 0.0, 1.0
            for action in np.repeat(decision.best_actions, decision.best_num_steps, axis=0):
                out = env.step_batch(action[None], states)
                states, total, weight = out.new_states, total + weight * out.rewards[0], weight * 0.9
            assert total == pytest.approx(decision.best_return)
            assert decision.best_num_steps.sum() == planner.horizon
            assert env.action_space.contains(decision.action)
            state = env.step_batch(decision.action[None], np.repeat(state, 1)).new_states[0]


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_counts_add_up_to_the_trajectories(env_id: str) -> None:
    with planvec.PlanEnv(env_id) as env:
        decision = CEM.plan(env, env.reset(seed=0).state, seed=0)
    assert decision.num_simulations == 24
    assert decision.visit_counts.sum() == decision.depth_histogram.sum() == 24
    assert decision.depth_histogram @ np.arange(len(decision.depth_histogram)) == decision.num_env_steps
    assert np.average(decision.action_values, weights=decision.visit_counts) <= decision.best_return
    assert (
        len(decision.root_actions)
        == len(decision.visit_counts)
        == len(decision.action_values)
        == len(decision.standard_errors)
    )
    assert decision.stop_reason == "num_iterations"


def test_a_best_sequence_that_ends_is_cut_there() -> None:
    with planvec.PlanEnv("CartPole-v1", env_kwargs={"max_episode_steps": 7}) as env:
        decision = dataclasses.replace(RANDOM, dt=2).plan(env, env.reset(seed=0).state, seed=0)
    assert decision.best_num_steps.tolist() == [2, 2, 2, 1]
    assert len(decision.best_actions) == 4
    assert decision.best_return == 7


def test_chance_is_sampled_for_every_trajectory_and_only_where_there_is_any() -> None:
    for env_id, stochastic in (("FrozenLake-v1", True), ("CartPole-v1", False)):
        with planvec.PlanEnv(env_id) as env:
            spy = Spy(env)
            CEM.plan(spy, env.reset(seed=0).state, seed=0)  # type: ignore[arg-type]
            seeds = [call["seeds"] for call in spy.calls]
            assert len(seeds) == 2
            assert len(np.unique(np.concatenate(seeds))) == 24 if stochastic else seeds == [None, None]


def test_later_iterations_of_icem_are_smaller_but_hold_twice_the_elites() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        state = env.reset(seed=0).state
        for num_elites, expected in ((10, [40, 32, 26, 20]), (15, [40, 32, 30, 30])):
            spy = Spy(env)
            planner = planvec.ICEM(40, 3, dt=1, num_elites=num_elites, num_iterations=4)
            planner.plan(spy, state, seed=0)  # type: ignore[arg-type]
            assert [len(call["actions"]) for call in spy.calls] == expected


def test_icem_rolls_out_kept_elites_and_at_last_the_mean() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        state = env.reset(seed=0).state
        first = ICEM.plan(env, state, seed=0)
        spy = Spy(env)
        ICEM.plan(spy, state, seed=1, previous=first)  # type: ignore[arg-type]
        shifted = first.search_data.elites[0][[*range(1, 10), 9]]
        assert np.array_equal(spy.calls[0]["actions"][0], shifted)
    learnt = first.search_data
    for iteration, last in ((1, False), (2, True)):
        sequences = ICEM.propose(learnt, np.random.default_rng(0), iteration)
        assert np.array_equal(sequences[:1], learnt.elites[:1])
        assert (sequences == learnt.mode()).all(axis=(1, 2)).any() == last


def test_what_icem_found_is_never_lost_where_nothing_is_random() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        state, decision, reward = env.reset(seed=0).state, None, 0.0
        for step in range(5):
            before, decision = decision, ICEM.plan(env, state, seed=step, previous=decision)
            out = env.step_batch(decision.action[None], np.repeat(state, 1))
            if before is not None:
                # Rewards are at least -16.3: the old sequence, one step on, earns no less.
                assert decision.best_return >= before.best_return - reward - 16.3
            state, reward = out.new_states[0], out.rewards[0]


@pytest.mark.parametrize("other", [None, "another planner", "another space", "another dt"])
def test_a_decision_of_another_kind_is_not_built_on(other: str | None) -> None:
    with planvec.PlanEnv("Pendulum-v1") as env, planvec.PlanEnv("CartPole-v1") as cart:
        state = env.reset(seed=0).state
        alone = CEM.plan(env, state, seed=1)
        own = CEM.plan(env, state, seed=0)
        before = {
            None: dataclasses.replace(own, search_data=None),
            "another planner": RANDOM.plan(env, state, seed=0),
            "another space": CEM.plan(cart, cart.reset(seed=0).state, seed=0),
            "another dt": dataclasses.replace(CEM, dt=2).plan(env, state, seed=0),
        }[other]
        assert same_plans(CEM.plan(env, state, seed=1, previous=before), alone)
        assert not same_plans(CEM.plan(env, state, seed=1, previous=own), alone)


def test_a_reward_that_is_no_number_never_wins() -> None:
    class Broken(Linear):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return observation, np.nan if action[0] > 0 else reward, *rest

    with planvec.PlanEnv(Broken) as env:
        state = env.reset(seed=0).state
        for planner in (
            planvec.CEM(40, 3, initial_std=(1.0,), execute="best"),
            planvec.MPPI(40, 3, dt=1, std=(1.0,), noise_beta=1.0),
        ):
            decision = planner.plan(env, state, seed=0)
            assert np.isfinite(decision.best_return)
            assert decision.action[0] <= 0
        assert np.isfinite(decision.value)


# -- what is left open ----------------------------------------------------------------------------


@pytest.mark.parametrize("half_life", [1, 6, 20])
def test_the_time_scale_is_the_lag_at_which_half_of_the_correlation_is_left(half_life: int) -> None:
    generator, factor = np.random.default_rng(0), 0.5 ** (1 / half_life)
    walks = np.zeros((400, 50, 3))
    walks[0] = generator.standard_normal((50, 3))
    for step in range(1, 400):
        noise = np.sqrt(1 - factor**2) * generator.standard_normal((50, 3))
        walks[step] = factor * walks[step - 1] + noise
    assert timescale_of(walks * [1, 1e6, 1e-6]) == pytest.approx(half_life, rel=0.15)
    still = np.concatenate([walks, np.full((400, 50, 9), 7.0)], axis=-1)
    still[200:, :20] = np.nan  # walks that have ended
    still[3, 4] = np.inf
    assert timescale_of(still) == pytest.approx(half_life, rel=0.15)


def test_observations_that_say_nothing_have_the_time_scale_of_a_step() -> None:
    assert timescale_of(np.full((9, 2, 3), np.nan)) == timescale_of(np.ones((9, 2, 3))) == 1
    assert timescale_of(np.ones((1, 2, 3))) == timescale_of(np.ones((9, 2, 0))) == 1


@pytest.mark.parametrize("kind", [planvec.ICEM, planvec.MPPI])
def test_sequences_are_longer_and_change_less_where_observations_change_slowly(kind: Any) -> None:
    chosen = []
    for env_id in ("Pendulum-v1", "MountainCarContinuous-v0"):
        with planvec.make(env_id, num_workers=0) as env:
            found = kind(max_env_steps=1000).plan(env, env.reset(seed=0).state, seed=0).search_data
        chosen.append((found.num_actions * found.dt, found.dt, found.noise_beta))
    pendulum, car = chosen  # with time scales of 5 and 10 steps
    assert 30 <= pendulum[0] <= 56 < car[0] <= 110
    assert (pendulum[1], car[1]) == (1, 2)
    assert 1 < pendulum[2] < 1.4 < car[2] < 2.1


@pytest.mark.parametrize("kind", [planvec.ICEM, planvec.MPPI, planvec.CEM, planvec.RandomShooting])
def test_a_budget_of_steps_is_spent_where_the_numbers_are_left_open(kind: Any) -> None:
    counts = {"num_trajectories": None, "horizon": None, "dt": None}
    if kind is not planvec.RandomShooting:
        counts["num_iterations"] = None
    if kind in (planvec.ICEM, planvec.CEM):
        counts["num_elites"] = None
    with planvec.make("Pendulum-v1", num_workers=0) as env:
        for budget in (200, 1000, 5000):
            state, decision = env.reset(seed=0).state, None
            for step in range(3):
                decision = kind(**counts, max_env_steps=budget).plan(env, state, seed=step, previous=decision)
                assert 0.6 * budget <= decision.num_env_steps <= 1.4 * budget
                state = env.step_batch(decision.action[None], np.repeat(state, 1)).new_states[0]


def test_a_look_is_taken_once_for_an_episode() -> None:
    class Counting(Spy):
        num_looks = 0

        def step_batch(self, *args: Any, **options: Any) -> Any:
            self.num_looks += 1
            return self.env.step_batch(*args, **options)

    with planvec.PlanEnv("Pendulum-v1") as env:
        spy, state = Counting(env), env.reset(seed=0).state
        first = planvec.ICEM(max_env_steps=1000).plan(spy, state, seed=0)  # type: ignore[arg-type]
        assert spy.num_looks == 1000 // 3 // 8
        then = planvec.ICEM(max_env_steps=1000).plan(spy, state, seed=1, previous=first)  # type: ignore[arg-type]
        assert spy.num_looks == 1000 // 3 // 8
        for name in ("dt", "num_actions", "noise_beta"):
            assert getattr(then.search_data, name) == getattr(first.search_data, name)
        given = planvec.ICEM(dt=5, horizon=9, noise_beta=2.0)
        planned = given.plan(spy, state, seed=1, previous=first).search_data  # type: ignore[arg-type]
        assert (planned.dt, planned.num_actions, planned.noise_beta) == (5, 2, 2.0)
        assert spy.num_looks == 1000 // 3 // 8


def test_a_look_that_was_cut_is_taken_again() -> None:
    with planvec.make("Pendulum-v1", num_workers=0) as env:
        state = env.reset(seed=0).state
        hurried = planvec.ICEM(max_seconds=1e-9).plan(env, state, seed=0)
        assert env.action_space.contains(hurried.action)
        then = planvec.ICEM(max_env_steps=1000).plan(env, state, seed=1, previous=hurried)
        assert same_plans(then, planvec.ICEM(max_env_steps=1000).plan(env, state, seed=1))


@pytest.mark.parametrize("kind", [planvec.ICEM, planvec.CEM])
@pytest.mark.parametrize("max_env_steps", [None, 100])
def test_an_iteration_has_enough_sequences_for_the_elites_that_are_given(
    kind: Any, max_env_steps: Any
) -> None:
    planner = kind(num_trajectories=None, num_elites=35, max_env_steps=max_env_steps).settled()
    assert planner.num_trajectories == 70
    assert kind(num_trajectories=None, num_elites=2).settled().num_trajectories >= 40


def test_time_is_used_up_where_the_iterations_are_left_open() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        decision = planvec.ICEM(max_seconds=2.0).plan(env, env.reset(seed=0).state, seed=0)
    assert decision.stop_reason == "max_seconds"
    assert decision.num_simulations > 40 + 32 + 26


# -- budgets and mistakes -------------------------------------------------------------------------


def test_a_budget_and_a_callback_stop_after_the_iteration() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        state = env.reset(seed=0).state
        decision = dataclasses.replace(ICEM, max_env_steps=120).plan(env, state, seed=0)
        assert (decision.num_simulations, decision.stop_reason) == (12, "max_env_steps")
        seen: list[tuple[int, int]] = []
        decision = CEM.plan(env, state, seed=0, callback=lambda *numbers: seen.append(numbers) or True)
        assert (seen, decision.stop_reason) == ([(12, 120)], "callback")


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (planvec.RandomShooting, {"num_trajectories": 0}),
        (planvec.RandomShooting, {"horizon": 2.0}),
        (planvec.RandomShooting, {"dt": 0}),
        (planvec.RandomShooting, {"discount": 1.1}),
        (planvec.RandomShooting, {"max_env_steps": 0}),
        (planvec.CEM, {"num_iterations": 0}),
        (planvec.CEM, {"num_elites": 1}),
        (planvec.CEM, {"num_elites": 65}),
        (planvec.CEM, {"initial_std": 0}),
        (planvec.CEM, {"initial_std": "wide"}),
        (planvec.CEM, {"initial_std": [1.0, np.nan]}),
        (planvec.CEM, {"momentum": -0.1}),
        (planvec.CEM, {"execute": "median"}),
        (planvec.ICEM, {"num_elites": 21, "num_trajectories": 40}),
        (planvec.ICEM, {"noise_beta": -1}),
        (planvec.MPPI, {"noise_beta": np.inf}),
        (planvec.ICEM, {"reuse": 2}),
        (planvec.MPPI, {"temperature": 0}),
        (planvec.MPPI, {"temperature": np.nan}),
        (planvec.MPPI, {"std": ()}),
    ],
)
def test_a_number_out_of_range_is_refused_by_name(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: expected .*, got "):
        kind(**wrong)


def test_planners_can_be_compared_and_hashed() -> None:
    one, other = (planvec.ICEM(initial_std=np.array([0.5, 0.1])) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != planvec.ICEM()


def test_actions_that_a_planner_cannot_draw_are_refused_with_a_way_out() -> None:
    unbounded = spaces.Box(-np.inf, np.inf, (2,))
    for planner, space, message in (
        (RANDOM, unbounded, "finite bounds.*TransformAction"),
        (CEM, unbounded, "finite bounds.*give initial_std as an array of shape \\(2,\\)"),
        (MPPI, unbounded, "finite bounds.*give std as an array"),
        (ICEM, spaces.Discrete(2), "expected a Box, got Discrete.*CEM"),
        (MPPI, spaces.MultiBinary(2), "expected a Box, got MultiBinary.*CEM"),
        (CEM, spaces.Dict({"a": BOX}), "wrap the environment"),
        (RANDOM, spaces.Tuple((BOX, BOX)), "wrap the environment"),
    ):
        with pytest.raises(planvec.UnsupportedEnvError, match=f"^action_space: .*{message}"):
            planner.settled().initial_distribution(space)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"std: expected a number or shape \(2,\), got shape \(3,\)"):
        planvec.MPPI(std=[1, 2, 3]).settled().initial_distribution(BOX)


def test_an_ended_state_is_refused() -> None:
    with planvec.PlanEnv("CartPole-v1", env_kwargs={"max_episode_steps": 3}) as env:
        ended = env.step_batch([0], np.repeat(env.reset(seed=0).state, 1), 3).new_states
        with pytest.raises(planvec.InvalidBatchError, match="got one that has ended"):
            CEM.plan(env, ended[0])


# -- what they solve ------------------------------------------------------------------------------


def test_cem_finds_better_sequences_than_random_shooting_of_as_many() -> None:
    with planvec.PlanEnv("Pendulum-v1") as env:
        states = np.array([env.reset(seed=seed).state for seed in range(4)])
        mean_return = {}
        for planner in (planvec.CEM(64, num_iterations=4), planvec.RandomShooting(256)):
            plans = planner.plan_batch(env, states, seeds=range(4))
            assert {decision.num_env_steps for decision in plans} == {256 * 30}
            mean_return[type(planner)] = np.mean([decision.best_return for decision in plans])
    assert mean_return[planvec.CEM] > mean_return[planvec.RandomShooting] + 3


@pytest.mark.parametrize(
    "planner",
    [planvec.CEM(16, num_iterations=2, num_elites=4, horizon=15), planvec.RandomShooting(24, horizon=15)],
    ids=["CEM", "RandomShooting"],
)
def test_discrete_actions_balance_a_pole(planner: Any) -> None:
    with planvec.PlanEnv("CartPole-v1", env_kwargs={"max_episode_steps": 60}) as env:
        assert planvec.run_episode(env, planner, seed=0).total_return == 60


@pytest.mark.parametrize("planner", [RANDOM, CEM], ids=["RandomShooting", "CEM"])
def test_actions_of_several_numbers_are_planned(planner: Any) -> None:
    with planvec.PlanEnv(Warehouse) as env:
        decision = planner.plan(env, env.reset(seed=0).state, seed=0)
        assert env.action_space.contains(decision.action)
        assert decision.root_actions.shape[1:] == (3,)
        chosen = dataclasses.replace(planner, horizon=6).plan(env, seed=1, previous=decision)
    assert chosen.best_actions.shape == (6, 3)


@pytest.mark.slow
def test_the_pendulum_swings_up() -> None:
    with planvec.PlanEnv("Pendulum-v1", env_kwargs={"max_episode_steps": 70}) as env:
        for planner in (planvec.ICEM(20, num_elites=5, num_iterations=2), planvec.MPPI(32)):
            episode = planvec.run_episode(env, planner, seed=1)
            assert episode.rewards[-20:].sum() > -5, planner


@pytest.mark.parametrize("num_trajectories", [1, 127, 128, np.int64(700)])
def test_random_shooting_in_parts_takes_the_same_sequences(num_trajectories: int) -> None:
    """With a time limit it draws in parts; the plan is that without a limit if steps are not random."""
    with planvec.make("Pendulum-v1", num_workers=0) as env:
        env.reset(seed=0)
        whole = planvec.RandomShooting(num_trajectories, horizon=5)
        parts = planvec.RandomShooting(num_trajectories, horizon=5, max_seconds=600.0)
        first, second = (planner.plan(env, seed=3) for planner in (whole, parts))
        assert parts.num_iterations == {1: 1, 127: 1, 128: 2, 700: 4}[num_trajectories]
    assert first.num_simulations == second.num_simulations == num_trajectories
    assert (first.stop_reason, second.stop_reason) == ("num_iterations", "num_iterations")
    assert first.value == second.value == first.best_return
    np.testing.assert_array_equal(first.action, second.action)
    np.testing.assert_array_equal(first.action_values, second.action_values)
    for plan in (first, second):  # for pictures
        np.testing.assert_array_equal(plan.search_data.elites[0, : len(plan.best_actions)], plan.best_actions)
