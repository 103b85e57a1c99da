"""Performs operations on environments in a worker process, and survives the exit of the process.

    Chunk --> worker: RowsServer     actions and results lie in shared memory
    worker exits  -> restart -> the operations of the `Journal` -> the chunks that were not done

A row gives the same results as if its worker had never exited (`on_crash="restore"`), or its episode ends
with a truncation (`"reset"`), or the call raises (`"raise"`).
"""

from __future__ import annotations

import contextlib
import copy
import logging
import mmap
import os
import pickle
import time
from dataclasses import dataclass, field, fields
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.backends import (
    Allocator,
    DelayedSignals,
    ProcessWorker,
    Server,
    Stats,
    WorkerExit,
    load_from_parent,
    load_pickled,
    pause_before_restart,
)
from planvec.codecs import Proof, Sharing
from planvec.errors import (
    ClosedError,
    EnvError,
    InvalidBatchError,
    PlanvecError,
    WorkerCrashedError,
    WorkerStartError,
    WorkerTimeoutError,
)
from planvec.rows import (
    clear_row,
    copy_rows,
    copy_tree,
    empty_rows,
    is_fixed,
    take_rows,
    unpicklable_rows,
)
from planvec.vector.env_row import ResidentStates, kept
from planvec.vector.operations import Chunk, OnCrash, Operation, Reply, RowArrays, RowFailure
from planvec.vector.resident_envs import ResidentEnvs

_log = logging.getLogger("planvec")

# -- Makes the error for the exit of a worker ----------------------------------------------------------------


def crash_error(exit: WorkerExit, chunk: Chunk | None = None, advice: str = "") -> PlanvecError:
    """Return the error for the exit of a worker."""
    make = WorkerTimeoutError if exit.was_late else WorkerCrashedError
    what, row, action = exit.what + advice, None, None
    if chunk is not None and exit.row is not None and exit.row < len(chunk.rows):
        row = int(chunk.rows[exit.row])
        if chunk.verb == "step" and chunk.operation.per_row:
            actions = chunk.operation.per_row[0]
            action = None if isinstance(actions, (dict, tuple)) else actions[exit.row]
            action = action.item() if isinstance(action, np.generic) else action
    if chunk is not None and chunk.num_exits > 1:
        what += f"; {round(chunk.num_exits)} workers failed on it, one after another"
    return make(what, row=row, action=action)


# -- Remembers how to bring the environments of a lost worker up to date in its replacement.
#
#     settings   snapshot   operations since         operations that the worker had not finished
#     --------   --------   ----------------------   -------------------------------------------
#     made       restored   performed again, their   performed again
#     again                 results are dropped
#
# Settings are what no state contains: attributes that the user has set. All of it is a pure function of what
# the worker was asked, so the rows go on with the same bits.

_CHANGING = frozenset(("step", "reset", "call", "set_attribute", "set_states", "load"))


class Journal:
    """Records the operations of one worker."""

    def __init__(self) -> None:
        self.has_snapshots = True  # else it records only settings
        self._settings: dict[object, Operation] = {}
        self._snapshot: bytes | None = None
        self._since: list[tuple[Operation, bool]] = []  # and whether each is a setting

    def record(self, operation: Operation, reply: Reply) -> None:
        """Record an operation that is done."""
        if operation.name not in _CHANGING:
            return
        is_setting = operation.name == "set_attribute" or reply.changes_settings
        if self.has_snapshots or is_setting:
            self._since.append((operation, is_setting))
        if reply.snapshot is not None:
            self._snapshot = reply.snapshot
        if reply.snapshot is not None or not self.has_snapshots:
            self._keep_settings()

    def _keep_settings(self) -> None:
        for operation, is_setting in self._since:
            if not is_setting:
                continue
            key: object = operation
            if operation.name == "set_attribute":  # a later value replaces an earlier one
                key = (operation.common, None if operation.rows is None else operation.rows.tobytes())
                self._settings.pop(key, None)
            self._settings[key] = operation
        self._since.clear()

    def operations(self) -> list[Operation]:
        """Return the operations that bring new environments up to date."""
        snapshot = self._snapshot
        restore = [] if snapshot is None else [Operation("restore", None, (), (snapshot,))]
        return [*self._settings.values(), *restore, *(operation for operation, _ in self._since)]

    def forget(self) -> None:
        """Forget everything but the settings: the episodes are lost."""
        self._keep_settings()
        self._snapshot = None


