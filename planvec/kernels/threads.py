"""Runs compiled loops on several threads, so that Ctrl-C leaves nothing running and nothing locked.

numba's own parallel loops need its global threading layer, which a forked child cannot use after its parent.
Compiled loops release the GIL, so threads of Python do. `concurrent.futures` and `threading.Event` hold locks
in Python code: an interrupt there leaves them locked, and everything that comes later waits forever. So
threads communicate through lists and a `SimpleQueue` only, whose methods are atomic.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread

_SLICES_PER_THREAD = 4  # slices of rows per thread where rows may differ in cost


class Stop:
    """Asks calls to return soon."""

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Ask them."""
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether they were asked."""
        return self._is_set


class _Calls:
    """The calls of a function on other threads."""

    def __init__(self, run: Callable[[int, Stop], None]) -> None:
        self._run: Callable[[int, Stop], None] | None = run
        self.stop = Stop()  # asks the calls to return
        self.errors: list[BaseException] = []  # what calls have raised
        self._is_closed = False
        self._begun, self._ended = list[int](), list[int]()
        self._bell = SimpleQueue[None]()

    def call(self, index: int) -> None:
        """Call the function, unless the work was done before a thread had time for it."""
        self._begun.append(index)
        try:
            # Read after `_begun` was written; `close` does it the other way round.
            if not self._is_closed and self._run is not None:
                self._run(index, self.stop)
        except BaseException as error:
            self.errors.append(error)
            self.stop.set()
        finally:
            self._ended.append(index)
            self._bell.put(None)

    def close(self) -> None:
        """Wait for the calls that have begun; no other will begin. It can be interrupted and called again."""
        self._is_closed = True
        while len(self._ended) < len(self._begun):
            self._bell.get()
        self._run = None  # which holds arrays; requests for calls may still be in the queue


class _Threads:
    """The threads of this process."""

    # `inbox`: The calls to make, with their indices.

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, in a forked child, which has none of its parent's threads."""
        self.inbox = SimpleQueue[tuple[_Calls, int]]()
        self.started: list[Thread] = []

    def ask(self, calls: _Calls, num_threads: int) -> None:
        """Let as many threads make the calls 1, 2, ..."""
        if sys.is_finalizing():  # the threads have ended, and none can be started
            return
        while len(self.started) < num_threads:
            thread = Thread(target=_serve, args=(self.inbox,), name="planvec-kernel", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the program ends
                break
            self.started.append(thread)
        for index in range(1, min(num_threads, len(self.started)) + 1):
            self.inbox.put((calls, index))


_threads = _Threads()
os.register_at_fork(after_in_child=_threads.forget)


def run_sliced(
    run: Callable[[int, int, int], int],
    num_rows: int,
    num_threads: int,
    steps: int,
    is_even: bool,
    slice_steps: tuple[int, int] = (4096, 10**7),
) -> int:
    """Run a loop over all rows. The calling thread runs a part of them."""
    # `run(thread, first, last)` returns a status, 0 for success; `is_even`: all rows cost about the same.
    # `slice_steps`: the smallest number of steps that are worth waking a thread, about 0.1 ms; and the
    # largest number of a slice, unless one row takes more, since Ctrl-C waits for the end of a slice.
    # Returns the largest status. After one that is not 0, no slice is begun.
    least, most = slice_steps
    num_slices = min(num_threads * (1 if is_even else _SLICES_PER_THREAD), num_rows * steps // least)
    num_slices = min(max(num_slices, num_rows * steps // most), num_rows)
    if num_slices < 2:
        return run(0, 0, num_rows)
    bounds = [num_rows * index // num_slices for index in range(num_slices + 1)]
    slices, statuses = deque(pairwise(bounds)), list[int]()

    def run_slices(index: int, stop: Stop) -> None:
        while not stop.is_set():
            try:
                part = slices.popleft()
            except IndexError:
                return
            statuses.append(run(index, *part))
            if statuses[-1]:
                slices.clear()

    run_together(run_slices, num_threads)
    return max(statuses)


def run_together(run: Callable[[int, Stop], None], num_threads: int) -> None:
    """Run a function on several threads at the same time, which share the work among themselves."""
    # `run(index, stop)` does a share, and returns when nothing is left or soon after `stop` is set. Index 0
    # is on this thread; others may never begin.
    # All calls have returned when this function returns or raises, also after Ctrl-C.
    calls = _Calls(run)
    try:
        try:
            if num_threads > 1:
                _threads.ask(calls, num_threads - 1)
            run(0, calls.stop)
            calls.close()
        finally:
            _end(calls)
    except BaseException:
        _end(calls)  # an interrupt may have come before the other one began to wait
        calls.errors.clear()
        raise
    if calls.errors:
        error = calls.errors[0]
        calls.errors.clear()
        try:
            raise error
        finally:
            del error  # otherwise its traceback would refer to itself


def _end(calls: _Calls) -> None:
    """Wait until none of the calls runs any more, and only then raise an interrupt that came meanwhile."""
    latest: BaseException | None = None
    while True:
        try:
            calls.stop.set()
            calls.close()
            break
        except BaseException as error:
            latest = error
    if latest is not None:
        try:
            raise latest
        finally:
            del latest


def _serve(inbox: SimpleQueue[tuple[_Calls, int]]) -> None:
    """Make calls as long as the program runs."""
    while True:
        calls, index = inbox.get()
        calls.call(index)
        del calls  # it holds arrays
