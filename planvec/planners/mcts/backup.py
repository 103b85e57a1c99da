"""Compiled backup: pass returns up to the root of a search tree.

The arrays are those of `planvec.planners.mcts.arrays`. Letters: B simulations.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import ROOT_WEIGHT, Paths, TreeArrays
from planvec.planners.mcts.rules import Rules

__all__ = ["back_up"]


@jit()
def _update_values(tree: TreeArrays, node: int, raw_weight: int, is_max: bool) -> None:
    """Compute the values of a node and of all its actions from those of their outcomes.

    In a graph, an outcome's value may also have changed by a simulation that did not pass this node.
    """
    nodes, edges, outcomes = tree.nodes, tree.edges, tree.outcomes
    total_value, num_visits = raw_weight * nodes[node].raw_values, raw_weight
    best = -math.inf
    for action in range(edges.shape[1]):
        edge = edges[node, action]
        visits = edge.edge_visits
        if visits > 0:
            total, weight = 0.0, 0
            index = edge.first_outcomes
            while index >= 0:
                outcome = outcomes[index]
                child = nodes[outcome.outcome_nodes]
                if not child.pending:
                    future = outcome.outcome_discounts * child.values
                    total += outcome.outcome_counts * (outcome.outcome_rewards + future)
                    weight += outcome.outcome_counts
                index = outcome.next_outcomes
            if weight > 0:
                edge.edge_values = total / weight
            total_value += visits * edge.edge_values
            num_visits += visits
            best = max(best, edge.edge_values)
    nodes[node].values = best if is_max else total_value / num_visits


@jit(inline=True)
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
    nodes, edges, root_edges = tree.nodes, tree.edges, tree.root_edges
    bounds, root_weight = tree.bounds, tree.counters[ROOT_WEIGHT]
    low, high = bounds[0], bounds[1]
    for row in range(len(slots)):
        slot = slots[row]
        value = leaf_values[row]
        tree.depth_histogram[paths.depths[slot]] += 1
        for level in range(paths.depths[slot] - 1, -1, -1):
            node, action = paths.nodes[slot, level], paths.actions[slot, level]
            weight = 1 if node > 0 else root_weight
            record, edge = nodes[node], edges[node, action]
            record.unobserved -= 1
            edge.edge_unobserved -= 1
            record.visits += 1
            edge.edge_visits += 1
            value = paths.rewards[slot, level] + paths.discounts[slot, level] * value
            before = edge.edge_values
            mean = before + (value - before) / edge.edge_visits
            if level == 0:
                root = root_edges[action]
                root.root_visits += 1
                deviation = value - root.root_means
                root.root_means += deviation / root.root_visits
                root.root_squares += deviation * (value - root.root_means)
            edge.edge_values = mean
            backed_up = value
            if rules.backs_up_values:
                _update_values(tree, node, weight, rules.backs_up_max)
                backed_up = edge.edge_values
            else:
                record.values += (value - record.values) / (record.visits + weight)
            low, high = min(low, backed_up), max(high, backed_up)
    bounds[0], bounds[1] = low, high
