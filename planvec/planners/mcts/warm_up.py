"""Compile the kernels of tree search before they are needed."""

from __future__ import annotations

import numpy as np

from planvec.planners.mcts.arrays import empty_arrays, empty_paths
from planvec.planners.mcts.compiled.row_run import load_loop
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.expansion import init
from planvec.planners.mcts.halving import no_halving
from planvec.planners.mcts.rules import Rules, TreeKind
from planvec.planners.mcts.simulations.memory import Simulations
from planvec.planners.mcts.subtree import extract_subtree
from planvec.planners.mcts.tree import Tree


def warm_up(config: MCTSConfig) -> None:
    """Make the simulations of a tree of one node, for which every kernel is compiled."""
    arrays, rules = empty_arrays(4, 2, 2, False, False), Rules(max_depth=2)
    init(arrays, rules)
    states, actions = np.zeros(4, [("number", np.int64)]), np.arange(2)
    tree = Tree(arrays, states, actions, TreeKind(False, False, False, False, rules.chance, 1.0, 1))
    paths, slots = empty_paths(config.batch_size, 2), np.arange(config.batch_size)
    simulations = Simulations(config, rules, tree, paths, states[:1], [slots], False, no_halving())
    simulations.load()
    load_loop(simulations)
    extract_subtree(arrays, 0)
