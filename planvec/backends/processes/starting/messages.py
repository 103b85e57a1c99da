"""Sends messages between a template process and its parent, over socket pairs.

    parent                                      template
      | -- request + file descriptors -----------> |  "requests", one pair for all workers: fork a worker
      |                                            |
      | <- process id (or -errno) + pidfd -------- |  "report", one pair for each worker
      | <- exit code, once it has ended ---------- |

The `WorkerSpec` lies in memory without a name. The template passes its file descriptor to the worker and does
not read it, so that it never unpickles data of the user.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Sequence

MAX_FDS = 8  # largest number of file descriptors in one message
STREAMS = (1, 2)  # file descriptors of the standard streams that a worker receives, if they are open
_NUMBER = struct.Struct("<q")
_REQUEST = struct.Struct("<BB")
REQUEST_SIZE = _REQUEST.size  # number of bytes of a request


def pack_request(num_fds: int, streams: Sequence[int]) -> bytes:
    """Return the bytes of a request to fork a worker."""
    return _REQUEST.pack(num_fds, sum(1 << number for number in streams))


def unpack_request(data: bytes) -> tuple[int, list[int]]:
    """Return the arguments of `pack_request`."""
    num_fds, mask = _REQUEST.unpack(data)
    return num_fds, [number for number in STREAMS if mask & 1 << number]


def send_with_fds(sock: socket.socket, data: bytes, fds: Sequence[int]) -> None:
    """Send at least one byte, and file descriptors with the first one."""
    socket.send_fds(sock, [data], list(fds))


def receive_with_fds(sock: socket.socket, size: int) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes and the file descriptors sent with them, which are not inheritable."""
    # With `socket.recv_fds`, a process that another thread starts meanwhile could inherit them.
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
