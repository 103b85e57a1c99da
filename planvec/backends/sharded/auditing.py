"""Defines `Auditor`, which lets another worker step some rows a second time. See `backends.audit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from planvec.backends.audit import Audit, AuditedRow
from planvec.backends.sharded.call import Call, Chunk
from planvec.backends.sharded.queue import WorkerRecord
from planvec.backends.stats import Stats
from planvec.errors import EnvError, PlanvecError, UnsupportedEnvError
from planvec.rows import Answer, Request


class Auditor:
    """Audits one row at a time."""

    # All methods are called with the lock of the backend held.

    def __init__(
        self,
        fraction: float,
        num_workers: int,
        submit: Callable[[Request[Any], WorkerRecord], Call[Any]],
        stats: Stats,
    ) -> None:
        # While one worker repeats a row, the others may have to wait for it.
        self._audit = Audit(fraction / num_workers)
        self._submit = submit
        self._stats = stats
        self._row: AuditedRow | None = None
        self._first: WorkerRecord | None = None
        self._second: WorkerRecord | None = None
        self._call: Call[Any] | None = None

    def consider(self, record: WorkerRecord, chunk: Chunk, answer: Answer) -> None:
        """Keep a row of a chunk that a worker has answered, if it is time for an audit."""
        if self._row is None and not chunk.is_flagging and chunk.call is not self._call:
            self._row = self._audit.choose(chunk.call.request, chunk.rows, answer, record.worker.name)
            self._first = record

    def begin(self, records: Sequence[WorkerRecord]) -> None:
        """Let a worker step the kept row again: another one than the first time, if there is one."""
        # It does so after the chunks that it has.
        if self._row is None or self._call is not None:
            return
        others = [record for record in records if record is not self._first] or records
        ready = [record for record in others if record.worker.is_ready]
        if ready:
            self._second = min(ready, key=lambda record: len(record.chunks))
            self._call = self._submit(self._row.request, self._second)

    def verdict(self) -> PlanvecError | None:
        """Return the error of an audit that is complete and has found a difference, once; else None."""
        row, call = self._row, self._call
        if row is None or call is None or not call.is_done:
            return None
        self._row = self._call = None
        assert self._second is not None
        error, name = call.error, self._second.worker.name
        if error is None:
            self._stats.audited_rows += 1
            return row.compare(call.prepare().answer, name)
        if isinstance(error, EnvError):
            return UnsupportedEnvError(row.text(name, f"it raised {error.detail}"))
        return None  # the worker was lost, which says nothing about the environment
