"""Defines `InProcess`, the backend that steps one environment in this process."""

from __future__ import annotations

import sys
import threading
from typing import Any, TypeVar

from planvec.backends.audit import DEFAULT_AUDIT, KERNEL_ADVICE, Audit
from planvec.backends.base import Stats
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
    def base_state(self, state: object) -> None:
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
            self._repeat_one(request, answer)
        finally:
            self._local.frame = None
        self.stats.masked_rows += len(answer.errors)
        return answer

    def row_use(self) -> Perform:
        """Return a function that performs requests, and writes their results into given arrays."""
        return self._perform

    def _repeat_one(self, request: Request[Any], answer: Answer) -> None:
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
        if kernel is None:
            return None
        lock = threading.Lock()  # the searches of several roots run in several threads

        def record(num_rows: int, num_chunks: int) -> None:
            with lock:
                self.stats.num_rows += num_rows
                self.stats.num_chunks += num_chunks

        def audit(request: Request[Any], outputs: Outputs, seconds: float) -> None:
            with lock:
                self._repeat_one(request, Answer(outputs, seconds=seconds))

        return KernelUse(kernel, lazy.is_required, record, audit)

    def sync_base_state(self) -> Promise[None]:
        """Do nothing: there is only one environment."""
        return Completed(None)

    def close(self) -> None:
        """Close the environment."""
        self._closed = True
        self._stepper.close()
