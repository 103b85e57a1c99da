"""Reads the files of search trees. They may be damaged or made by others, so every index is checked.

Compiled kernels follow the indices without looking: a wrong one would crash the process.

Letters: N nodes, A actions per node, M outcomes, D depths.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.arrays import NUM_COUNTERS, NUM_NODES, NUM_OUTCOMES, TreeArrays, empty_arrays
from planvec.planners.mcts.rules import AS_GIVEN, GRAPH, OPEN_LOOP, SINGLE, TreeKind
from planvec.rows import DAMAGED, read_arrays, states_of_arrays


def read_tree(path: str | Path) -> tuple[TreeArrays, NDArray[Any] | None, NDArray[Any], TreeKind]:
    """Read the file of a tree."""
    # Returns the fields of a `Tree`: its arrays, the states, the actions and the kind.
    try:
        return tree_parts(read_arrays(path))
    except DAMAGED as error:
        raise InvalidBatchError(
            f"tree: expected a file that Tree.save wrote, got {path}, which is damaged "
            f"({type(error).__name__}: {error})"
        ) from error


def tree_parts(
    archive: Mapping[str, NDArray[Any]],
) -> tuple[TreeArrays, NDArray[Any] | None, NDArray[Any], TreeKind]:
    """Return the fields of a `Tree` from the arrays of `Tree.to_arrays`."""
    kind = _read_kind(str(archive["kind"]))
    arrays = _read_arrays(archive, kind)
    states = states_of_arrays("states", archive) if "states" in archive else None
    actions = archive["actions"]
    _check_contents(arrays, states, actions, kind)
    return arrays, states, actions, kind


def _read_kind(text: str) -> TreeKind:
    kind = TreeKind(*json.loads(text))
    is_right = (
        all(isinstance(flag, bool) for flag in kind[:4])
        and kind.chance in range(SINGLE, OPEN_LOOP + 1)
        and isinstance(kind.discount, (int, float))
        and 0 <= kind.discount <= 1
        and isinstance(kind.dt, int)
        and kind.dt >= 1
        and kind.choice in range(AS_GIVEN, GRAPH + 1)
    )
    if not is_right:
        raise ValueError(f"kind: expected the settings of a search, got {text[:200]}")
    return kind


def _read_arrays(archive: Mapping[str, NDArray[Any]], kind: TreeKind) -> TreeArrays:
    """Return the arrays of a tree."""
    counters, edge_visits, histogram = (
        archive[name] for name in ("counters", "edge_visits", "depth_histogram")
    )
    if counters.shape != (NUM_COUNTERS,) or edge_visits.ndim != 2 or histogram.ndim != 1:
        raise ValueError("counters, edge_visits or depth_histogram have another number of dimensions")
    num_nodes, num_outcomes = int(counters[NUM_NODES]), int(counters[NUM_OUTCOMES])
    num_actions, num_depths = edge_visits.shape[1], len(histogram)
    if num_nodes < 1 or num_outcomes < 0 or num_actions < 1 or num_depths < 1:
        raise ValueError(f"expected at least one node and action, got {num_nodes} and {num_actions}")
    if max(num_nodes, num_outcomes) > max(len(archive["visits"]), len(archive["outcome_nodes"])):
        raise ValueError(f"visits: expected int32 of shape ({num_nodes},), got fewer rows")
    arrays = empty_arrays(
        max(num_nodes, num_outcomes), num_actions, num_depths - 1, kind.has_priors, kind.has_legal
    )
    row_counts = {"nodes": num_nodes, "edges": num_nodes, "outcomes": num_outcomes}
    row_counts |= {"priors": num_nodes} if kind.has_priors else {}
    row_counts |= {"legal": num_nodes} if kind.has_legal else {}
    used = {name: getattr(arrays, name)[:count] for name, count in row_counts.items()}
    arrays = arrays._replace(**used)
    for name, target in arrays.named().items():
        array = archive[name]
        if array.shape != target.shape or array.dtype != target.dtype:
            raise ValueError(
                f"{name}: expected {target.dtype} of shape {target.shape}, got {array.dtype} of {array.shape}"
            )
        target[...] = array
    return arrays


def _check_contents(
    arrays: TreeArrays, states: NDArray[Any] | None, actions: NDArray[Any], kind: TreeKind
) -> None:
    """Check the states, the actions and every index."""
    num_nodes, num_actions = arrays.edge_visits.shape
    num_outcomes = len(arrays.outcome_nodes)
    if states is not None and states.shape != (num_nodes,):
        raise ValueError(f"states: expected shape ({num_nodes},), got {states.shape}")
    own = (num_nodes, num_actions) if kind.has_own_actions else (num_actions,)
    if actions.shape[: len(own)] != own:
        raise ValueError(f"actions: expected shape ({', '.join(map(str, own))}, ...), got {actions.shape}")
    for name, low, high in (
        ("starts", 0, num_actions),
        ("players", 0, 2),
        ("parents", -1, num_nodes),
        ("parent_actions", -1, num_actions),
        ("first_outcomes", -1, num_outcomes),
        ("outcome_nodes", 0, num_nodes),
        ("next_outcomes", -1, num_outcomes),
    ):
        array = getattr(arrays, name)
        if array.size and not low <= array.min() <= array.max() < high:
            raise ValueError(f"{name}: expected indices from {low} to {high - 1}")
    for name in ("visits", "edge_visits", "edge_samples", "outcome_counts", "outcome_steps", "counters"):
        if (getattr(arrays, name) < 0).any():
            raise ValueError(f"{name}: expected no negative numbers")
    for name in ("unobserved", "edge_unobserved", "pending"):
        if getattr(arrays, name).any():
            raise ValueError(f"{name}: expected a tree without simulations in flight")
    is_tree = kind.chance == SINGLE and not kind.shares_nodes
    if is_tree and not np.array_equal(arrays.outcome_nodes, np.arange(num_nodes)):
        raise ValueError("outcome_nodes: expected the index of each outcome, whose node has the same index")
    for name in ("parents", "next_outcomes"):
        if _has_cycle(getattr(arrays, name)):
            raise ValueError(f"{name}: expected chains that end, got a cycle")


def _has_cycle(following: NDArray[np.int32]) -> bool:
    """Return whether some chain of indices does not end with -1. Each pass doubles the length looked at."""
    after = following.astype(np.int64)
    for _ in range(len(following).bit_length() + 1):
        after = np.where(after < 0, -1, after[after])
    return bool((after >= 0).any())
