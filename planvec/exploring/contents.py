"""What an archive consists of. Letters: N cells, F columns of a cell, K some of the cells, R rounds."""

from __future__ import annotations

import secrets
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.exploring.steps import StepTree
from planvec.exploring.store import Arrival, CellStore


class Origin(NamedTuple):
    """What an archive begins with."""

    seed: int  # seed of the reset, after which all trajectories begin
    dt: int  # environment steps for which each action is repeated
    action_space: Space[Any]
    is_stochastic: bool  # whether steps have seeds
    fingerprint: str  # that of the environment; "" if it has none
    settings: dict[str, str]  # those of the exploration, as text


class Contents:
    """Holds the cells of an archive, the steps that lead to them, and where the exploration stands.

    Args:
        origin: What it begins with.
        start: The first cell.

    Attributes:
        origin: Where all trajectories begin, and the environment.
        num_env_steps: Environment steps that were simulated.
        generator: The source of every random choice of the exploration.
        steps: The steps that lead to the cells.
        store: The cells.
        was_replayed: Whether the states were computed again when the archive was loaded.
        identity: Of the archive, in any form.
        saved_as: The form in which it was saved last.
    """

    def __init__(self, origin: Origin, start: Arrival) -> None:
        self.origin = origin
        self.num_env_steps = 0
        self.generator = np.random.default_rng(origin.seed)
        self.store = CellStore(start)
        self._history: list[tuple[int, int, float]] = []
        self.steps = StepTree(origin.action_space, origin.is_stochastic)
        self.was_replayed = False
        self.identity = secrets.token_hex(8)
        self.saved_as = ""

    @property
    def num_cells(self) -> int:
        """N."""
        return len(self.store)

    @property
    def best(self) -> int:
        """The cell with the highest score; of those the one with the fewest steps.

        Where rewards are costs, the start has the highest score; then it is the best end of an episode.
        """
        scores, num_steps, ended = self.store["scores"], self.store["num_steps"], self.store["ended"]
        candidates = ended if scores.max() <= 0 and ended.any() else np.ones(len(scores), np.bool_)
        highest = np.flatnonzero(candidates & (scores == scores[candidates].max()))
        return int(highest[num_steps[highest].argmin()])

    @property
    def history(self) -> NDArray[np.float64]:
        """`[R, 3]`: environment steps, number of cells and score of the best cell after each round."""
        return np.array(self._history, np.float64).reshape(-1, 3)

    def states(self, cells: Any) -> NDArray[Any]:
        """Return the best states of some cells.

        Args:
            cells: `[K]` integers.

        Returns:
            `[K]` states.

        Raises:
            IndexError: There is no such cell.
        """
        rows = np.atleast_1d(np.asarray(cells))
        if rows.dtype.kind not in "iu" or ((rows < 0) | (rows >= self.num_cells)).any():
            raise IndexError(f"cells: expected integers from 0 to {self.num_cells - 1}, got {cells!r}")
        return self.store.states(rows)

    def end_round(self) -> None:
        """Add a row to the history."""
        self._history.append((self.num_env_steps, self.num_cells, float(self.store["scores"][self.best])))

    def set_history(self, history: NDArray[np.float64]) -> None:
        """Replace the history, `[R, 3]`.

        Raises:
            ValueError: It has another form.
        """
        if history.ndim != 2 or history.shape[1] != 3 or history.dtype != np.float64:
            raise ValueError("history: expected [R, 3]")
        self._history = [(int(steps), int(cells), float(score)) for steps, cells, score in history.tolist()]

    def check_nodes(self, num_nodes: int) -> None:
        """Check that the steps of files lead to the cells.

        Args:
            num_nodes: The number of nodes that there should be.

        Raises:
            ValueError: They do not.
        """
        nodes = self.store["nodes"]
        if len(self.steps) != num_nodes or ((nodes < 0) | (nodes >= num_nodes)).any():
            raise ValueError("steps are missing")
        if (self.steps["depths"][nodes] != self.store["num_steps"]).any():
            raise ValueError("steps lead elsewhere")

    def forget_steps(self) -> None:
        """Forget the steps that lead to no cell any more."""
        self.store["nodes"][:] = self.steps.keep(self.store["nodes"])
