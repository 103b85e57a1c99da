"""Defines `RowsRequest`, which asks a worker to perform the operation of a chunk."""

from __future__ import annotations

from collections.abc import Callable

from planvec.backends import ServedRequest
from planvec.vector.chunk import Chunk


class RowsRequest(ServedRequest):
    """Asks a `RowsServer` to perform the operation of a chunk."""

    def __init__(self, chunk: Chunk, write: Callable[[Chunk], bytes]) -> None:
        self._chunk = chunk
        self._write = write

    @property
    def num_rows(self) -> int:
        return len(self._chunk.rows)

    @property
    def verb(self) -> str:  # type: ignore[override]
        return type(self._chunk.operation).__name__.lower()

    def write(self) -> bytes:
        return self._write(self._chunk)
