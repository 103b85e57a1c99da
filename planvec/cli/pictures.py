"""Films, pictures and reports of a run, which `planvec plan` makes when an episode is over."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planvec.cli.drawing import check_film, check_writable, load_plots, open_shown, save_figure, write_film
from planvec.cli.parser import UsageError

if TYPE_CHECKING:
    from planvec.envs import Makeable, PlanEnv
    from planvec.planners import Episode
    from planvec.report import ReportRecorder
    from planvec.runs import RunConfig, RunFiles


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
