"""Threads that run compiled loops: all rows, all errors, and interrupts at every point of the code."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from planvec.kernels import Stop, run_together, threads
from planvec.kernels.threads import run_sliced

NUM_ROWS = 100
STEPS = 10**6


def run_rows(num_threads: int, is_even: bool = False) -> list[int]:
    """Run over all rows; return how often each was run."""
    counts = [0] * NUM_ROWS

    def run(thread: int, first: int, last: int) -> int:
        for row in range(first, last):
            counts[row] += 1
        return 0

    assert run_sliced(run, NUM_ROWS, num_threads, STEPS, is_even) == 0
    return counts


@pytest.mark.parametrize("is_even", [False, True])
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_every_row_is_run_once(num_threads: int, is_even: bool) -> None:
    for _ in range(100):
        assert run_rows(num_threads, is_even) == [1] * NUM_ROWS


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_the_largest_status_is_returned(num_threads: int) -> None:
    def run(thread: int, first: int, last: int) -> int:
        return int(first <= 42 < last) * 7

    assert run_sliced(run, NUM_ROWS, num_threads, STEPS, is_even=False) == 7


def test_what_another_thread_raises_ends_all_and_is_raised() -> None:
    def run(index: int, stop: Stop) -> None:
        if index == 1:
            raise ValueError("of another thread")
        wait_for(stop.is_set)

    with pytest.raises(ValueError, match="of another thread"):
        run_together(run, 3)


def test_an_interrupt_ends_all_threads_before_it_is_raised() -> None:
    has_begun, has_ended = threading.Event(), threading.Event()

    def run(index: int, stop: Stop) -> None:
        if index == 0:
            assert has_begun.wait(60)
            raise KeyboardInterrupt
        has_begun.set()
        wait_for(stop.is_set)
        has_ended.set()

    with pytest.raises(KeyboardInterrupt):
        run_together(run, 2)
    assert has_ended.is_set()


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def raise_at(count: int) -> Callable[..., Any]:
    """Return a tracer that raises an interrupt at instruction `count` of the module and all that it calls."""
    left = [count]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    return trace


def count_interrupts(run: Callable[[], Any], check: Callable[[], None]) -> int:
    """Interrupt a function at its first, second, ... instruction; return how many there are."""
    num_interrupts, frame = 0, sys._getframe()
    while True:
        frame.f_trace_opcodes = True  # from Python 3.12 on, no other frame sends opcodes without it
        sys.settrace(raise_at(1 + num_interrupts))
        try:
            run()
        except KeyboardInterrupt:
            num_interrupts += 1
        except ValueError:  # of the function itself
            return num_interrupts
        else:
            return num_interrupts
        finally:
            sys.settrace(None)
        check()


def check_rows() -> None:
    assert run_rows(3) == [1] * NUM_ROWS


def run_without_wait() -> int:
    """Interrupt a run over rows at each of its instructions."""
    return count_interrupts(lambda: run_rows(2), check_rows)


def run_with_an_error() -> int:
    """Interrupt a run whose own share raises, and check that no call is left."""
    running: set[int] = set()

    def work(index: int, stop: Stop) -> None:
        if index == 0:
            while not running:
                time.sleep(0)
            raise ValueError("of the own share")
        running.add(index)
        while not stop.is_set():
            time.sleep(0)
        time.sleep(0.001)
        running.clear()

    def check() -> None:
        assert not running
        check_rows()

    return count_interrupts(lambda: run_together(work, 2), check)


@pytest.mark.parametrize("case", ["run_without_wait", "run_with_an_error"])
def test_an_interrupt_at_any_instruction_leaves_the_threads_usable_and_nothing_running(case: str) -> None:
    """The first threads are started, too. With locks in Python code, one of the next calls would hang."""
    program = f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import test_threads
        print(test_threads.{case}(), flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 30


def test_a_forked_child_starts_threads_of_its_own() -> None:
    program = """
        import os
        from planvec.kernels.threads import run_sliced

        def total():
            parts = []
            run_sliced(lambda thread, first, last: parts.append(last - first) or 0, 100, 3, 10**6, False)
            return sum(parts)

        assert total() == 100
        child = os.fork()
        assert total() == 100
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    subprocess.run(command, check=True, timeout=120)


def test_threads_hold_no_arrays_of_calls_that_are_over() -> None:
    array = np.zeros(10)
    held = weakref.ref(array)

    def run(index: int, stop: Stop, array: Any = array) -> None:
        time.sleep(0.001)

    run_together(run, 3)
    del array, run
    gc.collect()
    wait_for(lambda: held() is None)
    assert len(threads._threads.started) >= 2
