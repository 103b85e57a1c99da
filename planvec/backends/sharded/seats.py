"""Who works on what: the workers of a `Sharded`, and what waits for them."""

from __future__ import annotations

from collections import deque
from typing import Any

from planvec.backends.base import Worker
from planvec.backends.sharded.call import Call, Chunk
from planvec.errors import PlanvecError

__all__ = ["MAX_PENDING", "Queue", "Seat"]

MAX_PENDING = 2
"""Chunks that a worker has at most: one at work, and one to go on with."""


class Seat:
    """One worker and its chunks.

    Args:
        worker: The worker.

    Attributes:
        chunks: Given to it and not answered, the oldest first.
        num_deaths: How often it died since it last finished anything.
        failure: Why it was given up, or None.
        story: How it ended the last time, and over what, for messages.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.chunks: list[Chunk] = []
        self.num_deaths = 0
        self.failure: PlanvecError | None = None
        self.story = ""

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for: it is ready, or given up."""
        return self.worker.is_ready or self.failure is not None


class Queue:
    """Chunks and calls that wait for a worker.

    A chunk stays where it is until a worker has it, and is skipped from then on: a signal handler that raises
    in between loses none.
    """

    def __init__(self) -> None:
        self._retries: deque[Chunk] = deque()
        self._calls: deque[Call[Any]] = deque()
        self._bound: dict[Seat, deque[Chunk]] = {}

    def is_empty(self) -> bool:
        """Return whether nothing waits."""
        calls = self._calls
        while calls and calls[0].is_cut:
            calls.popleft()
        return not (calls or self._retries or self._bound)

    def add(self, call: Call[Any]) -> None:
        """Add a call behind the others."""
        self._calls.append(call)

    def retry(self, *chunks: Chunk) -> None:
        """Put chunks before everything else, in this order."""
        for chunk in reversed(chunks):
            chunk.is_given, chunk.future = False, None
            self._retries.appendleft(chunk)

    def bind(self, seat: Seat, chunk: Chunk) -> None:
        """Put a chunk before everything else that no other worker shall do: it has killed this one."""
        chunk.is_given, chunk.future = False, None
        self._bound.setdefault(seat, deque()).append(chunk)

    def release(self, seat: Seat) -> None:
        """Fail the calls of chunks that were bound to a worker which was given up."""
        assert seat.failure is not None
        for chunk in self._bound.pop(seat, ()):
            chunk.call.fail(seat.failure)

    def next_chunk(self, seat: Seat, num_workers: int) -> Chunk | None:
        """Return what a worker should do next; None if there is nothing. The same again until it was given.

        Args:
            seat: Of the worker.
            num_workers: Workers that are there.
        """
        if seat in self._bound:
            chunk = _first(self._bound[seat])
            if chunk is not None:
                return chunk
            del self._bound[seat]
        if self._retries:
            chunk = _first(self._retries)
            if chunk is not None:
                return chunk
        while self._calls:
            chunk = self._calls[0].next_chunk(num_workers, seat.worker.capacity)
            if chunk is not None:
                return chunk
            self._calls.popleft()
        return None

    def fail_waiting(self, error: PlanvecError) -> None:
        """Fail every call of which something waits here."""
        calls = [*(chunk.call for chunk in self._retries), *(call for call in self._calls if call.is_waiting)]
        self._retries.clear()
        for call in calls:
            call.fail(error)


def _first(chunks: deque[Chunk]) -> Chunk | None:
    """Return the first chunk that no worker has yet."""
    while chunks:
        if not (chunks[0].is_given or chunks[0].is_done):
            return chunks[0]
        chunks.popleft()
    return None
