"""Summarises a run, for people and for programs, and shows its progress."""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from tqdm import tqdm

import planvec
from planvec.planners import Episode, EpisodeStep
from planvec.rows import action_masks, draw_legal, replacing, uniform_actions
from planvec.runs import RunObserver

if TYPE_CHECKING:
    from planvec.envs import BatchEnv
    from planvec.planners import Planner
    from planvec.runs import RunConfig, RunFiles


_INTERRUPTED = "interrupted"


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
        ended = _INTERRUPTED if interrupted else "stopped at --max-steps"
        if episode.terminated or episode.truncated:
            ended = episode.outcome
        self._episodes[index:] = [
            {
                "seed": episode.seed,
                "return": episode.total_return,
                "num_steps": episode.num_steps,
                "terminated": episode.terminated,
                "truncated": episode.truncated,
                "ended": ended,
                "num_env_steps": episode.num_env_steps,
                "elapsed_seconds": episode.elapsed,
            }
        ]
        with replacing(self._files.summary) as temporary:
            temporary.write_text(json.dumps(self.to_dict(), indent=2) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """Return the summary."""
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


def print_summary(
    summary: dict[str, Any], directory: Path, files: Sequence[Path], options: dict[str, Any]
) -> None:
    """Print a summary for people."""
    inside = [path.name for path in files if path.parent == directory]
    many = [name for name in inside if name.startswith("trajectory")]
    if len(many) > 3:  # "trajectory.npz to trajectory-40.npz"
        inside = [name for name in inside if name not in many[1:]]
        inside[inside.index(many[0])] += f" to {many[-1]}"
    outside = [str(path) for path in files if path.parent != directory]
    given = ", ".join(f"{name}={value}" for name, value in options.items())
    episodes = summary["episodes"]
    returns = [episode["return"] for episode in episodes]
    results = {"return": f"{returns[0]:.2f}", "steps": f"{episodes[0]['num_steps']}, {episodes[0]['ended']}"}
    if len(episodes) > 1:
        ends = [episode["ended"] for episode in episodes]
        counted = ", ".join(f"{ends.count(end)} {end}" for end in sorted(set(ends)))
        results = {
            "return": f"{summary['return']:.2f} on average, {min(returns):.2f} to {max(returns):.2f}, "
            f"standard deviation {summary['return_std']:.2f}",
            "episodes": f"{len(episodes)}: {counted}; {summary['num_steps']:,} steps",
        }
    workers = str(summary["num_workers"] or "none, stepped in this process")
    if summary["workers_replaced"]:
        workers += f"; {summary['workers_replaced']} replaced, which changes no result"
    lines = {
        "environment": summary["env_id"],
        "planner": f"{summary['planner']} ({given or 'with its defaults'})",
        "seed": summary["seed"],
        **results,
        "simulated": f"{summary['num_env_steps']:,} environment steps in "
        f"{summary['elapsed_seconds']:.1f} s, {summary['env_steps_per_second']:,.0f} per second",
        "workers": workers,
        "written": f"{directory}: {', '.join(inside)}",
        **({"pictures": ", ".join(outside)} if outside else {}),
    }
    for name, value in lines.items():
        print(f"{name + ':':<13}{value}")


# -- Hints for users whose choice cannot work well -----------------------------------------------------------

_NUM_ACTIONS = 8
_NUM_SEEDS = 8


def planner_hint(env: BatchEnv) -> str:
    """Return the advice to take tree search if steps are random, since swarms take luck for skill."""
    is_discrete = getattr(env.action_space, "n", None) is not None
    if not env.is_stochastic or not is_discrete or env.state_dtype.hasobject:
        return ""
    generator = np.random.default_rng(0)
    actions = uniform_actions(env.action_space, generator, _NUM_ACTIONS)
    masks = action_masks(env.action_space, np.repeat(env.get_state(), len(actions)))
    if masks is not None:
        actions = draw_legal(env.action_space, masks, generator.random(actions.shape))
    actions = np.repeat(actions, _NUM_SEEDS)
    states = np.repeat(env.get_state(), len(actions))
    out = env.step_batch(actions, states, seeds=np.arange(len(actions)), blocking=True)
    outcomes = np.asarray(out.observations).reshape(_NUM_ACTIONS, _NUM_SEEDS, -1)
    if (outcomes == outcomes[:, :1]).all():
        return ""
    return (
        "planvec: hint: steps are random here, and a swarm takes luck for skill: try --planner mcts, which "
        "averages over chance"
    )


# -- Shows the progress of a run: a bar that moves within each decision, and fits narrow terminals -----------

_INTERVAL = 0.1  # seconds between two pictures of the bar
_WIDE = 72  # columns from which on there is room for words


class ProgressBar(RunObserver):
    """Shows a bar on the standard error stream."""

    def __init__(self, total: int | None, num_episodes: int, num_simulations: int | None) -> None:
        self._total, self._num_episodes, self._num_simulations = total, num_episodes, num_simulations
        self._bar: Any = None
        self._shown = 0.0

    def prepare(self) -> None:
        """Say what happens before the first step."""
        text = "preparing the planner, which is compiled on its first use"
        self._bar = tqdm(bar_format="{desc}", desc=text, leave=False, file=sys.stderr)

    def begin_episode(self, episode: int, seed: int, num_steps: int, total_return: float) -> None:
        """Open a bar."""
        self._label = f"{episode + 1}/{self._num_episodes} " if self._num_episodes > 1 else ""
        self._num_steps, self._return, self._value = num_steps, total_return, ""
        self._simulated = self._current = 0  # simulations of the decisions that are over, and of this one
        self._started = time.perf_counter()
        self.close()
        self._bar = tqdm(total=self._total, dynamic_ncols=True, file=sys.stderr, smoothing=0)
        self._show(0.0)

    def search(self, num_simulations: int, num_env_steps: int) -> None:
        """Move the bar within a decision."""
        self._current = num_simulations
        self._show(_INTERVAL)

    def step(self, step: EpisodeStep) -> None:
        """Move the bar to the next step."""
        self._num_steps, self._return = step.num_steps, step.total_return
        self._value = f"{step.plan.value:.4g}"
        self._simulated += step.plan.num_simulations
        self._current = 0
        self._show(_INTERVAL)

    def end_episode(self, episode: Episode) -> None:
        """Complete the bar: an episode may end before the limit."""
        if self._bar is not None and not self._bar.disable:
            if self._total is not None and (episode.terminated or episode.truncated):
                self._bar.total = max(1, self._num_steps)
            self._show(0.0)
            self.close()

    def close(self) -> None:
        """Leave the last state of the bar on the screen."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _show(self, interval: float) -> None:
        """Draw the bar if it was not drawn in the last `interval` seconds."""
        now = time.perf_counter()
        if self._bar is None or now - self._shown < interval:
            return
        self._shown = now
        part = min(1.0, self._current / self._num_simulations) if self._num_simulations else 0.0
        self._bar.n = self._num_steps + part if self._total else self._num_steps
        seconds = now - self._started
        rate = (self._simulated + self._current) / seconds if seconds > 0 else 0.0
        of = f"/{self._total}" if self._total else ""
        total, value = f"{self._return:.4g}", self._value
        if (self._bar.ncols or 80) >= _WIDE:
            label = f"{self._label}step {self._num_steps}{of} "
            text = f" return {total}, value {value or '-'}, {tqdm.format_sizeof(rate)} simulations/s"
        else:
            label = f"{self._label}{self._num_steps}{of} "
            text = f" ret {total}{' val ' * bool(value)}{value} {tqdm.format_sizeof(rate)} sim/s"
        self._bar.bar_format = f"{label}|{{bar}}|{text}" if self._total else f"{label}{text}"
        self._bar.refresh()
