"""Writes what happens at each step: a table for spreadsheets, and scalars for TensorBoard."""

from __future__ import annotations

import csv
import functools
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from planvec.errors import UnsupportedEnvError
from planvec.planners import Episode, EpisodeStep
from planvec.rows import replacing
from planvec.runs.play import RunObserver

_COLUMNS = (
    *("episode", "step", "action", "reward", "return", "value", "simulations", "env_steps", "seconds"),
    "simulations_per_second",
)


class StepLog(RunObserver):
    """Writes a line of CSV after each step."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._episode = 0
        self._num_lines = 0
        self._file: TextIO | None = None

    def restore(self, kept: Mapping[str, np.ndarray]) -> None:
        """Keep the lines up to the checkpoint."""
        self._num_lines = int(kept["log_lines"]) if "log_lines" in kept else 0
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        with replacing(self._path) as temporary:
            temporary.write_bytes(b"".join(lines[: self._num_lines + 1]))

    def begin_episode(self, episode: int, seed: int, num_steps: int, total_return: float) -> None:
        """Open the file."""
        self._episode = episode
        if self._file is None:
            self._file = self._path.open("a", newline="")
            self._writer = csv.writer(self._file, lineterminator="\n")
            if not self._file.tell():
                self._writer.writerow(_COLUMNS)

    def step(self, step: EpisodeStep) -> None:
        """Write one line."""
        assert self._file is not None
        plan = step.plan
        action = json.dumps(
            plan.action, default=lambda part: part.tolist() if hasattr(part, "tolist") else str(part)
        )
        rate = plan.num_simulations / plan.elapsed if plan.elapsed > 0 else float("nan")
        row = (
            *(self._episode, step.num_steps, action, float(step.transition.rewards[0]), step.total_return),
            *(plan.value, plan.num_simulations, plan.num_env_steps, round(plan.elapsed, 6), round(rate, 1)),
        )
        self._writer.writerow(row)
        self._file.flush()
        self._num_lines += 1

    def kept(self) -> dict[str, np.ndarray]:
        """Return the number of lines."""
        return {"log_lines": np.array(self._num_lines)}

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class TensorBoardLog(RunObserver):
    """Writes scalars for TensorBoard: per step of the run, and the return of each episode."""

    def __init__(self, directory: Path) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ModuleNotFoundError as error:
            raise UnsupportedEnvError(
                "--tensorboard needs TensorBoard, which is not installed: pip install tensorboard"
            ) from error
        self._event, self._summary = Event, Summary
        self._open_writer = functools.partial(EventFileWriter, str(directory))
        self._writer: Any = None
        self._num_steps = 0
        self._episode = 0

    def restore(self, kept: Mapping[str, np.ndarray]) -> None:
        """Go on with the step of the checkpoint."""
        self._num_steps = int(kept["tensorboard_steps"]) if "tensorboard_steps" in kept else 0

    def begin_episode(self, episode: int, seed: int, num_steps: int, total_return: float) -> None:
        """Open the file."""
        self._episode = episode
        self._writer = self._writer or self._open_writer()

    def step(self, step: EpisodeStep) -> None:
        """Write the scalars of a step."""
        plan = step.plan
        self._num_steps += 1
        self._add("step/reward", float(step.transition.rewards[0]))
        self._add("step/return", step.total_return)
        self._add("step/value", plan.value)
        self._add("search/simulations", plan.num_simulations)
        self._add("search/env_steps", plan.num_env_steps)
        self._add("search/seconds", plan.elapsed)

    def end_episode(self, episode: Episode) -> None:
        """Write the return of an episode."""
        self._add("episode/return", episode.total_return, self._episode)
        self._add("episode/steps", episode.num_steps, self._episode)
        self._writer.flush()

    def kept(self) -> dict[str, np.ndarray]:
        """Return the number of steps."""
        return {"tensorboard_steps": np.array(self._num_steps)}

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, tag: str, number: float, step: int | None = None) -> None:
        summary = self._summary(value=[self._summary.Value(tag=tag, simple_value=number)])
        at = self._num_steps if step is None else step
        self._writer.add_event(self._event(wall_time=time.time(), step=at, summary=summary))
