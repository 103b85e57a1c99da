"""An archive of cells: the best state of each, the steps that lead to it, and its score.

Letters: N cells, F columns of a cell, K some of the cells, T steps, R rounds.
"""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.exploring.cells import CellFunction
from planvec.exploring.contents import Contents
from planvec.exploring.files import load_contents, save_contents
from planvec.planners import Episode, EpisodeRecorder, replay_steps


class Archive(Contents):
    """Holds the best known state of each cell: the one with the highest score, of those the nearest.

    `Explorer.run` makes an archive and adds to it, `save` writes it to a directory, `load` reads it. Cell 0
    is that of the start. Ends of episodes are cells of their own, which are not explored further.
    """

    def __len__(self) -> int:
        return self.num_cells

    def __repr__(self) -> str:
        return (
            f"<Archive: {self.num_cells:,} cells after {self.num_env_steps:,} steps, "
            f"best score {self.scores[self.best]:.6g}>"
        )

    # -- reading --------------------------------------------------------------------------------------

    @property
    def keys(self) -> NDArray[Any]:
        """`[N, F]` integers, the cells."""
        return _read_only(self.store["keys"])

    @property
    def scores(self) -> NDArray[np.float64]:
        """`[N]`, sum of the rewards from the start to the best state of each cell."""
        return _read_only(self.store["scores"])

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """`[N]`, number of actions from the start to the best state of each cell."""
        return _read_only(self.store["num_steps"])

    @property
    def num_visits(self) -> NDArray[np.int64]:
        """`[N]`, how many steps have reached each cell."""
        return _read_only(self.store["num_visits"])

    @property
    def num_choices(self) -> NDArray[np.int64]:
        """`[N]`, how often exploration began at each cell."""
        return _read_only(self.store["num_choices"])

    @property
    def first_visits(self) -> NDArray[np.int64]:
        """`[N]`, number of environment steps simulated up to the first visit of each cell."""
        return _read_only(self.store["first_visits"])

    @property
    def ended(self) -> NDArray[np.bool_]:
        """`[N]`, whether the episode has ended there."""
        return _read_only(self.store["ended"])

    def actions(self, cell: int) -> NDArray[Any]:
        """Return the actions that lead from the start to a cell, `[T, *action shape]`.

        Raises:
            IndexError: There is no such cell.
        """
        actions: NDArray[Any] = self.steps["actions"][self._path(cell)]
        return actions

    def episode(self, env: Any, cell: int | None = None) -> Episode:
        """Take the steps to a cell again and return them as an episode, for films, plots and files.

        Args:
            env: A `BatchEnv` or `PlanEnv` of the same environment. Its base state changes.
            cell: The cell; None: the best one.

        Raises:
            IndexError: There is no such cell.
            InvalidBatchError: The environment leads elsewhere, so that it is not the same any more.
            EnvError: The environment raised.
        """
        cell = self.best if cell is None else cell
        path, recorder = self._path(cell), EpisodeRecorder(env.action_space, env.observation_space)
        seeds = self.steps["seeds"][path] if self.steps.has_seeds else None
        numbers = [(float("nan"), 0)] * len(path)
        actions = self.steps["actions"][path]
        state, _ = replay_steps(env, recorder, self.origin.seed, actions, numbers, self.origin.dt, seeds)
        if bytes(state) != bytes(self.states(cell)[0]):
            raise InvalidBatchError(
                f"env: expected the environment that was explored, in which {len(path)} actions lead to "
                f"cell {cell}; got one in which they lead elsewhere"
            )
        return recorder.episode()

    def _path(self, cell: int) -> NDArray[np.int64]:
        """Return the steps from the start to a cell, `[T]`."""
        if not 0 <= operator.index(cell) < self.num_cells:
            raise IndexError(f"cell: expected an integer from 0 to {self.num_cells - 1}, got {cell!r}")
        return self.steps.path(int(self.store["nodes"][cell]))

    # -- files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the archive to a directory.

        If the directory holds an earlier form of this archive, only what has changed is written. The
        directory is whole at any moment: a process that is killed leaves what was saved before.

        Args:
            path: The directory, which is made if there is none.

        Raises:
            InvalidBatchError: The directory holds something else.
            OSError: It cannot be written.
        """
        save_contents(self, Path(path))

    @staticmethod
    def load(
        path: str | Path, env: Any, *, cells: CellFunction | None = None, num_checks: int = 16
    ) -> Archive:
        """Read an archive.

        Some trajectories are stepped again. If they lead to other states than those in the files (another
        version of the environment, or another machine), all states are computed again from the seed and the
        actions; `Archive.was_replayed` tells.

        Args:
            path: The directory.
            env: A `BatchEnv` or `PlanEnv` of the same environment. Its base state changes.
            cells: The function of cells; None: that of the observation space, if the exploration had none of
                its own.
            num_checks: Number of cells whose steps are taken again, and of ends of episodes.

        Raises:
            InvalidBatchError: The directory holds no archive, a damaged one, or one of another environment.
            OSError: It cannot be read.
        """
        return load_contents(Path(path), env, cells, num_checks, Archive)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array = array.view()
    array.flags.writeable = False
    return array
