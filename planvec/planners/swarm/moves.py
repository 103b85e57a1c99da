"""Compiled operations on the moves of a swarm, which form a tree.

Node 0 is the start; every other node is one move of one walker, and its parent the move before. Parents come
before their children.

Letters: C nodes that there is room for, N nodes in use, B walkers, A bytes of an action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from planvec.kernels import jit
from planvec.planners.swarm.arrays import INTEGERS, MOVES, WALKERS, Moves, Outcomes


@jit(cache=True, allocates=True)
def append_moves(
    moves: Moves, num_nodes: int, walkers: NDArray[Any], actions: NDArray[np.uint8], outcomes: Outcomes
) -> int:
    """Add a move of every walker. One that took no step keeps its node."""
    # `walkers`: `[B]` of `WALKER_DTYPE`. Their latest moves are written. `actions`: `[B, A]`.
    # Returns the new N.
    for walker in range(len(walkers)):
        if outcomes.num_steps[walker] > 0:
            node = moves.nodes[num_nodes]
            node.parent = walkers[walker].node
            node.num_steps = outcomes.num_steps[walker]
            node.reward = outcomes.rewards[walker]
            for index in range(actions.shape[1]):
                moves.actions[num_nodes, index] = actions[walker, index]
            walkers[walker].node = num_nodes
            num_nodes += 1
    return num_nodes


@jit((MOVES, types.int64, WALKERS, types.int64), cache=True, allocates=True)
def prune_moves(moves: Moves, num_nodes: int, walkers: NDArray[Any], last_shared: int) -> tuple[int, int]:
    """Remove all nodes that lead to no walker."""
    # `walkers`: `[B]` of `WALKER_DTYPE`. The new indices of their latest moves are written.
    # Returns the new N, and the last node that every other node precedes or descends from.
    is_used = np.zeros(num_nodes, np.bool_)
    is_used[: last_shared + 1] = True
    nodes, actions = moves.nodes, moves.actions
    for walker in walkers:
        node = walker.node
        while not is_used[node]:
            is_used[node] = True
            node = nodes[node].parent
    numbers, num_kept = np.zeros(num_nodes, np.int64), 1
    for node in range(1, num_nodes):
        if is_used[node]:
            numbers[node] = num_kept
            nodes[num_kept] = nodes[node]
            nodes[num_kept].parent = numbers[nodes[node].parent]
            for index in range(actions.shape[1]):
                actions[num_kept, index] = actions[node, index]
            num_kept += 1
    lowest = num_kept
    for index in range(len(walkers)):
        walkers[index].node = numbers[walkers[index].node]
        lowest = min(lowest, walkers[index].node)
    earliest = num_kept  # parent of any node after this one
    for node in range(num_kept - 2, 0, -1):
        earliest = min(earliest, nodes[node + 1].parent)
        if node <= min(earliest, lowest):
            return num_kept, node
    return num_kept, 0


@jit((MOVES, types.int64, WALKERS, INTEGERS, INTEGERS), cache=True, allocates=True)
def find_first_moves(
    moves: Moves,
    num_nodes: int,
    walkers: NDArray[Any],  # `[B]` of `WALKER_DTYPE`
    firsts: NDArray[np.int64],  # `[B]`, first moves; 0: none. Written.
    num_moves: NDArray[np.int64],  # `[B]`. Written.
) -> None:
    """Write the first move of each walker and the number of its moves."""
    first, depths = np.zeros(num_nodes, np.int64), np.zeros(num_nodes, np.int64)
    for node in range(1, num_nodes):
        parent = moves.nodes[node].parent
        first[node] = first[parent] if parent > 0 else node
        depths[node] = depths[parent] + 1
    for index in range(len(walkers)):
        firsts[index] = first[walkers[index].node]
        num_moves[index] = depths[walkers[index].node]


@jit((MOVES, types.int64, INTEGERS), cache=True)
def trace_path(moves: Moves, node: int, path: NDArray[np.int64]) -> int:
    """Write the moves that lead to a node to the end of an array, and return where the first one is."""
    # `path`: `[N]`; its last entry will be the node itself. Written.
    start = len(path)
    while node > 0:
        start -= 1
        path[start] = node
        node = moves.nodes[node].parent
    return start