# -- Describes the environments of one worker to the parent, and lays out the memory that both share.
#
# The actions and the results of every environment have a place of their own:
#
#     progress seconds | actions observations rewards terminated truncated
#
# The parent writes actions before it sends a step, and reads results after the reply.


@dataclass
class RowsLayout:
    """Describes the environments of one worker. Implements `SharedLayout`."""

    observation_spaces: list[gymnasium.Space[Any]]  # the space of the observations of each environment
    action_spaces: list[gymnasium.Space[Any]]  # the space of the actions of each environment
    metadata: dict[str, Any]  # the metadata of the first environment
    render_mode: str | None  # the render mode of the first environment
    inexact: str  # why states are not saved; "" if they are
    sharing: Sharing  # why each environment needs a process of its own
    proofs: list[Proof | str | None]  # what proofs have shown of each row, if it gets a process of its own
    # The memory, once it is mapped. `actions`: a tree of arrays `[N, ...]`; None if their size varies
    actions: Any = field(init=False, compare=False)
    arrays: RowArrays = field(init=False, compare=False)  # the latest results
    # the row at work; see `planvec.stepping.row_loop`
    progress: memoryview = field(init=False, compare=False)
    # `[1]` float64, the time that the last operation took in the worker
    seconds: NDArray[np.float64] = field(init=False, compare=False)

    @classmethod
    def of(cls, resident: ResidentEnvs) -> RowsLayout:
        """Return the description of environments."""
        envs = [row.env for row in resident.rows]
        return cls(
            _shared([env.observation_space for env in envs]),
            _shared([env.action_space for env in envs]),
            dict(getattr(envs[0], "metadata", None) or {}),
            getattr(envs[0], "render_mode", None),
            resident.inexact,
            resident.sharing,
            resident.proofs,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.init}

    def map_memory(self, memory: int) -> memoryview:
        """Map the shared memory; see `SharedLayout`."""
        counter = Allocator(None)
        self._allocate(counter)
        num_bytes = max(counter.offset, 1)
        if os.fstat(memory).st_size < num_bytes:
            os.ftruncate(memory, num_bytes)
        self._allocate(Allocator(mmap.mmap(memory, num_bytes)))
        return self.progress

    def _allocate(self, allocate: Allocator) -> None:
        progress, self.seconds = allocate(3, np.int64), allocate(1, np.float64)
        self.progress = memoryview(progress)  # type: ignore[arg-type]
        space, num_rows = self.action_spaces[0], len(self.action_spaces)
        self.actions = empty_rows(space, num_rows, allocate) if is_fixed(space) else None
        self.arrays = RowArrays.unmade()
        self.arrays.make(self.observation_spaces[0], num_rows, allocate)

    def difference(self, replacement: RowsLayout) -> str | None:
        """Return how the environments of a restarted worker differ from these; see `SharedLayout`."""
        for name in ("observation_spaces", "action_spaces"):
            before, after = getattr(self, name), getattr(replacement, name)
            for row, (old, new) in enumerate(zip(before, after, strict=True)):
                if old != new:
                    return f"{name}[{row}] was {old}, and is {new}"
        return None


def _shared(spaces: list[gymnasium.Space[Any]]) -> list[gymnasium.Space[Any]]:
    """Return spaces with one object for those that are equal, so that they are pickled once."""
    distinct: list[gymnasium.Space[Any]] = []
    for space in spaces:
        if space not in distinct:
            distinct.append(space)
    return [distinct[distinct.index(space)] for space in spaces]


# -- Hosts the environments of one worker in its process, and answers operations on them.
#
# The reply to a step of cheap environments is often empty: everything lies in the shared memory.

# operations after which a snapshot may be taken
_MOVING = frozenset(("step", "reset", "set_states", "load", "call"))
_PLAIN = frozenset((bool, int, float, str))


