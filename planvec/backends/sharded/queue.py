"""Holds the chunks of each worker, and the queue of chunks and calls that wait for a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from planvec.backends.base import Worker
from planvec.backends.sharded.call import Call, Chunk
from planvec.errors import PlanvecError

MAX_PENDING = 2  # largest number of chunks of a worker at a time: the one that it executes, and the next one


class WorkerRecord:
    """Holds one worker, its chunks and its latest exit."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        # chunks that it has not answered, the oldest first, without those of extra calls (see `Call`)
        self.chunks: list[Chunk] = []
        self.num_failures = 0  # number of its exits since it last finished a chunk, except kills from outside
        self.failure: PlanvecError | None = None  # the reason that it cannot start, or None
        self.exit_text = ""  # text for messages: how it exited last, and while executing which rows
        # whether it had no place when a base state was synced, and gets it once it is ready
        self.lacks_base_state = False

    @property
    def has_started_or_failed(self) -> bool:
        """Whether it is ready, or cannot start."""
        return self.worker.is_ready or self.failure is not None


def can_begin(records: Sequence[WorkerRecord]) -> bool:
    """Return whether a worker has started or failed, and so have the others that do not wait for a place."""
    have_started = [record.has_started_or_failed for record in records]
    return any(have_started) and all(
        has_started or record.worker.is_delayed
        for has_started, record in zip(have_started, records, strict=True)
    )


class Queue:
    """Queues the chunks and calls that wait for a worker."""

    # A chunk stays in the queue while it is being submitted, and is skipped once it is marked as submitted.
    # Therefore a signal handler that raises in between loses no chunk.

    def __init__(self) -> None:
        self._retries: deque[Chunk] = deque()
        self._calls: deque[Call[Any]] = deque()
        self._bound: dict[WorkerRecord, deque[Chunk]] = {}

    def is_empty(self) -> bool:
        """Return whether no chunk waits. Removes calls that are cut."""
        calls = self._calls
        while calls and calls[0].is_cut:
            calls.popleft()
        return not (calls or self._retries or self._bound)

    def add(self, call: Call[Any]) -> None:
        """Append a call."""
        self._calls.append(call)

    def retry(self, *chunks: Chunk) -> None:
        """Insert chunks before all others, in this order."""
        for chunk in reversed(chunks):
            chunk.is_submitted, chunk.future = False, None
            self._retries.appendleft(chunk)

    def bind(self, record: WorkerRecord, chunk: Chunk) -> None:
        """Queue a chunk for one worker only, because it crashed this worker and may crash others."""
        chunk.is_submitted, chunk.future = False, None
        self._bound.setdefault(record, deque()).append(chunk)

    def release(self, record: WorkerRecord) -> None:
        """Fail the calls whose chunks are bound to a worker that cannot start."""
        assert record.failure is not None
        for chunk in self._bound.pop(record, ()):
            chunk.call.fail(record.failure)

    def next_chunk(self, record: WorkerRecord, num_workers: int) -> Chunk | None:
        """Return the next chunk for a worker, or None. It stays the next one until it is submitted."""
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
        """Fail every call that has chunks in this queue, except those bound to one worker."""
        calls = [*(chunk.call for chunk in self._retries), *(call for call in self._calls if call.is_waiting)]
        self._retries.clear()
        for call in calls:
            call.fail(error)


def _first(chunks: deque[Chunk]) -> Chunk | None:
    """Return the first chunk that is not submitted, and remove the chunks before it."""
    while chunks:
        if not (chunks[0].is_submitted or chunks[0].is_done):
            return chunks[0]
        chunks.popleft()
    return None
