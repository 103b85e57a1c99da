"""Defines `PendingCall`, the call that an asynchronous interface has begun and not finished."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError

from planvec.errors import WorkerTimeoutError
from planvec.vector.call import RowsCall, errors_of
from planvec.vector.engine import Engine

_log = logging.getLogger("planvec")


class Kind(Enum):
    """Names the kinds of calls, as Gymnasium does."""

    RESET = "reset"
    STEP = "step"
    CALL = "call"


class PendingCall:
    """Holds at most one call that was begun, with Gymnasium's errors for calls in the wrong order."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._kind: Kind | None = None
        self._calls: list[RowsCall] = []
        self._finish: Callable[[list[RowsCall]], Any] = list

    @property
    def kind(self) -> Kind | None:
        """The kind of the call; None if there is none."""
        return self._kind

    def check_free(self, name: str) -> None:
        """Check that there is no call."""
        if self._kind is not None:
            text = f"Calling `{name}` while waiting for a pending call to `{self._kind.value}` to complete."
            raise AlreadyPendingCallError(text, self._kind.value)

    def begin(self, kind: Kind, calls: list[RowsCall], finish: Callable[[list[RowsCall]], Any]) -> None:
        """Note what was begun."""
        self._kind, self._calls, self._finish = kind, calls, finish

    def wait(self, kind: Kind, timeout: float | None) -> Any:
        """Wait for the call, and return its result."""
        # `timeout`: Seconds to wait; None waits without a limit.
        if self._kind is not kind:
            name = kind.value
            raise NoAsyncCallError(f"Calling `{name}_wait` without any prior call to `{name}_async`.", name)
        calls, finish = self._calls, self._finish
        try:
            self._engine.wait(lambda: all(call.is_done() for call in calls), timeout)
        except WorkerTimeoutError as error:
            text = f"The call to `{kind.value}_wait` has timed out after {timeout} second(s)."
            raise multiprocessing.TimeoutError(text) from error
        finally:
            self._kind, self._calls = None, []
            for call in calls:
                if not call.is_done():
                    call.abandon()
        return finish(calls)

    def finish(self, timeout: float | None) -> None:
        """Warn if there is a call, and wait for it at most `timeout` seconds. Its results are lost."""
        kind = self._kind
        if kind is None:
            return
        logger.warn(f"Calling `close` while waiting for a pending call to `{kind.value}` to complete.")
        try:
            self.wait(kind, timeout)
        except Exception as error:
            _log.info("the pending call to %s has failed: %r", kind.value, error)


def log_and_raise(calls: Sequence[RowsCall]) -> None:
    """Log what environments have raised, and raise the last of it, as Gymnasium does."""
    for call in calls:
        if call.has_errors:
            break
    else:  # a loop is faster than any(), for few rows
        return
    errors = errors_of([chunk for call in calls for chunk in call.chunks])
    for row, error in errors.items():
        logger.error(f"Received the following error from Worker-{row} - Shutting it down")
        logger.error(f"{getattr(error.__cause__, 'text', error)}")
    logger.error("Raising the last exception back to the main process.")
    raise errors[max(errors)]
