"""Plays the episodes of a run. Whatever interrupts it, the files of the run are complete up to some step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners import (
    Episode,
    EpisodeRecorder,
    EpisodeStep,
    Planner,
    PlanProgress,
    resume_episode,
    run_episode,
    save_trajectory,
)
from planvec.rows import replacing
from planvec.runs.checkpoint import Checkpoint
from planvec.runs.config import RunConfig
from planvec.runs.files import RunFiles
from planvec.runs.observer import RunObserver

# largest share of the time in which checkpoints are written; those of large trees would take most of it
_SHARE = 0.05


def play_run(
    env: Any,
    planner: Planner,
    config: RunConfig,
    files: RunFiles,
    observers: Sequence[RunObserver],
    *,
    resume: bool = False,
) -> Iterator[tuple[int, Episode]]:
    """Play the episodes of a run, and yield each of them, with its index, when it is over and written."""
    # If the run is interrupted (`KeyboardInterrupt`), the steps so far are written as an episode, and it is
    # yielded before the exception is raised again.
    checkpoint = Checkpoint.read(files.checkpoint, env) if resume and files.checkpoint.exists() else None
    if resume and checkpoint is None:  # killed before the first checkpoint: begin again
        for observer in observers:
            observer.restore({})
    first = 0 if checkpoint is None else checkpoint.episode
    for episode in range(first, config.episodes):
        player = _Player(env, planner, config, files, observers, episode)
        interrupt: KeyboardInterrupt | None = None
        try:
            played = player.play(checkpoint)
        except KeyboardInterrupt as error:
            if not player.recorder.num_steps:
                raise
            interrupt, played = error, player.recorder.episode()
        with replacing(files.trajectory(episode)) as temporary:
            save_trajectory(temporary, played, env.action_space, env.observation_space)
        for observer in observers:
            observer.end_episode(played)
        yield episode, played
        if interrupt is not None:
            raise interrupt
        checkpoint = None
    files.checkpoint.unlink(missing_ok=True)


class _Player:
    """Plays one episode, and writes checkpoints."""

    def __init__(
        self,
        env: Any,
        planner: Planner,
        config: RunConfig,
        files: RunFiles,
        observers: Sequence[RunObserver],
        episode: int,
    ) -> None:
        self._env, self._planner, self._config = env, planner, config
        self._files, self._observers, self._episode = files, observers, episode
        self.recorder = EpisodeRecorder(env.action_space, env.observation_space)  # records the steps
        self._numbers: list[tuple[float, float, float]] = []
        self._last: EpisodeStep | None = None
        self._written_steps = 0
        self._cost = 0.0  # seconds of the latest checkpoint
        self._written = -np.inf

    def play(self, checkpoint: Checkpoint | None) -> Episode:
        """Play the episode, from a checkpoint on if there is one."""
        seed = self._config.episode_seed(self._episode)
        options: dict[str, Any] = {
            "max_steps": self._config.max_steps,
            "callback": self._after_step,
            "plan_callback": PlanProgress(self._search),
        }
        try:
            if checkpoint is None:
                self._begin(seed)
                return run_episode(self._env, self._planner, seed=seed, recorder=self.recorder, **options)
            info = checkpoint.replay(self._env, self.recorder, seed)
            self._numbers = [tuple(row) for row in checkpoint.numbers.tolist()]
            for observer in self._observers:
                observer.restore(checkpoint.kept)
            self._begin(seed)
            return resume_episode(
                self._env, self._planner, self.recorder, info=info, previous=checkpoint.plan, **options
            )
        except KeyboardInterrupt:
            self._write()  # nothing is planned again
            raise

    def _begin(self, seed: int) -> None:
        for observer in self._observers:
            observer.begin_episode(self._episode, seed, self.recorder.num_steps, self.recorder.total_return)

    def _search(self, num_simulations: int, num_env_steps: int) -> None:
        for observer in self._observers:
            observer.search(num_simulations, num_env_steps)

    def _after_step(self, step: EpisodeStep) -> None:
        self._last = step
        self._numbers.append((step.plan.value, step.plan.num_env_steps, step.plan.elapsed))
        for observer in self._observers:
            observer.step(step)
        if time.perf_counter() - self._written >= self._cost / _SHARE:
            self._write()

    def _write(self) -> None:
        """Write a checkpoint of the last step."""
        if self._last is None or self._written_steps == self._last.num_steps:
            return
        started = time.perf_counter()
        kept: dict[str, NDArray[Any]] = {}
        for observer in self._observers:
            kept |= observer.kept()
        Checkpoint(
            self._episode,
            self.recorder.actions(),
            np.array(self._numbers, np.float64).reshape(-1, 3),
            self._last.transition.new_states,
            self._last.plan,
            kept,
        ).write(self._files.checkpoint, self._env)
        self._written_steps = self._last.num_steps
        self._written = time.perf_counter()
        self._cost = self._written - started
