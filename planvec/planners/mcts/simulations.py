"""One half of the simulations in flight, as compiled code: one call before each answer, and one after it.

    begin --request--> take_steps --request--> ... --> take_values
               ^            |
               +------------+  (a sampled outcome that was in the tree already: select on from its node)

Both the search in Python (`planvec.planners.mcts.search`) and the loop of a kernel (`compiled.advance`) run
simulations with these functions, so that they find the same plan. Letters: K slots, S bytes of a state.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import CodeType, Pointer, code_digest, copy_bytes, jit, load, value_at
from planvec.planners.mcts.arrays import (
    MAX_IDLE,
    NUM_NODES,
    NUM_OUTCOMES,
    OPEN_LOOP,
    SAMPLE,
    SINGLE,
    Paths,
    Rules,
    TreeArrays,
)
from planvec.planners.mcts.phases import Halving, back_up, expand, resume, start, undo

# -- The memory of the simulations in flight, of their requests, and of the answers.
#
# The slots of the simulations in flight form two halves. Each half has at most one request, whose rows are in
# the part of the buffers that belongs to its slots. Letters: B rows, K slots, S bytes of a state.

NUM_STARTED, NUM_SIMULATIONS, NUM_ENV_STEPS, NUM_IDLE, STOP = 0, 1, 2, 3, 4
NUM_FREE, NUM_QUEUED, NUM_ROWS, NUM_CHUNKS, NUM_EVENTS = 5, 6, 7, 8, 9  # indices of `Progress.totals`
# values of `Progress.totals[STOP]`
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
# request of the half that was queued last; the root's episode had ended. From `FIRST_REQUEST` on: the request
# of a half has to be performed, that of the first or of the second one.
DONE, PAUSED, REFUSED, ENDED, FIRST_REQUEST = 0, 1, 2, 3, 4


class Limits(NamedTuple):
    """The numbers that do not change during a search. -1: no limit."""

    num_simulations: int
    max_env_steps: int  # environment steps
    # whether the values of leaves are requested: with rollouts, and for an open loop with a function of the
    # user
    asks_leaves: bool
    rollout_steps: int
    discount: float  # factor per environment step
    state_bytes: int  # S; 0 if states are objects, which compiled code does not see
    action_bytes: int  # bytes of one action; 0 if every node has its own
    player_at: int  # index of the byte of a state that holds the player to move; -1: there is one player
    # index of the first of the A bytes of a state that hold the legal actions; -1: there are none
    mask_at: int


class Progress(NamedTuple):
    """The simulations in flight."""

    totals: NDArray[np.int64]  # `[10]` int64, counts; the constants above are their indices
    free: NDArray[np.int64]  # `[2]` int64, the halves without simulations, the next one last
    queue: NDArray[np.int64]  # `[2]` int64, the halves whose requests were performed, the oldest first
    # `[3]` int64: the slots of half `h` are those from `bounds[h]` up to `bounds[h + 1]`
    bounds: NDArray[np.int64]
    counts: NDArray[np.int64]  # `[2]` int64, number of simulations of each half
    stages: NDArray[np.int64]  # `[2]` int64, the kind of its request
    num_rows: NDArray[np.int64]  # `[2]` int64, the rows of its request
    rows: NDArray[np.int64]  # `[K]` int64, the slot of each row of a request
    slots: NDArray[np.int64]  # `[K]` int64: 0, 1, 2, ...
    statuses: NDArray[np.int64]  # `[K]` int64, of selections
    outcomes: NDArray[np.int64]  # `[K]` int64, the outcome of each row
    nodes: NDArray[np.int64]  # `[K]` int64, the node of each row
    discounts: NDArray[np.float64]  # `[K]` float64, the discount of each row
    ends: NDArray[np.bool_]  # `[K]` bool, whether the episode of each row has ended
    is_new: NDArray[np.bool_]  # `[K]` bool, whether the last node of each simulation is new
    has_ended: NDArray[np.bool_]  # `[K]` bool, whether its episode has ended
    leaf_values: NDArray[np.float64]  # `[K]` float64, the values of the last nodes


class Requests(NamedTuple):
    """The rows of requests."""

    states: NDArray[np.uint8]  # `[K * S]` uint8
    actions: NDArray[np.uint8]  # the bytes of K actions
    own_states: NDArray[np.uint8]  # `[K * S]` uint8, the states of the simulations of an open loop


class Steps(NamedTuple):
    """The answer to a request for steps."""

    new_states: NDArray[np.uint8]  # `[B * S]` uint8
    rewards: NDArray[np.float64]  # `[B]` float64
    terminated: NDArray[np.uint8]  # `[B]` uint8
    truncated: NDArray[np.uint8]  # `[B]` uint8
    num_steps: NDArray[np.int64]  # `[B]` int64


def new_progress(halves: list[NDArray[np.int64]]) -> Progress:
    """Return the memory of simulations in flight, of which there are none yet."""
    num_slots = sum(map(len, halves))
    arrays: dict[str, NDArray[Any]] = {
        name: np.zeros(num_slots, np.int64) for name in ("rows", "slots", "statuses", "outcomes", "nodes")
    }
    arrays |= {name: np.zeros(num_slots, np.bool_) for name in ("ends", "is_new", "has_ended")}
    arrays |= {name: np.zeros(2, np.int64) for name in ("free", "queue", "counts", "stages", "num_rows")}
    arrays["slots"][:] = np.arange(num_slots)
    arrays["free"][: len(halves)] = np.arange(len(halves))[::-1]
    totals = np.zeros(10, np.int64)
    totals[NUM_FREE] = len(halves)
    return Progress(
        totals=totals,
        bounds=np.array([0, len(halves[0]), num_slots]),
        discounts=np.zeros(num_slots),
        leaf_values=np.zeros(num_slots),
        **arrays,
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


# -- The transposition table as compiled code: finds the outcomes and nodes that are in the tree already.
#
# It gives the outcomes and nodes that `search.TranspositionTable` gives. Both tables are hash
# tables with open addressing: an entry is the index of an outcome or of a node, plus 1; 0 is a free entry.
#
# Letters: B rows, N nodes, M outcomes, A actions per node, S bytes of a state.


class Table(NamedTuple):
    """The hash tables, and what counts as equal."""

    outcomes: NDArray[np.int32]  # `[power of 2 above 2 M]` int32, the entries of outcomes
    # `[power of 2 above 2 N]` int32, the entries of nodes; `[1]` if equal states do not share a node
    nodes: NDArray[np.int32]
    edges: NDArray[np.int64]  # `[M]` int64, the edge of each outcome: node * A + action
    # `[4]` int64, the bytes of a state that are compared: from, up to; from, up to. All of them -1: none,
    # since the nodes of an open loop have no states.
    key: NDArray[np.int64]


def new_table(capacity: int, shares_nodes: bool, key: tuple[int, int, int, int]) -> Table:
    """Return an empty table."""
    size = 1 << (2 * capacity).bit_length()
    return Table(
        np.zeros(size, np.int32),
        np.zeros(size if shares_nodes else 1, np.int32),
        np.zeros(capacity, np.int64),
        np.array(key, np.int64),
    )


def key_of_fields(dtype: np.dtype[Any], names: Any) -> tuple[int, int, int, int] | None:
    """Return the bytes of one or two fields of a state, as `Table.key`; None if names are no fields."""
    names = (names,) if isinstance(names, str) else names
    if not isinstance(names, tuple) or not 1 <= len(names) <= 2 or dtype.hasobject or dtype.fields is None:
        return None
    ranges = [0, 0, 0, 0]
    for number, name in enumerate(names):
        if name not in dtype.fields:
            return None
        field, first = dtype.fields[name][:2]
        ranges[2 * number : 2 * number + 2] = first, first + field.itemsize
    return ranges[0], ranges[1], ranges[2], ranges[3]


@jit()
def _mixed(value: Any, word: Any) -> Any:
    """Return a hash of a hash and a further word (a round of SplitMix64)."""
    z = (value ^ word) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit()
def _state_hash(states: NDArray[np.uint8], at: int, key: NDArray[np.int64]) -> Any:
    """Return a hash of the compared bytes of the state that begins at `at`."""
    value = np.uint64(0)
    for part in range(0, 4, 2):
        first, last = at + key[part], at + key[part + 1]
        while first + 8 <= last:
            value = _mixed(value, load(states, first, np.uint64))
            first += 8
        while first < last:
            value = _mixed(value, np.uint64(states[first]))
            first += 1
    return value


@jit()
def _is_same_state(
    first: NDArray[np.uint8], first_at: int, second: NDArray[np.uint8], second_at: int, key: NDArray[np.int64]
) -> bool:
    """Return whether the compared bytes of two states are the same."""
    for part in range(0, 4, 2):
        at, last = key[part], key[part + 1]
        while at + 8 <= last:
            if load(first, first_at + at, np.uint64) != load(second, second_at + at, np.uint64):
                return False
            at += 8
        while at < last:
            if first[first_at + at] != second[second_at + at]:
                return False
            at += 1
    return True


@jit()
def _outcome_place(
    table: Table,
    tree: TreeArrays,
    tree_states: NDArray[np.uint8],  # the bytes of the states of nodes
    state_bytes: int,
    edge: int,
    reward: float,
    states: NDArray[np.uint8],  # bytes of states
    at: int,
) -> Any:
    """Return the place in the table of the outcome with an edge, a reward and a state, or a free place."""
    # `at`: where the state begins in `states`; `reward`: 0 for an open loop.
    has_key = table.key[0] >= 0
    value = _mixed(np.uint64(edge), np.float64(reward + 0.0).view(np.uint64))  # -0.0 is equal to 0.0
    if has_key:
        value = _mixed(value, _state_hash(states, at, table.key))
    mask = len(table.outcomes) - 1
    place: Any = np.int64(value & np.uint64(mask))
    while table.outcomes[place] > 0:
        outcome = table.outcomes[place] - 1
        if table.edges[outcome] == edge:
            if not has_key:
                return place
            if tree.outcomes[outcome].outcome_rewards == reward and _is_same_state(
                tree_states, tree.outcomes[outcome].outcome_nodes * state_bytes, states, at, table.key
            ):
                return place
        place = (place + 1) & mask
    return place


@jit()
def _node_place(
    table: Table, tree_states: NDArray[np.uint8], state_bytes: int, states: NDArray[np.uint8], at: int
) -> Any:
    """Return the place in the table of the node with a state, or a free place; see `_outcome_place`."""
    mask = len(table.nodes) - 1
    place: Any = np.int64(_state_hash(states, at, table.key) & np.uint64(mask))
    while table.nodes[place] > 0:
        node_at = (table.nodes[place] - 1) * state_bytes
        if _is_same_state(tree_states, node_at, states, at, table.key):
            return place
        place = (place + 1) & mask
    return place


@jit(inline=True)
def look_up(
    table: Table,
    tree: TreeArrays,
    tree_states: NDArray[np.uint8],  # the bytes of the states of nodes, written for new nodes
    paths: Paths,
    progress: Progress,
    first: int,
    steps: Steps,
    state_bytes: int,
) -> None:
    """Find the outcome and the node of each row of an answer; new ones get the next free indices."""
    # Written: `table`; `tree` (node and reward of new outcomes); `progress.outcomes` and `progress.nodes`.
    next_node, next_outcome = tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES]
    num_actions = tree.edges.shape[1]
    has_states, shares_nodes = table.key[0] >= 0, len(table.nodes) > 1
    for row in range(len(steps.rewards)):
        slot = progress.rows[first + row]
        depth = paths.depths[slot]
        edge = np.int64(paths.nodes[slot, depth]) * num_actions + paths.actions[slot, depth]
        reward = steps.rewards[row] if has_states else 0.0
        at = row * state_bytes
        place = _outcome_place(table, tree, tree_states, state_bytes, edge, reward, steps.new_states, at)
        if table.outcomes[place] > 0:
            outcome = table.outcomes[place] - 1
            node = np.int64(tree.outcomes[outcome].outcome_nodes)
        else:
            outcome, node = next_outcome, next_node
            next_outcome += 1
            if shares_nodes:
                node_place = _node_place(table, tree_states, state_bytes, steps.new_states, at)
                if table.nodes[node_place] > 0:
                    node = np.int64(table.nodes[node_place] - 1)
                else:
                    table.nodes[node_place] = node + 1
            table.outcomes[place] = outcome + 1
            table.edges[outcome] = edge
            tree.outcomes[outcome].outcome_nodes = node
            tree.outcomes[outcome].outcome_rewards = steps.rewards[row]
            if node == next_node:
                next_node += 1
                if has_states:
                    copy_bytes(steps.new_states, at, tree_states, node * state_bytes, state_bytes)
        progress.outcomes[first + row], progress.nodes[first + row] = outcome, node


@jit(cache=True)
def enter_tree(table: Table, tree: TreeArrays, tree_states: NDArray[np.uint8], state_bytes: int) -> None:
    """Enter the outcomes and the nodes of a tree into an empty table. Arguments as in `look_up`."""
    shares_nodes, has_states = len(table.nodes) > 1, table.key[0] >= 0
    num_actions = tree.edges.shape[1]
    for node in range(tree.counters[NUM_NODES]):
        if shares_nodes:
            place = _node_place(table, tree_states, state_bytes, tree_states, node * state_bytes)
            if table.nodes[place] == 0:
                table.nodes[place] = node + 1
        for action in range(num_actions):
            outcome = tree.edges[node, action].first_outcomes
            while outcome >= 0:
                edge = node * num_actions + action
                reward = tree.outcomes[outcome].outcome_rewards if has_states else 0.0
                at = tree.outcomes[outcome].outcome_nodes * state_bytes
                place = _outcome_place(table, tree, tree_states, state_bytes, edge, reward, tree_states, at)
                table.outcomes[place] = outcome + 1
                table.edges[outcome] = edge
                outcome = tree.outcomes[outcome].next_outcomes


# -- Defines `Shared`, what all compiled functions of a search work on. Letters: N nodes, S bytes of a state


class Shared(NamedTuple):
    """The memory of a search."""

    tree: TreeArrays
    paths: Paths  # the paths of the simulations in flight
    # `[N * S]` uint8, the states of nodes; `[0]` for an open loop, or if states are objects
    tree_states: NDArray[np.uint8]
    actions: NDArray[np.uint8]  # the bytes of the actions that all nodes have; `[0]` if each has its own
    root_state: NDArray[np.uint8]  # `[S]` uint8
    rules: Rules  # the settings of the kernels
    limits: Limits  # the limits of the search
    table: Table  # the transposition table
    progress: Progress  # the simulations in flight
    requests: Requests
    halving: Halving  # sequential halving at the root


# -- The values of leaves as compiled code: writes the requests for them, and backs them up.
#
# Letters: B rows, K slots.


@jit()
def _back_up(memory: Pointer[Shared], half: int) -> int:
    """Back up the simulations of a half, which completes them."""
    shared: Shared = value_at(memory)
    progress = shared.progress
    first = progress.bounds[half]
    last = first + progress.counts[half]
    slots, values = progress.slots[first:last], progress.leaf_values[first:last]
    back_up(shared.tree, shared.paths, slots, values, shared.rules)
    progress.totals[NUM_SIMULATIONS] += progress.counts[half]
    return COMPLETED


@jit()
def finish(memory: Pointer[Shared], half: int) -> int:
    """Take the values of leaves and back up the simulations, or write the request for values."""
    # With rollouts, a simulation makes a rollout if its last node is new, at the largest depth, or waiting
    # for the rollout of another simulation. Any other one reached a node that another simulation has
    # evaluated, whose value it takes.
    # Returns `COMPLETED` or `PERFORM`.
    shared: Shared = value_at(memory)
    tree, rules, limits = shared.tree, shared.rules, shared.limits
    progress, requests = shared.progress, shared.requests
    size, first = limits.state_bytes, progress.bounds[half]
    is_open_loop = rules.chance == OPEN_LOOP
    count = 0
    for slot in range(first, first + progress.counts[half]):
        depth = shared.paths.depths[slot]
        index = np.int64(shared.paths.nodes[slot, depth])
        node = tree.nodes[index]
        if not is_open_loop:
            progress.has_ended[slot] = node.ended
        value = node.values if rules.backs_up_values else node.raw_values
        if progress.has_ended[slot]:
            value = 0.0
        elif limits.asks_leaves and (progress.is_new[slot] or node.pending or depth >= rules.max_depth):
            row = first + count
            progress.rows[row] = slot
            count += 1
            if is_open_loop:
                copy_bytes(requests.own_states, slot * size, requests.states, row * size, size)
            else:
                copy_bytes(shared.tree_states, index * size, requests.states, row * size, size)
        progress.leaf_values[slot] = value
    progress.num_rows[half] = count
    if count == 0:
        return _back_up(memory, half)
    progress.stages[half] = LEAVES
    return PERFORM


@jit(cache=True)
def take_values(code: Any, memory: Pointer[Shared], values: NDArray[np.float64], half: int) -> int:
    """Take the values `[B]` that were requested for leaves, and back up the simulations."""
    # Those of rollouts are returns of player 0.
    shared: Shared = value_at(memory)
    tree, paths, progress = shared.tree, shared.paths, shared.progress
    first = progress.bounds[half]
    for row in range(progress.num_rows[half]):
        slot = progress.rows[first + row]
        node = tree.nodes[paths.nodes[slot, paths.depths[slot]]]
        value = -values[row] if node.players == 1 else values[row]
        progress.leaf_values[slot] = value
        if shared.rules.rolls_out and progress.is_new[slot]:
            node.raw_values = value
            # Other simulations may have passed meanwhile; the value is then a mean without this one.
            node.values += value / (node.visits + 1)
            node.pending = False
    return _back_up(memory, half)


# -- The steps of simulations as compiled code: writes their requests, and expands the tree by the answers.
#
# Letters: B rows, K slots, S bytes of a state.


@jit()
def request_steps(memory: Pointer[Shared], half: int) -> None:
    """Write the request to take the last action of each path."""
    shared: Shared = value_at(memory)
    paths, rules, limits = shared.paths, shared.rules, shared.limits
    progress, requests = shared.progress, shared.requests
    size, action_size = limits.state_bytes, limits.action_bytes
    first = progress.bounds[half]
    for row in range(first, first + progress.num_rows[half]):
        slot = progress.rows[row]
        depth = paths.depths[slot]
        if rules.chance == OPEN_LOOP:
            copy_bytes(requests.own_states, slot * size, requests.states, row * size, size)
        else:
            node = np.int64(paths.nodes[slot, depth])
            copy_bytes(shared.tree_states, node * size, requests.states, row * size, size)
        source = paths.actions[slot, depth] * action_size
        copy_bytes(shared.actions, source, requests.actions, row * action_size, action_size)
    progress.stages[half] = STEPS


@jit(cache=True)
def orient(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> None:
    """Turn the rewards of an answer, those of player 0, into those of the players who took the actions."""
    # With the sign of `outcome_discounts`, everything else is the same for one player and for two.
    shared: Shared = value_at(memory)
    tree, paths, progress = shared.tree, shared.paths, shared.progress
    if shared.limits.player_at >= 0:
        for row in range(len(steps.rewards)):
            slot = progress.rows[progress.bounds[half] + row]
            if tree.nodes[paths.nodes[slot, paths.depths[slot]]].players == 1:
                steps.rewards[row] = -steps.rewards[row]


@jit(cache=True)
def find_outcomes(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> None:
    """Find the outcome and the node of each row of an answer. New ones get the next free indices."""
    shared: Shared = value_at(memory)
    tree, tree_states, table, progress = shared.tree, shared.tree_states, shared.table, shared.progress
    rules, limits = shared.rules, shared.limits
    size, first = limits.state_bytes, progress.bounds[half]
    if rules.chance == SINGLE and len(table.nodes) == 1:
        num_nodes = tree.counters[NUM_NODES]
        for row in range(len(steps.rewards)):
            node = num_nodes + row
            progress.nodes[first + row] = progress.outcomes[first + row] = node
            copy_bytes(steps.new_states, row * size, tree_states, node * size, size)
    else:
        look_up(table, tree, tree_states, shared.paths, progress, first, steps, size)


@jit(cache=True)
def expand_half(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> int:
    """Add the transitions of an answer to the tree. Returns how many selections go on from their node."""
    # Their slots are then the first rows of the half. The last nodes of the others are leaves.
    shared: Shared = value_at(memory)
    tree, rules, limits = shared.tree, shared.rules, shared.limits
    progress, requests = shared.progress, shared.requests
    size, first = limits.state_bytes, progress.bounds[half]
    last = first + progress.num_rows[half]
    num_nodes, num_outcomes = tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES]
    is_open_loop = rules.chance == OPEN_LOOP
    for row in range(last - first):
        num_steps = steps.num_steps[row]
        power = limits.discount if num_steps == 1 else math.pow(limits.discount, np.float64(num_steps))
        if limits.player_at >= 0:
            slot = progress.rows[first + row]
            before = tree.nodes[shared.paths.nodes[slot, shared.paths.depths[slot]]].players
            if (steps.new_states[row * size + limits.player_at] == 1) != (before == 1):
                power = -power
        progress.discounts[first + row] = power
        progress.ends[first + row] = steps.terminated[row] != 0 or steps.truncated[row] != 0
    expand(
        tree,
        shared.paths,
        progress.rows[first:last],
        progress.outcomes[first:last],
        progress.nodes[first:last],
        steps.rewards,
        progress.discounts[first:last],
        steps.num_steps,
        progress.ends[first:last],
        rules,
    )
    count = 0
    for row in range(first, last):
        slot, node = progress.rows[row], progress.nodes[row]
        is_new = node == num_nodes
        num_nodes += is_new
        progress.is_new[slot] = is_new
        at = (row - first) * size
        if is_new and limits.player_at >= 0:
            tree.nodes[node].players = steps.new_states[at + limits.player_at] == 1
        if is_new and limits.mask_at >= 0:
            for action in range(tree.edges.shape[1]):
                tree.legal[node, action] = steps.new_states[at + limits.mask_at + action] != 0
        if is_open_loop:
            copy_bytes(steps.new_states, at, requests.own_states, slot * size, size)
            progress.has_ended[slot] = progress.ends[row]
        # A new outcome that leads to a known node ends the simulation with the value of that node.
        is_known = is_open_loop or progress.outcomes[row] < num_outcomes
        if not is_new and not progress.ends[row] and is_known:
            progress.rows[first + count] = slot
            count += 1
    return count


@jit()
def go_down(memory: Pointer[Shared], slots: NDArray[np.int64], statuses: NDArray[np.int64]) -> int:
    """Continue selections from their last nodes; see `resume`."""
    shared: Shared = value_at(memory)
    num_started = shared.progress.totals[NUM_STARTED]
    return resume(shared.tree, shared.paths, slots, statuses, shared.rules, shared.halving, num_started)


@jit()
def select_on(memory: Pointer[Shared], half: int, num_rows: int) -> bool:
    """Continue the selections of the first rows of a half. Returns whether some lead to further steps."""
    shared: Shared = value_at(memory)
    progress = shared.progress
    first, kept = progress.bounds[half], 0
    if num_rows > 0:
        slots = progress.rows[first : first + num_rows]
        statuses = progress.statuses[first : first + num_rows]
        go_down(memory, slots, statuses)
        for index in range(num_rows):
            if statuses[index] == SAMPLE:
                slots[kept] = slots[index]
                kept += 1
    progress.num_rows[half] = kept
    return kept > 0


@jit(inline=True)
def _num_allowed(tree: TreeArrays, progress: Progress, limits: Limits) -> Any:
    """Return how many simulations may begin; set the reason to stop where it is 0 from now on."""
    totals = progress.totals
    if 0 <= limits.num_simulations <= totals[NUM_STARTED]:
        totals[STOP] = NUM_SIMULATIONS_REACHED
        return 0
    if tree.nodes[0].proven:
        totals[STOP] = EXHAUSTED
        return 0
    free: Any = len(tree.nodes) - max(tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES])
    free -= totals[NUM_STARTED] - totals[NUM_SIMULATIONS]
    if free <= 0 and totals[NUM_STARTED] == totals[NUM_SIMULATIONS]:
        totals[STOP] = MAX_MEMORY
    if totals[NUM_IDLE] >= MAX_IDLE and limits.num_simulations < 0:
        totals[STOP] = EXHAUSTED
        return 0
    if limits.num_simulations >= 0:
        free = min(free, limits.num_simulations - totals[NUM_STARTED])
    return free


@jit()
def _select_half(memory: Pointer[Shared], half: int) -> bool:
    """Select the paths of the simulations of a half. Returns whether there are any."""
    shared: Shared = value_at(memory)
    rules, limits = shared.rules, shared.limits
    progress, requests = shared.progress, shared.requests
    first, totals = progress.bounds[half], progress.totals
    num_allowed = min(_num_allowed(shared.tree, progress, limits), progress.bounds[half + 1] - first)
    if num_allowed <= 0:
        return False
    last = first + num_allowed
    statuses = progress.statuses[first:last]
    slots = progress.slots[first:last]
    start(shared.paths, slots)
    count = go_down(memory, slots, statuses)
    if count < len(slots):
        undo(shared.tree, shared.paths, slots[count])  # it has collided
    if count == 0:
        return False  # every action worth a simulation is in flight
    totals[NUM_STARTED] += count
    progress.counts[half] = count
    num_rows = 0
    for index in range(count):
        slot = first + index
        progress.is_new[slot] = progress.has_ended[slot] = False
        if rules.chance == OPEN_LOOP:
            size = limits.state_bytes
            copy_bytes(shared.root_state, 0, requests.own_states, slot * size, size)
        if statuses[index] == SAMPLE:
            progress.rows[first + num_rows] = slot
            num_rows += 1
    progress.num_rows[half] = num_rows
    totals[NUM_IDLE] = 0 if num_rows > 0 else totals[NUM_IDLE] + count
    return True


@jit(cache=True)
def begin(code: Any, memory: Pointer[Shared], half: int) -> int:
    """Begin the simulations of a half."""
    # Returns `NONE`, `COMPLETED` or `PERFORM`.
    if not _select_half(memory, half):
        return NONE
    shared: Shared = value_at(memory)
    if shared.progress.num_rows[half] > 0:
        request_steps(memory, half)
        return PERFORM
    return finish(memory, half)


@jit(cache=True)
def go_on(code: Any, memory: Pointer[Shared], half: int, num_rows: int) -> int:
    """Continue the simulations of a half after their steps were added to the tree."""
    # Returns `COMPLETED` or `PERFORM`.
    if select_on(memory, half, num_rows):
        request_steps(memory, half)
        return PERFORM
    return finish(memory, half)


@jit(cache=True)
def take_steps(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> int:
    """Add the steps of a half to the tree, and continue its simulations."""
    # Returns `COMPLETED` or `PERFORM`.
    orient(code, memory, steps, half)
    find_outcomes(code, memory, steps, half)
    return go_on(code, memory, half, expand_half(code, memory, steps, half))


# -- Defines the type that stands for the code of tree search in the signatures of its compiled functions ----


@functools.cache
def search_code() -> CodeType:
    """Return the type, which is another one after any change in this package."""
    # All functions of tree search take the same one. Python calls some of them, which also call each other:
    # with types of their own they would be compiled once for each caller.
    folder = Path(__file__).parent
    return CodeType(code_digest(*[path.read_text() for path in sorted(folder.rglob("*.py"))]))
