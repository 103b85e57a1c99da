"""Compile the kernels of tree search before they are needed."""

from __future__ import annotations

import numpy as np

from planvec.planners.mcts import backup, expansion, selection
from planvec.planners.mcts.arrays import empty_arrays, empty_paths
from planvec.planners.mcts.rules import Rules

__all__ = ["warm_up"]


def warm_up() -> None:
    """Call every kernel once, on a tree of two nodes."""
    rules = Rules(max_depth=2)
    tree, paths = empty_arrays(4, 2, 2, False, False), empty_paths(1, 2)
    slots, statuses = np.zeros(1, np.int64), np.zeros(1, np.int64)
    expansion.init(tree, rules)
    selection.select(tree, paths, slots, statuses, rules)
    new, ones = np.ones(1, np.int64), np.ones(1)
    expansion.expand(tree, paths, slots, new, new, ones, ones, new, np.zeros(1, bool), rules)
    selection.resume(tree, paths, slots, statuses, rules)
    backup.back_up(tree, paths, slots, ones, rules)
