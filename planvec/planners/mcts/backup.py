"""Compiled backup: pass returns up to the root of a search tree.

The arrays are those of `planvec.planners.mcts.arrays`. They are unpacked at the top of every kernel, since
each access to the tuple would count references, in the inner loop. Letters: B simulations.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import ROOT_WEIGHT, Paths, Rules, TreeArrays

__all__ = ["back_up"]


@jit(cache=True)
def _update_values(tree: TreeArrays, node: int, raw_weight: int, is_max: bool) -> None:
    """Compute the values of a node and of all its actions from those of their outcomes.

    In a graph, an outcome's value may also have changed by a simulation that did not pass this node.
    """
    values, nodes, rewards = tree.values, tree.outcome_nodes, tree.outcome_rewards
    discounts, counts, next_outcomes = tree.outcome_discounts, tree.outcome_counts, tree.next_outcomes
    pending = tree.pending
    edge_visits, edge_values, first_outcomes = tree.edge_visits, tree.edge_values, tree.first_outcomes
    total_value, num_visits = raw_weight * tree.raw_values[node], raw_weight
    best = -math.inf
    for action in range(edge_visits.shape[1]):
        visits = edge_visits[node, action]
        if visits > 0:
            total, weight = 0.0, 0
            outcome = first_outcomes[node, action]
            while outcome >= 0:
                if not pending[nodes[outcome]]:
                    future = discounts[outcome] * values[nodes[outcome]]
                    total += counts[outcome] * (rewards[outcome] + future)
                    weight += counts[outcome]
                outcome = next_outcomes[outcome]
            if weight > 0:
                edge_values[node, action] = total / weight
            total_value += visits * edge_values[node, action]
            num_visits += visits
            best = max(best, edge_values[node, action])
    values[node] = best if is_max else total_value / num_visits


@jit(cache=True)
def back_up(
    tree: TreeArrays, paths: Paths, slots: NDArray[np.int64], leaf_values: NDArray[np.float64], rules: Rules
) -> None:
    """Pass the returns of simulations up to the root, and count the simulations as completed.

    Args:
        tree: Written.
        paths: The paths of the simulations.
        slots: `[B]`, the rows of `paths`.
        leaf_values: `[B]`, return from the last node of each on.
        rules: The settings.
    """
    visits, unobserved, values = tree.visits, tree.unobserved, tree.values
    edge_visits, edge_unobserved, edge_values = tree.edge_visits, tree.edge_unobserved, tree.edge_values
    root_visits, root_means, root_squares = tree.root_visits, tree.root_means, tree.root_squares
    bounds = tree.bounds
    depth_histogram, root_weight = tree.depth_histogram, tree.counters[ROOT_WEIGHT]
    path_nodes, path_actions, path_depths = paths.nodes, paths.actions, paths.depths
    path_rewards, path_discounts = paths.rewards, paths.discounts
    low, high = bounds[0], bounds[1]
    for row in range(len(slots)):
        slot = slots[row]
        value = leaf_values[row]
        depth_histogram[path_depths[slot]] += 1
        for level in range(path_depths[slot] - 1, -1, -1):
            node, action = path_nodes[slot, level], path_actions[slot, level]
            weight = 1 if node > 0 else root_weight
            unobserved[node] -= 1
            edge_unobserved[node, action] -= 1
            visits[node] += 1
            edge_visits[node, action] += 1
            value = path_rewards[slot, level] + path_discounts[slot, level] * value
            before = edge_values[node, action]
            mean = before + (value - before) / edge_visits[node, action]
            if level == 0:
                root_visits[action] += 1
                deviation = value - root_means[action]
                root_means[action] += deviation / root_visits[action]
                root_squares[action] += deviation * (value - root_means[action])
            edge_values[node, action] = mean
            backed_up = value
            if rules.backs_up_values:
                _update_values(tree, node, weight, rules.backs_up_max)
                backed_up = edge_values[node, action]
            else:
                values[node] += (value - values[node]) / (visits[node] + weight)
            low, high = min(low, backed_up), max(high, backed_up)
    bounds[0], bounds[1] = low, high
