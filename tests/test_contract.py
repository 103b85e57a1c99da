"""The contract suite: every environment and wrapper, every backend, any number of workers.

What planvec returns is compared with Gymnasium's own stepping from `reset(seed)`. Every case runs over one of
the backends, which take turns. The rest of the product is marked as slow.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from backends import BACKENDS, Backend, quick_or_slow
from compare import assert_same, same_states, without_clock
from environments import CASES, Case
from gymnasium.vector.utils import concatenate, create_empty_array
from marks import needs_box2d
from older_gymnasium import since
from walks import Step, gymnasium_walk

import planvec

Walked = list[tuple[Any, Step, Any]]
"""States, Gymnasium's steps from there, and ours."""


@functools.cache
def walk_of(index: int) -> tuple[Any, Any, list[Step]]:
    """Spaces and the steps of a case, by nothing but `gymnasium.Env`."""
    case = CASES[index]
    observation_space, action_space, walk = gymnasium_walk(case.make, case.num_steps, seed=11, action_seed=7)
    return observation_space, action_space, [step._replace(info=without_clock(step.info)) for step in walk]


def batch_of(space: Any, elements: list[Any]) -> Any:
    empty: Any = create_empty_array(space, n=len(elements))
    return concatenate(space, elements, empty)


START_SLOWLY = ("spawn", "ray")
QUICK = [backend for backend in BACKENDS if backend.name not in (*START_SLOWLY, "compiled")]
MARKS = {
    "Taxi-rainy-fickle": [since("1.2", "rain and fickle passengers of Taxi")],
    "CartPole-RepeatAction": [since("1.3", "the wrapper RepeatAction")],
    **{name: [needs_box2d] for name in ("LunarLander", "BipedalWalker-hardcore")},
}
GIVEN = [
    pytest.param(
        (index, *param.values), id=f"{case.name}-{param.id}", marks=[*param.marks, *MARKS.get(case.name, [])]
    )
    for index, case in enumerate(CASES)
    for param in quick_or_slow(BACKENDS, [QUICK[index % len(QUICK)]])
]
"""Cases and backends in this order: of two fixtures pytest would make one of its own."""


@pytest.fixture(params=GIVEN, scope="module")
def given(request: pytest.FixtureRequest) -> tuple[int, Backend]:
    index, backend = request.param
    return index, backend


@pytest.fixture(scope="module")
def index(given: tuple[int, Backend]) -> int:
    return given[0]


@pytest.fixture(scope="module")
def env(given: tuple[int, Backend]) -> Iterator[Any]:
    index, backend = given
    case: Case = CASES[index]
    num_workers = 1 + index % 3 // (2 if backend.name in START_SLOWLY else 1)  # of which most cases have one
    with backend.open(case.make, num_workers=num_workers, codec=case.codec) as env:
        yield env


@pytest.fixture(scope="module")
def walked(env: planvec.PlanEnv | planvec.BatchEnv, index: int) -> Walked:
    """Gymnasium's walk, taken with planvec."""
    _, action_space, walk = walk_of(index)
    found = []
    state: Any = None
    for step in walk:
        if step.seed is not None:
            start = env.reset(seed=step.seed)
            assert_same(start.observation, step.first_observation, "first observation")
            state = start.state
        out = env.step_batch(batch_of(action_space, [step.action]), state)
        found.append((state, step, out))
        state = out.new_states[0]
    return found


def test_stepping_equals_gymnasium_bit_for_bit(
    env: planvec.PlanEnv | planvec.BatchEnv, walked: Walked
) -> None:
    for number, (_, step, out) in enumerate(walked):
        observation, reward, terminated, truncated, info = out.row(env.observation_space, 0)
        assert_same(observation, step.observation, f"observation of step {number}")
        assert_same(reward, float(step.reward), f"reward of step {number}")
        assert (terminated, truncated) == (step.terminated, step.truncated)
        assert_same(without_clock(info), step.info, f"info of step {number}")


