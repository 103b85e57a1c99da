"""Gives an environment a copy of each action, which it may change in place."""

from __future__ import annotations

from typing import Any

from gymnasium import Space, spaces

from planvec.codecs.base import Outcome, Step
from planvec.rows import own_copy


def with_own_action(step: Step, action_space: Space[Any]) -> Step:
    """Return a step that gives the environment a copy of the action, which it may change in place."""
    if isinstance(action_space, spaces.Discrete):
        return step

    def step_with_copy(action: Any) -> Outcome:
        return step(own_copy(action))

    return step_with_copy
