"""Messages between a template process and its parent, over socket pairs.

    parent                                      template
      | -- number of fds + the fds --------------> |  "requests", one pair for all workers: fork a worker
      |                                            |
      | <- process id (or -errno) + pidfd -------- |  "report", one pair for each worker
      | <- exit code, once it has ended ---------- |

What the worker itself must know, a `WorkerSpec`, lies in memory without a name, which the template hands on
without reading it: nothing of the user's is unpickled in the template, whatever its size.
"""

from __future__ import annotations

import array
import contextlib
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planvec.backends.processes.wire.slab import open_memory

__all__ = [
    "MAX_FDS",
    "WorkerSpec",
    "receive_number",
    "receive_with_fds",
    "send_number",
    "send_with_fds",
]

MAX_FDS = 8
"""The most file descriptors that one message carries."""
_NUMBER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Holds what a forked worker must know that an interpreter of its own would have inherited.

    Attributes:
        factory: The cloudpickled factory of the hosted object.
        environ: The parent's environment variables.
        preparation: `sys.path`, the working directory and the like, as the spawn method sends them.
        streams: The numbers of the standard streams that come with the request: 1 and 2, where they are open.
    """

    factory: bytes
    environ: dict[str, str]
    preparation: dict[str, Any]
    streams: tuple[int, ...]

    def write(self) -> int:
        """Return a file descriptor of memory that holds the order.

        Raises:
            OSError: No memory or no file is left.
        """
        memory = open_memory()
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(pickle.dumps(self, protocol=5))
        except BaseException:
            os.close(memory)
            raise
        return memory

    @classmethod
    def read(cls, memory: int) -> WorkerSpec:
        """Read the order out of memory that `write` returned, and close the file descriptor."""
        with open(memory, "rb") as file:
            file.seek(0)
            order: WorkerSpec = pickle.loads(file.read())
        return order


def send_with_fds(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    """Send at least one byte, and file descriptors with the first one.

    Raises:
        OSError: The other side is gone.
    """
    socket.send_fds(sock, [data], list(fds))


def receive_with_fds(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes, and the file descriptors that came with them, which no child inherits.

    `socket.recv_fds` would leave them inheritable by what another thread starts.

    Raises:
        OSError: The other side is gone.
    """
    fds = array.array("i")
    flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    data, ancillary, _, _ = sock.recvmsg(size, socket.CMSG_SPACE(MAX_FDS * fds.itemsize), flags)
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content[: len(content) - len(content) % fds.itemsize])
    for fd in fds:
        os.set_inheritable(fd, False)
    return data, list(fds)


def send_number(report: socket.socket, number: int, fds: Sequence[int] = ()) -> None:
    """Send a number to whoever still wants to know it."""
    with contextlib.suppress(OSError):
        send_with_fds(report, _NUMBER.pack(number), fds)


def receive_number(report: socket.socket) -> tuple[int | None, list[int]]:
    """Receive a number and its file descriptors; None where the other side has closed the pair."""
    try:
        data, fds = receive_with_fds(report, _NUMBER.size)
    except ConnectionError:
        return None, []
    return (_NUMBER.unpack(data)[0] if data else None), fds
