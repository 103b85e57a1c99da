"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def _children() -> set[int]:
    """Processes below this one, by the kernel's own list."""
    found: set[int] = set()
    pending = [os.getpid()]
    while pending:
        for task in Path(f"/proc/{pending.pop()}/task").glob("*/children"):
            try:
                pids = {int(pid) for pid in task.read_text().split()}
            except FileNotFoundError:
                continue
            pending += pids - found
            found |= pids
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _workers() -> dict[int, str]:
    """Children other than multiprocessing's own helpers, which end with this process."""
    helpers = ("resource_tracker", "forkserver")
    commands = {pid: _command(pid) for pid in _children()}
    return {pid: c for pid, c in commands.items() if c and not any(h in c for h in helpers)}


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_after_the_suite() -> Iterator[None]:
    shared = Path("/dev/shm")
    before = set(shared.iterdir()) if shared.is_dir() else set()
    yield
    assert not _workers(), "worker processes are left"
    after = set(shared.iterdir()) if shared.is_dir() else set()
    assert after <= before, "shared memory is left"
