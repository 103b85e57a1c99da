"""How a batch is cut into chunks, by the costs that earlier chunks have had."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product, repeat

import numpy as np
from numpy.typing import NDArray

from planvec.backends.sharded.backend import MAX_PENDING
from planvec.backends.sharded.call import Cutter, Pace

NUM_WORKERS = 2


def run(pace: Pace, costs: Sequence[float] | NDArray[np.float64]) -> tuple[float, int]:
    """Cut and work off one batch on a clock of its own.

    Args:
        pace: What is known of the cost of rows.
        costs: Seconds of each row.

    Returns:
        The part of the limit that is reached (all workers busy from the first to the last moment), and the
        number of chunks.
    """
    costs = np.asarray(costs)
    cutter = Cutter(len(costs), 1, pace, is_async=False)
    queues: list[list[slice]] = [[] for _ in range(NUM_WORKERS)]
    ends = [0.0] * NUM_WORKERS  # when each worker ends the first range of its queue
    now, num_chunks = 0.0, 0
    while True:
        for depth, worker in product(range(MAX_PENDING), range(NUM_WORKERS)):
            if len(queues[worker]) <= depth and cutter.next_row < len(costs):
                rows = slice(cutter.next_row, cutter.next_row + cutter.num_next(NUM_WORKERS))
                cutter.next_row = rows.stop
                if not queues[worker]:
                    ends[worker] = now + float(costs[rows].sum())
                queues[worker].append(rows)
                num_chunks += 1
        busy = [worker for worker in range(NUM_WORKERS) if queues[worker]]
        if not busy:
            return float(costs.sum()) / NUM_WORKERS / now, num_chunks
        worker = min(busy, key=ends.__getitem__)
        now = ends[worker]
        done = queues[worker].pop(0)
        cutter.learn(done, float(costs[done].sum()))
        if queues[worker]:
            ends[worker] = now + float(costs[queues[worker][0]].sum())


def test_ranges_are_longer_with_more_workers_since_one_caller_supplies_all_of_them() -> None:
    """A worker in 15 gets no range of rows that differ of less than 3 ms, unless there is less to do."""
    sizes = {}
    for num_workers in (2, 15):
        pace = Pace()
        pace.learn(1000, 0.1)  # 0.1 ms a step
        sizes[num_workers] = Cutter(40 * num_workers, 1, pace, is_async=False).num_next(num_workers)
    assert sizes == {2: 16, 15: 30}


def test_equal_rows_are_soon_cut_into_one_chunk_per_worker() -> None:
    pace = Pace()
    for _ in range(12):
        share, num_chunks = run(pace, [200e-6] * 64)
    assert share > 0.999
    assert num_chunks == NUM_WORKERS


def test_rows_that_differ_a_little_are_soon_cut_into_one_chunk_per_worker() -> None:
    pace = Pace()
    generator = np.random.default_rng(0)
    for _ in range(20):
        share, num_chunks = run(pace, generator.uniform(0.3e-3, 0.5e-3, 64))
    assert share > 0.95
    assert num_chunks == NUM_WORKERS


def test_many_equal_rows_are_cut_into_chunks_of_limited_time() -> None:
    pace = Pace()
    for _ in range(12):
        share, num_chunks = run(pace, [200e-6] * 1024)
    assert share > 0.99
    assert num_chunks == 10  # 102 ms of work per worker, in chunks of at most 25 ms


def test_a_large_uneven_batch_after_small_cheap_ones_is_not_cut_once_per_worker() -> None:
    pace = Pace()
    for _ in range(20):
        run(pace, [100e-6] * 16)
    share, num_chunks = run(pace, [2.1e-3] * 256 + [0.1e-3] * 256)
    assert share > 0.75
    assert num_chunks > NUM_WORKERS


def test_uneven_batches_between_equal_ones_are_not_cut_once_per_worker() -> None:
    pace = Pace()
    for _ in range(6):
        for _ in range(3):
            run(pace, [200e-6] * 128)
        share, _ = run(pace, [2.1e-3] * 64 + [0.1e-3] * 64)
        assert share > 0.6


def test_sorted_and_shuffled_rows_of_two_costs_keep_the_workers_busy() -> None:
    rows = np.array([2e-3] * 256 + [0.1e-3] * 256)
    shuffled = np.random.default_rng(0).permutation(rows)
    for costs in (rows, rows[::-1], shuffled):
        pace = Pace()
        shares = [run(pace, costs)[0] for _ in range(5)]
        assert min(shares[1:]) > 0.95


def test_costs_too_small_to_compare_do_not_count_as_equal() -> None:
    pace = Pace()
    for _, costs in zip(range(20), repeat([10e-6, 60e-6] * 16), strict=False):
        run(pace, costs)
    assert pace.equal_seconds == 0.0


def test_rows_that_were_delayed_once_are_not_sent_one_by_one_for_ever() -> None:
    pace = Pace()
    run(pace, [10.0, *[5e-6] * 15])
    for _ in range(20):
        _, num_chunks = run(pace, [5e-6] * 16)
    assert num_chunks == NUM_WORKERS
