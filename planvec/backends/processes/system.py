"""Reads facts about processes from `/proc`, counts cores, and ties a worker's life to its parent's."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import signal
import socket
from collections.abc import Callable
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def _read(pid: int, name: str, extract: Callable[[str], str]) -> str:
    """Return `extract(text)` for a file of a process; empty if the file does not exist."""
    try:
        return extract(Path(f"/proc/{pid}/{name}").read_text())
    except (OSError, IndexError):
        return ""


def exists(pid: int) -> bool:
    """Return whether a process exists; a zombie counts."""
    return Path(f"/proc/{pid}").exists()


def state(pid: int) -> str:
    """Return the state of a process: "R" (running), "S" (sleeping), "T" (stopped), "Z" (zombie), or ""."""
    return _read(pid, "stat", lambda text: text.rpartition(")")[2].split()[0])


def bytes_used(pid: int) -> int:
    """Return the bytes of memory that a process uses; 0 if they are not known."""
    return int(_read(pid, "statm", lambda text: text.split()[1]) or 0) * _PAGE


def bytes_shared(pid: int) -> int:
    """Return the bytes of shared memory that a process uses; 0 if they are not known."""
    kilobytes = _read(pid, "status", lambda text: text.partition("RssShmem:")[2].split()[0])
    return int(kilobytes or 0) << 10


def command(pid: int) -> str:
    """Return the command line of a process; empty for a zombie."""
    return _read(pid, "cmdline", lambda text: text.replace("\0", " "))


def children(pid: int) -> list[int]:
    """Return the process ids of the child processes of a process."""
    pids: list[int] = []
    with contextlib.suppress(OSError):  # the process has just ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # that thread has just ended
                pids += map(int, (task / "children").read_text().split())
    return pids


def descendants(pid: int) -> list[int]:
    """Return the process ids of the child processes of a process, and of all processes below them."""
    pids: list[int] = []
    pending = [pid]
    while pending:
        new_pids = [child for child in children(pending.pop()) if child not in pids]
        pids += new_pids
        pending += new_pids
    return pids


def die_with_parent(lifeline: socket.socket) -> None:
    """Make the kernel kill this process and its process group, a new one, when the parent ends."""
    # `lifeline`: this end of a socket pair on which nothing is sent. It must stay open.
    # The kernel sends SIGKILL to the process group when the other end of the lifeline closes, which happens
    # however the parent ends. A thread or a signal handler would not run while the environment hangs in C and
    # holds the interpreter lock. PR_SET_PDEATHSIG is not suitable: it acts when the *thread* that started the
    # process ends.
    os.setpgid(0, 0)
    fd = lifeline.fileno()
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([fd], [], [], 0)[0]:  # the parent has already ended
        os.killpg(0, signal.SIGKILL)


# where Linux says how much time of cores a container may use in a period, as "quota period" or "max period",
# and in the older form, as two files
_QUOTAS = (
    ("/sys/fs/cgroup/cpu.max",),
    (
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us",
    ),
)


def num_cores() -> int:
    """Return the number of whole cores that this process may use: of its affinity mask, and its container."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        cores = os.cpu_count() or 1
    for paths in _QUOTAS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or no limit: "max"
            quota, period = map(int, " ".join(Path(path).read_text() for path in paths).split())
            if quota > 0 and period > 0:  # -1 is no limit, too
                cores = min(cores, max(1, quota // period))
    return cores


_THIS_THREAD = getattr(resource, "RUSAGE_THREAD", resource.RUSAGE_SELF)


def num_waits() -> int:
    """Return how often this thread has waited for something else than a core: a clock, a file, a lock."""
    return resource.getrusage(_THIS_THREAD).ru_nvcsw


def default_num_workers() -> int:
    """Return the number of workers to start by default: one per core but that of the caller."""
    # Planners select and merge while workers step: with a worker on every one of 16 cores they had 0.4 of the
    # throughput of 15 workers. On two cores, a second worker does more than it takes from the caller.
    cores = num_cores()
    return cores - 1 if cores > 2 else cores
