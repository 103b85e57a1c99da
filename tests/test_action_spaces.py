"""Actions of unusual spaces are checked, drawn and planned correctly, or refused with advice that works."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import planvec
from planvec.planners.root_actions import mean_action
from planvec.planners.shooting import Gaussian
from planvec.rows import actions_of

I64, U64 = np.iinfo(np.int64), np.iinfo(np.uint64)
FULL = spaces.Box(I64.min, I64.max, (2,), np.int64)
FULL_UNSIGNED = spaces.Box(0, U64.max, (2,), np.uint64)
WIDE = spaces.Box(-1.7e308, 1.7e308, (2,), np.float64)
BOOL = spaces.Box(0, 1, (3,), dtype=bool)

PLANNERS = (
    planvec.MCTS(num_simulations=32),
    planvec.MCTS(num_simulations=32, rollout_horizon=0),
    planvec.Swarm(num_walkers=8, num_iterations=4),
    planvec.SwarmWave(num_walkers=8, num_iterations=4),
    planvec.RandomShooting(num_trajectories=8, horizon=4),
    planvec.CEM(num_trajectories=8, horizon=4, num_elites=3),
    planvec.ICEM(num_trajectories=8, horizon=4, num_elites=3),
    planvec.MPPI(num_trajectories=8, horizon=4),
)
DISCRETE_PLANNERS = (*PLANNERS[:6], planvec.RolloutIW(num_simulations=20), planvec.IW(num_simulations=20))


def contains(space: Any, action: Any) -> bool:
    """Return whether an action is in a space. A Box wants an array, and warns otherwise."""
    return bool(space.contains(np.asarray(action) if isinstance(space, spaces.Box) else action))


class Echo(gymnasium.Env[Any, Any]):
    """Shows the sum of its action, and refuses what its space does not contain."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self.action_space = space
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.total = 0.0
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.total, self.count = 0.0, 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        if not contains(self.action_space, action):
            raise ValueError(f"{action!r} is not in {self.action_space}")
        self.total = float(np.tanh(np.asarray(action, np.float64) / 1e18).sum())
        self.count += 1
        return np.array([self.total]), self.total, self.count >= 6, False, {}


@pytest.mark.parametrize(
    "space",
    [
        FULL,
        FULL_UNSIGNED,
        WIDE,
        BOOL,
        spaces.Box(I64.min, 0, (2,), np.int64),
        spaces.Box(-(2**31), 2**31 - 1, (2,), np.int32),
        spaces.Box(-128, 127, (2,), np.int8),
        spaces.Box(0, 255, (2,), np.uint8),
        spaces.Box(-3e38, 3e38, (2,), np.float32),
        spaces.Box(-6e4, 6e4, (2,), np.float16),
        spaces.Box(I64.min, I64.max, (), np.int64),
        spaces.MultiDiscrete([2**62, 3]),
        spaces.Discrete(2**62, start=-7),
    ],
    ids=str,
)
def test_random_actions_fill_their_space_evenly(space: Any) -> None:
    uniforms = np.random.default_rng(0).random((20_000, *space.shape))
    drawn = actions_of(space, uniforms)
    assert drawn.dtype == space.dtype
    for corner in (0.0, 1 - 2**-53):
        edge = actions_of(space, np.full((1, *space.shape), corner))[0]
        assert contains(space, edge)
    if isinstance(space, spaces.Box):
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    else:
        sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else space.n
        low, high = np.float64(space.start), np.asarray(space.start + sizes - 1, np.float64)
    share = (drawn.astype(np.float64) / 4 - low / 4) / (high / 4 - low / 4)
    np.testing.assert_allclose(share.mean(axis=0), 0.5, atol=0.02)
    np.testing.assert_allclose(np.quantile(share, [0, 1], axis=0).sum(axis=0), 1.0, atol=0.001)
    assert (share >= 0).all()
    assert (share <= 1).all()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_box_of_bools_takes_its_samples_bools_and_zeros_and_ones(num_workers: int) -> None:
    with planvec.make(lambda: Echo(BOOL), num_workers=num_workers) as env:
        for actions in (
            np.array([BOOL.sample() for _ in range(4)]),
            np.array([[True, False, True]]),
            [[0, 1, 1]],
        ):
            out = env.step_batch(actions)
            assert out.infos["num_steps"].tolist() == [1] * len(actions)
        with pytest.raises(planvec.InvalidBatchError, match="expected an element of"):
            env.step_batch([[0, 1, 2]])
        assert (env.rollout_batch(np.repeat(env.get_state(), 4), 5, action_seed=1).num_steps == 5).all()


