"""What commands need to draw and to film. All of it is tried before a command does anything else."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planvec.cli.environments import codec_of, render_source
from planvec.cli.parser import UsageError

if TYPE_CHECKING:
    from planvec.envs import Makeable, PlanEnv


def load_plots() -> None:
    """Import what draws, for files."""
    importlib.import_module("planvec.plots")
    import matplotlib

    matplotlib.use("agg")  # this process shows no windows


def save_figure(axes: Any, path: Path) -> Path:
    """Write the figure of some axes into a file."""
    import matplotlib.pyplot as plt

    axes.figure.savefig(path, dpi=120)
    plt.close(axes.figure)
    return path


def check_film(path: Path) -> None:
    """Check that a film can be written there."""
    from planvec.video import check_video_path

    check_writable("--video", check_video_path(path))


def write_film(path: Path, frames: Any, env: PlanEnv) -> None:
    """Write frames at the speed at which an environment is shown."""
    from planvec.video import write_video

    write_video(path, frames, fps=float(env.metadata.get("render_fps") or 30))


def check_writable(option: str, path: Path) -> None:
    """Check that a file can be written."""
    exists = path.exists()
    try:
        with path.open("ab"):
            pass
        if not exists:
            path.unlink()
    except OSError as error:
        raise UsageError(f"{option}: expected a path to write to, got {path}: {error.strerror}") from error


def open_shown(source: Makeable, env_kwargs: dict[str, Any], codec: str | None) -> tuple[PlanEnv | None, str]:
    """Open an environment for rendering."""
    # Returns the environment, and ""; or None if it renders no frames, and why.
    from planvec.envs import PlanEnv

    env: PlanEnv | None = None
    shown = render_source(source, env_kwargs)
    # Frames are arrays, so that no window is needed. SDL would complain where there is no screen.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Gymnasium, where it does not render: the caller says that
            env = PlanEnv(shown, codec=codec_of(codec), compiled=False, info_keys=())
            env.reset(seed=0)
        frame = env.render([env.get_state()])[0]
        if getattr(frame, "ndim", 0) == 3:
            return env, ""
        problem = f"it rendered {type(frame).__name__}, not an array of pixels"
    except Exception as error:  # a simulator without a screen may raise anything
        problem = " ".join(str(error).split()) or type(error).__name__
    if shown is source:
        problem += '; let your function make it with render_mode="rgb_array"'
    if env is not None:
        env.close()
    return None, problem
