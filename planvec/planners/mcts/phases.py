"""The phases of tree search as compiled code: selection, halving, expansion and backup.

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

from planvec.kernels import Pointer, jit, value_at
from planvec.planners.mcts.arrays import (
    COLLIDED,
    COMPLETED,
    NUM_DRAWS,
    NUM_NODES,
    NUM_OUTCOMES,
    NUM_SIMULATIONS,
    NUM_STARTED,
    OPEN_LOOP,
    OUT_OF_BOUNDS,
    RESOLVED,
    ROOT_WEIGHT,
    SAMPLE,
    SCALE_BY_NODE,
    SINGLE,
    Halving,
    Rules,
    Shared,
    TreeArrays,
)
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.tree import Tree

# -- Gumbel root selection with sequential halving, as compiled code.
#
# Source: Danihelka et al. 2022, "Policy improvement by planning with Gumbel" (equations 8, 10 to 12, figure
# 1; the value of actions without visits is the mixed value of appendix D, rescaled as in section 7.2 of
# MuZero).
#
# Letters: A actions, m actions that are considered, n simulations.

_SMALL = 1e-8


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
    # `wanted`: number of visits in this search; -1: the largest there is, completed ones only.
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


_LOGS = np.array([-math.inf] + [math.log(count) for count in range(1, 1024)])


# -- Selection: UCT and PUCT, from the root on ---------------------------------------------------------------


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
def _scale(tree: TreeArrays, rules: Rules, node: int, width: int) -> float:
    """Return the scale of the exploration term at a node."""
    scale = rules.value_scale
    if scale < 0.0:
        low, high = tree.bounds[0], tree.bounds[1]
        if scale == SCALE_BY_NODE:
            lowest, highest = math.inf, -math.inf
            for action in range(width):
                edge = tree.edges[node, action]
                if edge.edge_visits > 0:
                    lowest = min(lowest, edge.edge_values)
                    highest = max(highest, edge.edge_values)
            if highest > lowest:
                low, high = lowest, highest
        scale = high - low if high > low else 1.0
    return scale


@jit(inline=True)
def _untried(tree: TreeArrays, rules: Rules, node: int, start: int, width: int) -> int:
    """Return the first action from `start` on that no simulation has taken; -1: none."""
    untried = -1
    action = start
    for _ in range(width):
        edge = tree.edges[node, action]
        is_legal = not rules.use_legal or tree.legal[node, action]
        if edge.edge_visits + edge.edge_unobserved == 0 and is_legal:
            untried = action
            break
        action = action + 1 if action + 1 < width else 0
    return untried


@jit(inline=True)
def _best(
    tree: TreeArrays, rules: Rules, node: int, start: int, width: int, factor: float, log_total: float
) -> int:
    """Return the action with the highest score; of equals the first from `start` on."""
    use_priors, use_legal, legal = rules.use_priors, rules.use_legal, tree.legal
    node_value = tree.nodes[node].values
    best = action = start
    if use_legal:
        for _ in range(width):
            if legal[node, best]:
                break
            best = best + 1 if best + 1 < width else 0
    best_score = -math.inf
    for _ in range(width):
        if not use_legal or legal[node, action]:
            edge = tree.edges[node, action]
            count = edge.edge_visits + edge.edge_unobserved
            value = edge.edge_values if edge.edge_visits > 0 else node_value
            if use_priors:
                score = value + factor * tree.priors[node, action] / (1.0 + count)
            else:
                score = value + factor * math.sqrt(log_total / count)
            if score > best_score:
                best, best_score = action, score
        action = action + 1 if action + 1 < width else 0
    return best


@jit()
def _draw_outcome(first: int, outcomes: NDArray[Any], counters: NDArray[np.int64], seed: int) -> int:
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


@jit()
def select(memory: Pointer[Shared], slots: NDArray[np.int64], statuses: NDArray[np.int64]) -> int:
    """Go on with selections from the last nodes of their paths, until one collides with a step in flight."""
    # UCT: Q + c sqrt(2 ln(N + O) / (n + o)), untried actions first.
    # PUCT: Q + c(N) P sqrt(N + O) / (1 + n + o), where N counts the visit that created the node.
    # Actions without a completed visit have the value of their node.
    # `slots`: `[B]`, the rows of paths. `statuses`: `[B]`, written: `SAMPLE`, `RESOLVED`, or for the last one
    # `COLLIDED`. Also written: counts in flight of the tree, and paths from their last node on.
    # Returns the number of simulations before the first collision. Collisions exist only with `SINGLE`
    # outcomes.
    shared: Shared = value_at(memory)
    tree, paths, rules, halving = shared.tree, shared.paths, shared.rules, shared.halving
    num_begun = shared.progress.totals[NUM_STARTED]  # before these, as halving counts
    nodes, edges, outcomes = tree.nodes, tree.edges, tree.outcomes
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
                    width = _width(tree.legal, index, width)
            start = node.starts if node.starts < width else 0
            action = -1
            if halves and depth == 0:
                number_begun = num_begun + number
                is_past = number_begun >= len(halving.sequence)
                action = halving_action(tree, halving, -1 if is_past else halving.sequence[number_begun])
            elif not use_priors and (total < width or widens or use_legal):  # else all were tried
                action = _untried(tree, rules, index, start, width)
            if action < 0:
                factor, log_total = rules.exploration * _scale(tree, rules, index, width), 0.0
                if use_priors:
                    total += 1
                    rate = math.log((total + 19652.0 + 1.0) / 19652.0) + 1.25
                    factor *= rate * math.sqrt(total)
                else:
                    log_total = 2.0 * _log(total)
                action = _best(tree, rules, index, start, width, factor, log_total)
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


# -- Compiled expansion: add nodes and outcomes to a search tree.
#
# The arrays are those of `planvec.planners.mcts.arrays`. Letters: B simulations.


@jit(inline=True)
def init_node(tree: TreeArrays, node: Any, rules: Rules) -> None:
    """Initialise a node and its edges."""
    edges = tree.edges
    num_actions = edges.shape[1]
    record = tree.nodes[node]
    record.visits = record.unobserved = 0
    record.values = record.raw_values = 0.0
    record.ended = record.pending = record.proven = False
    record.players = 0
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
    init_node(tree, np.int64(0), rules)
    root, outcome = tree.nodes[0], tree.outcomes[0]
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


# -- Compiled backup: pass returns up to the root of a search tree.
#
# The arrays are those of `planvec.planners.mcts.arrays`. Letters: B simulations.

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
    # The action has one outcome. `bounds`: lowest and highest possible return, of player 0 if there are two.
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


@jit()
def back_up(memory: Pointer[Shared], half: int) -> int:
    """Pass the returns of the simulations of a half up to the root, which completes them."""
    shared: Shared = value_at(memory)
    tree, paths, rules, progress = shared.tree, shared.paths, shared.rules, shared.progress
    nodes, edges, root_edges = tree.nodes, tree.edges, tree.root_edges
    bounds, root_weight = tree.bounds, tree.counters[ROOT_WEIGHT]
    low, high = bounds[0], bounds[1]
    first = progress.bounds[half]
    for slot in range(first, first + progress.counts[half]):
        value = progress.leaf_values[slot]
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
    progress.totals[NUM_SIMULATIONS] += progress.counts[half]
    return COMPLETED
