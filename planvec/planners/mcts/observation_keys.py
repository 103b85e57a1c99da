"""Computes keys that identify observations. Letters: B rows."""

from __future__ import annotations

import pickle
from collections.abc import Hashable
from typing import Any

import numpy as np
from gymnasium import Space

from planvec.planners.space_leaves import space_leaves
from planvec.rows import is_fixed


def observation_keys(space: Space[Any], observations: Any, num_rows: int) -> list[Hashable]:
    """Return a key for each observation of a batch: equal keys for equal observations only."""
    columns: list[list[Hashable]] = []
    for _, leaf, part in space_leaves(space, observations):
        if is_fixed(leaf):
            data = np.ascontiguousarray(part)
            size = data.nbytes // max(num_rows, 1)
            joined = data.tobytes()
            columns.append([joined[row * size : (row + 1) * size] for row in range(num_rows)])
        else:
            elements = (part[row] for row in range(num_rows))
            columns.append([one if isinstance(one, str) else pickle.dumps(one) for one in elements])
    return list(zip(*columns, strict=True))
