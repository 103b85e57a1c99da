"""Defines `Shared`, what all compiled functions of a search work on. Letters: N nodes, S bytes of a state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.planners.mcts.arrays import Paths, TreeArrays
from planvec.planners.mcts.halving import Halving
from planvec.planners.mcts.rules import Rules
from planvec.planners.mcts.simulations.progress import Limits, Progress, Requests
from planvec.planners.mcts.simulations.table import Table

__all__ = ["Shared"]


class Shared(NamedTuple):
    """The memory of a search.

    Attributes:
        tree: The tree.
        paths: The paths of the simulations in flight.
        tree_states: `[N * S]` uint8, the states of nodes; `[0]` for an open loop, or if states are objects.
        actions: The bytes of the actions that all nodes have; `[0]` if each has its own.
        root_state: `[S]` uint8.
        rules: The settings of the kernels.
        limits: The limits of the search.
        table: The transposition table.
        progress: The simulations in flight.
        requests: Their requests.
        halving: Sequential halving at the root.
    """

    tree: TreeArrays
    paths: Paths
    tree_states: NDArray[np.uint8]
    actions: NDArray[np.uint8]
    root_state: NDArray[np.uint8]
    rules: Rules
    limits: Limits
    table: Table
    progress: Progress
    requests: Requests
    halving: Halving
