"""Compiled selection: choose the actions of simulations, from the root on. The inner loop of tree search.

The arrays are those of `planvec.planners.mcts.arrays`. Letters: A actions, K simulations in flight.

Sources: UCT (Kocsis and Szepesvari 2006), the same for simulations in flight (Liu et al. 2020,
"Watch the Unobserved": WU-UCT), PUCT with a growing exploration rate (Silver et al. 2018, AlphaZero),
progressive widening (Couetoux et al. 2011).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.mcts.arrays import NUM_DRAWS, Paths, TreeArrays
from planvec.planners.mcts.halving import Halving, halving_action
from planvec.planners.mcts.rules import COLLIDED, OPEN_LOOP, RESOLVED, SAMPLE, SCALE_BY_NODE, SINGLE, Rules

_LOGS = np.array([-math.inf] + [math.log(count) for count in range(1, 1024)])


@jit()
def mix(seed: int, number: int) -> int:
    """Return a pseudorandom 62-bit number, that of index `number` (SplitMix64, Steele et al. 2014)."""
    z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(number + 1)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(z >> np.uint64(2))  # type: ignore[return-value]


@jit()
def _allowed(growth: tuple[float, float], count: int) -> float:
    """Return how many children a number of visits allows: at least 1."""
    if math.isinf(growth[0]):
        return growth[0]
    return max(1.0, float(math.floor(growth[0] * float(count) ** growth[1])))


@jit(inline=True)
def _log(count: int) -> float:
    """Return the natural logarithm of a number of visits, which is small in most nodes."""
    return _LOGS[count] if count < len(_LOGS) else math.log(count)


@jit()
def _width(legal: NDArray[np.bool_], node: int, wanted: int) -> int:
    """Return how many actions of a node, from the first on, contain so many legal ones, or all of them."""
    num_legal = 0
    for action in range(legal.shape[1]):
        num_legal += legal[node, action]
        if num_legal == wanted:
            return action + 1
    return int(legal.shape[1])


@jit(inline=True)
def _scale(
    node: int,
    edges: NDArray[Any],
    bounds: NDArray[np.float64],
    width: int,
    value_scale: float,
) -> float:
    """Return the scale of the exploration term at a node."""
    scale = value_scale
    if value_scale < 0.0:
        low, high = bounds[0], bounds[1]
        if value_scale == SCALE_BY_NODE:
            lowest, highest = math.inf, -math.inf
            for action in range(width):
                edge = edges[node, action]
                if edge.edge_visits > 0:
                    lowest = min(lowest, edge.edge_values)
                    highest = max(highest, edge.edge_values)
            if highest > lowest:
                low, high = lowest, highest
        scale = high - low if high > low else 1.0
    return scale


@jit(inline=True)
def _untried(
    node: int,
    edges: NDArray[Any],
    legal: NDArray[np.bool_],
    start: int,
    width: int,
    use_legal: bool,
) -> int:
    """Return the first action from `start` on that no simulation has taken; -1: none."""
    untried = -1
    action = start
    for _ in range(width):
        edge = edges[node, action]
        if edge.edge_visits + edge.edge_unobserved == 0 and (not use_legal or legal[node, action]):
            untried = action
            break
        action = action + 1 if action + 1 < width else 0
    return untried


@jit(inline=True)
def _best(
    node: int,
    edges: NDArray[Any],
    priors: NDArray[np.float64],
    legal: NDArray[np.bool_],
    start: int,
    width: int,
    node_value: float,
    factor: float,
    log_total: float,
    use_priors: bool,
    use_legal: bool,
) -> int:
    """Return the action with the highest score; of equals the first from `start` on."""
    best = action = start
    if use_legal:
        for _ in range(width):
            if legal[node, best]:
                break
            best = best + 1 if best + 1 < width else 0
    best_score = -math.inf
    for _ in range(width):
        if not use_legal or legal[node, action]:
            edge = edges[node, action]
            count = edge.edge_visits + edge.edge_unobserved
            value = edge.edge_values if edge.edge_visits > 0 else node_value
            if use_priors:
                score = value + factor * priors[node, action] / (1.0 + count)
            else:
                score = value + factor * math.sqrt(log_total / count)
            if score > best_score:
                best, best_score = action, score
        action = action + 1 if action + 1 < width else 0
    return best


@jit()
def _draw_outcome(
    first: int,
    outcomes: NDArray[Any],
    counters: NDArray[np.int64],
    seed: int,
) -> int:
    """Draw one of the outcomes of an action, with the frequencies of their samples."""
    total = 0
    outcome = first
    while outcome >= 0:
        total += outcomes[outcome].outcome_counts
        outcome = outcomes[outcome].next_outcomes
    counters[NUM_DRAWS] += 1
    remaining = mix(seed, counters[NUM_DRAWS]) % total
    outcome = first
    while remaining >= outcomes[outcome].outcome_counts:
        remaining -= outcomes[outcome].outcome_counts
        outcome = outcomes[outcome].next_outcomes
    return outcome


@jit(inline=True)
def resume(
    tree: TreeArrays,
    paths: Paths,
    slots: NDArray[np.int64],  # `[B]` int64, the rows of `paths` of B simulations
    statuses: NDArray[np.int64],  # `[B]` int64, written: `SAMPLE`, `RESOLVED`, or for the last one `COLLIDED`
    rules: Rules,
    halving: Halving,
    first: int,
) -> int:
    """Continue selections from their last nodes, until one collides with a step that is in flight."""
    # UCT: `Q + c sqrt(2 ln(N + O) / (n + o))`, untried actions first. PUCT: `Q + c(N) P sqrt(N + O) / (1 + n
    # + o)`, where N counts the visit that created the node. Actions without a completed visit have the value
    # of their node.
    # Returns the number of simulations before the first collision. Collisions exist only with `SINGLE`
    # outcomes.
    nodes, edges, outcomes, priors, legal = tree.nodes, tree.edges, tree.outcomes, tree.priors, tree.legal
    num_actions = edges.shape[1]
    widens = not math.isinf(rules.widening[0])
    use_priors, use_legal, chance = rules.use_priors, rules.use_legal, rules.chance
    # Outcome and node have the same index: the next node is known without waiting for the outcome to load.
    is_tree = chance == SINGLE and not rules.backs_up_values
    halves = len(halving.sequence) > 0
    for number in range(len(slots)):
        slot = slots[number]
        depth = paths.depths[slot]
        index: Any = np.int64(paths.nodes[slot, depth])
        status = RESOLVED
        node = nodes[index]
        while not (node.ended or node.proven) and depth < rules.max_depth:
            total = node.visits + node.unobserved
            width = num_actions
            if widens:
                wanted = min(float(num_actions), _allowed(rules.widening, total + 1))
                width = int(wanted)
                if use_legal:  # so many legal ones
                    width = _width(legal, index, width)
            start = node.starts if node.starts < width else 0
            action = -1
            if halves and depth == 0:
                number_begun = first + number
                is_past = number_begun >= len(halving.sequence)
                action = halving_action(tree, halving, -1 if is_past else halving.sequence[number_begun])
            elif not use_priors and (total < width or widens or use_legal):  # else all were tried
                action = _untried(index, edges, legal, start, width, use_legal)
            if action < 0:
                scale = _scale(index, edges, tree.bounds, width, rules.value_scale)
                factor, log_total = rules.exploration * scale, 0.0
                if use_priors:
                    total += 1
                    rate = math.log((total + 19652.0 + 1.0) / 19652.0) + 1.25
                    factor *= rate * math.sqrt(total)
                else:
                    log_total = 2.0 * _log(total)
                action = _best(
                    index,
                    edges,
                    priors,
                    legal,
                    start,
                    width,
                    node.values,
                    factor,
                    log_total,
                    use_priors,
                    use_legal,
                )
            edge = edges[index, action]
            outcome: Any = np.int64(edge.first_outcomes)
            if chance == SINGLE:
                if outcome < 0 and edge.edge_unobserved > 0:
                    status = COLLIDED
                    break
            elif chance == OPEN_LOOP:
                outcome = np.int64(-1)
            elif outcome >= 0:
                tries = edge.edge_visits + edge.edge_unobserved + 1
                if edge.edge_samples < _allowed(rules.outcome_widening, tries):
                    outcome = np.int64(-1)
                else:
                    outcome = np.int64(_draw_outcome(outcome, outcomes, tree.counters, rules.seed))
            paths.actions[slot, depth] = action
            node.unobserved += 1
            edge.edge_unobserved += 1
            if outcome < 0:
                edge.edge_samples += 1
                status = SAMPLE
                break
            result = outcomes[outcome]
            paths.rewards[slot, depth] = result.outcome_rewards
            paths.discounts[slot, depth] = result.outcome_discounts
            index = outcome if is_tree else np.int64(result.outcome_nodes)
            depth += 1
            paths.nodes[slot, depth] = index
            node = nodes[index]
        paths.depths[slot] = depth
        statuses[number] = status
        if status == COLLIDED:
            return number
    return len(slots)


@jit(inline=True)
def start(paths: Paths, slots: NDArray[np.int64]) -> None:
    """Let paths begin at the root."""
    for number in range(len(slots)):
        paths.depths[slots[number]] = 0
        paths.nodes[slots[number], 0] = 0


@jit(inline=True)
def undo(tree: TreeArrays, paths: Paths, slot: int) -> None:
    """Count a path as not in flight any more."""
    for depth in range(paths.depths[slot]):
        node, action = paths.nodes[slot, depth], paths.actions[slot, depth]
        tree.nodes[node].unobserved -= 1
        tree.edges[node, action].edge_unobserved -= 1
