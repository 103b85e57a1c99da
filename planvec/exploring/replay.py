"""Steps the ways to cells again, to check states from files, or to compute them anew.

Steps that several cells share are taken once. Letters: K cells, M nodes of the tree of steps, D nodes of one
depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.exploring.cells import CellFunction, keys_of
from planvec.exploring.contents import Contents

__all__ = ["leads_to_states", "replay_all"]

_LARGEST_BATCH = 4096


def leads_to_states(archive: Contents, env: Any, num_checks: int) -> bool:
    """Return whether the ways to some cells lead to their states.

    Args:
        archive: The archive.
        env: The environment.
        num_checks: Number of cells that are checked: the best one, and some of all ages.
    """
    if num_checks < 1:
        return True
    spread = np.linspace(0, archive.num_cells - 1, num_checks).astype(np.int64)
    cells = np.unique(np.append(spread[1:], archive.best))
    states, scores = _step_again(archive, env, cells)
    expected = archive.states(cells)
    if states.dtype != expected.dtype or (scores != archive.store["scores"][cells]).any():
        return False
    pairs = zip(states, expected, strict=True)
    return all(bytes(state) == bytes(other) for state, other in pairs)


def replay_all(archive: Contents, env: Any, cells: CellFunction | None) -> None:
    """Compute the states of all cells from the seed and the actions.

    Args:
        archive: The archive, which is changed.
        env: The environment.
        cells: The function of cells; None: only scores are compared.

    Raises:
        InvalidBatchError: The ways lead to other cells or scores.
    """
    every = np.arange(archive.num_cells)
    states, scores = _step_again(archive, env, every)
    differs = scores != archive.store["scores"]
    if cells is not None:
        for start in range(0, len(every), _LARGEST_BATCH):
            part = slice(start, start + _LARGEST_BATCH)
            keys = keys_of(cells, env.observe(states[part]), len(states[part]))
            same_shape = keys.shape == archive.store["keys"][part].shape
            differs[part] |= (keys != archive.store["keys"][part]).any(axis=1) if same_shape else True
    if differs.any():
        raise InvalidBatchError(
            f"env: expected the environment that was explored, got one in which the actions lead to other "
            f"scores or cells, for {int(differs.sum()):,} of {len(every):,} cells, the first of them cell "
            f"{int(differs.argmax())}"
        )
    archive.store.replace_states(states)
    archive.was_replayed = True


def _step_again(
    archive: Contents, env: Any, cells: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Step the ways to cells; return their states and scores, `[K]` each."""
    tree, ends = archive.steps, archive.store["nodes"][cells]
    owners = np.full(len(tree), -1, np.int64)
    owners[ends] = np.arange(len(cells))
    is_needed, positions = tree.ways_to(ends), np.zeros(len(tree), np.int64)
    states, scores = np.empty(len(cells), env.state_dtype), np.zeros(len(cells))
    before, totals = np.empty(1, env.state_dtype), np.zeros(1)
    before[0] = env.reset(seed=archive.origin.seed).state
    if owners[0] >= 0:
        states[owners[0]] = before[0]
    for level in tree.levels():
        nodes = level[is_needed[level]]
        rows = positions[tree["parents"][nodes]]
        before, rewards = _step(archive, env, nodes, before[rows])
        totals = totals[rows] + rewards
        positions[nodes] = np.arange(len(nodes))
        is_end = owners[nodes] >= 0
        states[owners[nodes[is_end]]], scores[owners[nodes[is_end]]] = before[is_end], totals[is_end]
    return states, scores


def _step(
    archive: Contents, env: Any, nodes: NDArray[np.int64], states: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Take the steps of nodes, `[D]`, from states; return the new states and the rewards."""
    tree, origin = archive.steps, archive.origin
    new_states, rewards = np.empty(len(nodes), env.state_dtype), np.zeros(len(nodes))
    for start in range(0, len(nodes), _LARGEST_BATCH):
        part = slice(start, start + _LARGEST_BATCH)
        seeds = tree["seeds"][nodes[part]] if tree.has_seeds else None
        out = env.step_batch(
            tree["actions"][nodes[part]], states[part], origin.dt, seeds=seeds, blocking=True
        )
        new_states[part], rewards[part] = out.new_states, out.rewards
    return new_states, rewards
