"""The simulations of tree search, as compiled code: selection, expansion, evaluation and backup.

    begin --request--> add_steps --> go_on --request--> ... --> take_values
                           ^           |
                           +--request--+  (a sampled outcome that was in the tree already)

Both the search in Python (`planvec.planners.mcts.search`) and the compiled loop (`advance`) run simulations
with these functions, so that they find the same plan. The arrays of the tree are those of
`planvec.planners.mcts.tree`. Letters: A actions, K simulations in flight, D depths, S bytes of a state.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.kernels import (
    NUM_WORDS,
    CodeType,
    Pointer,
    bytes_of,
    code_digest,
    compile_loop,
    copy_bytes,
    jit,
    load,
    value_at,
)
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.setup import SCALE_BY_NODE, Rules
from planvec.planners.mcts.tree import (
    NUM_DRAWS,
    NUM_NODES,
    NUM_OUTCOMES,
    OPEN_LOOP,
    OUT_OF_BOUNDS,
    ROOT_WEIGHT,
    SINGLE,
    Tree,
    TreeArrays,
    TreeKind,
)
from planvec.rows import GENERATOR_FIELD

# -- The memory of the simulations in flight, of their requests, and of the answers.
#
# The slots of the simulations in flight form two halves. Each half has at most one request, whose rows are in
# the part of the buffers that belongs to its slots. Letters: B rows, K slots, S bytes of a state.

# how a selection ends: at an action to step; at a node whose value is known; at a step that is in flight
SAMPLE, RESOLVED, COLLIDED = 0, 1, 2
MAX_IDLE = 10_000  # simulations in a row without a step, after which the tree counts as exhausted
# values of `stop` in `COUNTS`
GOES_ON, NUM_SIMULATIONS_REACHED, MAX_MEMORY, EXHAUSTED, MAX_ENV_STEPS, MAX_SECONDS, CALLBACK = range(7)
# the same in words; see `Plan.stop_reason`
STOP_REASONS = (
    None,
    "num_simulations",
    "max_memory",
    "exhausted",
    "max_env_steps",
    "max_seconds",
    "callback",
)
# the kinds of requests: steps; values of leaves, by rollouts or by a function of the user
STEPS, LEAVES = 0, 1
# what a half does: it began no simulations; it has completed them; its request has to be performed
NONE, COMPLETED, PERFORM = 0, 1, 2
# How the loop ends: the search is over; it goes on with the next call; the environment has to perform the
# request of the half that was queued last; the root's episode had ended; what the functions of the user gave
# for new nodes is wrong; they have to evaluate n new nodes (the result is `EVALUATE + n`).
DONE, PAUSED, REFUSED, ENDED, INVALID, EVALUATE = range(6)


# Counts of a search
COUNTS = np.dtype(
    [
        ("num_started", np.int64),  # simulations
        ("num_simulations", np.int64),  # those that are completed
        ("num_env_steps", np.int64),
        ("num_idle", np.int64),  # simulations in a row without a step
        ("stop", np.int64),  # `GOES_ON`, or why the search ends
        ("num_events", np.int64),  # processed answers, and completed simulations without a request
        ("num_free", np.int64),  # halves without simulations
        ("num_queued", np.int64),  # halves whose requests were performed
        ("evaluated", np.int64),  # 1 + the half whose new nodes functions of the user evaluate; 0: none
        ("num_rows", np.int64),  # rows that a kernel has stepped
        ("num_chunks", np.int64),  # requests that a kernel has performed
    ]
)
HALF = np.dtype(
    [
        ("first", np.int64),  # its slots are those from `first` up to `end`
        ("end", np.int64),
        ("num_simulations", np.int64),
        ("stage", np.int64),  # the kind of its request
        ("num_rows", np.int64),  # the rows of its request
        ("num_new", np.int64),  # the new nodes of its last answer that functions of the user evaluate
        ("explores", np.bool_),  # whether its simulations go to the nearest untried actions
        ("num_found", np.int64),  # the outcomes that its simulations were the first to find
    ],
    align=True,
)
SLOT = np.dtype(
    [
        ("leaf_value", np.float64),  # the value of the last node
        ("depth", np.int32),  # number of actions
        ("is_new", np.bool_),  # whether the last node is new
        ("has_ended", np.bool_),  # whether the episode of the simulation has ended
    ],
    align=True,
)
ROW = np.dtype(
    [
        ("slot", np.int64),  # the simulation
        ("node", np.int64),  # the node that its step has led to
        ("new_row", np.int64),  # of entry i: the row that led to the i-th of the `num_new` nodes
        ("ended", np.bool_),  # whether the episode has ended there
    ],
    align=True,
)
# a node on a path, the action there, its reward and its discount
LEVEL = np.dtype(
    [("reward", np.float64), ("discount", np.float64), ("node", np.int32), ("action", np.int32)], align=True
)


class Steps(NamedTuple):
    """The answer to a request for steps."""

    new_states: NDArray[np.uint8]  # `[B * S]` uint8
    rewards: NDArray[np.float64]  # `[B]` float64
    terminated: NDArray[np.uint8]  # `[B]` uint8
    truncated: NDArray[np.uint8]  # `[B]` uint8
    num_steps: NDArray[np.int64]  # `[B]` int64


class Table(NamedTuple):
    """The hash tables, and what counts as equal."""

    outcomes: NDArray[np.int32]  # `[power of 2 above 2 M]` int32, the entries of outcomes
    # `[power of 2 above 2 N]` int32, the entries of nodes; `[1]` if equal states do not share a node
    nodes: NDArray[np.int32]
    edges: NDArray[np.int64]  # `[M]` int64, the edge of each outcome: node * A + action
    keys: NDArray[np.uint8]  # the bytes of the keys of nodes, or of their states; `[0]` if there are neither
    key_bytes: int  # bytes of a key
    # `[2 n]` int64, the bytes of a key that are compared: from, up to; and so on. `[0]`: none, since the
    # nodes of an open loop have no states.
    parts: NDArray[np.int64]


class Halving(NamedTuple):
    """The state of sequential halving at the root of a search."""

    # `[n]` int64: simulation i takes an action with so many visits; `[0]` without halving
    sequence: NDArray[np.int64]
    scores: NDArray[np.float64]  # `[A]` float64, Gumbel noise plus logits; -inf for illegal actions
    priors: NDArray[np.float64]  # `[A]` float64, the probabilities of the logits
    # `[A]` int64, the visits from before this search, which halving does not count
    base_visits: NDArray[np.int64]
    transform: NDArray[np.float64]  # `[2]` float64, c_visit and c_scale of sigma


class Shared(NamedTuple):
    """The memory of a search."""

    tree: TreeArrays
    # `[N * S]` uint8, the states of nodes; `[0]` for an open loop, or if states are objects
    tree_states: NDArray[np.uint8]
    actions: NDArray[np.uint8]  # the bytes of the actions that all nodes have; `[0]` if each has its own
    root_state: NDArray[np.uint8]  # `[S]` uint8
    rules: Rules  # the settings of the search
    table: Table  # the transposition table
    halving: Halving  # sequential halving at the root
    counts: np.ndarray  # `[1]` of `COUNTS`
    halves: np.ndarray  # `[2]` of `HALF`
    free: NDArray[np.int64]  # `[2]` int64, the halves without simulations, the next one last
    queue: NDArray[np.int64]  # `[2]` int64, the halves whose requests were performed, the oldest first
    slots: np.ndarray  # `[K]` of `SLOT`, the simulations in flight
    paths: np.ndarray  # `[K, D + 1]` of `LEVEL`, their paths from the root on
    rows: np.ndarray  # `[K]` of `ROW`, those of requests
    request_states: NDArray[np.uint8]  # `[K * S]` uint8
    request_actions: NDArray[np.uint8]  # the bytes of K actions
    own_states: NDArray[np.uint8]  # `[K * S]` uint8, the states of the simulations of an open loop
    answers: Steps  # `[K]`, the answers to the requests that are queued in a compiled search
    # What the random numbers of requests are drawn from in a compiled search, and where they are written:
    random: NDArray[np.uint64]  # the generator of the search; see `planvec.kernels.random`
    # `[K]` uint64, the seeds of the rows of requests; `[0]` where a step has one outcome
    seeds: NDArray[np.uint64]
    action_seeds: NDArray[np.uint64]  # `[2]` uint64, those of the rollouts of each half


def new_shared(
    config: MCTSConfig,
    rules: Rules,
    tree: Tree,
    root_state: np.ndarray,  # `[1]`
    halving: Halving,
    parts: list[int] | None,  # `Table.parts`; None: the search gives numbers to the keys of states
) -> Shared:
    """Return the memory of a search, with an empty table."""
    # States of fixed size are bytes for compiled code. States that are objects stay with the search.
    num_slots, size, has_bytes = config.batch_size, rules.state_bytes, rules.state_bytes > 0
    nothing = np.empty(0, np.uint8)
    states = bytes_of(tree.states) if has_bytes and tree.states is not None else nothing
    capacity = 1 if tree.kind.is_tree else len(tree.arrays.nodes)
    num_entries = 1 << (2 * capacity).bit_length()
    halves = np.zeros(2, HALF)
    halves["first"], halves["end"] = [0, num_slots - num_slots // 2], [num_slots - num_slots // 2, num_slots]
    counts = np.zeros(1, COUNTS)
    counts["num_free"] = min(2, num_slots)
    return Shared(
        tree=tree.arrays,
        tree_states=states,
        actions=nothing if tree.kind.has_own_actions else bytes_of(tree.actions),
        root_state=bytes_of(root_state.copy()) if has_bytes else nothing,
        rules=rules,
        table=Table(
            outcomes=np.zeros(num_entries, np.int32),
            nodes=np.zeros(num_entries if tree.kind.shares_nodes else 1, np.int32),
            edges=np.zeros(capacity, np.int64),
            keys=np.zeros(8 * capacity, np.uint8) if parts is None else states,
            key_bytes=8 if parts is None else size,
            parts=np.array([0, 8] if parts is None else parts, np.int64),
        ),
        halving=halving,
        counts=counts,
        halves=halves,
        free=np.array([1, 0] if num_slots > 1 else [0, 0]),
        queue=np.zeros(2, np.int64),
        slots=np.zeros(num_slots, SLOT),
        paths=np.zeros((num_slots, config.max_depth + 1), LEVEL),
        rows=np.zeros(num_slots, ROW),
        request_states=np.zeros(num_slots * size, np.uint8),
        request_actions=np.zeros(num_slots * rules.action_bytes, np.uint8),
        own_states=np.zeros(num_slots * size if rules.kind.chance == OPEN_LOOP else 0, np.uint8),
        answers=new_steps(num_slots, size),
        random=np.zeros(NUM_WORDS, np.uint64),
        seeds=np.zeros(0 if rules.kind.chance == SINGLE else num_slots, np.uint64),
        action_seeds=np.zeros(2, np.uint64),
    )


def new_steps(num_rows: int, state_bytes: int) -> Steps:
    """Return the memory of an answer."""
    return Steps(
        np.zeros(num_rows * state_bytes, np.uint8),
        np.zeros(num_rows),
        np.zeros(num_rows, np.uint8),
        np.zeros(num_rows, np.uint8),
        np.zeros(num_rows, np.int64),
    )


# -- Selection at the root: sequential halving with Gumbel noise.
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


@jit(cache=True)
def halving_action(tree: TreeArrays, halving: Halving, wanted: int) -> int:
    """Return the action of the root with the best score among those with a number of visits."""
    # `wanted`: number of visits in this search; -1: the largest there is, completed ones only.
    # The score is Gumbel noise + logit + sigma(value), `sigma(q) = (c_visit + max visits) * c_scale * q`,
    # with values rescaled to [0, 1]. Visits in flight count as visits.
    edges, legal = tree.edges, tree.legal
    # The value of actions without visits: the mix of the root's own value, if it was evaluated, and theirs.
    root = tree.nodes[0]
    total, weight, num_visits = 0.0, 0.0, 0
    for action in range(edges.shape[1]):
        edge = edges[0, action]
        if edge.edge_visits > 0:
            prior = max(halving.priors[action], _SMALL)
            total += prior * edge.edge_values
            weight += prior
            num_visits += edge.edge_visits
    root_weight = 1.0 if tree.counters[ROOT_WEIGHT] > 0 else 0.0
    own = 0.0
    if root_weight + num_visits > 0.0:
        mean = total / weight if num_visits > 0 else 0.0
        own = (root_weight * root.raw_values + num_visits * mean) / (root_weight + num_visits)
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


def begin_halving(config: MCTSConfig, tree: Tree, generator: np.random.Generator) -> Halving:
    """Return the state of the root at the beginning of a search, with noise; see `MCTS.root_selection`."""
    if config.root_selection != "gumbel":
        return no_halving()
    arrays, num_actions = tree.arrays, tree.num_actions
    priors = arrays.priors[0].copy() if tree.kind.has_priors else np.full(num_actions, 1.0 / num_actions)
    legal = arrays.legal[0] if tree.kind.has_legal else np.ones(num_actions, np.bool_)
    noise = config.gumbel_scale * generator.gumbel(size=num_actions)
    logits = np.log(np.maximum(priors, np.finfo(np.float64).tiny))
    assert config.num_planned is not None
    num_considered = min(config.num_considered, int(legal.sum()))
    return Halving(
        sequence=considered_visits(num_considered, config.num_planned),
        scores=np.where(legal, noise + logits, -np.inf),
        priors=priors,
        base_visits=arrays.edge_visits[0].astype(np.int64),
        transform=np.array(config.gumbel_transform, np.float64),
    )


# -- Selection: UCT and PUCT, from the root on.
#
# Sources: UCT (Kocsis and Szepesvari 2006), the same for simulations in flight (Liu et al. 2020,
# "Watch the Unobserved": WU-UCT), PUCT with a growing exploration rate (Silver et al. 2018, AlphaZero),
# progressive widening (Couetoux et al. 2011).


def _rate_of(total: int) -> float:
    """Return the factor of the exploration term of PUCT that grows with the visits of a node."""
    return (math.log((total + 19652.0 + 1.0) / 19652.0) + 1.25) * math.sqrt(total)


_rate = jit()(_rate_of)
# the logarithms and the factors of numbers of visits, which are small in most nodes
_LOGS = np.array([-math.inf] + [math.log(count) for count in range(1, 1024)])
_RATES = np.array([_rate_of(count) for count in range(1024)])


_STEP = np.uint64(0x9E3779B97F4A7C15)


@jit()
def _mixed(value: object, word: Any) -> Any:
    """Return a hash of a hash and a further word (a round of SplitMix64, Steele et al. 2014)."""
    z = (value ^ word) + _STEP
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit()
def mix(seed: int, number: int) -> int:
    """Return a pseudorandom 62-bit number, that of index `number` of SplitMix64."""
    z = _mixed(np.uint64(seed) + _STEP * np.uint64(number), np.uint64(0))
    return np.int64(z >> np.uint64(2))  # type: ignore[return-value]


@jit()
def _allowed(growth: tuple[float, float], count: int) -> float:
    """Return how many children a number of visits allows: at least 1."""
    if math.isinf(growth[0]):
        return growth[0]
    return max(1.0, float(math.floor(growth[0] * float(count) ** growth[1])))


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
        is_legal = not rules.kind.has_legal or tree.legal[node, action]
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
    use_priors, use_legal, legal = rules.kind.has_priors, rules.kind.has_legal, tree.legal
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


NOWHERE = 1 << 30  # distance to an untried action that cannot be reached


@jit()
def _nearest_untried(tree: TreeArrays, node: int) -> tuple[Any, Any, Any]:
    """Return the way to the nearest action that was not tried: action, outcome, and distance in actions."""
    # The outcome is -1 where the action itself was not tried; the action is -1 if there is no way.
    # It goes by the distances of the next nodes, which may be wrong: too short where they are old, and too
    # long where a tried action had a new outcome by chance. Each simulation that follows them corrects those
    # on its way, so that one arrives in the end (LRTA*, Korf 1990, "Real-time heuristic search").
    edges, outcomes, use_legal = tree.edges, tree.outcomes, tree.legal.shape == tree.edges.shape
    nearest, way, distance = np.int64(-1), np.int64(-1), np.int64(NOWHERE)
    action: Any = np.int64(tree.nodes[node].starts)
    num_actions = edges.shape[1]
    for _ in range(num_actions):
        if not use_legal or tree.legal[node, action]:
            edge = edges[node, action]
            outcome = edge.first_outcomes
            if outcome < 0:
                if edge.edge_unobserved == 0:
                    return action, np.int64(-1), np.int64(0)
                nearest, way, distance = action, np.int64(-1), np.int64(0)  # in flight
            while outcome >= 0:
                child = tree.nodes[outcomes[outcome].outcome_nodes]
                if not (child.ended or child.proven) and child.frontiers + 1 < distance:
                    nearest, way, distance = action, np.int64(outcome), np.int64(child.frontiers + 1)
                outcome = outcomes[outcome].next_outcomes
        action = action + 1 if action + 1 < num_actions else 0
    if distance > tree.counters[NUM_NODES]:  # farther than any node can be
        return np.int64(-1), np.int64(-1), np.int64(NOWHERE)
    return nearest, way, distance


@jit()
def _draw_outcome(first: int, outcomes: np.ndarray, counters: NDArray[np.int64], seed: int) -> int:
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
def select(memory: Pointer[Shared], half: int) -> int:
    """Go on with the selections of the rows of a half, until one collides with a step in flight."""
    # UCT: Q + c sqrt(2 ln(N + O) / (n + o)), untried actions first.
    # PUCT: Q + c(N) P sqrt(N + O) / (1 + n + o), where N counts the visit that created the node.
    # Actions without a completed visit have the value of their node.
    # The rows whose selections end at an action to step become the rows of the half. The others end at nodes
    # whose values are known. Also written: counts in flight of the tree, and paths from their last node on.
    # Returns the number of simulations before the first collision. Collisions exist only with `SINGLE`
    # outcomes, and where simulations that have just begun go to untried actions.
    shared: Shared = value_at(memory)
    tree, rules, halving, group = shared.tree, shared.rules, shared.halving, shared.halves[half]
    slots, paths, rows = shared.slots, shared.paths, shared.rows
    first, num_kept = group.first, 0
    num_rows: int = group.num_rows
    num_begun = shared.counts[0].num_started  # before these, as halving counts
    nodes, edges, outcomes = tree.nodes, tree.edges, tree.outcomes
    num_actions = edges.shape[1]
    widens = not math.isinf(rules.widening[0])
    use_priors, use_legal, chance = rules.kind.has_priors, rules.kind.has_legal, rules.kind.chance
    # Outcome and node have the same index: the next node is known without waiting for the outcome to load.
    is_tree = chance == SINGLE and not rules.backs_up_values
    halves = len(halving.sequence) > 0
    for number in range(num_rows):
        slot = rows[first + number].slot
        depth = slots[slot].depth
        index: Any = np.int64(paths[slot, depth].node)
        status = RESOLVED
        explores = group.explores and depth == 0  # not where a selection goes on after a step
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
            action: Any = np.int64(-1)
            way: Any = np.int64(-1)
            if explores:
                action, way, node.frontiers = _nearest_untried(tree, index)
            elif halves and depth == 0:
                number_begun = num_begun + number
                is_past = number_begun >= len(halving.sequence)
                action = halving_action(tree, halving, -1 if is_past else halving.sequence[number_begun])
            elif not use_priors and (total < width or widens or use_legal):  # else all were tried
                action = _untried(tree, rules, index, start, width)
            if action < 0:
                factor, log_total = rules.exploration * _scale(tree, rules, index, width), 0.0
                if use_priors:
                    total += 1
                    factor *= _RATES[total] if total < len(_RATES) else _rate(total)
                else:
                    log_total = 2.0 * (_LOGS[total] if total < len(_LOGS) else math.log(total))
                action = _best(tree, rules, index, start, width, factor, log_total)
            edge = edges[index, action]
            outcome: Any = np.int64(edge.first_outcomes)
            if way >= 0:
                outcome = way
            elif outcome < 0 and edge.edge_unobserved > 0 and (chance == SINGLE or explores):
                status = COLLIDED
                break
            elif chance == OPEN_LOOP:
                outcome = np.int64(-1)
            elif chance != SINGLE and outcome >= 0:
                tries = edge.edge_visits + edge.edge_unobserved + 1
                if edge.edge_samples < _allowed(rules.outcome_widening, tries):
                    outcome = np.int64(-1)
                else:
                    outcome = np.int64(_draw_outcome(outcome, outcomes, tree.counters, rules.seed))
            paths[slot, depth].action = action
            node.unobserved += 1
            edge.edge_unobserved += 1
            if outcome < 0:
                edge.edge_samples += 1
                status = SAMPLE
                break
            result = outcomes[outcome]
            paths[slot, depth].reward = result.outcome_rewards
            paths[slot, depth].discount = result.outcome_discounts
            index = outcome if is_tree else np.int64(result.outcome_nodes)
            depth += 1
            paths[slot, depth].node = index
            node = nodes[index]
        slots[slot].depth = depth
        if status == SAMPLE:
            rows[first + num_kept].slot = slot
            num_kept += 1
        elif status == COLLIDED:  # it is not in flight
            for level in range(depth):
                passed, taken = paths[slot, level].node, paths[slot, level].action
                nodes[passed].unobserved -= 1
                edges[passed, taken].edge_unobserved -= 1
            num_rows = number
            break
    group.num_rows = num_kept
    return num_rows


# -- The transposition table: finds the outcomes and nodes that are in the tree already.
#
# It consists of two hash tables with open addressing: an entry is the index of an outcome or of a node, plus
# 1; 0 is a free entry. Two outcomes of an action are the same if they lead to equal states with equal
# rewards. Where nodes are shared, equal states are one node, whatever actions led there.
#
# States are compared by the bytes of their keys: parts of the states themselves, or numbers that the search
# gives to equal keys (`search.TreeSearch`).
#
# Letters: B rows, N nodes, M outcomes, A actions per node.


def is_by_observation(shared: object) -> bool:
    """Return whether states with equal observations share a node; see `MCTS.transpositions`."""
    return isinstance(shared, (str, tuple)) and shared in ("observation", ("observation",))


def compared_parts(
    shared: object, dtype: np.dtype, kind: TreeKind, foresees_chance: bool
) -> list[int] | None:
    """Return `Table.parts` if states are compared by some of their bytes; None: only keys tell them apart."""
    # `shared`: `MCTS.transpositions`.
    if kind.is_tree or kind.chance == OPEN_LOOP:
        return []  # every outcome is new, or nodes have no states
    fields: Mapping[str, tuple[Any, ...]] = dtype.fields or {}
    if isinstance(shared, (str, tuple)):
        names = (shared,) if isinstance(shared, str) else shared
        unknown = [name for name in names if name not in fields]
        if unknown and is_by_observation(shared):
            return None
        if unknown or not names:
            raise InvalidBatchError(
                f"transpositions: expected fields of the states ({', '.join(fields) or 'which have none'}), "
                f"got {', '.join(map(repr, unknown)) or 'none'}"
            )
        return [at for name in names for at in (fields[name][1], fields[name][1] + fields[name][0].itemsize)]
    is_packed = dtype.fields is not None and dtype.itemsize == sum(
        field[0].itemsize for field in fields.values()
    )
    if callable(shared) or not is_packed:  # objects, and unused bytes, differ in equal states
        return None
    if GENERATOR_FIELD not in fields or foresees_chance:
        return [0, dtype.itemsize]
    generator, offset = fields[GENERATOR_FIELD][:2]
    return [0, offset, offset + generator.itemsize, dtype.itemsize]


@jit()
def _key_hash(table: Table, keys: NDArray[np.uint8], at: int) -> Any:
    """Return a hash of the compared bytes of the key that begins at `at`."""
    value = np.uint64(0)
    for part in range(0, len(table.parts), 2):
        first, last = at + table.parts[part], at + table.parts[part + 1]
        while first + 8 <= last:
            value = _mixed(value, load(keys, first, np.uint64))
            first += 8
        while first < last:
            value = _mixed(value, np.uint64(keys[first]))
            first += 1
    return value


@jit()
def _is_key_of(table: Table, node: Any, keys: NDArray[np.uint8], at: int) -> bool:
    """Return whether the compared bytes of the key that begins at `at` are those of a node."""
    known, node_at = table.keys, node * table.key_bytes
    for part in range(0, len(table.parts), 2):
        offset, last = table.parts[part], table.parts[part + 1]
        while offset + 8 <= last:
            if load(known, node_at + offset, np.uint64) != load(keys, at + offset, np.uint64):
                return False
            offset += 8
        while offset < last:
            if known[node_at + offset] != keys[at + offset]:
                return False
            offset += 1
    return True


@jit()
def _outcome_place(
    table: Table, tree: TreeArrays, edge: Any, reward: Any, keys: NDArray[np.uint8], at: Any
) -> Any:
    """Return the place in the table of the outcome with an edge, a reward and a key, or a free place."""
    has_key = len(table.parts) > 0
    value = _mixed(np.uint64(edge), np.uint64(0))
    if has_key:
        value = _mixed(value, np.float64(reward + 0.0).view(np.uint64))  # -0.0 is equal to 0.0
        value = _mixed(value, _key_hash(table, keys, at))
    mask = len(table.outcomes) - 1
    place: Any = np.int64(value & np.uint64(mask))
    while table.outcomes[place] > 0:
        outcome = table.outcomes[place] - 1
        if table.edges[outcome] == edge:
            if not has_key:
                return place
            known = tree.outcomes[outcome]
            if known.outcome_rewards == reward and _is_key_of(table, np.int64(known.outcome_nodes), keys, at):
                return place
        place = (place + 1) & mask
    return place


@jit()
def _node_place(table: Table, keys: NDArray[np.uint8], at: int) -> Any:
    """Return the place in the table of the node with a key, or a free place; see `_outcome_place`."""
    mask = len(table.nodes) - 1
    place: Any = np.int64(_key_hash(table, keys, at) & np.uint64(mask))
    while table.nodes[place] > 0 and not _is_key_of(table, np.int64(table.nodes[place] - 1), keys, at):
        place = (place + 1) & mask
    return place


# -- Expansion: adds nodes and outcomes to a tree, by the answers to requests for steps ----------------------
#
# Letters: B rows, K slots, S bytes of a state.


@jit(inline=True)
def init_node(tree: TreeArrays, node: Any, rules: Rules) -> None:
    """Initialise a node and its edges."""
    edges = tree.edges
    num_actions = edges.shape[1]
    record = tree.nodes[node]
    record.visits = record.unobserved = record.frontiers = 0
    record.values = record.raw_values = 0.0
    record.ended = record.pending = record.proven = False
    record.players = 0
    record.starts = mix(rules.seed, -node - 2) % num_actions
    if rules.kind.has_priors:
        tree.priors[node] = 1.0 / num_actions
    if rules.kind.has_legal:
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


@jit()
def request_steps(memory: Pointer[Shared], half: int) -> int:
    """Write the request to take the last action of the path of each row; without rows, go on with leaves."""
    shared: Shared = value_at(memory)
    slots, paths, rows = shared.slots, shared.paths, shared.rows
    rules, group = shared.rules, shared.halves[half]
    size, action_size = rules.state_bytes, rules.action_bytes
    if group.num_rows == 0:
        return finish(memory, half)
    first = group.first
    for row in range(first, first + group.num_rows):
        slot = rows[row].slot
        depth = slots[slot].depth
        if rules.kind.chance == OPEN_LOOP:
            copy_bytes(shared.own_states, slot * size, shared.request_states, row * size, size)
        else:
            node = np.int64(paths[slot, depth].node)
            copy_bytes(shared.tree_states, node * size, shared.request_states, row * size, size)
        source = paths[slot, depth].action * action_size
        copy_bytes(shared.actions, source, shared.request_actions, row * action_size, action_size)
    group.stage = STEPS
    return PERFORM


@jit(cache=True)
def add_steps(code: object, memory: Pointer[Shared], steps: Steps, keys: NDArray[np.uint8], half: int) -> int:
    """Add the transitions of an answer to the tree. Returns how many selections go on from their node."""
    # These are the rows of the half then. The last nodes of the others are leaves.
    # `keys`: the keys of the new states, or these themselves; see `Table`.
    shared: Shared = value_at(memory)
    tree, table, rules, group = shared.tree, shared.table, shared.rules, shared.halves[half]
    slots, paths, rows, counters = shared.slots, shared.paths, shared.rows, shared.tree.counters
    first, num_actions, size = group.first, tree.edges.shape[1], rules.state_bytes
    num_outcomes = counters[NUM_OUTCOMES]
    kind, shares_nodes = rules.kind, len(table.nodes) > 1
    is_open_loop, always_new = kind.chance == OPEN_LOOP, kind.chance == SINGLE and not shares_nodes
    count = num_new = 0
    for row in range(len(steps.rewards)):
        slot, at, key_at = rows[first + row].slot, row * size, row * table.key_bytes
        depth = slots[slot].depth
        parent, action = np.int64(paths[slot, depth].node), np.int64(paths[slot, depth].action)
        ended = steps.terminated[row] != 0 or steps.truncated[row] != 0
        reward, num_steps = steps.rewards[row], steps.num_steps[row]
        discount = kind.discount if num_steps == 1 else math.pow(kind.discount, np.float64(num_steps))
        # Rewards are those of player 0, and become those of the player who took the action. With the sign of
        # `outcome_discounts`, everything else is the same for one player and for two.
        is_of_1 = False  # whether player 1 is to move afterwards
        if rules.player_at >= 0:
            is_of_1 = steps.new_states[at + rules.player_at if size > 0 else row] == 1
            player = tree.nodes[parent].players
            if player == 1:
                reward = -reward
            if is_of_1 != (player == 1):
                discount = -discount
        # Where a step has one outcome and no nodes are shared, every outcome is new.
        outcome, node = counters[NUM_OUTCOMES], counters[NUM_NODES]
        if not always_new:
            edge = parent * num_actions + action
            place = _outcome_place(table, tree, edge, reward, keys, key_at)
            if table.outcomes[place] > 0:
                outcome = np.int64(table.outcomes[place] - 1)
                node = np.int64(tree.outcomes[outcome].outcome_nodes)
            else:
                table.outcomes[place] = outcome + 1
                table.edges[outcome] = edge
                if shares_nodes:
                    place = _node_place(table, keys, key_at)
                    if table.nodes[place] > 0:
                        node = np.int64(table.nodes[place] - 1)
                    else:
                        table.nodes[place] = node + 1
        is_new = node == counters[NUM_NODES]
        if is_new:
            counters[NUM_NODES] += 1
            init_node(tree, node, rules)
            record = tree.nodes[node]
            record.ended = ended and not is_open_loop
            record.pending = rules.rollout_steps > 0 and not record.ended
            record.parents, record.parent_actions = parent, action
            record.players = is_of_1
            if rules.mask_at >= 0:
                for other in range(num_actions):
                    tree.legal[node, other] = steps.new_states[at + rules.mask_at + other] != 0
            if len(table.keys) > 0:
                copy_bytes(keys, key_at, table.keys, node * table.key_bytes, table.key_bytes)
        # A new outcome that leads to a known node ends the simulation with the value of that node.
        is_known = is_open_loop or outcome < num_outcomes
        result = tree.outcomes[outcome]
        if outcome == counters[NUM_OUTCOMES]:
            counters[NUM_OUTCOMES] += 1
            group.num_found += 1
            result.outcome_nodes = node
            result.outcome_rewards = reward
            result.outcome_discounts = discount
            result.outcome_steps = num_steps
            result.outcome_counts = 0
            result.next_outcomes = tree.edges[parent, action].first_outcomes
            tree.edges[parent, action].first_outcomes = outcome
        result.outcome_counts += 1
        paths[slot, depth].reward = reward
        paths[slot, depth].discount = discount
        slots[slot].depth = depth + 1
        paths[slot, depth + 1].node = node
        if is_open_loop:
            copy_bytes(steps.new_states, at, shared.own_states, slot * size, size)
            slots[slot].has_ended = ended
        rows[first + row].node, rows[first + row].ended = node, ended
        slots[slot].is_new = is_new
        if is_new and not ended and rules.evaluates:
            rows[first + num_new].new_row = row
            num_new += 1
        if not is_new and not ended and is_known:
            rows[first + count].slot = slot
            count += 1
    group.num_rows, group.num_new = count, num_new
    return count


@jit(cache=True)
def enter_tree(code: object, memory: Pointer[Shared]) -> int:
    """Enter the outcomes and the nodes of the tree into the empty table. Returns the number of nodes."""
    shared: Shared = value_at(memory)
    tree, table = shared.tree, shared.table
    num_nodes: int = tree.counters[NUM_NODES]
    num_actions = tree.edges.shape[1]
    for node in range(num_nodes):
        if len(table.nodes) > 1:
            place = _node_place(table, table.keys, node * table.key_bytes)
            if table.nodes[place] == 0:
                table.nodes[place] = node + 1
        for action in range(num_actions):
            outcome = tree.edges[node, action].first_outcomes
            while outcome >= 0:
                edge, known = node * num_actions + action, tree.outcomes[outcome]
                at = np.int64(known.outcome_nodes) * table.key_bytes
                place = _outcome_place(table, tree, edge, known.outcome_rewards, table.keys, at)
                table.outcomes[place] = outcome + 1
                table.edges[outcome] = edge
                outcome = known.next_outcomes
    return num_nodes


# -- Evaluation: takes the values and priors of new nodes, and asks for the values of leaves -----------------


@jit()
def _sum(numbers: NDArray[np.float64], row: int) -> float:
    """Return the sum of a row of up to 128 numbers, added in the order in which NumPy adds them."""
    # So that the priors of a node have the bits of those of a root. More numbers NumPy adds in parts of 128.
    count = numbers.shape[1]
    last = count - count % 8
    a, b, c, d, e, f, g, h = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for index in range(0, last, 8):
        a += numbers[row, index]
        b += numbers[row, index + 1]
        c += numbers[row, index + 2]
        d += numbers[row, index + 3]
        e += numbers[row, index + 4]
        f += numbers[row, index + 5]
        g += numbers[row, index + 6]
        h += numbers[row, index + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for index in range(last, count):
        total += numbers[row, index]
    return total


@jit(cache=True)
def take_evaluations(
    code: object,
    memory: Pointer[Shared],
    values: NDArray[np.float64],  # `[n]`; `[0]`: no function gives them
    priors: NDArray[np.float64],  # `[n, A]`; `[0, A]`: no function gives them
    half: int,
) -> int:
    """Write what functions of the user gave for the n new nodes of a half. Returns 0, or `INVALID`."""
    shared: Shared = value_at(memory)
    tree, rules, rows, group = shared.tree, shared.rules, shared.rows, shared.halves[half]
    num_actions = tree.edges.shape[1]
    for index in range(group.num_new):
        node = rows[group.first + rows[group.first + index].new_row].node
        if len(values) > 0:
            if not math.isfinite(values[index]):
                return INVALID
            tree.nodes[node].values = tree.nodes[node].raw_values = values[index]
        if rules.kind.has_priors:
            for action in range(num_actions):
                prior = priors[index, action] if len(priors) > 0 else 1.0
                if not 0.0 <= prior < math.inf:
                    return INVALID
                is_legal = not rules.kind.has_legal or tree.legal[node, action]
                tree.priors[node, action] = prior if is_legal else 0.0
            total = _sum(tree.priors, node)
            if not total > 0.0:
                return INVALID
            for action in range(num_actions):
                tree.priors[node, action] /= total
    return 0


@jit()
def finish(memory: Pointer[Shared], half: int) -> int:
    """Take the values of leaves and back up the simulations, or write the request for values."""
    # With rollouts, a simulation makes a rollout if its last node is new, at the largest depth, or waiting
    # for the rollout of another simulation. Any other one reached a node that another simulation has
    # evaluated, whose value it takes.
    # Returns `COMPLETED` or `PERFORM`.
    shared: Shared = value_at(memory)
    tree, rules, group = shared.tree, shared.rules, shared.halves[half]
    slots, paths, rows = shared.slots, shared.paths, shared.rows
    size, first = rules.state_bytes, group.first
    is_open_loop = rules.kind.chance == OPEN_LOOP
    count = 0
    for slot in range(first, first + group.num_simulations):
        depth = slots[slot].depth
        index = np.int64(paths[slot, depth].node)
        node = tree.nodes[index]
        if not is_open_loop:
            slots[slot].has_ended = node.ended
        value = node.values if rules.backs_up_values else node.raw_values
        if slots[slot].has_ended:
            value = 0.0
        elif rules.asks_leaves and (slots[slot].is_new or node.pending or depth >= rules.max_depth):
            row = first + count
            rows[row].slot = slot
            count += 1
            if is_open_loop:
                copy_bytes(shared.own_states, slot * size, shared.request_states, row * size, size)
            else:
                copy_bytes(shared.tree_states, index * size, shared.request_states, row * size, size)
        slots[slot].leaf_value = value
    group.num_rows = count
    if count == 0:
        return back_up(memory, half)
    group.stage = LEAVES
    return PERFORM


@jit(cache=True)
def take_values(code: object, memory: Pointer[Shared], values: NDArray[np.float64], half: int) -> int:
    """Take the values `[B]` that were requested for leaves, and back up the simulations."""
    # Those of rollouts are returns of player 0.
    shared: Shared = value_at(memory)
    tree, group = shared.tree, shared.halves[half]
    slots, paths, rows = shared.slots, shared.paths, shared.rows
    first = group.first
    for row in range(group.num_rows):
        slot = rows[first + row].slot
        node = tree.nodes[paths[slot, slots[slot].depth].node]
        value = -values[row] if node.players == 1 else values[row]
        slots[slot].leaf_value = value
        if shared.rules.rollout_steps > 0 and slots[slot].is_new:
            node.raw_values = value
            # Other simulations may have passed meanwhile; the value is then a mean without this one.
            node.values += value / (node.visits + 1)
            node.pending = False
    return back_up(memory, half)


# -- Backup: passes returns up to the root -------------------------------------------------------------------

_ROUNDING = 1e-9  # how far a return may lie outside the bounds, in units of their distance


@jit()
def _update_values(tree: TreeArrays, node: int, raw_weight: int, rules: Rules) -> None:
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
        nodes[node].values = best if rules.backs_up_max else total_value / num_visits
    if rules.explores:
        nodes[node].frontiers = _nearest_untried(tree, node)[2]


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
    tree, rules, group = shared.tree, shared.rules, shared.halves[half]
    slots, paths = shared.slots, shared.paths
    nodes, edges, root_edges = tree.nodes, tree.edges, tree.root_edges
    bounds, root_weight = tree.bounds, tree.counters[ROOT_WEIGHT]
    low, high = bounds[0], bounds[1]
    first = group.first
    for slot in range(first, first + group.num_simulations):
        value = slots[slot].leaf_value
        tree.depth_histogram[slots[slot].depth] += 1
        for level in range(slots[slot].depth - 1, -1, -1):
            passed = paths[slot, level]
            node, action = passed.node, passed.action
            weight = 1 if node > 0 else root_weight
            record, edge = nodes[node], edges[node, action]
            record.unobserved -= 1
            edge.edge_unobserved -= 1
            record.visits += 1
            edge.edge_visits += 1
            value = passed.reward + passed.discount * value
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
                _update_values(tree, node, weight, rules)
                backed_up = edge.edge_values
            elif not record.proven:
                record.values += (value - record.values) / (record.visits + weight)
            low, high = min(low, backed_up), max(high, backed_up)
            if rules.proves:
                _prove(tree, node, action, rules.value_bounds)
    bounds[0], bounds[1] = low, high
    shared.counts[0].num_simulations += group.num_simulations
    return COMPLETED


# -- Simulations of a half, up to the next request -----------------------------------------------------------


@jit(cache=True)
def begin(code: object, memory: Pointer[Shared], half: int) -> int:
    """Begin the simulations of a half."""
    # Returns `NONE`, `COMPLETED` or `PERFORM`.
    shared: Shared = value_at(memory)
    tree, rules, group, counts = shared.tree, shared.rules, shared.halves[half], shared.counts[0]
    slots, paths = shared.slots, shared.paths
    first = group.first
    # How many may begin, and the reason to stop where that is 0 from now on
    if 0 <= rules.num_simulations <= counts.num_started:
        counts.stop = NUM_SIMULATIONS_REACHED
        return NONE
    if tree.nodes[0].proven:
        counts.stop = EXHAUSTED
        return NONE
    free: Any = len(tree.nodes) - max(tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES])
    free -= counts.num_started - counts.num_simulations
    if free <= 0 and counts.num_started == counts.num_simulations:
        counts.stop = MAX_MEMORY
    if counts.num_idle >= MAX_IDLE and rules.num_simulations < 0:
        counts.stop = EXHAUSTED
        return NONE
    if rules.num_simulations >= 0:
        free = min(free, rules.num_simulations - counts.num_started)
    num_allowed = min(free, group.end - first)
    if num_allowed <= 0:
        return NONE
    for slot in range(first, first + num_allowed):
        shared.rows[slot].slot = slot
        slots[slot].depth = paths[slot, 0].node = 0  # at the root
    group.num_rows = num_allowed
    # Where the last simulations of the half found nothing new, the next ones go to the nearest untried
    # actions.
    explored, is_stale = group.explores, group.num_simulations > 0 and group.num_found == 0
    group.explores = rules.explores and is_stale and not explored
    count = select(memory, half)
    if count == 0:
        group.explores = explored
        return NONE  # every action worth a simulation is in flight
    group.num_found = 0
    counts.num_started += count
    group.num_simulations = count
    for slot in range(first, first + count):
        slots[slot].is_new = slots[slot].has_ended = False
        if rules.kind.chance == OPEN_LOOP:
            size = rules.state_bytes
            copy_bytes(shared.root_state, 0, shared.own_states, slot * size, size)
    counts.num_idle = 0 if group.num_rows > 0 else counts.num_idle + count
    return request_steps(memory, half)


@jit(cache=True)
def abandon(code: object, memory: Pointer[Shared], half: int) -> int:
    """Take the simulations of a half out of the tree, whose request will not be answered."""
    shared: Shared = value_at(memory)
    tree, group, slots, paths = shared.tree, shared.halves[half], shared.slots, shared.paths
    first = group.first
    if group.stage == STEPS:
        for row in range(first, first + group.num_rows):
            slot = shared.rows[row].slot
            last = paths[slot, slots[slot].depth]
            tree.nodes[last.node].unobserved -= 1
            edge = tree.edges[last.node, last.action]
            edge.edge_unobserved -= 1
            edge.edge_samples -= 1
    for slot in range(first, first + group.num_simulations):
        depth = slots[slot].depth
        for level in range(depth):
            passed = paths[slot, level]
            tree.nodes[passed.node].unobserved -= 1
            tree.edges[passed.node, passed.action].edge_unobserved -= 1
        node = tree.nodes[paths[slot, depth].node]
        if group.stage == LEAVES and slots[slot].is_new and node.pending:
            # Nobody will make its rollout: it has the value of the node before, as actions without visits.
            before = tree.nodes[paths[slot, depth - 1].node]
            value = before.values if before.players == node.players else -before.values
            node.raw_values = value
            node.values += value / (node.visits + 1)
            node.pending = False
    return 0


@jit(cache=True)
def go_on(code: object, memory: Pointer[Shared], half: int) -> int:
    """Continue the selections of the rows that `add_steps` has left."""
    # Returns `COMPLETED` or `PERFORM`.
    select(memory, half)
    return request_steps(memory, half)


# -- The loop of a compiled search: what the driver does in Python, for one root.
#
# It begins simulations, and processes the answers in the order of the requests, as `planvec.planners.search`
# does. It knows no kernel and is compiled once; `compiled.run_search` answers the requests.
#
# Letters: K slots, S bytes of a state.


@jit(inline=True)
def answer_of(shared: Shared, half: int) -> Steps:
    """Return the memory of the answer to the request of a half, as views."""
    size, first = shared.rules.state_bytes, shared.halves[half].first
    last, answers = first + shared.halves[half].num_rows, shared.answers
    return Steps(
        answers.new_states[first * size : last * size],
        answers.rewards[first:last],
        answers.terminated[first:last],
        answers.truncated[first:last],
        answers.num_steps[first:last],
    )


@jit(cache=True)
def advance(code: object, memory: Pointer[Shared], last_event: int) -> int:
    """Run a search up to its next request, or to its end."""
    # `last_event`: number of processed answers after which the loop pauses.
    # Returns `DONE`, `PAUSED` or `ENDED`; `EVALUATE`: the half `counts.evaluated - 1` has new nodes, whose
    # evaluations have to be written before the next call; or -1: the request of the half that was queued last
    # has to be answered before the next call.
    shared: Shared = value_at(memory)
    counts, num_halves = shared.counts[0], min(2, len(shared.slots))
    while counts.num_events < last_event:
        half, status, is_begun = 0, NONE, False
        if counts.evaluated > 0:
            half = counts.evaluated - 1
            counts.evaluated = 0
            status = go_on(code, memory, half)
        elif counts.stop == GOES_ON and counts.num_free > 0 and counts.num_queued < num_halves:
            half = shared.free[counts.num_free - 1]
            status = begin(code, memory, half)
            is_begun = status != NONE
            counts.num_free -= is_begun
        if status == NONE:
            if counts.num_queued == 0:
                return DONE
            half = shared.queue[0]
            shared.queue[0] = shared.queue[1]
            counts.num_queued -= 1
            answer = answer_of(shared, half)
            counts.num_env_steps += answer.num_steps.sum()
            if counts.num_env_steps == 0:
                return ENDED
            if shared.halves[half].stage == LEAVES:
                status = take_values(code, memory, answer.rewards, half)
            else:
                add_steps(code, memory, answer, answer.new_states, half)
                if shared.halves[half].num_new > 0:
                    counts.evaluated = half + 1
                    return EVALUATE
                status = go_on(code, memory, half)
        if status == COMPLETED:
            shared.free[counts.num_free] = half
            counts.num_free += 1
        else:
            shared.queue[counts.num_queued] = half
            counts.num_queued += 1
        if status == COMPLETED or not is_begun:
            counts.num_events += 1
            if 0 <= shared.rules.max_env_steps <= counts.num_env_steps and counts.stop == GOES_ON:
                counts.stop = MAX_ENV_STEPS
        if status == PERFORM:
            return -1
    return PAUSED


# -- Calls the compiled functions that run simulations -------------------------------------------------------


@functools.cache
def search_code() -> CodeType:
    """Return the type that stands for this package in signatures: another one after any change in it."""
    # All functions of tree search take the same one. Python calls some of them, which also call each other:
    # with types of their own they would be compiled once for each caller.
    folder = Path(__file__).parent
    return CodeType(code_digest(*[path.read_text() for path in sorted(folder.rglob("*.py"))]))


# The functions that a search calls between its requests, with examples of their further arguments
_STEPS = new_steps(1, 1)
ENTRANCES: dict[Any, tuple[Any, ...]] = {
    begin: (0,),
    abandon: (0,),
    go_on: (0,),
    add_steps: (_STEPS, np.zeros(1, np.uint8), 0),
    take_evaluations: (np.zeros(1), np.zeros((1, 1)), 0),
    take_values: (np.zeros(1), 0),
    enter_tree: (),
}
# function -> its compiled form, which is called without looking at the types of its arguments
_entries: dict[Any, Callable[..., int]] = {}


def compile_entrance(function: object, memory: Pointer[Shared]) -> None:
    """Compile one of `ENTRANCES`, or load it from the cache; `memory` may be that of any search."""
    types = map(numba.typeof, (memory, *ENTRANCES[function]))
    _entries[function] = compile_loop(function, search_code(), *types)


def call(function: object, memory: Pointer[Shared], *arguments: object) -> int:
    """Call one of `ENTRANCES` with the memory of a search. Returns what it returns."""
    if function not in _entries:
        compile_entrance(function, memory)
    return _entries[function](None, memory, *arguments)