@pytest.mark.slow
@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: type(planner).__name__)
@pytest.mark.parametrize("space", [FULL, FULL_UNSIGNED, BOOL, spaces.Box(3, 3, (1,), np.float32)], ids=str)
def test_planners_choose_elements_of_odd_boxes(space: Any, planner: Any) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="gymnasium")  # its sample() overflows
        env = planvec.make(lambda: Echo(space), num_workers=0)
    plan = planner.plan(env, seed=0)
    assert contains(space, plan.action)
    assert contains(space, planner.plan(env, seed=1, previous=plan).action)


@pytest.mark.parametrize("planner", DISCRETE_PLANNERS, ids=lambda planner: type(planner).__name__)
@pytest.mark.parametrize(
    "space", [spaces.Discrete(1), spaces.MultiDiscrete([1]), spaces.MultiBinary(1)], ids=str
)
def test_planners_plan_where_there_is_one_action_or_two(space: Any, planner: Any) -> None:
    env = planvec.make(lambda: Echo(space), num_workers=0)
    assert contains(space, planner.plan(env, seed=0).action)


@pytest.mark.slow
@pytest.mark.parametrize(
    "space", [spaces.Discrete(2**40, start=-5), spaces.MultiDiscrete([2**62, 3])], ids=str
)
def test_more_actions_than_can_be_listed_are_drawn(space: Any) -> None:
    env = planvec.make(lambda: Echo(space), num_workers=0)
    for planner in PLANNERS[:5]:
        assert contains(space, planner.plan(env, seed=0).action)
    for planner in (PLANNERS[5], DISCRETE_PLANNERS[6]):
        with pytest.raises(planvec.UnsupportedEnvError, match=r"at most 1,048,576|can be listed"):
            planner.plan(env, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,), np.float32),
        spaces.Box(2, np.inf, (2,), np.float32),
        spaces.Box(-np.inf, -2, (), np.float64),
        spaces.Box(np.array([-np.inf, 0], np.float32), np.array([1, np.inf], np.float32)),
    ],
    ids=str,
)
@pytest.mark.parametrize("planner", PLANNERS, ids=lambda planner: type(planner).__name__)
def test_the_advice_for_boxes_without_bounds_works(space: Any, planner: Any) -> None:
    env = planvec.make(lambda: Echo(space), num_workers=0)
    assert (env.rollout_batch(horizon=3, action_seed=0).num_steps == 3).all()
    with pytest.raises(planvec.UnsupportedEnvError, match="finite bounds") as caught:
        planner.plan(env, seed=0)
    advice = re.search(r"gymnasium\.wrappers\.TransformAction\(.*\)", str(caught.value))
    assert advice is not None
    names = {"gymnasium": gymnasium, "np": np}
    bounded = planvec.make(lambda: eval(advice[0], {**names, "env": Echo(space)}), num_workers=0)
    assert bounded.action_space.is_bounded()
    assert contains(space, planner.plan(bounded, seed=0).action)


def test_normal_actions_reach_the_highest_integers_of_64_bits() -> None:
    for space in (FULL, FULL_UNSIGNED):
        beyond = replace(Gaussian.initial(space, 1, 1, 0.5, 0.0, "std"), mean=np.full((1, 2), 1e30))
        assert beyond.mode().tolist() == [space.high.tolist()]


def test_the_mean_of_large_actions_is_their_mean() -> None:
    actions = np.array([[1.7e308, -1.7e308], [1.5e308, 1.7e308]])
    np.testing.assert_allclose(mean_action(WIDE, actions), [1.6e308, 0.0])
    fitted = Gaussian.initial(WIDE, 1, 1, 0.5, 0.0, "std").refit(actions[:, None], 0.0)
    np.testing.assert_allclose(fitted.mean, [[1.6e308, 0.0]])
    np.testing.assert_allclose(fitted.std, [[0.1e308, 1.7e308]])
