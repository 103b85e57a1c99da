"""Keeps the chunks of every worker, and the chunks and calls that wait for one."""

from __future__ import annotations

from collections import deque
from typing import Any

from planvec.backends.base import Worker
from planvec.backends.sharded.call import Call, Chunk
from planvec.errors import PlanvecError

__all__ = ["MAX_PENDING", "Queue", "WorkerRecord"]

MAX_PENDING = 2
"""Largest number of chunks that a worker has at a time: one that it works on, and the next one."""


class WorkerRecord:
    """Keeps one worker, its chunks, and how it ended the last time.

    Args:
        worker: The worker.

    Attributes:
        chunks: Chunks that it has and has not answered, the oldest first.
        num_exits: How often it crashed since it last finished a chunk.
        failure: Why it cannot be started, or None.
        exit_text: How it ended the last time, and over which rows, for messages.
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.chunks: list[Chunk] = []
        self.num_exits = 0
        self.failure: PlanvecError | None = None
        self.exit_text = ""

    @property
    def has_started_or_failed(self) -> bool:
        """Whether it is ready, or cannot be started."""
        return self.worker.is_ready or self.failure is not None


class Queue:
    """Holds the chunks and calls that wait for a worker.

    A chunk stays in its queue until a worker has it, and is skipped from then on. So a signal handler that
    raises in between loses no chunk.
    """

    def __init__(self) -> None:
        self._retries: deque[Chunk] = deque()
        self._calls: deque[Call[Any]] = deque()
        self._bound: dict[WorkerRecord, deque[Chunk]] = {}

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
        """Queue chunks before all others, in this order."""
        for chunk in reversed(chunks):
            chunk.is_submitted, chunk.future = False, None
            self._retries.appendleft(chunk)

    def bind(self, record: WorkerRecord, chunk: Chunk) -> None:
        """Queue a chunk for one worker alone: it has crashed this one, and may crash others."""
        chunk.is_submitted, chunk.future = False, None
        self._bound.setdefault(record, deque()).append(chunk)

    def release(self, record: WorkerRecord) -> None:
        """Fail the calls whose chunks were queued for a worker that cannot be started."""
        assert record.failure is not None
        for chunk in self._bound.pop(record, ()):
            chunk.call.fail(record.failure)

    def next_chunk(self, record: WorkerRecord, num_workers: int) -> Chunk | None:
        """Return the next chunk for a worker, or None. It is the same chunk until a worker has it.

        Args:
            record: Of the worker.
            num_workers: Workers that are there.
        """
        if record in self._bound:
            chunk = _first(self._bound[record])
            if chunk is not None:
                return chunk
            del self._bound[record]
        if self._retries:
            chunk = _first(self._retries)
            if chunk is not None:
                return chunk
        while self._calls:
            chunk = self._calls[0].next_chunk(num_workers, record.worker.capacity)
            if chunk is not None:
                return chunk
            self._calls.popleft()
        return None

    def fail_waiting(self, error: PlanvecError) -> None:
        """Fail every call that has something in this queue."""
        calls = [*(chunk.call for chunk in self._retries), *(call for call in self._calls if call.is_waiting)]
        self._retries.clear()
        for call in calls:
            call.fail(error)


def _first(chunks: deque[Chunk]) -> Chunk | None:
    """Return the first chunk that no worker has yet."""
    while chunks:
        if not (chunks[0].is_submitted or chunks[0].is_done):
            return chunks[0]
        chunks.popleft()
    return None
