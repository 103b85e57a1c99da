"""What Linux tells of processes under `/proc`. Elsewhere, and of those that are gone, it tells nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["bytes_used", "children", "command", "descendants", "exists", "state"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


def _read(pid: int, name: str, find: Callable[[str], str]) -> str:
    """Something out of a file about a process; empty where there is none."""
    try:
        return find(Path(f"/proc/{pid}/{name}").read_text())
    except (OSError, IndexError):
        return ""


def exists(pid: int) -> bool:
    """Whether anything is left of a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


def state(pid: int) -> str:
    """What a process does: "R" (runs), "S" (sleeps), "T" (was stopped), "Z" (has died) and others; or ""."""
    return _read(pid, "stat", lambda text: text.rpartition(")")[2].split()[0])


def bytes_used(pid: int) -> int:
    """The memory that a process takes; 0 where that cannot be told."""
    return int(_read(pid, "statm", lambda text: text.split()[1]) or 0) * _PAGE


def command(pid: int) -> str:
    """The command line of a process; empty for a zombie too."""
    return _read(pid, "cmdline", lambda text: text.replace("\0", " "))


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # that thread has just ended
            found += map(int, task.read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found: list[int] = []
    pending = [pid]
    while pending:
        pids = [child for child in children(pending.pop()) if child not in found]
        found += pids
        pending += pids
    return found
