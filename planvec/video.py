"""Films of episodes and plans, rendered again from their states: each frame is that of the state itself.

Letters: T steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.extras import install_command
from planvec.planners import Episode, Plan
from planvec.rows import one_action

__all__ = ["check_video_path", "episode_frames", "plan_frames", "write_video"]

_FORMATS = (".gif", ".mp4")
_MAX_PART = 32
"""States that are rendered in one call: frames of thousands would fill the memory."""


def check_video_path(path: str | Path) -> Path:
    """Check that a film can be written to a path.

    Raises:
        InvalidBatchError: Its format is unknown.
        ImportError: imageio, or its ffmpeg for MP4, is not installed.
    """
    path = Path(path)
    if path.suffix.lower() not in _FORMATS:
        raise InvalidBatchError(f"video: expected a path that ends with .gif or .mp4, got {path}")
    try:
        import imageio.v3  # noqa: F401

        if path.suffix.lower() == ".mp4":
            import imageio_ffmpeg  # noqa: F401
    except ModuleNotFoundError as error:
        raise ImportError(f"video: {path.suffix} needs a package: {install_command('video')}") from error
    return path


def episode_frames(env: object, episode: Episode) -> list[NDArray[np.uint8]]:
    """Return the frame of each state of an episode.

    Args:
        env: A `BatchEnv` or `PlanEnv` of the same environment with `render_mode="rgb_array"`.
        episode: The episode.

    Returns:
        T + 1 frames `[height, width, 3]` uint8.

    Raises:
        InvalidBatchError: The states are not those of this environment.
        EnvError: The environment raised, or was made without a `render_mode`.
    """
    return _frames(env, episode.states)


def plan_frames(env: Any, state: object, plan: Plan) -> list[NDArray[np.uint8]]:
    """Return the frames of the future that a plan expects: its best actions, step by step.

    Args:
        env: A `BatchEnv` or `PlanEnv` of the same environment with `render_mode="rgb_array"`.
        state: The state at which the plan was made.
        plan: The plan.

    Returns:
        The frame of the state, and one per environment step: `[height, width, 3]` uint8. In a random
        environment it is one of the futures that the sequence may have.

    Raises:
        InvalidBatchError: The plan has no action sequence, or the state belongs to another environment.
        EnvError: The environment raised, or was made without a `render_mode`.
    """
    if not len(plan.best_actions):
        raise InvalidBatchError("plan: expected one with best_actions, got none")
    states = np.empty(1, env.state_dtype)
    states[0] = state[0] if isinstance(state, np.ndarray) and state.shape == (1,) else state
    visited = [states]
    for action, count in zip(plan.best_actions, plan.best_num_steps.tolist(), strict=True):
        for _ in range(count):
            out = env.step_batch(one_action(env.action_space, action), visited[-1], blocking=True)
            visited.append(out.new_states)
    return _frames(env, np.concatenate(visited))


def write_video(path: str | Path, frames: Iterable[object], *, fps: float = 30.0) -> None:
    """Write frames to a GIF or an MP4.

    Args:
        path: The file, which is overwritten; its suffix says the format.
        frames: `[height, width, 3]` uint8 each, all of one size, which is at least 2 x 2 for an MP4.
        fps: Frames per second, above 0. Viewers show GIFs at 50 at most.

    Raises:
        InvalidBatchError: The format is unknown, there are no frames, or one is of another kind or size.
        ImportError: imageio, or its ffmpeg for MP4, is not installed.
    """
    path = check_video_path(path)
    if not isinstance(frames, Iterable):
        raise InvalidBatchError(
            f"frames: expected images, such as planvec.video.episode_frames(env, episode), got {frames!r}"
        )
    arrays = [np.asarray(frame) for frame in frames]
    if not arrays:
        raise InvalidBatchError("frames: expected at least one, got none")
    shape, smallest = arrays[0].shape, 2 if path.suffix.lower() == ".mp4" else 1
    for index, frame in enumerate(arrays):
        is_image = frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3
        if not is_image or min(frame.shape[:2]) < smallest:
            raise InvalidBatchError(
                f"frames: expected [height, width, 3] of uint8, at least {smallest} x {smallest}, got "
                f"{frame.dtype} of shape {frame.shape} at {index}"
            )
        if frame.shape != shape:
            raise InvalidBatchError(f"frames: expected all of shape {shape}, got {frame.shape} at {index}")
    if not (np.isfinite(fps) and fps > 0):
        raise InvalidBatchError(f"fps: expected a number above 0, got {fps}")
    import imageio.v3 as imageio

    if path.suffix.lower() == ".gif":
        imageio.imwrite(path, arrays, duration=max(20.0, 1000 / fps), loop=0)
        return
    height, width = arrays[0].shape[:2]
    even = [frame[: height - height % 2, : width - width % 2] for frame in arrays]  # H.264 wants even sizes
    imageio.imwrite(path, even, fps=fps, codec="libx264", macro_block_size=1)


def _frames(env: Any, states: np.ndarray) -> list[NDArray[np.uint8]]:
    """Return the frames of states."""
    frames: list[NDArray[np.uint8]] = []
    for start in range(0, len(states), _MAX_PART):
        frames += [np.asarray(frame) for frame in env.render(states[start : start + _MAX_PART])]
    return frames
