"""Compiled expansion: add nodes and outcomes to a search tree.

The arrays are those of `planvec.planners.mcts.arrays`. Letters: B simulations.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, Paths, TreeArrays
from planvec.planners.mcts.rules import OPEN_LOOP, Rules
from planvec.planners.mcts.selection import mix


@jit(inline=True)
def _init_nodes(tree: TreeArrays, first: int, last: int, rules: Rules) -> None:
    """Initialise the nodes from `first` up to, but not including, `last`."""
    nodes, edges = tree.nodes, tree.edges
    num_actions = edges.shape[1]
    for node in range(first, last):
        record = nodes[node]
        record.visits = record.unobserved = 0
        record.values = record.raw_values = 0.0
        record.starts = mix(rules.seed, -node - 2) % num_actions
        if rules.use_priors:
            tree.priors[node] = 1.0 / num_actions
        if rules.use_legal:
            tree.legal[node] = True
        for action in range(num_actions):
            edge = edges[node, action]
            edge.edge_visits = edge.edge_unobserved = edge.edge_samples = 0
            edge.edge_values = 0.0
            edge.first_outcomes = -1


@jit(cache=True)
def init(tree: TreeArrays, rules: Rules) -> None:
    """Initialise a tree with nothing but its root."""
    _init_nodes(tree, 0, 1, rules)
    root, outcome = tree.nodes[0], tree.outcomes[0]
    root.ended = root.pending = root.proven = False
    root.players = 0
    root.parents = root.parent_actions = -1
    # Outcome 0 leads to the root, so that outcome and node have the same index.
    outcome.outcome_nodes = outcome.outcome_steps = outcome.outcome_counts = 0
    outcome.outcome_rewards = outcome.outcome_discounts = 0.0
    outcome.next_outcomes = -1
    tree.bounds[0], tree.bounds[1] = math.inf, -math.inf
    for action in range(len(tree.root_edges)):
        edge = tree.root_edges[action]
        edge.root_visits = 0
        edge.root_means = edge.root_squares = 0.0
    tree.depth_histogram[:] = 0
    tree.counters[:] = 0
    tree.counters[NUM_NODES] = tree.counters[NUM_OUTCOMES] = 1


@jit(inline=True)
def expand(
    tree: TreeArrays,
    paths: Paths,
    slots: NDArray[np.int64],  # `[B]`, the rows of `paths`
    outcomes: NDArray[np.int64],  # `[B]`, the outcome of each transition
    nodes: NDArray[np.int64],  # `[B]`, the node that it leads to
    rewards: NDArray[np.float64],  # `[B]`
    discounts: NDArray[np.float64],  # `[B]`
    num_steps: NDArray[np.int64],  # `[B]`
    ended: NDArray[np.bool_],  # `[B]`, whether the episode ended there
    rules: Rules,
) -> None:
    """Add transitions to the tree, and append them to the paths of their simulations."""
    counters, tree_nodes, tree_edges, tree_outcomes = tree.counters, tree.nodes, tree.edges, tree.outcomes
    num_nodes = first_new = counters[NUM_NODES]
    for row in range(len(slots)):
        slot, outcome, child = slots[row], outcomes[row], nodes[row]
        depth = paths.depths[slot]
        node, action = paths.nodes[slot, depth], paths.actions[slot, depth]
        if child == num_nodes:
            num_nodes += 1
            is_ended = ended[row] and rules.chance != OPEN_LOOP
            record = tree_nodes[child]
            record.ended = is_ended
            record.pending = rules.rolls_out and not is_ended
            record.proven = False
            record.players = 0
            record.parents = node
            record.parent_actions = action
        result = tree_outcomes[outcome]
        if outcome == counters[NUM_OUTCOMES]:
            counters[NUM_OUTCOMES] += 1
            edge = tree_edges[node, action]
            result.outcome_nodes = child
            result.outcome_rewards = rewards[row]
            result.outcome_discounts = discounts[row]
            result.outcome_steps = num_steps[row]
            result.outcome_counts = 0
            result.next_outcomes = edge.first_outcomes
            edge.first_outcomes = outcome
        result.outcome_counts += 1
        paths.rewards[slot, depth] = rewards[row]
        paths.discounts[slot, depth] = discounts[row]
        paths.depths[slot] = depth + 1
        paths.nodes[slot, depth + 1] = child
    counters[NUM_NODES] = num_nodes
    _init_nodes(tree, first_new, num_nodes, rules)
