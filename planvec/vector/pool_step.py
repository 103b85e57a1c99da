"""Defines `PoolStep`, the results of steps of an `EnvPool`. Letters: B rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class PoolStep(NamedTuple):
    """Holds the results of steps.

    Attributes:
        observations: `[B, ...]`, nested for Dict and Tuple spaces.
        rewards: `[B]` float64.
        terminated: `[B]` bool.
        truncated: `[B]` bool.
        infos: Per key an array `[B, ...]`, and its mask under `_key`, as in Gymnasium's vector environments.
        rows: `[B]`, the environments.
    """

    observations: Any
    rewards: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    infos: dict[str, Any]
    rows: NDArray[np.intp]