class RowsServer(Server):
    """Answers operations on environments."""

    def __init__(self, resident: ResidentEnvs, num_workers: int) -> None:
        self._resident = resident
        self.layout: RowsLayout = RowsLayout.of(resident)
        # Snapshots take 1 % of the time. Workers wait for each other, so the times of all of them add up.
        self._fraction = 0.01 / num_workers
        self._cost = self._seconds = 0.0  # time of a snapshot; time of the operations since the last one

    def serve(self, payload: bytes) -> bytes:
        layout, resident = self.layout, self._resident
        resident.progress = layout.progress
        operation: Operation = load_from_parent(payload) if payload else Operation("step", None, None)
        if operation.per_row is None:
            operation.per_row = (take_rows(layout.actions, operation.selection),)
        reply = resident.perform(operation, layout.arrays, operation.selection)
        if resident.watch is not None and operation.name == "step":
            reply.shared = resident.watch.change()
            if reply.shared:
                resident.watch = None  # it is said once
        if resident.states is not None and operation.name in _MOVING:
            self._take_snapshot(resident.states, reply)
        layout.seconds[0], reply.seconds = reply.seconds, 0.0
        has_more = reply.inexact or reply.shared or reply.changes_settings or reply.snapshot is not None
        if reply.is_plain and reply.value is None and not has_more:
            return b""
        try:
            return pickle.dumps(reply, protocol=5)
        except Exception:
            _drop_unpicklable(reply)
        data: bytes = cloudpickle.dumps(reply, protocol=5)
        return data

    def _take_snapshot(self, states: ResidentStates, reply: Reply) -> None:
        """Take a snapshot if it is time for one."""
        self._seconds += reply.seconds
        if not states.needs_snapshot and self._seconds * self._fraction < self._cost:
            return
        started = time.perf_counter()
        try:
            reply.snapshot = pickle.dumps(states.save(), protocol=5)
        except Exception as error:  # it may run code of the environment
            self._resident.give_up_states(f"{type(error).__name__}: {error}")
            reply.inexact = self._resident.inexact
            return
        # The latest measurement counts half, since the first snapshot takes longer.
        latest = time.perf_counter() - started
        self._cost = (self._cost + latest) / 2 if self._cost else latest
        self._seconds = 0.0

    def close(self) -> None:
        """Close the environments."""
        self._resident.close()


def write_operation(operation: Operation) -> bytes:
    """Return an operation as bytes."""
    if operation.name == "step" and operation.per_row:
        actions = operation.per_row[0]
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


# -- Performs operations on the rows of one worker, in the process of the user -------------------------------


def _fits_memory(actions: object, target: Any) -> bool:
    """Return whether actions have the structure, the dtypes and the shapes of the arrays in memory."""
    if isinstance(target, dict):
        return isinstance(actions, dict) and all(_fits_memory(actions[key], target[key]) for key in target)
    if isinstance(target, tuple):
        return isinstance(actions, tuple) and all(map(_fits_memory, actions, target))
    return (
        isinstance(actions, np.ndarray)
        and actions.dtype == target.dtype
        and actions.shape[1:] == target.shape[1:]
    )


# time of a part of the rows of a worker that are done one after another: many times what a message costs
_PART_SECONDS = 2e-3


