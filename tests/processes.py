"""Looking at processes from outside."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

from planvec.backends.processes import system

PARENT = """
import os, signal, sys, threading
import numpy as np, planvec
sys.path.insert(0, {tests!r})
from faulty import ARMED, Faulty, fault
env = planvec.make(Faulty, num_workers=2, start_method={method!r})
state = env.reset(seed=0, options=ARMED).state
print(*(worker.pid for worker in env.workers), flush=True)
{rest}
"""


def parent_code(method: str, rest: str) -> str:
    """A script that opens two workers, prints their pids, and goes on."""
    return PARENT.format(tests=str(Path(__file__).parent), method=method, rest=rest)


def run_parent(method: str, rest: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Run such a script; returns it and the workers' pids."""
    parent = subprocess.Popen(
        [sys.executable, "-c", parent_code(method, rest)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    return parent, pids


def wait_until_dead(pids: list[int], seconds: float) -> list[int]:
    """Wait for processes to end by their kernel handles; returns those still there."""
    left = []
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([handle], [], [], seconds)
        os.close(handle)
        if not ready:
            left.append(pid)
    return left


def is_zombie_or_gone(pid: int) -> bool:
    """Whether a process runs no more."""
    return system.state(pid) in ("", "Z")


def is_gone(pid: int) -> bool:
    """Whether not even a zombie is left of a process."""
    return not system.exists(pid)
