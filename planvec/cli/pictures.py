"""Films, pictures and reports of a run, which `planvec plan` makes when an episode is over."""

from __future__ import annotations

import argparse
import importlib
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planvec.cli.environments import codec_of, render_source
from planvec.cli.parser import UsageError

if TYPE_CHECKING:
    from planvec.envs import Makeable, PlanEnv
    from planvec.planners import Episode
    from planvec.report import ReportRecorder
    from planvec.runs import RunConfig, RunFiles

# -- What commands need to draw and to film. All of it is tried before a command does anything else ----------


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


def add_pictures(parser: argparse._ActionsContainer) -> None:
    """Add the arguments that ask for films, pictures and reports."""
    parser.add_argument(
        "--video",
        type=Path,
        metavar="FILE",
        help="also film the episode, as .gif or .mp4 (a path of its own, not in the run)",
    )
    parser.add_argument("--plot", action="store_true", help="also draw the episode: episode.png in the run")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE.html",
        help="also write an interactive page: the frame, the search and the actions at each step",
    )


class Pictures:
    """Makes the pictures that were asked for. Everything is tried before the first step."""

    def __init__(
        self, arguments: argparse.Namespace, config: RunConfig, source: Makeable, env_kwargs: dict[str, Any]
    ) -> None:
        self._video, self._plot, self._report = arguments.video, arguments.plot, arguments.report
        self._config = config
        self.recorder: ReportRecorder | None = None  # keeps what a report needs; None without one
        self.made: list[Path] = []  # the files that were made
        self._env: PlanEnv | None = None
        try:
            if self._plot:
                load_plots()
            if self._video is not None:
                check_film(self._video)
            if self._report is not None:
                from planvec.report import ReportRecorder, check_report_path

                check_writable("--report", check_report_path(self._report))
                self.recorder = ReportRecorder()
        except (ImportError, ValueError) as error:
            raise UsageError(str(error)) from error
        if self._video is not None or self._report is not None:
            self._env = self._open(source, env_kwargs)

    @property
    def is_any(self) -> bool:
        """Whether there is anything to make."""
        return self._plot or self._video is not None or self._report is not None

    def _open(self, source: Makeable, env_kwargs: dict[str, Any]) -> PlanEnv | None:
        """Return the environment for rendering; None if it renders no frames and only a report needs them."""
        env, problem = open_shown(source, env_kwargs, self._config.codec)
        if env is None and self._video is not None:
            raise UsageError(f"--video: {self._config.env_id} renders no frames here: {problem}")
        return env

    def make(self, index: int, episode: Episode, files: RunFiles) -> None:
        """Make the pictures of an episode."""
        frames = None
        if self._env is not None:
            from planvec.video import episode_frames

            frames = episode_frames(self._env, episode)
        if self._plot:
            from planvec.plots import plot_episode

            path = _numbered(files.directory / "episode.png", index)
            self.made.append(save_figure(plot_episode(episode)[0], path))
        if self._video is not None and frames is not None and self._env is not None:
            path = _numbered(self._video, index)
            write_film(path, frames, self._env)
            self.made.append(path)
        if self.recorder is not None:
            from planvec.report import write_report

            path = _numbered(self._report, index)
            title = f"{self._config.env_id}, {self._config.planner}"
            write_report(path, episode, self.recorder.decisions, frames, title)
            self.made.append(path)

    def close(self) -> None:
        """Close the environment for rendering."""
        if self._env is not None:
            self._env.close()


def _numbered(path: Path, index: int) -> Path:
    """Return the path for an episode: the second one is FILE-2."""
    return path.with_name(f"{path.stem}-{index + 1}{path.suffix}") if index else path
