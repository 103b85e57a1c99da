"""The base class of what follows a run: a progress bar, a log, a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from planvec.planners import Episode, EpisodeStep


class RunObserver:
    """Follows a run. Every method does nothing unless it is overridden."""

    def prepare(self) -> None:
        """Called before the planner compiles what it has to compile."""

    def begin_episode(self, episode: int, seed: int, num_steps: int, total_return: float) -> None:
        """Called before an episode, or before it goes on.

        Args:
            episode: Index of the episode, from 0.
            seed: Its seed.
            num_steps: Steps before the run was interrupted; 0 for a new episode.
            total_return: Sum of their rewards.
        """

    def search(self, num_simulations: int, num_env_steps: int) -> None:
        """Called after each batch of a decision."""

    def step(self, step: EpisodeStep) -> None:
        """Called after each step."""

    def end_episode(self, episode: Episode) -> None:
        """Called after an episode, also if the run is interrupted."""

    def kept(self) -> dict[str, NDArray[Any]]:
        """Return arrays from which `restore` brings the observer back to this step."""
        return {}

    def restore(self, kept: Mapping[str, NDArray[Any]]) -> None:
        """Go on after an interrupt.

        Args:
            kept: What `kept` returned at the step from which the run goes on; empty if it was not there then.
        """

    def close(self) -> None:
        """Called at the end of the run, also after an error."""
