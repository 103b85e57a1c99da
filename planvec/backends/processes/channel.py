"""Sends frames between a parent and its worker, over a pair of local sockets.

A frame is a header of fixed size (ticket, verb, slot, rows, length) and a payload. The payload is often
empty, since data of fixed size lies in the slab. Sockets were chosen by measurement
(`benchmarks/signalling.py`): pipes, eventfds and semaphores take the same time, most of which is to wake a
process on another core (20 us each way); but a socket reports the exit of the other side at once, and needs
no name. `Channel.wait` avoids the wake-up: it polls the socket for a while before it sleeps, where there is
an idle core.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from planvec.backends.signals import is_from_handler

_HEADER = struct.Struct("<Q16sIIQ")
# Time to poll before sleeping. The other side needs about as long to wake up, to read an answer and to send
# the next request. Therefore neither side sleeps between calls in close succession.
SPIN_SECONDS = 200e-6
# The same for a caller with fewer workers than cores, since it is one process and all wait for it: until it
# wakes up, 50 us and more pass (CartPole, 128 rows of one worker: 0.92 of what it does alone, not 0.85).
LONG_SPIN_SECONDS = 5e-3
# A pause between two polls after which this core counts as needed: another process ran on it, for longer than
# it takes to wake up. A poll takes 1 to 2 us.
_PAUSE_SECONDS = 100e-6
_MAX_SKIPPED = 64

# Lets another process run on this core first. With more processes than cores, a process that polls without
# yielding would delay the process that it waits for.
_yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))


Poll = Callable[..., list[tuple[int, int]]]  # the method `poll` of `select.poll()`


class Poller:
    """Waits for messages: polls for a while where that is faster, and then sleeps."""

    # It polls if the wait before was short, and nobody else needs the core. Both are measured, since they
    # depend on what the other side does and on other programs: after each poll the core is offered, and a
    # pause shows that it was taken. The next waits then sleep at once, the more of them the more often this
    # happens.

    def __init__(self) -> None:
        self._was_short = True
        self._seconds = SPIN_SECONDS  # for which it polled last, at most
        self._num_skipped = 0  # waits that sleep at once after the next pause
        self._num_left = 0  # of these, how many are left

    def spin(self, poll: Poll, seconds: float = SPIN_SECONDS) -> list[tuple[int, int]]:
        """Poll until there are events, for some seconds at most. Returns the events."""
        events = poll(0)
        if events or not self._was_short:
            return events
        if self._num_left > 0:
            self._num_left -= 1
            return events
        now = time.perf_counter
        last = now()
        self._seconds = seconds
        deadline = last + seconds
        while last < deadline:
            _yield_core()
            events = poll(0)
            time_polled = now()
            if time_polled - last > _PAUSE_SECONDS:
                self._num_skipped = min(2 * self._num_skipped + 1, _MAX_SKIPPED)
                self._num_left = self._num_skipped
                return events
            if events:
                self._num_skipped //= 2
                return events
            last = time_polled
        self._was_short = False
        return events

    def sleep(self, poll: Poll, milliseconds: float | None = None) -> list[tuple[int, int]]:
        """Sleep until there are events, or for a time. Returns the events."""
        started = time.perf_counter()
        events = poll(milliseconds)
        # Polling would have found them.
        self._was_short = bool(events) and time.perf_counter() - started < self._seconds
        return events


class Frame(NamedTuple):
    """Holds one message that was received."""

    ticket: int  # number of the request that this is, or that this answers
    verb: bytes  # kind of the request, or the outcome: at most 16 ASCII characters
    slot: int  # index of the slot in the slab that holds the rows
    num_rows: int
    payload: bytes  # data that does not lie in the slab


class ChannelError(Exception):
    """Raised when the other side has closed the channel, or has stopped in the middle of a frame."""


def _as_channel_error(error: OSError) -> ChannelError:
    """Return the error to raise for an error of the socket. Raise one from a signal handler of the user."""
    if is_from_handler(error):
        raise error
    return ChannelError(str(error))


class Channel:
    """Sends and receives frames at one end of the pair."""

    # `stall_seconds`: Longest pause within a frame, in seconds, before the other side counts as closed. The
    # channel does not wait for the first byte of a frame. None, in the worker, waits without a limit.

    def __init__(self, sock: socket.socket, stall_seconds: float | None = None) -> None:
        self._socket = sock
        self._socket.settimeout(stall_seconds)
        self._fd = sock.fileno()
        self._poll = select.poll()
        self._poll.register(sock.fileno(), select.POLLIN)
        self._poller = Poller()

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._fd

    def send(self, ticket: int, verb: bytes, slot: int = 0, num_rows: int = 0, payload: bytes = b"") -> None:
        """Send a frame. The arguments are the fields of `Frame`."""
        data = _HEADER.pack(ticket, verb, slot, num_rows, len(payload)) + payload
        try:
            if payload:
                self._socket.sendall(data)
                return
            try:
                os.write(self._fd, data)  # a few bytes are written all at once, or none
            except BlockingIOError:  # a large frame before this one is still being read
                self._socket.sendall(data)
        except OSError as error:
            raise _as_channel_error(error) from error

    def receive(self) -> Frame | None:
        """Return the next frame; None if none has arrived and the channel does not wait."""
        try:
            try:
                header = os.read(self._fd, _HEADER.size)
            except BlockingIOError:
                return None
            if len(header) < _HEADER.size:
                header += self._read(_HEADER.size - len(header))
            ticket, verb, slot, num_rows, size = _HEADER.unpack(header)
            payload = self._read(size) if size else b""
        except OSError as error:
            raise _as_channel_error(error) from error
        return Frame(ticket, verb.rstrip(b"\0"), slot, num_rows, payload)

    def _read(self, size: int) -> bytes:
        buffer = bytearray()
        while len(buffer) < size:
            data = self._socket.recv(min(size - len(buffer), 1 << 20))
            if not data:
                raise ConnectionResetError("the other side closed the channel")
            buffer += data
        return bytes(buffer)

    def is_readable(self) -> bool:
        """Return whether there are bytes to read, or the other side has closed the channel."""
        return bool(self._poll.poll(0))

    def wait(self) -> None:
        """Wait until something can be read: poll for a moment, then sleep."""
        if not self._poller.spin(self._poll.poll):
            self._poller.sleep(self._poll.poll)

    def close(self) -> None:
        """Close this end; the other side reads the end of the stream."""
        self._fd = -1  # the number may soon belong to another file
        self._socket.close()


# -- Defines verbs of messages: at most 16 ASCII characters. Each `Form` defines the verb of its requests ----

READY = b"ready"  # the object is made; the payload is the pickled description of its environment, or None
HOSTED = b"hosted"  # the payload is an operation on the hosted object
PICKLED = b"pickled"  # the payload is a request of `planvec.rows` that needs no slot
SERVED = b"served"  # the payload is a request that the hosted object, a `Server`, answers itself
DONE = b"done"  # the request succeeded; the payload is the data that does not lie in the slab
FAILED = b"failed"  # the request raised an exception; the payload is a pickled `Failure`
