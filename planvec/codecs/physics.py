"""Describes the states of Gymnasium's MuJoCo environments, without importing MuJoCo before it is needed."""

from __future__ import annotations

from typing import Any


def saved_arrays(env: Any) -> tuple[str, ...]:
    """Return the names of the arrays of `MjData` that follow `mjSTATE_INTEGRATION` in a state, in order."""
    from planvec.codecs import mujoco

    return mujoco.saved_arrays(env)
