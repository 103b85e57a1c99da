"""The time that a proof may take does not depend on what else the machine does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planvec.codecs.budget import Budget


@pytest.mark.skipif(
    not Path("/proc/thread-self/schedstat").exists(), reason="the system does not tell the time in the queue"
)
def test_time_in_which_other_programs_have_the_processor_does_not_count() -> None:
    cores = os.sched_getaffinity(0)
    core = min(cores)
    busy = f"import os; os.sched_setaffinity(0, [{core}])\nwhile os.getppid() == {os.getpid()}: pass"
    others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(6)]
    try:
        os.sched_setaffinity(0, [core])
        budget, began = Budget(0.3), time.thread_time()
        while not budget.is_spent:
            pass
        worked = time.thread_time() - began
    finally:
        os.sched_setaffinity(0, cores)
        for other in others:
            other.kill()
            other.wait()
    assert worked > 0.2  # by the clock alone it would be a seventh of 0.3


def test_time_that_an_environment_sleeps_counts() -> None:
    budget = Budget(0.05)
    assert not budget.is_spent
    time.sleep(0.06)
    deadline = time.monotonic() + 60
    while not budget.is_spent:
        assert time.monotonic() < deadline
        time.sleep(0.01)
