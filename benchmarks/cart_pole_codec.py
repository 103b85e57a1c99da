"""Defines `CartPoleCodec`, which saves subclasses of CartPole as CartPole itself is saved."""

from __future__ import annotations

from typing import Any

import numpy as np

import planvec

__all__ = ["CartPoleCodec"]


class CartPoleCodec(planvec.Codec):
    """Saves a CartPole whose subclass adds nothing to its state, and whose steps draw nothing."""

    dtype = np.dtype([("physics", "f8", 4)])
    draws = False

    def get(self, env: Any) -> Any:
        """Return the state."""
        return (env.state,)

    def set(self, env: Any, value: Any) -> None:
        """Restore a state."""
        (env.state,) = value
        env.steps_beyond_terminated = None

    def observe(self, env: Any) -> Any:
        """Return the state in single precision."""
        return np.array(env.state, np.float32)
