"""Shows the progress of a run: a bar that moves within each decision, and fits narrow terminals."""

from __future__ import annotations

import sys
import time
from typing import Any

from planvec.planners import Episode, EpisodeStep
from planvec.runs import RunObserver

_INTERVAL = 0.1  # seconds between two pictures of the bar
_WIDE = 72  # columns from which on there is room for words


class ProgressBar(RunObserver):
    """Shows a bar on the standard error stream."""

    def __init__(self, total: int | None, num_episodes: int, num_simulations: int | None) -> None:
        from tqdm import tqdm

        self._tqdm = tqdm
        self._total = total
        self._num_episodes = num_episodes
        self._num_simulations = num_simulations
        self._bar: Any = None
        self._label = ""
        self._num_steps = 0
        self._return = 0.0
        self._value: float | None = None
        self._simulated = 0  # simulations of the decisions that are over
        self._current = 0
        self._started = time.perf_counter()
        self._shown = 0.0

    def begin_episode(self, episode: int, seed: int, num_steps: int, total_return: float) -> None:
        """Open a bar."""
        self._label = f"{episode + 1}/{self._num_episodes} " if self._num_episodes > 1 else ""
        self._num_steps, self._return, self._value = num_steps, total_return, None
        self._simulated = self._current = 0
        self._started = time.perf_counter()
        self.close()
        self._bar = self._tqdm(
            total=self._total,
            dynamic_ncols=True,
            file=sys.stderr,
            smoothing=0,
        )
        self._show(0.0)

    def prepare(self) -> None:
        """Say what happens before the first step."""
        text = "preparing the planner, which is compiled on its first use"
        self._bar = self._tqdm(bar_format="{desc}", desc=text, leave=False, file=sys.stderr)

    def search(self, num_simulations: int, num_env_steps: int) -> None:
        """Move the bar within a decision."""
        self._current = num_simulations
        self._show(_INTERVAL)

    def step(self, step: EpisodeStep) -> None:
        """Move the bar to the next step."""
        self._num_steps, self._return, self._value = step.num_steps, step.total_return, step.plan.value
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
        total, value = f"{self._return:.4g}", "" if self._value is None else f"{self._value:.4g}"
        if (self._bar.ncols or 80) >= _WIDE:
            label = f"{self._label}step {self._num_steps}{of} "
            text = f" return {total}, value {value or '-'}, {_short(rate)} simulations/s"
        else:
            label = f"{self._label}{self._num_steps}{of} "
            text = f" ret {total}{' val ' * bool(value)}{value} {_short(rate)} sim/s"
        self._bar.bar_format = f"{label}|{{bar}}|{text}" if self._total else f"{label}{text}"
        self._bar.refresh()


def _short(number: float) -> str:
    """Return a number in at most five characters, such as 12.3k."""
    for unit in ("", "k", "M"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}G"
