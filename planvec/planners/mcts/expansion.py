"""Compiled expansion: add nodes and outcomes to a search tree.

The arrays are those of `planvec.planners.mcts.arrays`. They are unpacked at the top of every kernel, since
each access to the tuple would count references, in the inner loop. Letters: B simulations.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, OPEN_LOOP, Paths, Rules, TreeArrays
from planvec.planners.mcts.selection import mix

__all__ = ["expand", "init"]


@jit(cache=True)
def _init_nodes(tree: TreeArrays, first: int, last: int, rules: Rules) -> None:
    """Initialise the nodes from `first` up to, but not including, `last`."""
    visits, unobserved, values, raw_values = tree.visits, tree.unobserved, tree.values, tree.raw_values
    starts, edge_visits, edge_unobserved = tree.starts, tree.edge_visits, tree.edge_unobserved
    edge_values, edge_samples, first_outcomes = tree.edge_values, tree.edge_samples, tree.first_outcomes
    num_actions = edge_visits.shape[1]
    for node in range(first, last):
        visits[node] = 0
        unobserved[node] = 0
        values[node] = 0.0
        raw_values[node] = 0.0
        starts[node] = mix(rules.seed, -node - 2) % num_actions
        if rules.use_priors:
            tree.priors[node] = 1.0 / num_actions
        if rules.use_legal:
            tree.legal[node] = True
        for action in range(num_actions):
            edge_visits[node, action] = 0
            edge_unobserved[node, action] = 0
            edge_values[node, action] = 0.0
            edge_samples[node, action] = 0
            first_outcomes[node, action] = -1


@jit(cache=True)
def init(tree: TreeArrays, rules: Rules) -> None:
    """Initialise a tree with nothing but its root."""
    _init_nodes(tree, 0, 1, rules)
    tree.ended[0] = tree.pending[0] = False
    tree.parents[0] = -1
    tree.parent_actions[0] = -1
    # Outcome 0 leads to the root, so that outcome and node have the same index.
    tree.outcome_nodes[0] = tree.outcome_steps[0] = tree.outcome_counts[0] = 0
    tree.outcome_rewards[0] = tree.outcome_discounts[0] = 0.0
    tree.next_outcomes[0] = -1
    tree.bounds[0], tree.bounds[1] = math.inf, -math.inf
    tree.root_visits[:] = 0
    tree.root_means[:] = tree.root_squares[:] = 0.0
    tree.depth_histogram[:] = 0
    tree.counters[:] = 0
    tree.counters[NUM_NODES] = tree.counters[NUM_OUTCOMES] = 1


@jit(cache=True)
def expand(
    tree: TreeArrays,
    paths: Paths,
    slots: NDArray[np.int64],
    outcomes: NDArray[np.int64],
    nodes: NDArray[np.int64],
    rewards: NDArray[np.float64],
    discounts: NDArray[np.float64],
    num_steps: NDArray[np.int64],
    ended: NDArray[np.bool_],
    rules: Rules,
) -> None:
    """Add transitions to the tree, and append them to the paths of their simulations.

    Args:
        tree: Written. Outcomes and nodes with the next free indices are new.
        paths: Written.
        slots: `[B]`, the rows of `paths`.
        outcomes: `[B]`, the outcome of each transition.
        nodes: `[B]`, the node that it leads to.
        rewards: `[B]`.
        discounts: `[B]`.
        num_steps: `[B]`.
        ended: `[B]`, whether the episode ended there.
        rules: The settings.
    """
    counters, first_outcomes, next_outcomes = tree.counters, tree.first_outcomes, tree.next_outcomes
    outcome_nodes, outcome_rewards = tree.outcome_nodes, tree.outcome_rewards
    outcome_counts = tree.outcome_counts
    outcome_discounts, outcome_steps = tree.outcome_discounts, tree.outcome_steps
    is_ended, pending = tree.ended, tree.pending
    parents, parent_actions = tree.parents, tree.parent_actions
    path_depths, path_nodes, path_actions = paths.depths, paths.nodes, paths.actions
    path_rewards, path_discounts = paths.rewards, paths.discounts
    num_nodes = first_new = counters[NUM_NODES]
    for row in range(len(slots)):
        slot, outcome, child = slots[row], outcomes[row], nodes[row]
        depth = path_depths[slot]
        node, action = path_nodes[slot, depth], path_actions[slot, depth]
        if child == num_nodes:
            num_nodes += 1
            is_ended[child] = ended[row] and rules.chance != OPEN_LOOP
            pending[child] = rules.rolls_out and not is_ended[child]
            parents[child] = node
            parent_actions[child] = action
        if outcome == counters[NUM_OUTCOMES]:
            counters[NUM_OUTCOMES] += 1
            outcome_nodes[outcome] = child
            outcome_rewards[outcome] = rewards[row]
            outcome_discounts[outcome] = discounts[row]
            outcome_steps[outcome] = num_steps[row]
            outcome_counts[outcome] = 0
            next_outcomes[outcome] = first_outcomes[node, action]
            first_outcomes[node, action] = outcome
        outcome_counts[outcome] += 1
        path_rewards[slot, depth] = rewards[row]
        path_discounts[slot, depth] = discounts[row]
        path_depths[slot] = depth + 1
        path_nodes[slot, depth + 1] = child
    counters[NUM_NODES] = num_nodes
    _init_nodes(tree, first_new, num_nodes, rules)
