"""An episode as a NumPy archive that loads without running code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.episode import Episode
from planvec.planners.space_leaves import space_leaves, tree_of_leaves
from planvec.rows import arrays_of_states

__all__ = [
    "actions_of_arrays",
    "arrays_of_actions",
    "save_trajectory",
    "trajectory_arrays",
]


def trajectory_arrays(
    episode: Episode, action_space: Space[Any], observation_space: Space[Any]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an episode. They do not depend on the number of workers, since no time is in them.

    Each part of a Dict or Tuple has a key: "observations.<path>". Parts that are not arrays of numbers or
    text (such as those of a Graph space) are left out.

    Args:
        episode: The episode.
        action_space: The space of one action.
        observation_space: The space of one observation.

    Returns:
        `states` (see `planvec.rows.arrays_of_states`), `actions`, `rewards`, `observations`, `values`,
        `terminated`, `truncated`, `seed`.
    """
    return {
        **arrays_of_states("states", episode.states),
        **arrays_of_actions(episode.actions, action_space),
        "rewards": episode.rewards,
        **_leaf_arrays("observations", observation_space, episode.observations),
        "values": episode.values,
        "terminated": np.array(episode.terminated),
        "truncated": np.array(episode.truncated),
        "seed": np.array(episode.seed, np.uint64),
    }


def arrays_of_actions(actions: Any, action_space: Space[Any]) -> dict[str, NDArray[Any]]:
    """Return stacked actions `[T, ...]` as arrays: "actions", or "actions.<path>" for each part."""
    return _leaf_arrays("actions", action_space, actions)


def actions_of_arrays(arrays: Mapping[str, NDArray[Any]], action_space: Space[Any]) -> Any:
    """Return the stacked actions `[T, ...]` that `arrays_of_actions` turned into arrays.

    Raises:
        KeyError: A part is missing.
    """
    return tree_of_leaves(action_space, "actions", arrays)


def _leaf_arrays(name: str, space: Space[Any], tree: Any) -> dict[str, NDArray[Any]]:
    arrays = {}
    for path, _, leaf in space_leaves(space, tree):
        try:
            array = np.asarray(leaf)
        except ValueError:  # elements of different shapes
            continue
        if array.dtype.kind in "biufcU":
            arrays[f"{name}.{path}" if path else name] = array
    return arrays


def save_trajectory(
    path: Path, episode: Episode, action_space: Space[Any], observation_space: Space[Any]
) -> None:
    """Write `trajectory_arrays` to a file. Read it with `np.load(path, allow_pickle=False)`."""
    np.savez(path, **trajectory_arrays(episode, action_space, observation_space))  # type: ignore[arg-type]
