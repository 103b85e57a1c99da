"""Properties that hold for any input, with the inputs drawn at random."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from compare import assert_same, same_states
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import planvec
from planvec.backends.base import Stats
from planvec.backends.client import Waiter
from planvec.backends.sharded.call import Call, Pace
from planvec.rows import ActionStreams, StepBatch, decode_columns, encode_columns, infos

SETTINGS = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[planvec.BatchEnv, planvec.BatchEnv]]:
    """FrozenLake in this process and in three."""
    with (
        planvec.make("FrozenLake-v1", num_workers=0) as one,
        planvec.make("FrozenLake-v1", num_workers=3, start_method="fork") as three,
    ):
        yield one, three


batches = st.integers(0, 60).flatmap(
    lambda size: st.tuples(
        hnp.arrays(np.int64, size, elements=st.integers(0, 3)),
        hnp.arrays(np.int64, size, elements=st.integers(1, 6)),
        st.none() | hnp.arrays(np.uint64, size, elements=st.integers(0, 2**64 - 1)),
        st.integers(0, 2**32),
    )
)


@SETTINGS
@given(batch=batches)
def test_results_do_not_depend_on_num_workers(pair: Any, batch: Any) -> None:
    one, three = pair
    actions, dt, seeds, seed = batch
    state = one.reset(seed=seed).state
    assert state == three.reset(seed=seed).state
    expected = one.step_batch(actions, state, dt, seeds=seeds)
    got = three.step_batch(actions, state, dt, seeds=seeds)
    assert same_states(got.new_states, expected.new_states)
    assert_same(tuple(got[1:]), tuple(expected[1:]))
    again = three.step_batch(actions, expected.new_states, dt, blocking=False).result()
    assert same_states(again.new_states, one.step_batch(actions, got.new_states, dt).new_states)


@SETTINGS
@given(batch=batches, data=st.data())
def test_results_do_not_depend_on_the_order_or_the_cut_of_the_rows(pair: Any, batch: Any, data: Any) -> None:
    one, three = pair
    actions, dt, seeds, seed = batch
    states = one.step_batch(actions, one.reset(seed=seed).state, dt, seeds=seeds).new_states
    whole = three.step_batch(actions, states, dt, seeds=seeds)
    order = np.array(data.draw(st.permutations(range(len(actions)))), int)
    cut = data.draw(st.integers(0, len(actions)))
    for rows in (order[:cut], order[cut:]):
        part = three.step_batch(
            actions[rows], states[rows], dt[rows], seeds=None if seeds is None else seeds[rows]
        )
        assert same_states(part.new_states, whole.new_states[rows])
        assert_same(part.observations, whole.observations[rows])
        assert_same(part.rewards, whole.rewards[rows])
        assert_same(part.infos["num_steps"], whole.infos["num_steps"][rows])


costs = st.lists(st.sampled_from([1e-6, 1e-4, 1e-2]), min_size=1, max_size=300)


@SETTINGS
@given(
    costs=costs,
    num_workers=st.integers(1, 5),
    capacity=st.integers(1, 300),
    is_async=st.booleans(),
    is_known=st.booleans(),
)
def test_chunks_cover_every_row_once_whatever_rows_cost(
    costs: list[float], num_workers: int, capacity: int, is_async: bool, is_known: bool
) -> None:
    about: Any = None  # nothing is merged here
    pace = Pace()
    if is_known:
        pace.learn(1, costs[0])
    rows = np.zeros(len(costs), int)
    request = StepBatch(rows, rows, np.ones(len(costs), np.int64))
    call = Call(request, about, pace, Waiter(), threading.RLock(), Stats(), is_async, set())
    covered: list[int] = []
    while (chunk := call.next_chunk(num_workers, capacity)) is not None:
        assert call.next_chunk(num_workers, capacity) is chunk  # until it is given
        assert 1 <= chunk.num_rows <= capacity
        covered += range(chunk.first_row, chunk.first_row + chunk.num_rows)
        pace.learn(chunk.num_rows, sum(costs[chunk.rows]))
        chunk.is_submitted = True
    assert covered == list(range(len(costs)))


@SETTINGS
@given(
    num_rows=st.integers(0, 40),
    horizon=st.integers(1, 30),
    seed=st.integers(0, 2**64 - 1),
    discount=st.floats(0, 1),
)
def test_rollouts_do_not_depend_on_num_workers(
    pair: Any, num_rows: int, horizon: int, seed: int, discount: float
) -> None:
    one, _ = pair
    states = np.repeat(one.reset(seed=1).state, num_rows)
    seeds = np.arange(num_rows, dtype=np.uint64)
    options = {"action_seed": seed, "seeds": seeds, "discount": discount}
    results = [env.rollout_batch(states, horizon, **options) for env in pair]
    assert same_states(results[0].final_states, results[1].final_states)
    assert_same(tuple(results[0][1:]), tuple(results[1][1:]))


values = st.one_of(
    st.integers(-5, 5),
    st.booleans(),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.just(2**70),
    hnp.arrays(np.float32, st.integers(0, 2)),
    st.integers(0, 9).map(np.int32),
)
rows = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
nested = st.dictionaries(st.sampled_from("abcd"), values | rows, max_size=3)


@settings(deadline=None)
@given(listed=st.lists(nested, min_size=1, max_size=9), data=st.data())
def test_merging_the_infos_of_parts_gives_the_infos_of_the_whole(listed: Any, data: Any) -> None:
    size = len(listed)
    bounds = sorted(data.draw(st.lists(st.integers(0, size), max_size=3)))
    parts = [
        (infos.stack_columns(listed[start:stop]), stop - start)
        for start, stop in zip([0, *bounds], [*bounds, size], strict=True)
    ]
    merged = infos.vector_infos(infos.merge_columns(parts))
    whole = infos.vector_infos(infos.stack_columns(listed))
    assert_same(merged, whole)
    for key, value in whole.items():
        if isinstance(value, np.ndarray):
            assert merged[key].dtype == value.dtype


SPACES: list[Any] = [
    spaces.Discrete(3, start=5),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 5, (2,), np.float32),
    spaces.Box(4, 6, (1,), np.int16),
    spaces.Dict({"a": spaces.Discrete(3)}),
    spaces.Box(-np.inf, np.inf, (1,), np.float64),
]


def first_actions(space: Any, seed: int, first_row: int, num_rows: int, length: int) -> list[list[Any]]:
    streams = ActionStreams(space, seed, first_row, num_rows)
    return [list(islice(streams.row(row), length)) for row in range(num_rows)]


@settings(deadline=None)
@given(listed=st.lists(nested, min_size=1, max_size=6))
def test_infos_come_out_of_their_bytes_as_they_went_in(listed: Any) -> None:
    columns = infos.stack_columns(listed)
    encoded = encode_columns(columns)
    assert (encoded is None) == any(not isinstance(column.values, np.ndarray) for column in columns.values())
    if encoded is not None:
        decoded = decode_columns(encoded)
        assert_same(infos.vector_infos(decoded), infos.vector_infos(columns))
        assert [column.kind for column in decoded.values()] == [c.kind for c in columns.values()]


@given(
    index=st.integers(0, len(SPACES) - 1),
    seed=st.integers(0, 2**64 - 1),
    num_rows=st.integers(1, 9),
    data=st.data(),
)
@settings(deadline=None)
def test_random_actions_of_a_row_do_not_depend_on_the_cut(
    index: int, seed: int, num_rows: int, data: Any
) -> None:
    start = data.draw(st.integers(0, num_rows - 1))
    stop = data.draw(st.integers(start + 1, num_rows))
    whole = first_actions(SPACES[index], seed, 0, num_rows, 70)
    part = first_actions(SPACES[index], seed, start, stop - start, 70)
    assert_same(part, whole[start:stop])


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_random_actions_are_in_the_space_and_differ_between_rows(space: Any) -> None:
    rows = first_actions(space, 3, 0, 4, 130)
    assert all(space.contains(action) or isinstance(action, int) for row in rows for action in row)
    assert len({str(row) for row in rows}) == 4
    assert str(rows[0][:64]) != str(rows[0][64:128])


def test_random_actions_are_uniform() -> None:
    cases: list[tuple[Any, Any]] = [
        (SPACES[0], lambda action: action - 5),
        (SPACES[1], lambda action: action[1]),
        (SPACES[3], lambda action: int((action[1] + 1) // 2)),
        (SPACES[4], lambda action: action[0] - 4),
        (SPACES[5], lambda action: action["a"]),
    ]
    for space, index in cases:
        counts = np.zeros(3, int)
        for row in first_actions(space, 11, 0, 40, 64):
            for action in row:
                counts[index(action)] += 1
        assert abs(counts - counts.sum() / 3).max() < 0.06 * counts.sum(), space
