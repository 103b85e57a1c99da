"""Gumbel root selection with sequential halving, as compiled code.

Source: Danihelka et al. 2022, "Policy improvement by planning with Gumbel" (equations 8, 10 to 12, figure 1;
the value of actions without visits is the mixed value of appendix D, rescaled as in section 7.2 of MuZero).

Letters: A actions, m actions that are considered, n simulations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import ROOT_WEIGHT, TreeArrays
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.tree import Tree

_SMALL = 1e-8


class Halving(NamedTuple):
    """The state of sequential halving at the root of a search."""

    # `[n]` int64: simulation i takes an action with so many visits; `[0]` without halving
    sequence: NDArray[np.int64]
    scores: NDArray[np.float64]  # `[A]` float64, Gumbel noise plus logits; -inf for illegal actions
    priors: NDArray[np.float64]  # `[A]` float64, the probabilities of the logits
    # `[A]` int64, the visits from before this search, which halving does not count
    base_visits: NDArray[np.int64]
    transform: NDArray[np.float64]  # `[2]` float64, c_visit and c_scale of sigma


def no_halving() -> Halving:
    """Return the state of a search without it."""
    return Halving(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, np.int64), np.zeros(2))


def considered_visits(num_considered: int, num_simulations: int) -> NDArray[np.int64]:
    """Return the number of visits of the action that each simulation takes, `[n]`."""
    # Of m actions, all are visited equally often until a share `1 / ceil(log2 m)` of the simulations is
    # spent; then the better half of them, and so on down to two, which share the rest.
    if num_considered <= 1:
        return np.arange(num_simulations)
    num_phases = math.ceil(math.log2(num_considered))
    sequence: list[int] = []
    remaining, visits = num_considered, 0
    while len(sequence) < num_simulations:
        rounds = max(1, num_simulations // (num_phases * remaining))
        for _ in range(rounds):
            sequence += [visits] * remaining
            visits += 1
        remaining = max(2, remaining // 2)
    return np.array(sequence[:num_simulations], np.int64)


@jit()
def _completed_value(tree: TreeArrays, halving: Halving) -> float:
    """Return the value of the root's actions without visits: the mix of its own value and theirs."""
    edges, root = tree.edges, tree.nodes[0]
    total, weight, num_visits = 0.0, 0.0, 0
    for action in range(edges.shape[1]):
        edge = edges[0, action]
        if edge.edge_visits > 0:
            prior = max(halving.priors[action], _SMALL)
            total += prior * edge.edge_values
            weight += prior
            num_visits += edge.edge_visits
    own = 1.0 if tree.counters[ROOT_WEIGHT] > 0 else 0.0  # without an evaluation it has no value of its own
    if own + num_visits == 0.0:
        return 0.0
    mean = total / weight if num_visits > 0 else 0.0
    mixed: float = (own * root.raw_values + num_visits * mean) / (own + num_visits)
    return mixed


@jit()
def halving_action(tree: TreeArrays, halving: Halving, wanted: int) -> int:
    """Return the action of the root with the best score among those with a number of visits."""
    # The score is Gumbel noise + logit + sigma(value), `sigma(q) = (c_visit + max visits) * c_scale * q`,
    # with values rescaled to [0, 1]. Visits in flight count as visits.
    edges, legal = tree.edges, tree.legal
    own = _completed_value(tree, halving)
    only_legal = False  # what is proven to be of no use is illegal; all may be
    if legal.shape == edges.shape:
        for action in range(edges.shape[1]):
            only_legal |= legal[0, action] and halving.scores[action] > -math.inf
    low, high, most, largest = math.inf, -math.inf, 0, np.int64(0)
    for action in range(edges.shape[1]):
        edge = edges[0, action]
        visits = edge.edge_visits
        value = edge.edge_values if visits > 0 else own
        low, high, most = min(low, value), max(high, value), max(most, visits)
        if halving.scores[action] > -math.inf and (not only_legal or legal[0, action]):
            largest = max(largest, visits - halving.base_visits[action])
    factor = (halving.transform[0] + most) * halving.transform[1] / max(high - low, _SMALL)
    best, best_score, is_match = 0, -math.inf, False
    for action in range(edges.shape[1]):
        edge = edges[0, action]
        count = edge.edge_visits - halving.base_visits[action]
        matches = count == largest if wanted < 0 else count + edge.edge_unobserved == wanted
        value = edge.edge_values if edge.edge_visits > 0 else own
        score = halving.scores[action] + factor * (value - low)
        # Without a match, as after the last simulation of the sequence, every action is considered.
        is_better = score > best_score if matches == is_match else matches
        if only_legal and not legal[0, action]:
            continue
        if score > -math.inf and is_better:
            best, best_score, is_match = action, score, matches
    return best


@jit(cache=True)
def final_action(tree: TreeArrays, halving: Halving) -> int:
    """Return the decision: the action with the best score among the most visited ones of this search."""
    return halving_action(tree, halving, -1)


def begin_halving(config: MCTSConfig, tree: Tree, generator: np.random.Generator) -> Halving:
    """Return the state of the root at the beginning of a search, with noise; see `MCTS.root_selection`."""
    if config.root_selection != "gumbel":
        return no_halving()
    arrays, num_actions = tree.arrays, tree.num_actions
    priors = arrays.priors[0].copy() if tree.kind.has_priors else np.full(num_actions, 1.0 / num_actions)
    legal = arrays.legal[0] if tree.kind.has_legal else np.ones(num_actions, np.bool_)
    noise = config.gumbel_scale * generator.gumbel(size=num_actions)
    logits = np.log(np.maximum(priors, np.finfo(np.float64).tiny))
    assert config.simulation_limit is not None
    num_considered = min(config.num_considered, int(legal.sum()))
    return Halving(
        sequence=considered_visits(num_considered, config.simulation_limit),
        scores=np.where(legal, noise + logits, -np.inf),
        priors=priors,
        base_visits=arrays.edge_visits[0].astype(np.int64),
        transform=np.array(config.gumbel_transform, np.float64),
    )
