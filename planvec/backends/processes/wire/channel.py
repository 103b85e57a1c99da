"""Frames between a parent and its worker, over a pair of local sockets.

A frame is a header of fixed size (ticket, verb, slot, rows, length) and a payload, often empty: what is
of fixed size lies in the slab. Sockets were chosen by measuring (`benchmarks/signalling.py`): pipes,
eventfds and semaphores cost the same, since what costs is waking a process on another core (20 us each
way); but a socket tells at once when the other side dies, and needs no name. The wake-up is saved by
looking at the socket for some microseconds before sleeping on it: see `Channel.wait`.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
import weakref
from typing import NamedTuple

from planvec.backends.processes.os.signals import is_from_handler

__all__ = ["SPIN_SECONDS", "Channel", "ChannelError", "Frame", "close_parent_channels", "yield_core"]

_HEADER = struct.Struct("<Q16sIIQ")
SPIN_SECONDS = 200e-6
"""How long to look before sleeping: as long as the other side may take to wake up, to make sense of an
answer and to ask again, so that calls in close succession find both sides awake."""

_parent_channels: weakref.WeakSet[Channel] = weakref.WeakSet()

yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))
"""Let another process that waits for this core run first: with more processes than cores, looking without
yielding would keep the very process waiting that one waits for."""


class Frame(NamedTuple):
    """One message.

    Attributes:
        ticket: Which request it is, or answers.
        verb: What to do, or how it went: at most 16 ASCII characters.
        slot: Where in the slab its rows lie.
        num_rows: How many.
        payload: What is not in the slab.
    """

    ticket: int
    verb: bytes
    slot: int = 0
    num_rows: int = 0
    payload: bytes = b""


class ChannelError(Exception):
    """The other side is gone, or has stopped in the middle of a frame."""


def _as_channel_error(error: OSError) -> ChannelError:
    """What an error of the socket says; one that a signal handler of the user's has raised says nothing."""
    if is_from_handler(error):
        raise error
    return ChannelError(str(error))


class Channel:
    """One end of the pair.

    Args:
        sock: A connected stream socket.
        stall_seconds: How long a frame may stop halfway before the other side counts as gone; None for
            as long as it takes.
    """

    def __init__(self, sock: socket.socket, stall_seconds: float | None = None) -> None:
        self._socket = sock
        self._socket.settimeout(stall_seconds)
        self._fd = sock.fileno()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        if stall_seconds is not None:
            _parent_channels.add(self)

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self._fd

    def send(self, frame: Frame) -> None:
        """Send a frame.

        Raises:
            ChannelError: The other side is gone, or stopped reading.
        """
        ticket, verb, slot, num_rows, payload = frame
        data = _HEADER.pack(ticket, verb, slot, num_rows, len(payload)) + payload
        try:
            if payload or not self._write_at_once(data):
                self._socket.sendall(data)
        except OSError as error:
            raise _as_channel_error(error) from error

    def _write_at_once(self, data: bytes) -> bool:
        """Write so few bytes that they go in one piece, or not at all: whether they went."""
        try:
            os.write(self._fd, data)
        except BlockingIOError:  # a large frame before this one is still being read
            return False
        return True

    def receive(self) -> Frame | None:
        """Read a frame; None where there is none, and the channel does not wait.

        Raises:
            ChannelError: The other side is gone, or stopped in the middle.
        """
        try:
            header = self._read_at_once(_HEADER.size)
            if header is None:
                return None
            if len(header) < _HEADER.size:
                header += self._read(_HEADER.size - len(header))
            ticket, verb, slot, num_rows, size = _HEADER.unpack(header)
            payload = self._read(size) if size else b""
        except OSError as error:
            raise _as_channel_error(error) from error
        return Frame(ticket, verb.rstrip(b"\0"), slot, num_rows, payload)

    def _read_at_once(self, size: int) -> bytes | None:
        """What is there; None if nothing is, and the channel does not wait."""
        try:
            return os.read(self._fd, size)
        except BlockingIOError:
            return None

    def _read(self, size: int) -> bytes:
        buffer = bytearray()
        while len(buffer) < size:
            data = self._socket.recv(min(size - len(buffer), 1 << 20))
            if not data:
                raise ConnectionResetError("the other side closed the channel")
            buffer += data
        return bytes(buffer)

    def is_readable(self) -> bool:
        """Whether something is there to read, or the other side is gone."""
        return bool(self._poll.poll(0))

    def wait(self) -> None:
        """Wait until something can be read: look for `SPIN_SECONDS`, then sleep."""
        deadline = time.perf_counter() + SPIN_SECONDS
        poll, now = self._poll.poll, time.perf_counter
        while not poll(0):
            if now() > deadline:
                poll()
                return
            yield_core()

    def close(self) -> None:
        """Close this end; the other side reads the end of the stream."""
        _parent_channels.discard(self)
        self._fd = -1  # the number may soon belong to another file
        self._socket.close()


def close_parent_channels() -> None:
    """Close the parent's ends in a forked child.

    A child that kept them would keep its siblings from noticing that the parent has died.
    """
    for channel in list(_parent_channels):
        channel.close()
