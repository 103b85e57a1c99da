"""Defines `InProcess`, the backend that steps one environment in this process."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from planvec.backends.audit import DEFAULT_AUDIT, KERNEL_ADVICE, Audit, AuditedRow
from planvec.backends.base import Backend, Stats, StepsElsewhere
from planvec.backends.sharded.backend import check_same
from planvec.backends.signals import REENTERED, is_running
from planvec.errors import ClosedError, PlanvecError
from planvec.rows import (
    Answer,
    Completed,
    EnvDescription,
    Failed,
    KernelUse,
    Outputs,
    Perform,
    Promise,
    Request,
)
from planvec.stepping import EnvStepper

if TYPE_CHECKING:
    from planvec.kernels import BatchKernel


T = TypeVar("T")


class InProcess:
    """Executes every request in this process, before `run` returns."""

    num_workers = 0

    def __init__(self, stepper: EnvStepper, audit: float = DEFAULT_AUDIT) -> None:
        self._stepper = stepper
        self.description: EnvDescription = stepper.description  # the description of the environment
        self.stats = Stats()  # counts of rows and chunks
        self._closed = False
        self._audit = Audit(audit)
        self._local = threading.local()  # `frame`: of `run`, while it performs a request in this thread

    @property
    def base_state(self) -> Any:
        """The state at which rows start if a request gives none."""
        return self._stepper.base_state

    @base_state.setter
    def base_state(self, state: Any) -> None:
        self._stepper.base_state = state

    def run(self, request: Request[T], *, keep: bool = False) -> Promise[T]:
        """Execute a request. The promise is complete when this returns."""
        try:
            answer = self._perform(request, None)
            return Completed(request.result(self.description, answer))
        except PlanvecError as error:
            return Failed(error)

    def _perform(self, request: Request[Any], outputs: Outputs | None) -> Answer:
        """Perform a request, and repeat one of its rows from time to time."""
        if self._closed:
            raise ClosedError("the environment was closed")
        frame = getattr(self._local, "frame", None)
        if frame is not None and is_running(frame):
            raise PlanvecError(REENTERED)
        if request.is_counted:
            self.stats.num_rows += request.num_rows
            self.stats.num_chunks += 1
        try:
            self._local.frame = sys._getframe()
            answer = self._stepper.perform(request, outputs)
            row = self._audit.choose(request, slice(0, request.num_rows), answer, "this process")
            if row is not None:
                self._repeat(row)
        finally:
            self._local.frame = None
        self.stats.masked_rows += len(answer.errors)
        return answer

    def row_use(self) -> Perform:
        """Return a function that performs requests, and writes their results into given arrays."""

        def perform(request: Request[Any], outputs: Outputs) -> None:
            self._perform(request, outputs)

        return perform

    def audit(self, request: Request[Any], answer: Answer) -> None:
        """Let the environment step a row of a request again if it is time for an audit."""
        row = self._audit.choose(request, slice(0, request.num_rows), answer, "this process")
        if row is not None:
            self._repeat(row)

    def _repeat(self, row: AuditedRow) -> None:
        """Let the environment step a row again; raise if the results differ."""
        self.stats.audited_rows += 1
        answer_of_rows = self._stepper.perform(row.request, by_rows=True)
        if self._stepper.kernel.is_used:
            error = row.compare(answer_of_rows, "the environment itself", KERNEL_ADVICE)
        else:
            error = row.compare(answer_of_rows, "again")
        if error is not None:
            raise error

    def kernel_use(self, num_steps: int) -> KernelUse | None:
        """Return the use of the kernel, if it would perform requests for so many steps."""
        lazy = self._stepper.kernel
        kernel = lazy.ready(num_steps)
        return None if kernel is None else _KernelUse(self, kernel, lazy.is_required)

    def sync_base_state(self) -> Promise[None]:
        """Do nothing: there is only one environment."""
        return Completed(None)

    def close(self) -> None:
        """Close the environment."""
        self._closed = True
        self._stepper.close()


class _KernelUse:
    """Lets a planner use the kernel of a backend; see `planvec.rows.KernelUse`."""

    def __init__(self, backend: InProcess, kernel: BatchKernel, is_required: bool) -> None:
        self._backend = backend
        self.kernel = kernel
        self.is_required = is_required
        self._lock = threading.Lock()  # the searches of several roots run in several threads

    def record(self, num_rows: int, num_chunks: int) -> None:
        """Count rows and chunks that were stepped."""
        with self._lock:
            self._backend.stats.num_rows += num_rows
            self._backend.stats.num_chunks += num_chunks

    def audit(self, request: Request[Any], outputs: Outputs, seconds: float) -> None:
        """Let the environment step a row again if it is time for an audit; raise if the results differ."""
        answer = Answer(outputs)
        answer.seconds = seconds
        with self._lock:
            self._backend.audit(request, answer)


# -- Defines `SmallBatches`, which steps small batches here where sending them to workers takes longer.
#
#     run(request) ---> workers      large batches, promises, and all that is no step or rollout
#                  \--> this process    small batches that it has measured to be faster here
#
# It does so only where workers protect from nothing: for environments whose code is known not to crash or
# hang, and without limits on time and memory. The results are the same, since transitions are pure
# functions.
T_co = TypeVar("T_co", covariant=True)

_log = logging.getLogger("planvec")

_MAX_STEPS = 128  # largest number of steps of a small batch
# small batches that go to workers before an environment is opened here, which takes some milliseconds
_NUM_BEFORE = 100
# every so many small batches, one goes where it takes longer, so that both times stay up to date
_INTERVAL = 256
# calls of a size before their time counts as measured: the least time of these, since the first is slow
_NUM_FIRST = 3
# weight of the latest call in the average times, and how many times the average it counts at most
_WEIGHT, _MAX_RATIO = 0.2, 3.0


@runtime_checkable
class HarmlessFactory(Protocol):
    """Makes the environment of a worker, and can make it here, too."""

    is_harmless: bool  # whether the environment can be stepped in this process: its code cannot crash or hang

    def open_here(self) -> EnvStepper:
        """Return a stepper of the environment in this process."""
        ...


class _Times:
    """Average seconds of a call by the size of its batch, in powers of two."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        self._num_calls: dict[int, int] = {}

    def learn(self, size: int, seconds: float) -> None:
        """Count a call."""
        average, num_calls = self._seconds.get(size, seconds), self._num_calls.get(size, 0) + 1
        if num_calls <= _NUM_FIRST:
            average = min(average, seconds)
        else:
            average += _WEIGHT * (min(seconds, _MAX_RATIO * average) - average)
        self._seconds[size], self._num_calls[size] = average, num_calls

    def get(self, size: int) -> float | None:
        """Return the average; None before enough calls of this size."""
        return self._seconds[size] if self._num_calls.get(size, 0) >= _NUM_FIRST else None


