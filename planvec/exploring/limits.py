"""The limits of an exploration."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from numbers import Integral, Real
from typing import NamedTuple

from planvec.errors import InvalidBatchError
from planvec.exploring.archive import Archive

__all__ = ["ArchiveCallback", "Limits"]

ArchiveCallback = Callable[[Archive], bool | None]
"""Called after each round; True ends the exploration."""


class Limits(NamedTuple):
    """When an exploration ends, and how often it is saved; `Explorer.run` describes the fields."""

    max_env_steps: int | None
    max_rounds: int | None
    max_seconds: float | None
    save_seconds: float
    callback: ArchiveCallback | None

    def check(self) -> None:
        """Check the fields.

        Raises:
            InvalidBatchError: One is out of range, or there is no limit.
        """
        for name, kind, what in (
            ("max_env_steps", Integral, "an integer"),
            ("max_rounds", Integral, "an integer"),
            ("max_seconds", Real, "a number"),
            ("save_seconds", Real, "a number"),
        ):
            value = getattr(self, name)
            if value is None and name != "save_seconds":
                continue
            is_number = isinstance(value, kind) and not isinstance(value, bool)
            if not is_number or math.isnan(value) or value < 0:
                raise InvalidBatchError(f"{name}: expected {what} of at least 0, got {value!r}")
        if self.callback is not None and not callable(self.callback):
            raise InvalidBatchError(f"callback: expected a function or None, got {self.callback!r}")
        limits = (self.max_env_steps, self.max_rounds, self.max_seconds, self.callback)
        if all(limit is None for limit in limits):
            raise InvalidBatchError("max_env_steps: expected a limit: max_env_steps, max_rounds, max_seconds")

    def are_reached(self, archive: Archive, started: float) -> bool:
        """Return whether one is.

        Args:
            archive: The archive.
            started: `time.perf_counter()` at the beginning of the call.
        """
        return (
            (self.max_env_steps is not None and archive.num_env_steps >= self.max_env_steps)
            or (self.max_rounds is not None and len(archive.history) >= self.max_rounds)
            or (self.max_seconds is not None and time.perf_counter() - started >= self.max_seconds)
        )
