"""Growing a search tree, compiled: hang in what was sampled, take returns up to the root.

The arrays are those of `tree_arrays`. They are unpacked at the top of every kernel: each look into the tuple
would count references, in the inner loop. Letters: B simulations, N nodes.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planvec.planners.mcts.arrays import (
    NUM_NODES,
    NUM_OUTCOMES,
    OPEN_LOOP,
    ROOT_WEIGHT,
    Paths,
    Rules,
    TreeArrays,
)
from planvec.planners.mcts.kernels import mix

__all__ = ["attach", "back_up", "plant"]


@njit(cache=True)
def _clear(tree: TreeArrays, first: int, last: int, rules: Rules) -> None:
    """Make nodes from `first` up to, not including, `last` new."""
    visits, unobserved, values, own_values = tree.visits, tree.unobserved, tree.values, tree.own_values
    starts, edge_visits, edge_unobserved = tree.starts, tree.edge_visits, tree.edge_unobserved
    edge_values, edge_samples, first_outcomes = tree.edge_values, tree.edge_samples, tree.first_outcomes
    num_actions = edge_visits.shape[1]
    for node in range(first, last):
        visits[node] = 0
        unobserved[node] = 0
        values[node] = 0.0
        own_values[node] = 0.0
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


@njit(cache=True)
def plant(tree: TreeArrays, rules: Rules) -> None:
    """Make the root, and nothing else."""
    _clear(tree, 0, 1, rules)
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


@njit(cache=True)
def attach(
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
    """Hang what was sampled into the tree, and move its simulations on to it.

    Args:
        tree: Written. Outcomes and nodes with the next free indices are new.
        paths: Written.
        slots: `[B]`, rows of `paths`.
        outcomes: `[B]`, the outcome of each.
        nodes: `[B]`, where it leads.
        rewards: `[B]`.
        discounts: `[B]`.
        num_steps: `[B]`.
        ended: `[B]`, whether the episode ended there.
        rules: What to go by.
    """
    counters, first_outcomes, next_outcomes = tree.counters, tree.first_outcomes, tree.next_outcomes
    outcome_nodes, outcome_rewards, outcome_counts = (
        tree.outcome_nodes,
        tree.outcome_rewards,
        tree.outcome_counts,
    )
    outcome_discounts, outcome_steps = tree.outcome_discounts, tree.outcome_steps
    is_ended, pending, parents, parent_actions = (
        tree.ended,
        tree.pending,
        tree.parents,
        tree.parent_actions,
    )
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
    _clear(tree, first_new, num_nodes, rules)


@njit(cache=True)
def _refresh(tree: TreeArrays, node: int, own_weight: int, is_max: bool) -> None:
    """The values of a node and of its actions by those of the nodes that they lead to.

    Of all its actions: where ways meet, a node may have become better by another way.
    """
    values, nodes, rewards = tree.values, tree.outcome_nodes, tree.outcome_rewards
    discounts, counts, next_outcomes = tree.outcome_discounts, tree.outcome_counts, tree.next_outcomes
    pending = tree.pending
    edge_visits, edge_values, first_outcomes = tree.edge_visits, tree.edge_values, tree.first_outcomes
    sum_of_all, num_visits = own_weight * tree.own_values[node], own_weight
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
            sum_of_all += visits * edge_values[node, action]
            num_visits += visits
            best = max(best, edge_values[node, action])
    values[node] = best if is_max else sum_of_all / num_visits


@njit(cache=True)
def back_up(
    tree: TreeArrays, paths: Paths, slots: NDArray[np.int64], leaf_values: NDArray[np.float64], rules: Rules
) -> None:
    """Take what simulations found up to the root, and count them as completed.

    Args:
        tree: Written.
        paths: Of the simulations.
        slots: `[B]`, rows of `paths`.
        leaf_values: `[B]`, return from the last node of each on.
        rules: What to go by.
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
                _refresh(tree, node, weight, rules.backs_up_max)
                backed_up = edge_values[node, action]
            else:
                values[node] += (value - values[node]) / (visits[node] + weight)
            low, high = min(low, backed_up), max(high, backed_up)
    bounds[0], bounds[1] = low, high
