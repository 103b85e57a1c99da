"""Compiled backup: pass returns up to the root of a search tree.

The arrays are those of `planvec.planners.mcts.arrays`. Letters: B simulations.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import OUT_OF_BOUNDS, ROOT_WEIGHT, Paths, TreeArrays
from planvec.planners.mcts.rules import Rules

_ROUNDING = 1e-9  # how far a return may lie outside the bounds, in units of their distance


@jit()
def _update_values(tree: TreeArrays, node: int, raw_weight: int, is_max: bool) -> None:
    """Compute the values of a node and of all its actions from those of their outcomes."""
    # In a graph, an outcome's value may also have changed by a simulation that did not pass this node.
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
    if not nodes[node].proven:
        nodes[node].values = best if is_max else total_value / num_visits


@jit()
def _certain_value(tree: TreeArrays, node: int, action: int) -> float:
    """Return the value of an action, if that is exactly known; else NaN."""
    first = tree.edges[node, action].first_outcomes
    if first < 0:
        return math.nan
    outcome = tree.outcomes[first]
    child = tree.nodes[outcome.outcome_nodes]
    if child.ended:
        return float(outcome.outcome_rewards)
    if child.proven:
        return float(outcome.outcome_rewards + outcome.outcome_discounts * child.raw_values)
    return math.nan


@jit()
def _prove(tree: TreeArrays, node: int, action: int, bounds: tuple[float, float]) -> None:
    """Conclude from the value of an action what is certain about its node, if that value is exactly known."""
    # An action with the lowest possible value counts as illegal from then on. One with the highest possible
    # value makes all others illegal.
    low, high = bounds
    if tree.nodes[node].players == 1:
        low, high = -high, -low
    record, legal, num_actions = tree.nodes[node], tree.legal, tree.edges.shape[1]
    value = _certain_value(tree, node, action)
    if math.isnan(value):
        return
    tree.edges[node, action].edge_values = value
    slack = _ROUNDING * (high - low)
    if value < low - slack or value > high + slack:
        tree.counters[OUT_OF_BOUNDS] = 1
    if record.proven:
        return
    if value >= high:
        for other in range(num_actions):
            legal[node, other] = other == action
    elif value <= low:
        legal[node, action] = False
    best = low
    for other in range(num_actions):
        if legal[node, other]:
            value = _certain_value(tree, node, other)
            if math.isnan(value):
                return
            best = max(best, value)
    record.proven = True
    record.values = record.raw_values = best


@jit(inline=True)
def back_up(
    tree: TreeArrays, paths: Paths, slots: NDArray[np.int64], leaf_values: NDArray[np.float64], rules: Rules
) -> None:
    """Pass the returns of simulations up to the root, and count the simulations as completed."""
    # `slots`: `[B]`, the rows of `paths`. `leaf_values`: `[B]`, return from the last node of each on.
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
            elif not record.proven:
                record.values += (value - record.values) / (record.visits + weight)
            low, high = min(low, backed_up), max(high, backed_up)
            if rules.proves:
                _prove(tree, node, action, rules.value_bounds)
    bounds[0], bounds[1] = low, high
