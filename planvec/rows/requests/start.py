"""Defines the requests without rows: start an episode, set the base state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planvec.rows.requests.base import Request
from planvec.rows.results import Start


@dataclass(slots=True)
class ResetRequest(Request[Start]):
    """Asks for the start of an episode."""

    verb = "reset"

    seed: int  # Seed of the reset. It is never None, so that every worker makes the same start.
    options: dict[str, Any] | None  # the argument `options` of the reset


@dataclass(slots=True)
class SetBaseStateRequest(Request[None]):
    """Asks an environment to make a state its base state."""

    verb = "set_state"

    state: Any
