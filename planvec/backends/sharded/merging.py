"""Merges the answers to the chunks of a request. Letters: B rows."""

from __future__ import annotations

from typing import Generic, TypeVar

from planvec.errors import PlanvecError
from planvec.rows import Answer, Columns, EnvDescription, Request, merge_columns

T = TypeVar("T")


class Merger(Generic[T]):
    """Collects the answers to the chunks of one request."""

    def __init__(self, request: Request[T], num_rows: int, description: EnvDescription) -> None:
        self._request = request
        self._num_rows = num_rows
        self._description = description
        self._columns: dict[int, tuple[int, Columns]] = {}  # first row -> number of rows, infos
        self._has_infos = False
        self._answer = Answer(request.new_outputs(description))

    @property
    def num_flagged(self) -> int:
        """Number of rows that are flagged as failed."""
        return len(self._answer.errors)

    def add(self, rows: slice, answer: Answer, is_flagging: bool) -> None:
        """Merge the answer to a chunk."""
        num_rows = rows.stop - rows.start
        if not num_rows:
            self._answer.value = answer.value
            return
        if num_rows == self._num_rows and not answer.is_borrowed and not is_flagging:
            self._answer.outputs = answer.outputs
        else:
            self._answer.outputs.put(rows, answer.outputs)
        # A dict, not a list: if a signal handler interrupts a merge, the chunk is retried and merged again.
        self._columns[rows.start] = num_rows, answer.columns
        self._has_infos = self._has_infos or bool(answer.columns)

    @property
    def answer(self) -> Answer:
        """The merged outputs, once all chunks are merged."""
        return self._answer

    def flag(self, row: int, error: PlanvecError) -> None:
        """Flag a row with an error."""
        self._answer.errors[row] = error

    def result(self) -> T:
        """Return the result for the user, once all chunks are merged."""
        answer = self._answer
        if len(self._columns) == 1:
            ((_, answer.columns),) = self._columns.values()
        elif self._has_infos:
            answer.columns = merge_columns(
                [(columns, size) for _, (size, columns) in sorted(self._columns.items())]
            )
        return self._request.result(self._description, answer)
