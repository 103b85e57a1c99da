"""A Ctrl-C that arrives in the middle of an episode, and signal handlers that raise."""

from __future__ import annotations

from typing import Any

import pytest

from planvec.planners import Planner

__all__ = ["Interrupted", "interrupt_at"]


class Interrupted(Exception):
    """Raised by a signal handler."""


def interrupt_at(monkeypatch: pytest.MonkeyPatch, call: int) -> list[int]:
    """Let Ctrl-C arrive while decision `call` is being made; return a list with an entry per decision."""
    calls: list[int] = []
    original = Planner.plan

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(Planner, "plan", interrupted)
    return calls
