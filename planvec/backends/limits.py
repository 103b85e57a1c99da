"""Checks the limits of workers that users pass."""

from __future__ import annotations

from typing import Any

from planvec.backends.audit import DEFAULT_AUDIT
from planvec.errors import InvalidBatchError


def check_limits(timeout: Any, max_restarts: Any, max_worker_rss: Any, audit: Any = DEFAULT_AUDIT) -> None:
    """Check the limits of workers."""
    # `timeout`: Seconds above 0, or None. `max_worker_rss`: Bytes above 0, or None.
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise InvalidBatchError(f"timeout: expected seconds above 0, or None, got {timeout!r}")
    if isinstance(max_restarts, bool) or not isinstance(max_restarts, int) or max_restarts < 0:
        raise InvalidBatchError(f"max_restarts: expected an integer of at least 0, got {max_restarts!r}")
    is_bytes = isinstance(max_worker_rss, int) and not isinstance(max_worker_rss, bool)
    if max_worker_rss is not None and not (is_bytes and max_worker_rss > 0):
        raise InvalidBatchError(f"max_worker_rss: expected bytes above 0, or None, got {max_worker_rss!r}")
    is_number = isinstance(audit, (int, float)) and not isinstance(audit, bool)
    if not (is_number and 0 <= audit <= 1):
        raise InvalidBatchError(f"audit: expected a fraction from 0 to 1, got {audit!r}")
