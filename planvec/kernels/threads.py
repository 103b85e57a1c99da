"""Runs a compiled loop over slices of rows on several threads.

numba's own parallel loops need its global threading layer, which a forked child cannot use after its parent.
Compiled loops release the GIL, so threads of Python do.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import pairwise
from threading import Event

__all__ = ["run_sliced", "run_together"]

_SLICES_PER_THREAD = 4
"""Slices of rows per thread where rows may differ in cost."""

_MIN_STEPS = 4096
"""Smallest number of steps that are worth waking a thread: about 0.1 ms."""
_MAX_STEPS = 10**7
"""Largest number of steps of a slice, unless one row takes more: Ctrl-C waits for the end of a slice."""

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
"""(process id, number of threads) -> the threads. A forked child has none of its parent's threads."""


def run_sliced(
    run: Callable[[int, int], int], num_rows: int, num_threads: int, steps: int, is_even: bool
) -> int:
    """Run a loop over all rows. The calling thread runs a part of them.

    Args:
        run: `run(first, last)` runs the loop over some rows, and returns a status: 0 if it succeeded.
        num_rows: Number of rows.
        num_threads: Number of threads, this one included.
        steps: Largest number of steps of a row.
        is_even: Whether all rows cost about the same.

    Returns:
        The largest status.
    """
    num_slices = min(num_threads * (1 if is_even else _SLICES_PER_THREAD), num_rows * steps // _MIN_STEPS)
    num_slices = min(max(num_slices, num_rows * steps // _MAX_STEPS), num_rows)
    if num_slices < 2:
        return run(0, num_rows)
    bounds = [num_rows * index // num_slices for index in range(num_slices + 1)]
    slices = list(pairwise(bounds))
    if num_threads < 2:
        return max(run(*part) for part in slices)
    pool = _pool(num_threads - 1)
    try:
        others = [(pool.submit(run, *part), part) for part in slices[1:]]
    except RuntimeError:  # the program ends, and threads take no more work
        return run(0, num_rows)
    status = run(*slices[0])
    for future, part in reversed(others):
        status = max(status, _finish(future, run, part))
    return status


def run_together(run: Callable[[int, Event], None], num_threads: int) -> None:
    """Run a function on several threads at the same time, which share the work among themselves.

    All calls have returned when this function returns or raises, also after Ctrl-C.

    Args:
        run: `run(index, stop)` does a share of the work. Every call returns once nothing is left to do, or
            soon after `stop` was set.
        num_threads: Number of threads, this one included.
    """
    stop, others = Event(), list[Future[None]]()
    try:
        if num_threads > 1:
            pool = _pool(num_threads - 1)
            for index in range(1, num_threads):
                others.append(pool.submit(run, index, stop))
    except RuntimeError:  # the program ends, and threads take no more work
        pass
    except BaseException:
        _end(others, stop)
        raise
    try:
        run(0, stop)
        for future in others:
            if not future.cancel():
                future.result()
    except BaseException:
        _end(others, stop)
        raise


def _end(futures: list[Future[None]], stop: Event) -> None:
    """Wait until no call of `run_together` runs any more. Further interrupts do not end the wait."""
    while True:
        try:
            stop.set()
            wait([future for future in futures if not future.cancel()])
            return
        except KeyboardInterrupt:
            continue


def _finish(future: Future[int], run: Callable[[int, int], int], part: tuple[int, int]) -> int:
    """Return the status of a slice, which is run here if no thread has begun it."""
    return run(*part) if future.cancel() else future.result()


def _pool(num_threads: int) -> ThreadPoolExecutor:
    """Return the threads of this process."""
    key = (os.getpid(), num_threads)
    if key not in _pools:
        _pools[key] = ThreadPoolExecutor(num_threads, thread_name_prefix="planvec-kernel")
    return _pools[key]