class _Timed(Promise[T_co]):
    """Reports how long a call took when its result is read."""

    # `learn`: Called with the seconds.

    def __init__(self, promise: Promise[T_co], started: float, learn: Callable[[float], None]) -> None:
        self._promise = promise
        self._started = started
        self._learn: Callable[[float], None] | None = learn

    def done(self) -> bool:
        return self._promise.done()

    def result(self, timeout: float | None = None) -> T_co:
        value = self._promise.result(timeout)
        learn, self._learn = self._learn, None
        if learn is not None:
            learn(time.perf_counter() - self._started)
        return value

    def abandon(self) -> None:
        self._promise.abandon()


class SmallBatches(StepsElsewhere):
    """Spreads requests over workers, except for small ones that this process answers sooner. A `Backend`."""

    def __init__(self, workers: Backend, factory: HarmlessFactory, audit: float) -> None:
        self._workers = workers
        self._factory: HarmlessFactory | None = factory
        self._audit = audit
        self._pid = os.getpid()
        self._lock = threading.RLock()  # held while the environment is opened
        self._stepper: EnvStepper | None = None
        self._here: InProcess | None = None
        self._num_small = 0
        self._times_here, self._times_there = _Times(), _Times()
        self.stats = workers.stats
        self.description: EnvDescription = workers.description

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return self._workers.num_workers

    @property
    def base_state(self) -> Any:
        """The state at which rows start if a request gives none."""
        return self._workers.base_state

    @base_state.setter
    def base_state(self, state: Any) -> None:
        self._workers.base_state = state

    def run(self, request: Request[T], *, keep: bool = False) -> Promise[T]:
        """Execute a request. See `Backend.run`; with `keep`, the caller does not wait, and workers step."""
        size = 0 if keep or self._factory is None or not request.is_counted else _size(request)
        if not size:
            return self._workers.run(request, keep=keep)
        self._num_small += 1
        here = self._open_here()
        started = time.perf_counter()
        if here is not None and self._is_faster_here(size):
            promise = here.run(request)
            self._times_here.learn(size, time.perf_counter() - started)
            return promise
        learn = partial(self._times_there.learn, size)
        return _Timed(self._workers.run(request), started, learn)

    def _is_faster_here(self, size: int) -> bool:
        """Return whether a batch is to be stepped here. A place that was not tried yet counts as faster."""
        here, there = self._times_here.get(size), self._times_there.get(size)
        is_faster = here is None or (there is not None and here <= there)
        return is_faster != (self._num_small % _INTERVAL == 0)

    def _open_here(self) -> InProcess | None:
        """Return the backend that steps here, opened if it is time; None if the workers have to step."""
        if self._num_small <= _NUM_BEFORE or os.getpid() != self._pid:
            return None
        if self._stepper is None:
            with self._lock:
                self._open()
        return self._here

    def _open(self) -> None:
        """Open the environment, unless that was tried before."""
        factory = self._factory
        if factory is None or self._stepper is not None:
            return
        try:
            stepper = factory.open_here()
            # What the program has changed in the class or its module is not changed in the workers.
            check_same("this process", self.description, stepper.description)
        except Exception:
            _log.debug("all batches go to workers", exc_info=True)
            self._factory = None
            return
        self._here = InProcess(stepper, self._audit)
        self._here.stats = self.stats
        self._stepper = stepper

    def sync_base_state(self) -> Promise[None]:
        """Set the base state of every worker, and of every later replacement, to `base_state`."""
        return self._workers.sync_base_state()

    def close(self) -> None:
        """Close the workers and the environment."""
        self._factory = None
        self._workers.close()
        if self._here is not None:
            self._here.close()


def _size(request: Request[Any]) -> int:
    """Return the class of sizes of a small batch, at least 1; 0 for an empty or a large one."""
    steps, num_rows = request.steps, request.num_rows
    if num_rows > _MAX_STEPS:
        return 0
    num_steps = int(steps.sum()) if isinstance(steps, np.ndarray) else steps * num_rows
    return num_steps.bit_length() if num_steps <= _MAX_STEPS else 0
