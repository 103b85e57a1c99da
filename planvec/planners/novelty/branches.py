"""Compares the branches of a tree of width-based search. Letters: N nodes, A actions."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit


@jit(cache=True)
def best_branches(
    parents: NDArray[np.int32],  # `[N]`, before their children
    taken: NDArray[np.int32],  # `[N]`, index of the action that leads to a node
    children: NDArray[np.int32],  # `[N, A]`
    rewards: NDArray[np.float64],  # `[N]`, of the action that leads to a node
    discount: float,
    noise: NDArray[np.float64],  # `[N, A]`, decides between equal branches
    returns: NDArray[np.float64],  # `[N, A]`, written: of the best branch; -inf where there is none
    values: NDArray[np.float64],  # `[N]`, what follows leaves; written for others: the highest return
    best: NDArray[np.int64],  # `[N]`, written: its action; -1 at leaves
    lengths: NDArray[np.int64],  # `[N]`, written: actions of the best branch
    counts: NDArray[np.int64],  # `[N]`, written: nodes of all branches
) -> None:
    """Pass the returns of the best branches up to the root."""
    num_nodes, num_actions = returns.shape
    returns[:], best[:], lengths[:], counts[:] = -math.inf, -1, 0, 1
    for node in range(num_nodes - 1, -1, -1):
        chosen, highest = -1, (-math.inf, 0, 0.0)
        for action in range(num_actions):
            value = returns[node, action]
            if value > -math.inf:
                # of equal branches without a gain, the longest is best
                length = lengths[children[node, action]] if value <= 0.0 else 0
                rank = (value, length, noise[node, action])
                if rank > highest:
                    chosen, highest = action, rank
        if chosen >= 0:
            best[node], values[node] = chosen, highest[0]
            lengths[node] = 1 + lengths[children[node, chosen]]
        if node > 0:
            parent = parents[node]
            returns[parent, taken[node]] = rewards[node] + discount * values[node]
            counts[parent] += counts[node]
