"""The contract suite: every environment and wrapper, every start method, any number of workers.

What planvec returns is held against Gymnasium's own stepping from `reset(seed)`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from compare import assert_same, same_states, without_clock
from environments import CASES, Case
from gymnasium.vector.utils import concatenate, create_empty_array
from walks import Step, gymnasium_walk

import planvec


class Backend(NamedTuple):
    num_workers: int
    start_method: str | None


BACKENDS = [
    Backend(0, None),
    Backend(1, "forkserver"),
    Backend(2, "spawn"),
    Backend(3, "fork"),
]


@functools.cache
def walk_of(index: int) -> tuple[Any, Any, list[Step]]:
    """Spaces and the steps of a case, by nothing but `gymnasium.Env`."""
    case = CASES[index]
    observation_space, action_space, walk = gymnasium_walk(case.make, case.num_steps, seed=11, action_seed=7)
    return observation_space, action_space, [step._replace(info=without_clock(step.info)) for step in walk]


def batch_of(space: Any, elements: list[Any]) -> Any:
    empty: Any = create_empty_array(space, n=len(elements))
    return concatenate(space, elements, empty)


@pytest.fixture(params=range(len(CASES)), ids=[case.name for case in CASES], scope="module")
def index(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(params=BACKENDS, ids=[f"{b.num_workers}-{b.start_method}" for b in BACKENDS], scope="module")
def env(request: pytest.FixtureRequest, index: int) -> Iterator[planvec.BatchEnv]:
    case: Case = CASES[index]
    backend: Backend = request.param
    with planvec.make(
        case.make,
        num_workers=backend.num_workers,
        start_method=backend.start_method,
        codec=case.codec,
    ) as env:
        yield env


def walk_through(env: planvec.BatchEnv, index: int) -> Iterator[tuple[Any, Step, Any]]:
    """Take Gymnasium's walk with planvec: yields the state before, Gymnasium's step and ours."""
    _, action_space, walk = walk_of(index)
    state: Any = None
    for step in walk:
        if step.seed is not None:
            start = env.reset(seed=step.seed)
            assert_same(start.observation, step.first_observation, "first observation")
            state = start.state
        out = env.step_batch(batch_of(action_space, [step.action]), state)
        yield state, step, out
        state = out.new_states[0]


def test_stepping_equals_gymnasium_bit_for_bit(env: planvec.BatchEnv, index: int) -> None:
    for number, (_, step, out) in enumerate(walk_through(env, index)):
        observation, reward, terminated, truncated, info = out.row(env.observation_space, 0)
        assert_same(observation, step.observation, f"observation of step {number}")
        assert_same(reward, float(step.reward), f"reward of step {number}")
        assert (terminated, truncated) == (step.terminated, step.truncated)
        assert_same(without_clock(info), step.info, f"info of step {number}")


def test_restored_rows_equal_gymnasium_in_any_order_and_cut(env: planvec.BatchEnv, index: int) -> None:
    observation_space, action_space, walk = walk_of(index)
    states = np.empty(len(walk), env.state_dtype)
    news = np.empty(len(walk), env.state_dtype)
    for row, (state, _, out) in enumerate(walk_through(env, index)):
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


def test_ended_states_stay_where_they_are(env: planvec.BatchEnv, index: int) -> None:
    _, action_space, _ = walk_of(index)
    ended = [
        (out.new_states[0], step)
        for _, step, out in walk_through(env, index)
        if step.terminated or step.truncated
    ]
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


def test_rollouts_equal_gymnasium(env: planvec.BatchEnv, index: int) -> None:
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
