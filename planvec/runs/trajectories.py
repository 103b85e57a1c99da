"""Plays a trajectory again, and compares every bit with what was written. Letters: T steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners import (
    Episode,
    EpisodeRecorder,
    actions_of_arrays,
    replay_steps,
    trajectory_arrays,
)
from planvec.rows import DAMAGED, read_arrays


class Replay(NamedTuple):
    """A trajectory that was played again."""

    episode: Episode  # the episode as it was played now
    # what differs from the file, such as "rewards at step 3: expected 1.0, got 0.5"; at most one line for
    # each array
    differences: list[str]


def read_trajectory(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a trajectory."""
    try:
        arrays = read_arrays(path)
        if not {"seed", "rewards", "terminated", "truncated"} <= set(arrays):
            raise ValueError(f"it holds {', '.join(arrays) or 'nothing'}")
    except DAMAGED as error:
        raise InvalidBatchError(
            f"{path}: expected a trajectory that planvec wrote, got another file or a damaged one "
            f"({type(error).__name__}: {error})"
        ) from error
    return arrays


def replay(env: Any, arrays: Mapping[str, NDArray[Any]]) -> Replay:
    """Play a trajectory again: reset with its seed, and take its actions."""
    try:
        actions = actions_of_arrays(arrays, env.action_space)
    except KeyError as error:
        raise InvalidBatchError(
            f"trajectory: expected actions of {env.action_space}, got no {error}"
        ) from error
    recorder = EpisodeRecorder(env.action_space, env.observation_space)
    numbers = [(float(value), 0) for value in arrays["values"]]
    replay_steps(env, recorder, int(arrays["seed"]), actions, numbers)
    episode = recorder.episode()
    played = trajectory_arrays(episode, env.action_space, env.observation_space)
    return Replay(episode, _differences(arrays, played))


def _differences(arrays: Mapping[str, NDArray[Any]], played: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return one line for each array that differs in any bit."""
    lines = []
    for name, expected in arrays.items():
        if name not in played:
            lines.append(f"{name}: expected by the file, and not there now")
            continue
        got = played[name]
        if expected.dtype == got.dtype and expected.shape == got.shape:
            if expected.tobytes() == got.tobytes():
                continue
            if expected.ndim and expected.size:
                pairs = zip(expected, got, strict=True)
                row = next(row for row, (one, other) in enumerate(pairs) if one.tobytes() != other.tobytes())
                lines.append(
                    f"{name} at step {row}: expected {_short(expected[row])}, got {_short(got[row])}"
                )
            else:
                lines.append(f"{name}: expected {_short(expected)}, got {_short(got)}")
        else:
            lines.append(
                f"{name}: expected {expected.dtype} of shape {expected.shape}, got {got.dtype} of {got.shape}"
            )
    return lines


def _short(value: Any) -> str:
    """Return a value in one line of a readable length."""
    text = " ".join(str(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
