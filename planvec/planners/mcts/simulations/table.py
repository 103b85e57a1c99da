"""The transposition table as compiled code: finds the outcomes and nodes that are in the tree already.

It gives the outcomes and nodes that `planvec.planners.mcts.transpositions` gives. Both tables are hash tables
with open addressing: an entry is the index of an outcome or of a node, plus 1; 0 is a free entry.

Letters: B rows, N nodes, M outcomes, A actions per node, S bytes of a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import copy_bytes, jit, load
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, Paths, TreeArrays
from planvec.planners.mcts.simulations.progress import Progress, Steps


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
