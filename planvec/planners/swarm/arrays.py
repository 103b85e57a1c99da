"""The arrays that the compiled functions of a swarm work on, and their types for numba.

Each array that is passed takes longer than its arithmetic, so that those that belong together are one.

Letters: B walkers, C nodes that there is room for, A bytes of an action.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

# A walker: its undiscounted return, its age in environment steps, its latest move, the walker whose clone it
# became in the last iteration (its own index: none), and whether it has ended
WALKER_DTYPE = np.dtype(
    [
        ("total", np.float64),
        ("num_steps", np.int64),
        ("node", np.int64),
        ("source", np.int64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
    ],
    align=True,
)
# A move: the one before (-1 for node 0), its environment steps, and the sum of their rewards
MOVE_DTYPE = np.dtype([("parent", np.int64), ("num_steps", np.int64), ("reward", np.float64)], align=True)


class Outcomes(NamedTuple):
    """The results of the step of every walker."""

    rewards: NDArray[np.float64]  # `[B]` float64
    num_steps: NDArray[np.int64]  # `[B]` int64, environment steps that it took
    terminated: NDArray[np.bool_]  # `[B]` bool
    truncated: NDArray[np.bool_]  # `[B]` bool


class Moves(NamedTuple):
    """The moves of all walkers, a tree; see `Lineage`."""

    nodes: NDArray[Any]  # `[C]` of `MOVE_DTYPE`
    actions: NDArray[np.uint8]  # `[C, A]` uint8, the bytes of the actions


class Rules(NamedTuple):
    """The settings of `SwarmConfig` that an iteration reads."""

    reward_scale: float
    distance_scale: float
    novelty_scale: float
    num_elites: int


FLOATS = types.Array(types.float64, 1, "C")
INTEGERS = types.Array(types.int64, 1, "C")
STATES = types.Array(types.uint8, 1, "C")
BYTES = types.Array(types.uint8, 2, "C")
SINGLES = types.Array(types.float32, 2, "C")
DOUBLES = types.Array(types.float64, 2, "C")
LABELS = types.Array(types.int64, 2, "C")
WALKERS = types.Array(from_dtype(WALKER_DTYPE), 1, "C")
MOVES = types.NamedTuple([types.Array(from_dtype(MOVE_DTYPE), 1, "C"), BYTES], Moves)
_FLAGS = types.Array(types.boolean, 1, "C")
OUTCOMES = types.NamedTuple([FLOATS, INTEGERS, _FLAGS, _FLAGS], Outcomes)
RULES = types.NamedTuple([types.float64, types.float64, types.float64, types.int64], Rules)
