"""Remembers how to bring the environments of a lost worker up to date in its replacement.

    settings   snapshot   operations since         operations that the worker had not finished
    --------   --------   ----------------------   -------------------------------------------
    made       restored   performed again, their   performed again
    again                 results are dropped

Settings are what no state contains: attributes that the user has set. All of it is a pure function of what
the worker was asked, so the rows go on with the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

from planvec.vector.operations import (
    Call,
    Load,
    Operation,
    Reply,
    Reset,
    Restore,
    SetAttribute,
    SetStates,
    Step,
)

_CHANGING = (Step, Reset, Call, SetAttribute, SetStates, Load)


class _Entry(NamedTuple):
    operation: Operation
    is_setting: bool


class Journal:
    """Records the operations of one worker."""

    def __init__(self, has_snapshots: bool) -> None:
        self._has_snapshots = has_snapshots
        self._settings: dict[object, Operation] = {}
        self._snapshot: bytes | None = None
        self._since: list[_Entry] = []

    def record(self, operation: Operation, reply: Reply) -> None:
        """Record an operation that is done."""
        is_setting = isinstance(operation, SetAttribute) or reply.changes_settings
        if not isinstance(operation, _CHANGING) or (isinstance(operation, Call) and operation.only_reads):
            return
        if self._has_snapshots or is_setting:
            self._since.append(_Entry(operation, is_setting))
        if reply.snapshot is not None:
            self._snapshot = reply.snapshot
        if reply.snapshot is not None or not self._has_snapshots:
            self._keep_settings()

    def _keep_settings(self) -> None:
        for operation, is_setting in self._since:
            if not is_setting:
                continue
            key: object = operation
            if isinstance(operation, SetAttribute):  # a later value replaces an earlier one
                rows = None if operation.rows is None else operation.rows.tobytes()
                key = (operation.name, rows, operation.on_outermost)
                self._settings.pop(key, None)
            self._settings[key] = operation
        self._since.clear()

    def operations(self) -> list[Operation]:
        """Return the operations that bring new environments up to date."""
        restore: list[Operation] = [] if self._snapshot is None else [Restore(None, self._snapshot)]
        return [*self._settings.values(), *restore, *(entry.operation for entry in self._since)]

    def end_snapshots(self) -> None:
        """Record only settings from now on."""
        self.forget()
        self._has_snapshots = False

    def forget(self) -> None:
        """Forget everything but the settings: the episodes are lost."""
        self._keep_settings()
        self._snapshot = None
