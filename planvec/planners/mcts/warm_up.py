"""Compile the kernels of tree search before they are needed."""

from __future__ import annotations

import numpy as np

from planvec.planners.mcts import backup, kernels
from planvec.planners.mcts.arrays import SINGLE, Rules, empty_arrays, empty_paths

__all__ = ["warm_up"]


def warm_up() -> None:
    """Call every kernel once, on a tree of two nodes."""
    rules = Rules(1.0, 1.0, False, False, SINGLE, 2, (np.inf, 0.0), (1.0, 0.5), False, False, False, 0)
    tree, paths = empty_arrays(4, 2, 2, False, False), empty_paths(1, 2)
    slots, statuses = np.zeros(1, np.int64), np.zeros(1, np.int64)
    backup.plant(tree, rules)
    kernels.select(tree, paths, slots, statuses, rules)
    new, ones = np.ones(1, np.int64), np.ones(1)
    backup.attach(tree, paths, slots, new, new, ones, ones, new, np.zeros(1, bool), rules)
    kernels.resume(tree, paths, slots, statuses, rules)
    backup.back_up(tree, paths, slots, ones, rules)
