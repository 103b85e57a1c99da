"""Sends messages between a template process and its parent, over socket pairs.

    parent                                      template
      | -- number of fds + the fds --------------> |  "requests", one pair for all workers: fork a worker
      |                                            |
      | <- process id (or -errno) + pidfd -------- |  "report", one pair for each worker
      | <- exit code, once it has ended ---------- |

The data for the worker, a `WorkerSpec`, lies in memory without a name. The template passes its file
descriptor to the worker and does not read it, so that it never unpickles data of the user.
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
"""Largest number of file descriptors in one message."""
_NUMBER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Holds the data for a forked worker, which a process with a fresh interpreter would inherit or receive.

    Attributes:
        factory: The cloudpickled factory of the hosted object.
        environ: The environment variables of the parent.
        preparation: `sys.path`, the working directory and further settings, as the spawn method sends them.
        streams: The standard streams that are sent with the request: those of 1 and 2 that are open.
    """

    factory: bytes
    environ: dict[str, str]
    preparation: dict[str, Any]
    streams: tuple[int, ...]

    def write(self) -> int:
        """Return a file descriptor of memory that holds the pickled data.

        Raises:
            OSError: The system lacks memory or files.
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
        """Return the data from memory that `write` returned, and close the file descriptor."""
        with open(memory, "rb") as file:
            file.seek(0)
            spec: WorkerSpec = pickle.loads(file.read())
        return spec


def send_with_fds(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    """Send at least one byte, and file descriptors with the first one.

    Raises:
        OSError: The other side has closed the socket, or too many file descriptors are in flight.
    """
    socket.send_fds(sock, [data], list(fds))


def receive_with_fds(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes and the file descriptors sent with them, which are not inheritable.

    With `socket.recv_fds`, a process that another thread starts meanwhile could inherit them.

    Raises:
        OSError: The other side has closed the socket.
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
    """Send a number and file descriptors. Do nothing if the other side has closed the socket."""
    with contextlib.suppress(OSError):
        send_with_fds(report, _NUMBER.pack(number), fds)


def receive_number(report: socket.socket) -> tuple[int | None, list[int]]:
    """Receive a number and its file descriptors. The number is None if the other side has closed."""
    try:
        data, fds = receive_with_fds(report, _NUMBER.size)
    except ConnectionError:
        return None, []
    return (_NUMBER.unpack(data)[0] if data else None), fds
