"""The limits of an exploration."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from planvec.errors import InvalidBatchError
from planvec.exploring.archive import Archive
from planvec.rows import check_integer, check_number

ArchiveCallback = Callable[[Archive], bool | None]  # called after each round; True ends the exploration


class Limits(NamedTuple):
    """When an exploration ends, and how often it is saved; `Explorer.run` describes the fields."""

    max_env_steps: int | None
    max_rounds: int | None
    max_seconds: float | None
    save_seconds: float
    callback: ArchiveCallback | None

    def check(self) -> None:
        """Check the fields."""
        for name, check in (
            ("max_env_steps", check_integer),
            ("max_rounds", check_integer),
            ("max_seconds", check_number),
        ):
            if getattr(self, name) is not None:
                check(name, getattr(self, name), 0)
        check_number("save_seconds", self.save_seconds, 0)
        if self.callback is not None and not callable(self.callback):
            raise InvalidBatchError(f"callback: expected a function or None, got {self.callback!r}")
        limits = (self.max_env_steps, self.max_rounds, self.max_seconds, self.callback)
        if all(limit is None for limit in limits):
            raise InvalidBatchError("max_env_steps: expected a limit: max_env_steps, max_rounds, max_seconds")

    def are_reached(self, archive: Archive, started: float) -> bool:
        """Return whether one is."""
        return (
            (self.max_env_steps is not None and archive.num_env_steps >= self.max_env_steps)
            or (self.max_rounds is not None and len(archive.history) >= self.max_rounds)
            or (self.max_seconds is not None and time.perf_counter() - started >= self.max_seconds)
        )
