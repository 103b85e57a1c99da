"""An episode as a NumPy archive that loads without running code, and how it is stepped again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.episode import Episode, EpisodeRecorder
from planvec.planners.space_leaves import space_leaves, tree_of_leaves
from planvec.rows import arrays_of_states, one_action, take_row


def trajectory_arrays(
    episode: Episode, action_space: Space[Any], observation_space: Space[Any]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an episode. No time is among them, so they do not depend on the workers."""
    # Each part of a Dict or Tuple has a key: "observations.<path>". Parts that are not arrays of numbers or
    # text (such as those of a Graph space) are left out.
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
    """Return the stacked actions `[T, ...]` that `arrays_of_actions` turned into arrays."""
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


def replay_steps(
    env: Any,
    recorder: EpisodeRecorder,
    seed: int,
    actions: Any,
    numbers: Sequence[tuple[float, int]],
    dt: int = 1,
    seeds: NDArray[np.uint64] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Step an episode again from its seed and its actions, and record it."""
    # `seeds`: `[T]`, those of the steps; None: the generator in the state decides.
    # Returns the last state, and the info there.
    start = env.reset(seed=seed)
    recorder.begin(seed, start)
    info: dict[str, Any] = start.info
    states = np.empty(1, env.state_dtype)
    states[0] = start.state
    for row, (value, num_env_steps) in enumerate(numbers):
        action = take_row(env.action_space, actions, row)
        own = None if seeds is None else seeds[row : row + 1]
        out = env.step_batch(one_action(env.action_space, action), states, dt, seeds=own, blocking=True)
        recorder.add(action, value, num_env_steps, out)
        info, states = out.row(env.observation_space, 0)[-1], out.new_states
    return states[0], info
