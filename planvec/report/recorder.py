"""Keeps what a report needs while a run is played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners import EpisodeStep
from planvec.report.decision import Decision, decision_of
from planvec.runs import RunObserver

_KEY = "report_decisions"


class ReportRecorder(RunObserver):
    """Keeps the decisions of the current episode.

    Attributes:
        decisions: One per step.
    """

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def restore(self, kept: Mapping[str, NDArray[Any]]) -> None:
        """Take the decisions before the interrupt."""
        if _KEY in kept:
            lines = kept[_KEY].tobytes().decode().splitlines()
            self.decisions = [Decision.from_json(line) for line in lines]

    def begin_episode(self, episode: int, seed: int, num_steps: int, total_return: float) -> None:
        """Forget the decisions of the last episode.

        Raises:
            InvalidBatchError: The run was begun without a report, and the first decisions were not kept.
        """
        if not num_steps:
            self.decisions = []
        if len(self.decisions) != num_steps:
            raise InvalidBatchError(
                f"report: expected a run that was begun with a report, got one whose first {num_steps} "
                "decisions were not kept; go on without it, or begin again"
            )

    def step(self, step: EpisodeStep) -> None:
        """Keep a decision."""
        self.decisions.append(decision_of(step.plan))

    def kept(self) -> dict[str, NDArray[Any]]:
        """Return the decisions as lines of JSON."""
        text = "\n".join(decision.to_json() for decision in self.decisions)
        return {_KEY: np.frombuffer(text.encode(), np.uint8)}
