"""Requests without rows: start an episode, set the base state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planvec.rows.requests.base import Request
from planvec.rows.results import Start

__all__ = ["ResetRequest", "SetBaseStateRequest"]


@dataclass(slots=True)
class ResetRequest(Request[Start]):
    """Start an episode.

    Attributes:
        seed: Of the reset. It is always given, so that every worker makes the same start.
        options: For the environment's own reset.
    """

    verb = "reset"

    seed: int
    options: dict[str, Any] | None


@dataclass(slots=True)
class SetBaseStateRequest(Request[None]):
    """Make a state the base state of the environment that gets this request."""

    verb = "set_state"

    state: Any
