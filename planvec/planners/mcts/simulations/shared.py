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


class Shared(NamedTuple):
    """The memory of a search."""

    tree: TreeArrays
    paths: Paths  # the paths of the simulations in flight
    # `[N * S]` uint8, the states of nodes; `[0]` for an open loop, or if states are objects
    tree_states: NDArray[np.uint8]
    actions: NDArray[np.uint8]  # the bytes of the actions that all nodes have; `[0]` if each has its own
    root_state: NDArray[np.uint8]  # `[S]` uint8
    rules: Rules  # the settings of the kernels
    limits: Limits  # the limits of the search
    table: Table  # the transposition table
    progress: Progress  # the simulations in flight
    requests: Requests
    halving: Halving  # sequential halving at the root
