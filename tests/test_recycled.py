"""The memory of large results is reused only when nobody uses it any more."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest

from planvec.rows import outputs

NUM = 100_000


@pytest.mark.parametrize("view", [lambda a: a, lambda a: a[5:7], lambda a: a.reshape(2, -1)[1], memoryview])
def test_memory_that_a_view_uses_is_not_given_out(view: object) -> None:
    kept = [view(outputs.empty(NUM, np.float64)) for _ in range(40)]  # type: ignore[operator]
    for number, array in enumerate(kept):
        np.asarray(array)[...] = number
    assert [float(np.asarray(array).max()) for array in kept] == list(range(40))


def test_memory_of_garbage_is_given_out_again() -> None:
    first = outputs.empty(NUM, np.float64)
    address = first.ctypes.data
    del first
    # A little more fits into the same block.
    assert outputs.empty(NUM + 1, np.float64).ctypes.data == address


def test_little_memory_is_kept_however_many_sizes_were_used() -> None:
    for size in range(outputs._MIN_BYTES, 50 * outputs._MIN_BYTES, 999):
        outputs.empty(size, np.uint8)
    kept = sum(size * len(blocks) for size, blocks in outputs._kept.items())
    assert kept <= outputs._MAX_KEPT
    assert len(outputs._kept) < 100


def test_a_lock_that_another_holds_is_not_waited_for() -> None:
    # A handler may interrupt the holder in the same thread, and a forked child may inherit a locked lock.
    with outputs._lock:
        assert len(outputs.empty(NUM, np.float64)) == NUM


def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    release = threading.Event()
    is_held = threading.Event()

    def hold() -> None:
        with outputs._lock:
            is_held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(len(outputs.empty(NUM, np.float64)) != NUM)
    release.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
