"""Hosts the environments of one worker in its process, and answers operations on them.

The reply to a step of cheap environments is often empty: everything lies in the shared memory.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import Any

import cloudpickle
import numpy as np

from planvec.backends import Server, load_from_parent, load_pickled
from planvec.errors import EnvError
from planvec.rows import clear_row, take_rows, unpicklable_rows
from planvec.vector.layout import RowsLayout
from planvec.vector.operations import Call, Load, Operation, Reply, Reset, SetStates, Step
from planvec.vector.resident_envs import ResidentEnvs
from planvec.vector.resident_states import ResidentStates, SnapshotClock
from planvec.vector.row_failure import RowFailure

_MOVING = (Step, Reset, SetStates, Load, Call)  # operations after which a snapshot may be taken
_PLAIN = frozenset((bool, int, float, str))


class RowsServer(Server):
    """Answers operations on environments."""

    def __init__(self, resident: ResidentEnvs, num_workers: int) -> None:
        self._resident = resident
        self.layout: RowsLayout = RowsLayout.of(resident)
        self._clock = SnapshotClock(num_workers)

    def serve(self, payload: bytes) -> bytes:
        layout, resident = self.layout, self._resident
        arrays = resident.arrays = layout.arrays
        resident.progress = layout.progress
        operation: Operation = load_from_parent(payload) if payload else Step(None, None)
        if isinstance(operation, Step) and operation.actions is None:
            rows = operation.rows
            operation.actions = arrays.actions if rows is None else take_rows(arrays.actions, rows)
        reply = resident.perform(operation)
        if resident.watch is not None and isinstance(operation, Step):
            reply.shared = resident.watch.change()
            if reply.shared:
                resident.watch = None  # it is said once
        if resident.states is not None and isinstance(operation, _MOVING):
            self._take_snapshot(resident.states, reply)
        layout.seconds[0], reply.seconds = reply.seconds, 0.0
        return b"" if _is_empty(reply) else _write_reply(reply)

    def _take_snapshot(self, states: ResidentStates, reply: Reply) -> None:
        """Take a snapshot if it is time for one."""
        try:
            reply.snapshot = self._clock.take(
                partial(_pickle_all, states), reply.seconds, states.needs_snapshot
            )
        except Exception as error:  # it may run code of the environment
            self._resident.give_up_states(f"{type(error).__name__}: {error}")
            reply.inexact = self._resident.inexact

    def close(self) -> None:
        """Close the environments."""
        self._resident.close()


def _pickle_all(states: ResidentStates) -> bytes:
    return pickle.dumps(states.save(), protocol=5)


def write_operation(operation: Operation, has_actions_in_memory: bool) -> bytes:
    """Return an operation as bytes."""
    if has_actions_in_memory:
        return b"" if operation.rows is None else pickle.dumps(Step(operation.rows, None), protocol=5)
    actions = operation.actions if isinstance(operation, Step) else None
    if isinstance(actions, list) and all(_is_plain(action) for action in actions):
        return pickle.dumps(operation, protocol=5)  # ten times as fast
    data: bytes = cloudpickle.dumps(operation, protocol=5)
    return data


def _is_plain(value: Any) -> bool:
    """Return whether `pickle` writes a value without the classes of the user."""
    kind = type(value)
    return (
        kind in _PLAIN or (kind is np.ndarray and not value.dtype.hasobject) or isinstance(value, np.generic)
    )


def read_reply(data: bytes) -> Reply:
    """Return the reply of a worker."""
    reply: Reply = load_pickled(data) if data else Reply()
    return reply


def _is_empty(reply: Reply) -> bool:
    parts = (reply.infos, reply.observations, reply.rewards, reply.value, reply.snapshot)
    return not (
        reply.inexact
        or reply.shared
        or reply.errors
        or reply.changes_settings
        or any(part is not None for part in parts)
    )


def _write_reply(reply: Reply) -> bytes:
    try:
        return pickle.dumps(reply, protocol=5)
    except Exception:
        _drop_unpicklable(reply)
    data: bytes = cloudpickle.dumps(reply, protocol=5)
    return data


def _drop_unpicklable(reply: Reply) -> None:
    """Replace what cannot be sent by an error of its row."""
    unsent: dict[int, EnvError] = {}
    if isinstance(reply.infos, dict) and all(isinstance(key, int) for key in reply.infos):
        unsent = _unpicklable(reply.infos.items(), "info")
        for row in unsent:
            del reply.infos[row]
    elif isinstance(reply.infos, dict):  # columns; those that were encoded as bytes can be sent
        unsent = unpicklable_rows(reply.infos)
        for row in unsent:
            clear_row(reply.infos, row)
    if isinstance(reply.value, list):
        unsent |= _unpicklable(enumerate(reply.value), "the return value")
        for row in unsent:
            reply.value[row] = None
    if reply.observations is not None:
        unsent |= _unpicklable(enumerate(reply.observations), "observation")
        for row in unsent:
            reply.observations[row] = None
    reply.errors |= {row: RowFailure.of(error) for row, error in unsent.items()}


def _unpicklable(items: Any, what: str) -> dict[int, EnvError]:
    errors = {}
    for row, value in items:
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            kind = type(value).__name__
            errors[row] = EnvError(f"{what}: expected something that can be pickled, got a {kind} ({error})")
            errors[row].__cause__ = error
    return errors