class WorkerRows:
    """Performs operations on the rows of one worker."""

    def __init__(
        self, worker: ProcessWorker, first_row: int, num_rows: int, max_restarts: int, stats: Stats
    ) -> None:
        self.first_row, self.num_rows = first_row, num_rows
        self._seconds_per_step = 0.0  # the latest measurement; 0 at first
        self.on_crash = OnCrash.RESTORE
        self._worker = worker
        self._max_restarts = max_restarts
        self._stats = stats
        self._journal = Journal()
        self._chunks: dict[Chunk, None] = {}  # submitted and not done, in order
        self._writes = np.zeros(num_rows, bool)  # rows whose actions in memory the worker may still read
        self._has_episode = np.zeros(num_rows, bool)
        self._observations: Any = None  # the latest ones, if lost episodes report them
        self._num_failures = 0.0  # exits since an operation was last done
        self._is_lost = np.zeros(num_rows, bool)  # rows that must be reset, since their worker exited
        self._lost: WorkerExit | None = None  # the latest exit, for the errors of steps of such rows

    @property
    def rows_per_part(self) -> int:
        """The number of rows that are done at once, so that none waits long for the others."""
        if not self._seconds_per_step:
            return self.num_rows
        return max(1, min(self.num_rows, int(_PART_SECONDS / self._seconds_per_step)))

    def set_policy(self, on_crash: OnCrash) -> None:
        """Begin to accept operations, or take no snapshots any more. Settings are kept."""
        self.on_crash = on_crash
        self._journal.has_snapshots = on_crash is OnCrash.RESTORE
        self._journal.forget()
        if on_crash is OnCrash.RESET:
            self._observations = copy_tree(self.layout.arrays.observations)

    @property
    def layout(self) -> RowsLayout:
        """The layout of the present process."""
        layout: RowsLayout = self._worker.layout
        return layout

    # -- operations ---------------------------------------------------------------------------------

    def prepare(self, chunk: Chunk) -> None:
        """Prepare an operation, so that `submit` raises no error."""
        operation, target = chunk.operation, self.layout.actions
        chunk.writer = self._write
        if not chunk.is_internal:  # the caller may change them, and a crash may need them again
            if chunk.verb == "step" and operation.per_row:
                operation.per_row = (copy_tree(operation.per_row[0]),)
            else:
                with contextlib.suppress(Exception):  # classes of the user may refuse; sending them may work
                    operation.per_row, operation.common = copy.deepcopy((operation.per_row, operation.common))
        actions = operation.per_row[0] if chunk.verb == "step" and operation.per_row else None
        if actions is not None and target is not None and _fits_memory(actions, target):
            return
        try:
            chunk.payload = write_operation(operation)
        except Exception as error:
            text = f"an argument cannot be pickled ({type(error).__name__}: {error}); nothing was sent"
            raise InvalidBatchError(f"{chunk.verb}: {text}") from error

    def submit(self, chunk: Chunk) -> None:
        """Begin an operation that is prepared. It may be done at once."""
        with self._worker.lock:
            exit, operation = self._worker.exit, chunk.operation
            failure = None if exit is None else exit.error
            if failure is None and chunk.verb == "step" and self._is_lost[operation.selection].any():
                failure = self._lost_error()
            if failure is not None:
                chunk.finish(None, failure)
                return
            self._chunks[chunk] = None
            if exit is None:
                self._send(chunk)
            else:  # given up in an earlier call
                self._num_failures = 0
                self._restart()

    def _send(self, chunk: Chunk) -> None:
        def done(pending: object) -> None:
            # A handler that raised between two lines could leave a step in the journal and among those that
            # are sent again: it would be done twice.
            with DelayedSignals():
                self._done(chunk, pending)

        self._worker.submit(chunk).add_done_callback(done)

    def _write(self, chunk: Chunk) -> bytes:
        """Write the actions of a chunk into the shared memory if possible, and return the rest."""
        if chunk.payload is not None:
            return chunk.payload
        operation = chunk.operation
        rows = operation.selection
        if self._writes[rows].any():
            return write_operation(operation)
        assert operation.per_row
        copy_rows(operation.per_row[0], self.layout.actions, rows)
        self._writes[rows] = chunk.has_actions_in_memory = True
        in_memory = Operation("step", operation.rows, None)
        return b"" if operation.rows is None else pickle.dumps(in_memory, protocol=5)

    def _done(self, chunk: Chunk, pending: Any) -> None:
        """Handle the answer to a chunk, or the exit of its worker."""
        operation = chunk.operation
        if chunk.has_actions_in_memory:
            chunk.has_actions_in_memory = False
            self._writes[operation.selection] = False
        if chunk not in self._chunks:
            return  # it has failed already, or a restart has replaced it
        error = pending.exception()
        if isinstance(error, WorkerExit):
            if error.is_cause:
                chunk.num_exits += error.weight
                if chunk.num_exits > self._max_restarts or self.on_crash is OnCrash.RAISE:
                    self._fail(chunk, crash_error(error, chunk))
            return  # `_restart` sends it again, or has done so already
        if error is not None:
            self._fail(chunk, error)
            return
        try:
            data: bytes = pending.result().value
            reply: Reply = load_pickled(data) if data else Reply()
        except Exception as unreadable:  # of a class that this process lacks, for example
            reply = Reply()
            if not chunk.is_internal:  # the results of what is repeated are dropped
                self._journal.record(operation, reply)
                text = (
                    f"the results cannot be read in this process ({type(unreadable).__name__}: {unreadable})"
                )
                self._fail(chunk, EnvError(f"{chunk.verb}: {text}"))
                return
        if not chunk.is_internal:  # what is repeated was recorded before
            self._journal.record(operation, reply)
        if reply.inexact and self.on_crash is OnCrash.RESTORE:
            _log.warning(
                "%s: its environments cannot be saved any more, so that a crash would end their episodes: %s",
                self._worker.name,
                reply.inexact,
            )
            self.set_policy(OnCrash.RESET)
        if reply.shared:
            _log.warning(
                "%s: its %d environments share %s, which has changed while they were stepped: their results "
                "may not be those of one process each. Open them with one worker for each",
                self._worker.name,
                self.num_rows,
                reply.shared,
            )
        del self._chunks[chunk]
        if not any(other.is_internal for other in self._chunks):  # else the rest may end the worker again
            self._num_failures = 0
        if chunk.verb in ("reset", "set_states", "load"):
            self._has_episode[operation.selection], self._is_lost[operation.selection] = True, False
        if chunk.verb == "step":
            self._seconds_per_step = float(self.layout.seconds[0]) / max(1, len(chunk.rows))
        if chunk.verb in ("step", "reset") and self.on_crash is OnCrash.RESET:
            rows = operation.selection
            if isinstance(self._observations, list):
                latest = zip(np.arange(self.num_rows)[rows], reply.observations or (), strict=True)
                for row, observation in latest:
                    self._observations[row] = kept(observation)
            else:
                copy_rows(take_rows(self.layout.arrays.observations, rows), self._observations, rows)
        out = chunk.out
        if out is not None and not chunk.is_abandoned:  # copy the results out of the shared memory
            source = self.layout.arrays
            if operation.rows is not None:
                source = source.results(operation.rows)
            if not isinstance(out.observations, list):  # those come with the reply
                copy_rows(source.observations, out.observations)
            out.rewards[:] = source.rewards
            out.terminated[:] = source.terminated
            out.truncated[:] = source.truncated
        chunk.finish(reply)

    def _fail(self, chunk: Chunk, error: Exception) -> None:
        if chunk not in self._chunks:
            return
        del self._chunks[chunk]
        chunk.finish(None, error)
        if chunk.is_internal:  # the rows cannot be brought up to date
            self._drop_internal()
            self._journal.forget()
            failure = error
            if not isinstance(error, ClosedError):
                text = f"{self._worker.name} was replaced, but its environments cannot be restored: {error}"
                failure = WorkerCrashedError(text)
                failure.__cause__ = error
            self._fail_all(failure)

    # -- the exit of the worker ---------------------------------------------------------------------

    def worker_changed(self, worker: ProcessWorker) -> None:
        """Handle that the worker has become ready or has exited. Its lock is held."""
        exit = self._worker.exit
        if exit is None:
            return
        if exit.error is not None:  # closed, or it cannot start
            self._fail_all(exit.error)
            return
        self._stats.exits[exit.reason] += 1
        self._num_failures += exit.weight
        if self._num_failures > max(1, self._max_restarts):
            self._fail_all(WorkerStartError(f"{exit.what}; its replacements exited, too"))
            return
        _log.warning("%s; it is replaced", exit.what)
        self._drop_internal()
        if self.on_crash is OnCrash.RAISE:  # steps fail until the rows are reset; the rest is sent again
            self._lost = exit
            self._is_lost |= self._has_episode
            self._has_episode[:] = False
            for chunk in [chunk for chunk in self._chunks if chunk.verb == "step"]:
                self._fail(chunk, self._lost_error())
        self._restart()

    def _restart(self) -> None:
        """Replace the worker, put its rows where they were, and send the chunks that are not done again."""
        self._worker.restart(pause_before_restart(self._num_failures))
        if self._worker.exit is not None:
            return
        chunks = list(self._chunks)
        if self.on_crash is not OnCrash.RESTORE:
            self._journal.forget()
        operations = self._journal.operations()
        if self.on_crash is OnCrash.RESET and self._has_episode.any():
            rows = np.flatnonzero(self._has_episode)
            last = self._observations
            observations = [last[row] for row in rows] if isinstance(last, list) else take_rows(last, rows)
            operations.append(Operation("lose", rows, (), (observations,)))
        all_rows = np.arange(self.first_row, self.first_row + self.num_rows)
        for operation in operations:
            internal = Chunk(operation, all_rows, None, is_internal=True)
            self.prepare(internal)
            self._chunks[internal] = None
            self._send(internal)
        for chunk in chunks:
            self._chunks[chunk] = self._chunks.pop(chunk)  # behind the internal ones
            self._send(chunk)

    def _drop_internal(self) -> None:
        for chunk in [chunk for chunk in self._chunks if chunk.is_internal]:
            del self._chunks[chunk]

    def _lost_error(self) -> PlanvecError:
        """Return the error of a step of rows that must be reset."""
        # A new one each time: whoever raises one adds to its notes and its traceback.
        assert self._lost is not None
        return crash_error(self._lost, advice="; its environments must be reset")

    def _fail_all(self, error: Exception) -> None:
        for chunk in list(self._chunks):
            self._fail(chunk, error)
