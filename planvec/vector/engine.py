"""Performs operations on all rows of a vector environment, wherever they are: the common part of all faces.

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MethodType
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.backends import (
    DelayedSignals,
    ServedProcesses,
    Stats,
    check_limits,
    load_from_parent,
    pickle_for_worker,
)
from planvec.codecs import EnvFunctions, registered_codecs
from planvec.errors import ClosedError, UnsupportedEnvError, WorkerStartError
from planvec.vector.checks import check_actions
from planvec.vector.env_row import kept
from planvec.vector.operations import (
    WITH_ARRAYS,
    Chunk,
    OnCrash,
    Operation,
    RowArrays,
    Rows,
    RowsCall,
    part_of,
)
from planvec.vector.resident_envs import EngineOptions, ResidentEnvs
from planvec.vector.worker_rows import RowsLayout, RowsServer, WorkerRows

_log = logging.getLogger("planvec")


class ServerFactory:
    """Makes the `RowsServer` of a worker."""

    def __init__(self, env_fns: Sequence[Callable[[], Any]], options: EngineOptions, first_row: int) -> None:
        self._env_fns = env_fns
        self._options = options
        self._codecs = registered_codecs()
        # As after a fork, where Python seeds `random` anew and leaves the generator of NumPy as it is. But a
        # script that seeds them has the same environments in every run.
        self._numpy_state = np.random.get_state()  # noqa: NPY002
        self._random_state, self._first_row = random.getstate(), first_row

    def __call__(self) -> RowsServer:
        self._codecs.install()
        random.setstate(self._random_state)
        if self._first_row:
            random.seed(f"{random.getrandbits(64)} {self._first_row}")
        np.random.set_state(self._numpy_state)  # noqa: NPY002
        resident = ResidentEnvs(self._env_fns, self._options, as_bytes=True)
        return RowsServer(resident, self._options.num_workers)


class Engine:
    """Holds the environments, in this process or in workers."""

    # `layouts`: Describes the environments of each worker.

    def __init__(self, env_fns: Sequence[Callable[[], Any]], options: EngineOptions) -> None:
        check_limits(options.timeout, options.max_restarts, options.max_worker_rss)
        self.num_envs = len(env_fns)  # N
        self.stats = Stats()  # counts the exits of workers
        self._options = options
        self._processes: ServedProcesses | None = None
        self._local: ResidentEnvs | None = None
        self._is_closed = self._is_submitting = False
        # The chunks that are not submitted yet. One queue for all calls: a later one must not overtake those
        # of a call that was abandoned.
        self._waiting: deque[tuple[WorkerRows, Chunk]] = deque()
        self._num_running = 0  # chunks at work, if their number is limited
        try:
            self.groups = self._open(env_fns)  # the workers, which have consecutive environments
        except WorkerStartError:
            for env_fn in () if options.num_workers else env_fns:  # what a function raises here says more
                env_fn().close()
            raise
        starts = [group.first_row for group in self.groups]
        self.bounds = [*(starts or [0]), self.num_envs]  # of the rows of each worker
        self._all_rows = np.arange(self.num_envs)
        self._group_of_row = np.searchsorted(starts, self._all_rows, side="right") - 1

    def _open(self, env_fns: Sequence[Callable[[], Any]]) -> list[WorkerRows]:
        """Open the environments as the user wants, and in a process each if that could have other results."""
        wanted = separate = self._options
        for_workers, can_fork = env_fns, hasattr(os, "fork")
        if not wanted.num_workers:
            # Pickled before an environment is made in this process, which may change what the functions hold.
            try:
                pickled = pickle_for_worker(list(env_fns))
                for_workers = [_PickledRow(pickled, index) for index in range(len(env_fns))]
            except Exception:
                if can_fork:  # which needs no pickle
                    separate = replace(wanted, start_method="fork")
            # Environments that were tried here would leave changed variables behind: try them in a fork.
            if can_fork and (for_workers is env_fns or EnvFunctions(env_fns).has_variables):
                self._options = replace(wanted, num_workers=1, start_method="fork")
        folder, variables = os.getcwd(), dict(os.environ)
        generators = random.getstate(), np.random.get_state()  # noqa: NPY002
        groups = self._open_workers(env_fns) if self._options.num_workers else self._open_here(env_fns)
        found = [layout.sharing for layout in self.layouts if layout.sharing.why]
        if not found and self._options is wanted:
            return groups
        self._close_groups()
        self._processes = self._local = None
        if not found:
            self._options = wanted
            return self._open_here(env_fns)
        _log.warning(
            "each environment gets a process of its own (%d), because in one process they could change each "
            "other's results: %s",
            self.num_envs,
            found[0].why,
        )
        os.chdir(folder)  # processes inherit all of these
        random.setstate(generators[0])
        np.random.set_state(generators[1])  # noqa: NPY002
        if variables != dict(os.environ):
            os.environ.clear()
            os.environ.update(variables)
        proofs = [proof for layout in self.layouts for proof in layout.proofs]
        if any(sharing.is_seen for sharing in found):
            proofs = [next(sharing.why for sharing in found if sharing.is_seen)] * self.num_envs
        self._options = replace(separate, num_workers=self.num_envs, proofs=proofs)
        return self._open_workers(for_workers)

    def _open_here(self, env_fns: Sequence[Callable[[], Any]]) -> list[WorkerRows]:
        self._local = ResidentEnvs(env_fns, self._options)
        self.layouts = [RowsLayout.of(self._local)]
        return []

    def _open_workers(self, env_fns: Sequence[Callable[[], Any]]) -> list[WorkerRows]:
        options = self._options
        bounds = [len(env_fns) * index // options.num_workers for index in range(options.num_workers + 1)]
        factories = []
        for start, stop in itertools.pairwise(bounds):
            proofs = None if options.proofs is None else options.proofs[start:stop]
            factories.append(ServerFactory(env_fns[start:stop], replace(options, proofs=proofs), start))
        # The systems that these classes replace have a fork server: the template process is one.
        start_method = None if options.start_method == "forkserver" else options.start_method
        processes = self._processes = ServedProcesses(
            factories, start_method=start_method, preload=options.preload
        )
        try:
            groups = [
                WorkerRows(worker, start, stop - start, options.max_restarts, self.stats)
                for worker, start, stop in zip(processes.workers, bounds, bounds[1:], strict=False)
            ]
            for worker, group in zip(processes.workers, groups, strict=True):
                worker.listen(group.worker_changed, processes.lock)
            workers = processes.workers
            processes.wait_for(
                lambda: all(w.is_ready for w in workers) or any(w.exit is not None for w in workers)
            )
            for worker in workers:
                if worker.exit is not None:
                    raise worker.exit.error or WorkerStartError(worker.exit.what)
            processes.limit(options.timeout, options.max_worker_rss)
            self.layouts = [group.layout for group in groups]
            if any(layout.sharing.why for layout in self.layouts):
                return groups
            on_crash = options.on_crash
            inexact = next((layout.inexact for layout in self.layouts if layout.inexact), "")
            if on_crash is OnCrash.RESTORE and inexact:
                raise UnsupportedEnvError(
                    'on_crash: expected "reset" or "raise" for environments that cannot be saved, got '
                    f'"restore". {inexact}'
                )
            for group in groups:
                group.set_policy(on_crash or (OnCrash.RESET if inexact else OnCrash.RESTORE))
        except BaseException:
            self.close()
            raise
        return groups

    @property
    def num_workers(self) -> int:
        """Number of worker processes; 0 if the environments are in this process."""
        return self._options.num_workers

    def close(self) -> None:
        """Close the environments and the workers. Closing again does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._close_groups()

    def _close_groups(self) -> None:
        if self._processes is not None:
            self._processes.close()
        if self._local is not None:
            self._local.close()

    # -- operations ---------------------------------------------------------------------------------

    def begin(
        self,
        name: str,  # of an `Operation`
        per_row: tuple[object, ...] = (),  # arguments with one element per row
        common: tuple[object, ...] = (),  # arguments that all rows have in common
        *,
        rows: NDArray[np.intp] | None = None,  # `[B]`; None for all rows
        in_parts: bool = False,
    ) -> RowsCall:
        """Begin an operation on some rows."""
        # `in_parts`: the rows of a worker one after another if they are slow. If an argument cannot be sent
        # (InvalidBatchError), nothing was sent.
        self._check_open()
        out = RowArrays.unmade() if name in WITH_ARRAYS else None
        chunk_rows = self._all_rows if rows is None else rows
        # A step in this process makes them of what the environments return, which is faster.
        if out is not None and not (self._local is not None and name == "step" and len(chunk_rows)):
            out.make(self.layouts[0].observation_spaces[0], len(chunk_rows))
        if self._local is not None:
            if not len(chunk_rows):
                return RowsCall((), out)
            operation = Operation(name, rows, per_row, common)
            reply = self._local.perform(operation, RowArrays.unmade() if out is None else out)
            # A chunk takes long beside a step of few cheap environments. (`EnvPool.send` needs one,
            # and those of DI-engine have infos.)
            if name == "step" and reply.is_plain and not in_parts:
                return RowsCall((), out)
            # The environment may change later what lies in no array. An environment itself may bear no copy,
            # and a method of a copy would act on that.
            if reply.observations is not None:
                reply.observations = [kept(observation) for observation in reply.observations]
            if name in ("call", "get_attribute", "apply"):
                reply.value = [
                    value if isinstance(value, (gymnasium.Env, MethodType)) else kept(value)
                    for value in reply.value
                ]
            chunk = Chunk(operation, chunk_rows, out)
            chunk.finish(reply)
            return RowsCall([chunk], out)
        order = None
        if in_parts and rows is None and any(group.rows_per_part < group.num_rows for group in self.groups):
            rows = self._all_rows
        # per chunk: who performs it, its rows there, and their positions in the arguments and in the results
        parts: list[tuple[WorkerRows, NDArray[np.intp] | None, Rows, slice]] = []
        if rows is None:
            for group in self.groups:
                place = slice(group.first_row, group.first_row + group.num_rows)
                parts.append((group, None, place, place))
        else:
            owners = self._group_of_row[rows]
            by_group = np.argsort(owners, kind="stable")
            if (owners[1:] < owners[:-1]).any():
                order = np.argsort(by_group, kind="stable")
            starts = [0, *(np.flatnonzero(np.diff(owners[by_group])) + 1).tolist()] if len(rows) else []
            for start, stop in itertools.pairwise([*starts, len(rows)]):
                group = self.groups[owners[by_group[start]]]
                size = group.rows_per_part if in_parts else stop - start
                for first in range(start, stop, size):
                    place = slice(first, min(first + size, stop))
                    chosen = by_group[place]
                    parts.append((group, rows[chosen] - group.first_row, chosen, place))
        waiting: list[tuple[WorkerRows, Chunk]] = []
        for group, local, taken, place in parts:
            arguments = tuple(part_of(argument, taken) for argument in per_row)
            part = out if out is None or len(parts) == 1 else out.results(place)
            chunk = Chunk(Operation(name, local, arguments, common), chunk_rows[taken], part)
            group.prepare(chunk)
            waiting.append((group, chunk))
        assert self._processes is not None
        with self._processes.lock, DelayedSignals():  # it begins on all workers, though a handler raises
            self._waiting.extend(waiting)
            self._submit_waiting()
        return RowsCall([chunk for _, chunk in waiting], out, order)

    def _submit_waiting(self) -> None:
        """Submit the chunks that wait, the oldest first, while fewer than `max_concurrency` are at work."""
        limit = self._options.max_concurrency
        if self._is_submitting:  # a chunk was done at once
            return
        self._is_submitting = True
        try:
            while self._waiting and (limit is None or self._num_running < limit):
                group, chunk = self._waiting.popleft()
                if limit is not None:
                    self._num_running += 1
                    chunk.on_done = self._chunk_done
                group.submit(chunk)
        finally:
            self._is_submitting = False

    def _chunk_done(self) -> None:
        self._num_running -= 1
        self._submit_waiting()

    def run(
        self,
        name: str,
        per_row: tuple[object, ...] = (),
        common: tuple[object, ...] = (),
        rows: NDArray[np.intp] | None = None,
    ) -> RowsCall:
        """Perform an operation on some rows, and wait until it is done. Arguments as for `begin`."""
        call = self.begin(name, per_row, common, rows=rows)
        self.finish(call)
        return call

    def begin_step(
        self, actions: object, rows: NDArray[np.intp] | None = None, *, in_parts: bool = False
    ) -> RowsCall:
        """Begin to step rows, given actions `[B, *action shape]`. Other arguments as for `begin`."""
        num_rows = self.num_envs if rows is None else len(rows)
        checked = check_actions(self.layouts[0].action_spaces[0], actions, num_rows)
        return self.begin("step", (checked,), rows=rows, in_parts=in_parts)

    def finish(self, call: RowsCall, timeout: float | None = None) -> None:
        """Wait for a call, at most some seconds. After an error, its results are lost."""
        if self._processes is None or call.is_done():
            return
        try:
            self._processes.wait_for(call.is_done, timeout)
        except BaseException:  # Ctrl-C, a signal handler of the user, or it took too long
            call.abandon()
            raise

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the vector environment was closed")

    def wait(self, is_done: Callable[[], bool], timeout: float | None = None) -> None:
        """Wait until `is_done()` returns True."""
        if self._processes is not None:
            self._processes.wait_for(is_done, timeout)

    def poll(self) -> None:
        """Handle the answers that have arrived, without waiting."""
        if self._processes is not None:
            self._processes.poll()


class _PickledRow:
    """Calls one of several functions that were pickled together, in a worker."""

    def __init__(self, pickled: bytes, index: int) -> None:
        self._pickled, self._index = pickled, index

    def __call__(self) -> Any:
        return load_from_parent(self._pickled)[self._index]()
