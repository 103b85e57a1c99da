"""Reads what Linux tells about processes under `/proc`; nothing elsewhere, and of those that have ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

__all__ = ["bytes_used", "children", "command", "descendants", "exists", "state"]

_PAGE = os.sysconf("SC_PAGE_SIZE")


def _read(pid: int, name: str, extract: Callable[[str], str]) -> str:
    """Return something out of a file about a process; empty where there is none."""
    try:
        return extract(Path(f"/proc/{pid}/{name}").read_text())
    except (OSError, IndexError):
        return ""


def exists(pid: int) -> bool:
    """Return whether anything is left of a process, be it a zombie."""
    return Path(f"/proc/{pid}").exists()


def state(pid: int) -> str:
    """Return what a process does: "R" (runs), "S" (sleeps), "T" (was stopped), "Z" (has died), ..., or ""."""
    return _read(pid, "stat", lambda text: text.rpartition(")")[2].split()[0])


def bytes_used(pid: int) -> int:
    """Return the bytes of memory that a process takes; 0 where that cannot be told."""
    return int(_read(pid, "statm", lambda text: text.split()[1]) or 0) * _PAGE


def command(pid: int) -> str:
    """Return the command line of a process; empty for a zombie too."""
    return _read(pid, "cmdline", lambda text: text.replace("\0", " "))


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    pids: list[int] = []
    with contextlib.suppress(OSError):  # the process has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # that thread has just ended
                pids += map(int, (task / "children").read_text().split())
    return pids


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    below: list[int] = []
    pending = [pid]
    while pending:
        pids = [child for child in children(pending.pop()) if child not in below]
        below += pids
        pending += pids
    return below
