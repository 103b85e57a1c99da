"""Summarises a run, for people and for programs."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import planvec

if TYPE_CHECKING:
    from planvec.envs import BatchEnv
    from planvec.planners import Episode, Planner
    from planvec.runs import RunConfig, RunFiles


class RunSummary:
    """Collects what the episodes of a run scored, and writes it after each of them."""

    def __init__(
        self, config: RunConfig, planner: Planner, env: BatchEnv, files: RunFiles, resume: bool
    ) -> None:
        self._config, self._planner, self._env, self._files = config, planner, env, files
        self._episodes: list[dict[str, Any]] = []
        if resume and files.summary.exists():
            self._episodes = json.loads(files.summary.read_text())["episodes"]

    @property
    def is_complete(self) -> bool:
        """Whether all episodes of the run are over."""
        episodes = self._episodes
        return len(episodes) == self._config.episodes and episodes[-1]["ended"] != _INTERRUPTED

    def add(self, index: int, episode: Episode, interrupted: bool) -> None:
        """Add the episode of an index, and write the summary."""
        from planvec.rows import replacing

        self._episodes[index:] = [
            {
                "seed": episode.seed,
                "return": episode.total_return,
                "num_steps": episode.num_steps,
                "terminated": episode.terminated,
                "truncated": episode.truncated,
                "ended": _ended(episode, interrupted),
                "num_env_steps": episode.num_env_steps,
                "elapsed_seconds": episode.elapsed,
            }
        ]
        with replacing(self._files.summary) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """Return the summary."""
        import gymnasium
        import numpy as np

        episodes, planner = self._episodes, self._planner
        returns = [episode["return"] for episode in episodes]
        num_env_steps = sum(episode["num_env_steps"] for episode in episodes)
        elapsed = sum(episode["elapsed_seconds"] for episode in episodes)
        return {
            "env_id": self._config.env_id,
            "planner": self._config.planner,
            "planner_options": {
                field.name: getattr(planner, field.name)
                for field in dataclasses.fields(planner)
                if not callable(getattr(planner, field.name))
            },
            "seed": self._config.seed,
            "return": statistics.fmean(returns),
            "return_std": statistics.pstdev(returns),
            "num_steps": sum(episode["num_steps"] for episode in episodes),
            "ended": episodes[-1]["ended"],
            "episodes": episodes,
            "num_env_steps": num_env_steps,
            "elapsed_seconds": elapsed,
            "env_steps_per_second": num_env_steps / elapsed,
            "num_workers": self._env.num_workers,
            "workers_replaced": self._env.stats.restarts,
            "versions": {
                "planvec": planvec.__version__,
                "gymnasium": gymnasium.__version__,
                "numpy": np.__version__,
            },
        }


_INTERRUPTED = "interrupted"


def _ended(episode: Episode, interrupted: bool) -> str:
    """Return how an episode ended."""
    if episode.terminated or episode.truncated:
        return episode.outcome
    return _INTERRUPTED if interrupted else "stopped at --max-steps"


def print_summary(
    summary: dict[str, Any], directory: Path, files: Sequence[Path], options: dict[str, Any]
) -> None:
    """Print a summary for people."""
    inside = _without_gaps([path.name for path in files if path.parent == directory])
    outside = [str(path) for path in files if path.parent != directory]
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    workers = str(summary["num_workers"] or "none, stepped in this process")
    if summary["workers_replaced"]:
        workers += f"; {summary['workers_replaced']} replaced, which changes no result"
    lines = {
        "environment": summary["env_id"],
        "planner": f"{summary['planner']} ({given or 'with its defaults'})",
        "seed": summary["seed"],
        **_results(summary["episodes"]),
        "simulated": f"{summary['num_env_steps']:,} environment steps in "
        f"{summary['elapsed_seconds']:.1f} s, {summary['env_steps_per_second']:,.0f} per second",
        "workers": workers,
        "written": f"{directory}: {', '.join(inside)}",
        **({"pictures": ", ".join(outside)} if outside else {}),
    }
    for name, value in lines.items():
        print(f"{name + ':':<13}{value}")


def _without_gaps(names: Sequence[str]) -> list[str]:
    """Return names of files with "trajectory.npz to trajectory-40.npz" for those of many episodes."""
    many = [name for name in names if name.startswith("trajectory")]
    if len(many) < 4:
        return list(names)
    first, last = many[0], many[-1]
    return [f"{first} to {last}" if name == first else name for name in names if name not in many[1:]]


def _results(episodes: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the lines about the episodes."""
    returns = [episode["return"] for episode in episodes]
    if len(episodes) == 1:
        return {
            "return": f"{returns[0]:.2f}",
            "steps": f"{episodes[0]['num_steps']}, {episodes[0]['ended']}",
        }
    spread = f"{statistics.fmean(returns):.2f} on average, {min(returns):.2f} to {max(returns):.2f}"
    ends = sorted({episode["ended"] for episode in episodes})
    counted = [f"{sum(episode['ended'] == end for episode in episodes)} {end}" for end in ends]
    return {
        "return": f"{spread}, standard deviation {statistics.pstdev(returns):.2f}",
        "episodes": f"{len(episodes)}: {', '.join(counted)}; "
        f"{sum(episode['num_steps'] for episode in episodes):,} steps",
    }
