"""Defines `InProcess`, the backend that steps one environment in this process."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from planvec.backends.audit import DEFAULT_AUDIT, KERNEL_ADVICE, Audit
from planvec.backends.base import Backend, Stats
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
            self.audit(request, answer)
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
        """Let the environment step a row again if it is time for an audit; raise if the results differ."""
        row = self._audit.choose(request, slice(0, request.num_rows), answer, "this process")
        if row is None:
            return
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
#                  \--> this process    small batches that it is expected to step sooner
#
# It does so only where workers protect from nothing: for environments whose code is known not to crash or
# hang, and without limits on time and memory. The results are the same, since transitions are pure
# functions. `benchmarks/small_batches.py` measures the effect.

_log = logging.getLogger("planvec")

_MAX_STEPS = 128  # largest number of steps of a small batch
# small batches that go to workers before an environment is opened here, which takes some milliseconds
_NUM_BEFORE = 100
# Work of a batch up to which workers would answer later. Their messages, and waking them, take 150 to 200 us
# more than their shares of the work (CartPole, 16 rows: 220 us with two workers, 125 us here).
_MESSAGE_SECONDS = 250e-6
# Largest growth of the measured time of a step with each batch: other processes may delay one batch for long
_MAX_GROWTH = 1.1
# Factor of that time with each small batch that goes to workers: it was measured long ago, and the first
# batch here takes many times as long as later ones
_FADING = 0.98


@runtime_checkable
class HarmlessFactory(Protocol):
    """Makes the environment of a worker, and can make it here, too."""

    is_harmless: bool  # whether the environment can be stepped in this process: its code cannot crash or hang

    def open_here(self) -> EnvStepper:
        """Return a stepper of the environment in this process."""
        ...


class SmallBatches(Backend):
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
        self._step_seconds = 0.0  # time of a step here, as measured; 0 before the first
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
        if keep or self._factory is None or not request.is_counted or request.num_rows > _MAX_STEPS:
            return self._workers.run(request, keep=keep)
        steps = request.steps
        num_steps = int(steps.sum()) if isinstance(steps, np.ndarray) else steps * request.num_rows
        if not 0 < num_steps <= _MAX_STEPS:
            return self._workers.run(request)
        self._num_small += 1
        here = self._open_here()
        if here is None or num_steps * self._step_seconds > _MESSAGE_SECONDS:
            self._step_seconds *= _FADING
            return self._workers.run(request)
        started = time.perf_counter()
        promise = here.run(request)
        seconds = (time.perf_counter() - started) / num_steps
        self._step_seconds = min(seconds, _MAX_GROWTH * self._step_seconds or seconds)
        return promise

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
