"""Takes the steps to cells again, to check states from files, or to compute them anew.

Steps that several cells share are taken once. Letters: K cells, M nodes of the tree of steps, D nodes of one
depth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.exploring.cells import CellFunction, keys_of
from planvec.exploring.contents import Contents

_LARGEST_BATCH = 4096


def leads_to_states(archive: Contents, env: Any, cells: CellFunction | None, num_checks: int) -> bool:
    """Return whether the steps to some cells lead to their states."""
    if num_checks < 1:
        return True
    ends = np.flatnonzero(archive.store["ended"])
    some = _spread(np.arange(archive.num_cells), num_checks)
    checked = np.unique(np.concatenate([some, _spread(ends, num_checks), np.array([archive.best])]))
    again, expected = _step_again(archive, env, checked), archive.states(checked)
    if again.states.dtype != expected.dtype or again.differs_from(archive, checked).any():
        return False
    if any(bytes(state) != bytes(other) for state, other in zip(again.states, expected, strict=True)):
        return False
    if cells is not None:
        keys = keys_of(cells, env.observe(expected), len(checked), archive.store["keys"][0])
        if (keys != archive.store["keys"][checked]).any():
            raise InvalidBatchError(
                "cells: expected the function of the exploration, got one that gives other cells; use the "
                "same, or another directory"
            )
    return True


def _spread(cells: NDArray[np.int64], num: int) -> NDArray[np.int64]:
    """Return at most some of the cells, evenly spread."""
    return cells[np.linspace(0, len(cells) - 1, min(num, len(cells))).astype(np.int64)]


def replay_all(archive: Contents, env: Any, cells: CellFunction | None, path: Path) -> None:
    """Compute the states of all cells from the seed and the actions."""
    if cells is None:
        raise InvalidBatchError(
            "cells: expected the function of the exploration, since the states do not fit this environment "
            "and have to be computed again, got None"
        )
    every = np.arange(archive.num_cells)
    again = _step_again(archive, env, every)
    states, differs = again.states, again.differs_from(archive, every)
    for start in range(0, len(every), _LARGEST_BATCH):
        part = slice(start, start + _LARGEST_BATCH)
        expected = archive.store["keys"][part]
        keys = keys_of(cells, env.observe(states[part]), len(expected))
        differs[part] |= (keys != expected).any(axis=1) if keys.shape == expected.shape else True
    if differs.any():
        raise InvalidBatchError(
            f"env: expected the environment that was explored into {path}, got one in which the actions lead "
            f"to other scores, ends or cells, for {int(differs.sum()):,} of {len(every):,} cells, the first "
            f"of them cell {int(differs.argmax())}; explore another environment into another directory"
        )
    archive.store.replace_states(states)
    archive.origin = archive.origin._replace(fingerprint=getattr(env, "fingerprint", ""))
    archive.was_replayed = True


class _Again(NamedTuple):
    """What steps have led to: `[K]` states, scores, and whether episodes have ended."""

    states: NDArray[Any]
    scores: NDArray[np.float64]
    ended: NDArray[np.bool_]

    def differs_from(self, archive: Contents, cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for which cells scores or ends are others, `[K]`."""
        columns = archive.store.columns(("scores", "ended"), cells)
        differs: NDArray[np.bool_] = (self.scores != columns["scores"]) | (self.ended != columns["ended"])
        return differs


def _step_again(archive: Contents, env: Any, cells: NDArray[np.int64]) -> _Again:
    """Take the steps to cells again."""
    tree, ends = archive.steps, archive.store["nodes"][cells]
    owners = np.full(len(tree), -1, np.int64)
    owners[ends] = np.arange(len(cells))
    is_needed, positions = tree.ancestors_of(ends), np.zeros(len(tree), np.int64)
    states, scores = np.empty(len(cells), env.state_dtype), np.zeros(len(cells))
    ended = np.zeros(len(cells), np.bool_)
    before, totals = np.empty(1, env.state_dtype), np.zeros(1)
    before[0] = env.reset(seed=archive.origin.seed).state
    if owners[0] >= 0:
        states[owners[0]] = before[0]
    for level in tree.levels():
        nodes = level[is_needed[level]]
        rows = positions[tree["parents"][nodes]]
        before, rewards, ends_here = _step(archive, env, nodes, before[rows])
        totals = totals[rows] + rewards
        positions[nodes] = np.arange(len(nodes))
        is_end = owners[nodes] >= 0
        states[owners[nodes[is_end]]], scores[owners[nodes[is_end]]] = before[is_end], totals[is_end]
        ended[owners[nodes[is_end]]] = ends_here[is_end]
    return _Again(states, scores, ended)


def _step(
    archive: Contents, env: Any, nodes: NDArray[np.int64], states: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_]]:
    """Take the steps of nodes, `[D]`, from states; return new states, rewards, and what has ended."""
    tree, origin = archive.steps, archive.origin
    new_states, rewards = np.empty(len(nodes), env.state_dtype), np.zeros(len(nodes))
    ended = np.zeros(len(nodes), np.bool_)
    for start in range(0, len(nodes), _LARGEST_BATCH):
        part = slice(start, start + _LARGEST_BATCH)
        seeds = tree["seeds"][nodes[part]] if tree.has_seeds else None
        out = env.step_batch(
            tree["actions"][nodes[part]], states[part], origin.dt, seeds=seeds, blocking=True
        )
        new_states[part], rewards[part] = out.new_states, out.rewards
        ended[part] = out.terminated | out.truncated
    return new_states, rewards, ended
