"""The arguments that name an environment, and the environment that they name."""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planvec.cli.parser import UsageError, add_flag, add_json, add_option, did_you_mean, integer, one_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from planvec.codecs import CodecChoice
    from planvec.envs import Makeable, PlanEnv
    from planvec.exploring import Archive
    from planvec.planners import Episode
    from planvec.report import ReportRecorder
    from planvec.runs import RunConfig


def add_environment(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the arguments that name an environment and its options."""
    parser.add_argument(
        "env_id",
        metavar="ENV_ID",
        nargs="?" if optional else None,
        help="a Gymnasium id, such as CartPole-v1 or ALE/Pong-v5; module:EnvId; or module:function or "
        "file.py:function, a function or class of your own that makes an environment",
    )
    group = parser.add_argument_group("environment")
    text = "arguments of gymnasium.make, such as obs_type=ram frameskip=1"
    add_option(group, "--make", "KEY=VALUE", _assignment, text, nargs="+")
    text = (
        "wrappers of gymnasium.wrappers, or module:Wrapper, innermost first, such as TimeLimit=50 "
        "minigrid.wrappers:FullyObsWrapper"
    )
    add_option(group, "--wrappers", "NAME[=ARG,...]", str, text, nargs="+")
    text = (
        "how to save states: copied; copied:NAME,... without the attributes of these names, which never "
        "change; replay; or module:Codec, a codec of your own (default: the fastest exact way)"
    )
    add_option(group, "--codec", "CODEC", str, text)


def add_backend(parser: argparse._ActionsContainer) -> None:
    """Add the arguments that say where workers run."""
    parser.add_argument(
        "--backend",
        type=one_of(["processes", "ray"]),
        metavar="processes|ray",
        default="processes",
        help="where workers run: in processes of this machine (default), or in actors of a Ray cluster",
    )
    text = "address of the Ray cluster (default: the one of RAY_ADDRESS, else Ray is started here)"
    add_option(parser, "--ray-address", "HOST:PORT", str, text)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the arguments about workers."""
    group = parser.add_argument_group("workers, which do not change the results")
    text = (
        "number of workers (default: one per core but one, or 0 if there is a kernel); 0 steps in this "
        "process, which is faster if a step takes microseconds"
    )
    add_option(group, "--num-workers", "N", integer(0), text)
    add_backend(group)
    text = "kill and replace a worker that needs longer for its part of a batch (default: no limit)"
    add_option(group, "--timeout", "SECONDS", float, text)


def add_output(
    parser: argparse.ArgumentParser, *, directory: str, plot: str, video: str
) -> argparse._ArgumentGroup:
    """Add the arguments about what is written and shown, with their help texts, and return their group."""
    group = parser.add_argument_group("output")
    add_option(group, "--out", "DIR", Path, directory)
    add_flag(group, "--plot", plot)
    add_option(group, "--video", "FILE", Path, video)
    add_json(group)
    add_flag(group, "--no-progress", "show no progress")
    return group


def workers_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `planvec.make` about workers, those that the command has."""
    names = ("num_workers", "timeout", "backend", "ray_address")
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}


def given_env(arguments: argparse.Namespace) -> tuple[Makeable, dict[str, Any]]:
    """Return the environment that the arguments of `add_environment` name, as `env_source` does."""
    return env_source(arguments.env_id, dict(arguments.make or ()), arguments.wrappers or ())


def env_source(
    env_id: str, make: Mapping[str, object], wrappers: Sequence[str]
) -> tuple[Makeable, dict[str, Any]]:
    """Return the environment that arguments name."""
    from planvec.envs import find_source

    _find_own_modules()
    parsed = [_wrapper(text) for text in wrappers]
    source: Any = find_source(env_id)
    if make and callable(source):
        raise ValueError(
            f"--make: expected an id, got {env_id}, which is called without arguments; set them there"
        )
    if parsed:
        return partial(_make_wrapped, source, dict(make), parsed), {}
    return source, dict(make)


def default_directory(env_id: str, what: str, seed: int | None) -> Path:
    """Return where results go without `--out`."""
    name = re.sub(r"[^\w.-]+", "_", env_id).strip("_.")
    return Path("runs") / f"{name}-{what}-seed{seed}"


def _find_own_modules() -> None:
    """Let the installed command find modules in the working directory, as `python -m planvec` does."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def object_named(option: str, text: str) -> Any:
    """Return the object that `module:name` names; None if the text is of another form."""
    from planvec.envs import import_named

    where, _, name = text.rpartition(":")
    if not where:
        return None
    _find_own_modules()
    module = import_named(where)
    if not hasattr(module, name):
        raise UsageError(f"{option}: {where} has no {name!r}{did_you_mean(name, vars(module))}")
    return getattr(module, name)


def codec_of(text: str | None) -> CodecChoice:
    """Return the codec that `--codec` names."""
    from planvec.codecs import Codec, Copied

    if text in (None, "copied", "replay"):
        return text
    where, _, name = text.rpartition(":")
    if where == "copied":
        return Copied([part.strip() for part in name.split(",")])
    codec = object_named("--codec", text)
    if not (isinstance(codec, type) and issubclass(codec, Codec)):
        raise UsageError(
            "--codec: expected copied, copied:NAME,..., replay, or module:Codec with a planvec.Codec, "
            f"got {text!r}"
        )
    return codec


def _make_wrapped(
    source: Makeable,
    make_kwargs: dict[str, Any],
    wrappers: Sequence[tuple[Any, tuple[Any, ...]]],
    render_mode: str | None = None,
) -> Any:
    """Make an environment with wrappers around it."""
    from planvec.envs import make_env

    mode = None if callable(source) else render_mode  # a function chooses its own
    env = make_env(source, mode, make_kwargs)
    for wrapper, arguments in wrappers:
        env = wrapper(env, *arguments)
    return env


def _value(text: str) -> Any:
    """Return the value of a Python literal; other text is returned unchanged."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, _value(value)


def _wrapper(text: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a wrapper of Gymnasium's, or one that `module:Wrapper` names, and its arguments."""
    import gymnasium

    name, equals, value = text.partition("=")
    own = object_named("--wrappers", name)
    wrapper = getattr(gymnasium.wrappers, name, None) if own is None else own
    if not (isinstance(wrapper, type) and issubclass(wrapper, gymnasium.Wrapper)):
        if own is not None:
            raise ValueError(f"--wrappers: expected a gymnasium.Wrapper, got {name}, which is {own!r}")
        hint = did_you_mean(name, gymnasium.wrappers.__all__)
        raise ValueError(
            f"--wrappers: gymnasium.wrappers has no wrapper {name!r}{hint}; those of other packages are "
            "module:Wrapper"
        )
    arguments = _value(f"({value},)") if equals else ()
    if not isinstance(arguments, tuple):
        raise ValueError(f"--wrappers: expected {name}=ARG,... with Python literals, got {text!r}")
    return wrapper, arguments


# -- Pictures, films and reports -----------------------------------------------------------------------------


class Pictures:
    """Makes the pictures that were asked for. All that they need is tried before anything else is done."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        env_id: str,
        codec: str | None,
        source: Makeable,
        env_kwargs: dict[str, Any],
    ) -> None:
        self._video: Path | None = arguments.video
        self._plot: bool = arguments.plot
        self._report: Path | None = getattr(arguments, "report", None)
        self.recorder: ReportRecorder | None = None  # keeps what a report needs; None without one
        self.made: list[Path] = []  # the files that were made
        self._env: PlanEnv | None = None
        try:
            if self._plot:
                importlib.import_module("planvec.plots")
                import matplotlib

                matplotlib.use("agg")  # this process shows no windows
            if self._video is not None:
                from planvec.video import check_video_path

                check_writable("--video", check_video_path(self._video))
            if self._report is not None:
                from planvec.report import ReportRecorder, check_report_path

                check_writable("--report", check_report_path(self._report))
                self.recorder = ReportRecorder()
        except (ImportError, ValueError) as error:
            raise UsageError(str(error)) from error
        if self._video is not None or self._report is not None:
            self._env, problem = _open_shown(source, env_kwargs, codec)
            if self._env is None and self._video is not None:  # a report can do without frames
                raise UsageError(f"--video: {env_id} renders no frames here: {problem}")

    @property
    def is_any(self) -> bool:
        """Whether there is anything to make."""
        return self._plot or self._video is not None or self._report is not None

    def of_episode(self, index: int, episode: Episode, config: RunConfig, directory: Path) -> None:
        """Make the pictures of an episode of a run."""
        if self._plot:
            from planvec.plots import plot_episode

            self._draw(plot_episode(episode), _numbered(directory / "episode.png", index))
        frames = self._film(episode, index)
        if self._report is not None and self.recorder is not None:
            from planvec.report import write_report

            path, title = _numbered(self._report, index), f"{config.env_id}, {config.planner}"
            write_report(path, episode, self.recorder.decisions, frames, title)
            self.made.append(path)

    def of_archive(self, archive: Archive, directory: Path) -> None:
        """Make the pictures of an exploration."""
        if self._plot:
            from planvec.plots import plot_exploration

            self._draw(plot_exploration(archive), directory / "exploration.png")
        if self._env is not None:
            self._film(archive.episode(self._env), 0)

    def _draw(self, axes: Any, path: Path) -> None:
        """Write the figure of some axes."""
        import matplotlib.pyplot as plt

        axes[0].figure.savefig(path, dpi=120)
        plt.close(axes[0].figure)
        self.made.append(path)

    def _film(self, episode: Episode, index: int) -> list[NDArray[np.uint8]] | None:
        """Return the frames of an episode, None without an environment that renders; write them as a film."""
        if self._env is None:
            return None
        from planvec.video import episode_frames, write_video

        frames = episode_frames(self._env, episode)
        if self._video is not None:
            path = _numbered(self._video, index)
            write_video(path, frames, fps=float(self._env.metadata.get("render_fps") or 30))
            self.made.append(path)
        return frames

    def close(self) -> None:
        """Close the environment for rendering."""
        if self._env is not None:
            self._env.close()


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


def _open_shown(
    source: Makeable, env_kwargs: dict[str, Any], codec: str | None
) -> tuple[PlanEnv | None, str]:
    """Open an environment for rendering."""
    # Returns the environment, and ""; or None if it renders no frames, and why.
    from planvec.envs import PlanEnv, make_env

    shown = source  # a function of the user's own is kept
    if isinstance(source, partial) and source.func is _make_wrapped:
        shown = partial(source, render_mode="rgb_array")
    elif isinstance(source, str) or not callable(source):
        shown = partial(make_env, source, "rgb_array", env_kwargs)
    env: PlanEnv | None = None
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


def _numbered(path: Path, index: int) -> Path:
    """Return the path for an episode: the second one is FILE-2."""
    return path.with_name(f"{path.stem}-{index + 1}{path.suffix}") if index else path