def test_restored_rows_equal_gymnasium_in_any_order_and_cut(
    env: planvec.PlanEnv | planvec.BatchEnv, index: int, walked: Walked
) -> None:
    observation_space, action_space, walk = walk_of(index)
    states = np.empty(len(walk), env.state_dtype)
    news = np.empty(len(walk), env.state_dtype)
    for row, (state, _, out) in enumerate(walked):
        states[row], news[row] = state, out.new_states[0]
    order = np.random.default_rng(0).permutation(len(walk))
    expected = batch_of(observation_space, [walk[row].observation for row in order])
    cuts = [0, 1, 18, 19, len(walk) // 2, len(walk)]
    for start, stop in [(0, len(walk)), *pairwise(cuts)]:
        rows = order[start:stop]
        out = env.step_batch(batch_of(action_space, [walk[row].action for row in rows]), states[rows])
        assert_same(out.observations, _cut(expected, start, stop), "observations")
        assert_same(out.rewards, np.array([float(walk[row].reward) for row in rows]))
        assert out.terminated.tolist() == [walk[row].terminated for row in rows]
        assert out.truncated.tolist() == [walk[row].truncated for row in rows]
        assert same_states(out.new_states, news[rows])
        assert_same(env.observe(out.new_states), out.observations, "observe")


def _cut(tree: Any, start: int, stop: int) -> Any:
    if isinstance(tree, dict):
        return {key: _cut(value, start, stop) for key, value in tree.items()}
    if isinstance(tree, tuple) and tree and not isinstance(tree[0], str):
        return tuple(_cut(value, start, stop) for value in tree)
    return tree[start:stop]


def test_ended_states_stay_where_they_are(
    env: planvec.PlanEnv | planvec.BatchEnv, index: int, walked: Walked
) -> None:
    _, action_space, _ = walk_of(index)
    ended = [(out.new_states[0], step) for _, step, out in walked if step.terminated or step.truncated]
    if not ended:
        state = env.reset(seed=0).state
        assert not env.step_batch(batch_of(action_space, [action_space.sample()]), state).truncated[0]
        return
    states = np.empty(len(ended), env.state_dtype)
    for row, (state, _) in enumerate(ended):
        states[row] = state
    actions = batch_of(action_space, [step.action for _, step in ended])
    out = env.step_batch(actions, states, dt=3)
    assert (out.rewards == 0).all()
    assert (out.infos["num_steps"] == 0).all()
    assert out.terminated.tolist() == [step.terminated for _, step in ended]
    assert out.truncated.tolist() == [step.truncated for _, step in ended]
    assert same_states(out.new_states, states)
    assert_same(out.observations, env.observe(states))


def test_rollouts_equal_gymnasium(env: planvec.PlanEnv | planvec.BatchEnv, index: int) -> None:
    _, action_space, walk = walk_of(index)
    starts = [row for row, step in enumerate(walk) if step.seed is not None][:3]
    for start in starts:
        stop = next(
            (row + 1 for row in range(start, len(walk)) if walk[row].terminated or walk[row].truncated),
            len(walk),
        )
        episode = walk[start:stop]
        state = env.reset(seed=episode[0].seed).state
        actions = batch_of(action_space, [step.action for step in episode])
        lifted = _lift(actions)
        out = env.rollout_batch(state, len(episode), actions=lifted, discount=0.9)
        total, weight = 0.0, 1.0
        for step in episode:
            total += weight * float(step.reward)
            weight *= 0.9
        assert out.returns[0] == total
        assert out.num_steps[0] == len(episode)
        assert (out.terminated[0], out.truncated[0]) == (episode[-1].terminated, episode[-1].truncated)


def _lift(tree: Any) -> Any:
    """`[H, ...]` as `[1, H, ...]`."""
    if isinstance(tree, dict):
        return {key: _lift(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_lift(value) for value in tree)
    return np.asarray(tree)[None]
