"""An archive of cells: the best state of each, the steps that lead to it, and its score; and its file.

The file is arrays and a manifest, which run no code when they are read. Each save replaces it as a whole, so
that no reader sees a part of it, and a process that is killed leaves what was saved before.

Letters: N cells, F columns of a cell, K some of the cells, M nodes of a tree of steps, T steps, R rounds.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import operator
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners import (
    Downscaled,
    Episode,
    EpisodeRecorder,
    check_stepper,
    integer_rows,
    is_screen,
    numbers_of_space,
    replay_steps,
)
from planvec.rows import (
    BatchStepper,
    arrays_of_states,
    check_integer,
    damage_named,
    read_arrays,
    remove_unfinished,
    states_of_arrays,
    write_arrays,
)

ARCHIVE_FILE = "archive.npz"

# -- Cells: observations that an archive takes for one. Letters: B observations, F columns -------------------

# `cells(observations) -> [B, F]` integers: observations with equal rows are of one cell
CellFunction = Callable[[Any], Any]


def cells_for(space: Space[object], given: CellFunction | None) -> CellFunction:
    """Return the function of cells that was given, or one that suits an observation space."""
    if given is not None:
        return given
    if is_screen(space):
        return Downscaled()
    return numbers_of_space(space, "cells")


def keys_of(
    cells: CellFunction, observations: object, num_rows: int, like: np.ndarray | None = None
) -> np.ndarray:
    """Return the cells of observations, after a check."""
    # `like`: `[F]`, any cell of the archive; None: there is none yet.
    keys = integer_rows(cells(observations), "cells")
    if len(keys) != num_rows:
        raise InvalidBatchError(
            f"cells: expected a function that returns integers [{num_rows}, F], got shape {keys.shape}"
        )
    if like is not None and (keys.dtype != like.dtype or keys.shape[1:] != like.shape):
        raise InvalidBatchError(
            f"cells: expected {like.dtype} [{num_rows}, {len(like)}], as at the start, got {keys.dtype} of "
            f"shape {keys.shape}"
        )
    return np.ascontiguousarray(keys)


# -- The tables of an archive, which grow at their end: its cells, and the steps that lead to them -----------

_FIRST = 256
BLOCK = 4096  # states that are allocated, written and stepped again at once


class Table:
    """Columns of equal length, which grow at their end."""

    def __init__(self, columns: Mapping[str, tuple[Any, tuple[int, ...]]]) -> None:
        # `columns`: name -> dtype and shape of one entry
        self._size = 0
        self._columns = {name: np.zeros((_FIRST, *shape), dtype) for name, (dtype, shape) in columns.items()}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column `[N, ...]` as a view, which the next `append` may replace."""
        return self._columns[name][: self._size]

    def columns(self) -> dict[str, np.ndarray]:
        """Return all columns, as views."""
        return {name: self[name] for name in self._columns}

    def append(self, **values: object) -> int:
        """Append one row; columns without a value get zeros. Return its index."""
        row = self._size
        for name, column in self._columns.items():
            if row == len(column):
                larger = np.zeros((len(column) * 3 // 2 + 1, *column.shape[1:]), column.dtype)
                larger[:row] = column
                self._columns[name] = larger
        self._size += 1
        for name, value in values.items():
            self._columns[name][row] = value
        return row

    def replace(self, columns: Mapping[str, np.ndarray]) -> None:
        """Replace all rows, after a check of the types and the shapes: they may come from a file."""
        num_rows = len(columns[next(iter(self._columns))])
        for name, column in self._columns.items():
            shape = (num_rows, *column.shape[1:])
            if columns[name].dtype != column.dtype or columns[name].shape != shape:
                raise ValueError(f"{name}: expected {column.dtype} of shape {shape}")
        self._columns = {name: np.array(columns[name]) for name in self._columns}
        self._size = num_rows


class StepTree(Table):
    """Steps, each of which follows its parent. Node 0 is the start of the episode.

    Columns, `[M, ...]`: "parents", "depths" (steps from the start), "actions", and "seeds" where steps are
    random.
    """

    def __init__(self, action_space: Space[object], has_seeds: bool) -> None:
        actions = {"actions": (action_space.dtype, action_space.shape or ())}
        seeds: dict[str, tuple[Any, tuple[int, ...]]] = {"seeds": (np.uint64, ())} if has_seeds else {}
        super().__init__({"parents": (np.int64, ()), "depths": (np.int64, ()), **actions, **seeds})
        self.append(parents=-1)

    def add(self, parent: int, action: object, seed: int | None) -> int:
        """Append a step after another one and return its node."""
        seeds = {} if seed is None else {"seeds": seed}
        return self.append(parents=parent, depths=self["depths"][parent] + 1, actions=action, **seeds)

    def arguments(self, nodes: NDArray[np.int64]) -> tuple[np.ndarray, NDArray[np.uint64] | None]:
        """Return the actions of nodes, `[K, ...]`, and their seeds."""
        return self["actions"][nodes], self["seeds"][nodes] if "seeds" in self._columns else None

    def ancestors_of(self, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which nodes lead to some nodes, these and the start included, `[M]`."""
        parents, leads = self["parents"], np.zeros(len(self), np.bool_)
        leads[0] = True
        rest = nodes
        while len(rest):
            rest = np.unique(rest[~leads[rest]])
            leads[rest] = True
            rest = parents[rest]
        return leads

    def levels_to(self, nodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        """Yield the nodes of each depth that lead to some nodes, from depth 1 on."""
        needed = np.flatnonzero(self.ancestors_of(nodes))
        depths = self["depths"][needed]
        order = np.argsort(depths, kind="stable")
        starts = np.searchsorted(depths[order], np.arange(1, int(depths.max()) + 2))
        for start, stop in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            yield needed[order[start:stop]]

    def keep(self, nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Forget all steps but those that lead to some nodes; return the new numbers of these nodes."""
        is_kept = self.ancestors_of(nodes)
        numbers = np.cumsum(is_kept) - 1
        columns = {name: column[is_kept] for name, column in self.columns().items()}
        columns["parents"] = np.where(columns["parents"] < 0, -1, numbers[columns["parents"]])
        self.replace(columns)
        renumbered: NDArray[np.int64] = numbers[nodes]
        return renumbered


class Arrival(NamedTuple):
    """A step that reaches a cell."""

    key: np.ndarray  # `[F]`
    state: Any
    score: float  # sum of the rewards since the start
    num_steps: int  # actions since the start
    ended: bool  # whether the episode has ended
    lives: float  # lives that are left; NaN if unknown


class CellStore(Table):
    """The best known state of each cell.

    Columns: `keys` `[N, F]`, `scores`, `num_steps`, `num_visits`, `num_choices`, `first_visits`, `ended`,
    `nodes` (in the tree of steps) and `lives`, `[N]` each.
    """

    def __init__(self, start: Arrival) -> None:
        counts = dict.fromkeys(("num_steps", "num_visits", "num_choices", "first_visits", "nodes"), np.int64)
        dtypes = {**counts, "scores": np.float64, "lives": np.float64, "ended": np.bool_}
        columns: dict[str, Any] = {name: (dtype, ()) for name, dtype in dtypes.items()}
        super().__init__({"keys": (start.key.dtype, start.key.shape), **columns})
        # States are in blocks, so that the array of them all, which may be large, is never copied.
        self._blocks: list[np.ndarray] = []
        self._state_dtype = start.state.dtype if isinstance(start.state, np.void) else np.dtype(object)
        self._index: dict[bytes, int] = {}
        self.put(start, 0, 0)

    def states(self, cells: NDArray[np.integer]) -> np.ndarray:
        """Return a copy of the states of some cells, `[K]`."""
        states = np.empty(len(cells), self._state_dtype)
        for index, cell in enumerate(cells.tolist()):
            states[index] = self._blocks[cell // BLOCK][cell % BLOCK]
        return states

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield the states of all cells, as views of some thousand each."""
        for start, block in zip(range(0, len(self), BLOCK), self._blocks, strict=True):
            yield block[: len(self) - start]

    def visit(self, arrival: Arrival) -> bool:
        """Count a visit, and return whether the cell is new, or was reached better than before."""
        index = self._index.get(_name(arrival.key, arrival.ended))
        if index is None:
            return True
        self["num_visits"][index] += 1
        score = self["scores"][index]
        return bool(
            arrival.score > score or (arrival.score == score and arrival.num_steps < self["num_steps"][index])
        )

    def put(self, arrival: Arrival, node: int, num_env_steps: int) -> None:
        """Make a state the best one of its cell."""
        name = _name(arrival.key, arrival.ended)
        index = self._index.get(name)
        if index is None:
            index = self._index[name] = self.append(
                keys=arrival.key, ended=arrival.ended, num_visits=1, first_visits=num_env_steps
            )
            if index // BLOCK == len(self._blocks):
                self._blocks.append(np.empty(BLOCK, self._state_dtype))
        self["scores"][index] = arrival.score
        self["num_steps"][index] = arrival.num_steps
        self["nodes"][index] = node
        self["lives"][index] = arrival.lives
        self._blocks[index // BLOCK][index % BLOCK] = arrival.state

    def restore(self, columns: Mapping[str, np.ndarray], blocks: Sequence[np.ndarray]) -> None:
        """Replace all cells by those of a file, and their states by blocks that `blocks` yielded."""
        self.replace(columns)
        if not np.isfinite(self["scores"]).all():
            raise ValueError("scores: expected finite numbers")
        for name in ("num_visits", "num_choices"):
            if (self[name] < 0).any():
                raise ValueError(f"{name}: expected numbers of at least 0")
        self.replace_states(blocks)
        names = zip(self["keys"], self["ended"].tolist(), strict=True)
        self._index = {_name(key, ended): cell for cell, (key, ended) in enumerate(names)}

    def replace_states(self, blocks: Sequence[np.ndarray]) -> None:
        """Replace the states of all cells; all blocks but the last one are full."""
        sizes = [min(BLOCK, len(self) - start) for start in range(0, len(self), BLOCK)]
        if [block.shape for block in blocks] != [(size,) for size in sizes]:
            raise ValueError("states are missing")
        if len({block.dtype for block in blocks}) != 1:
            raise ValueError("states are of several types")
        self._state_dtype = blocks[0].dtype
        last = np.empty(BLOCK, self._state_dtype)
        last[: sizes[-1]] = blocks[-1]
        self._blocks = [*blocks[:-1], last]


def _name(key: np.ndarray, ended: bool) -> bytes:
    """Return what identifies a cell."""
    return key.tobytes() + bytes([ended])


# -- The archive ---------------------------------------------------------------------------------------------


class Origin(NamedTuple):
    """What an archive begins with."""

    seed: int  # seed of the reset, after which all trajectories begin
    dt: int  # environment steps for which each action is repeated
    action_space: Space[Any]
    is_stochastic: bool  # whether steps have seeds
    fingerprint: str  # that of the environment; "" if it has none
    settings: dict[str, str]  # those of the exploration, as text


class Archive:
    """Holds the best known state of each cell: the one with the highest score, of those the nearest.

    `Explorer.run` makes an archive and adds to it, `save` writes it to a directory, `load` reads it. Cell 0
    is that of the start. Ends of episodes are cells of their own, which are not explored further.

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

    def __len__(self) -> int:
        return self.num_cells

    def __repr__(self) -> str:
        return (
            f"<Archive: {self.num_cells:,} cells after {self.num_env_steps:,} steps, "
            f"best score {self.scores[self.best]:.6g}>"
        )

    # -- reading --------------------------------------------------------------------------------------

    @property
    def num_cells(self) -> int:
        """N."""
        return len(self.store)

    @property
    def keys(self) -> np.ndarray:
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

    def states(self, cells: object) -> np.ndarray:
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

    def actions(self, cell: int) -> np.ndarray:
        """Return the actions that lead from the start to a cell, `[T, *action shape]`.

        Raises:
            IndexError: There is no such cell.
        """
        return self._arguments(cell)[0]

    def episode(self, env: BatchStepper, cell: int | None = None) -> Episode:
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
        actions, seeds = self._arguments(cell)
        recorder = EpisodeRecorder(env.action_space, env.observation_space)
        numbers = [(float("nan"), 0)] * len(actions)
        state, _ = replay_steps(env, recorder, self.origin.seed, actions, numbers, self.origin.dt, seeds)
        if bytes(state) != bytes(self.states(cell)[0]):
            raise InvalidBatchError(
                f"env: expected the environment that was explored, in which {len(actions)} actions lead to "
                f"cell {cell}; got one in which they lead elsewhere"
            )
        return recorder.episode()

    def _arguments(self, cell: int) -> tuple[np.ndarray, NDArray[np.uint64] | None]:
        """Return the actions from the start to a cell, `[T, *action shape]`, and their seeds."""
        if not 0 <= operator.index(cell) < self.num_cells:
            raise IndexError(f"cell: expected an integer from 0 to {self.num_cells - 1}, got {cell!r}")
        node, parents, nodes = int(self.store["nodes"][cell]), self.steps["parents"], []
        while node > 0:
            nodes.append(node)
            node = int(parents[node])
        return self.steps.arguments(np.array(nodes[::-1], np.int64))

    # -- files ----------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the archive to a directory.

        The directory is whole at any moment: a process that is killed leaves what was saved before.

        Args:
            path: The directory, which is made if there is none.

        Raises:
            InvalidBatchError: The directory holds something else.
            OSError: It cannot be written.
        """
        path = Path(path)
        with locked(path):
            if holds_archive(path):
                held, got = read_manifest(path), ""
                if held["identity"] != self.identity:
                    got = "another archive"
                elif held["num_env_steps"] > self.num_env_steps:
                    got = f"a later form of this one, of {held['num_env_steps']:,} steps"
                if got:
                    raise InvalidBatchError(
                        "path: expected a new directory, or one with an earlier form of this archive, got "
                        f"{path}, which holds {got}"
                    )
            self.store["nodes"][:] = self.steps.keep(self.store["nodes"])
            manifest = {
                "format": _FORMAT,
                "version": _VERSION,
                **self.origin._asdict(),
                "action_space": repr(self.origin.action_space),
                "is_stochastic": bool(self.origin.is_stochastic),
                "identity": self.identity,
                "num_env_steps": self.num_env_steps,
                "generator": self.generator.bit_generator.state,
            }
            write_arrays(path / ARCHIVE_FILE, self._arrays(manifest))
            remove_unfinished(path / ARCHIVE_FILE)

    def _arrays(self, manifest: Mapping[str, object]) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the arrays of the file: columns of the cells and of the steps, the history, the states."""
        yield "manifest", np.array(json.dumps(manifest))
        yield from self.store.columns().items()
        for name, column in self.steps.columns().items():
            yield f"steps.{name}", column
        yield "history", self.history
        for number, block in enumerate(self.store.blocks()):
            yield from arrays_of_states(f"states.{number}", block).items()

    @staticmethod
    def load(
        path: str | Path, env: Any, *, cells: CellFunction | None = None, num_checks: int = 16
    ) -> Archive:
        """Read an archive.

        Some trajectories are stepped again. If they lead to other states than those in the file (another
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
        check_integer("num_checks", num_checks, 0)
        check_stepper(env)
        path = Path(path)
        manifest, arrays = _read_archive(path)
        for name, own in (
            ("action_space", repr(env.action_space)),
            ("is_stochastic", bool(env.is_stochastic)),
        ):
            if manifest[name] != own:
                raise InvalidBatchError(
                    f"env: expected {name} {manifest[name]}, as when {path} was explored, got {own}; make it "
                    "with the arguments of then, or explore into another directory"
                )
        with damage_named(_damaged(path)):
            archive = Archive._of_arrays(manifest, arrays, env)
        if cells is None and archive.origin.settings.get("cells") == "None":
            cells = cells_for(env.observation_space, None)
        is_same = manifest["fingerprint"] == getattr(env, "fingerprint", "")
        if is_same and env.state_dtype.hasobject:
            env.check_states(archive.states(np.arange(archive.num_cells)))
        if not (is_same and archive._leads_to_states(env, cells, num_checks)):
            archive._replay_all(env, cells, path)
        return archive

    @staticmethod
    def _of_arrays(
        manifest: Mapping[str, Any], arrays: Mapping[str, np.ndarray], env: BatchStepper
    ) -> Archive:
        """Return the archive of a file, whose states were not checked."""
        keys, history = arrays["keys"], arrays["history"]
        if keys.ndim != 2 or keys.dtype.kind not in "biu":
            raise ValueError("keys: expected integers [N, F]")
        if history.ndim != 2 or history.shape[1] != 3 or history.dtype != np.float64:
            raise ValueError("history: expected [R, 3]")
        fields = {name: manifest[name] for name in ("seed", "is_stochastic", "fingerprint", "settings")}
        origin = Origin(dt=max(1, manifest["dt"]), action_space=env.action_space, **fields)
        num_blocks = sum(name.removeprefix("states.").isdecimal() for name in arrays)
        blocks = [states_of_arrays(f"states.{number}", arrays) for number in range(num_blocks)]
        archive = Archive(origin, Arrival(keys[0], blocks[0][0], 0.0, 0, False, float("nan")))
        archive.store.restore(arrays, blocks)
        archive.steps.replace({name.removeprefix("steps."): array for name, array in arrays.items()})
        parents, depths, nodes = archive.steps["parents"], archive.steps["depths"], archive.store["nodes"]
        before = np.arange(-1, len(parents) - 1)  # the last node that each may follow
        if not len(parents) or (parents > before).any() or (parents < np.minimum(before, 0)).any():
            raise ValueError("steps without the step before them")
        if ((nodes < 0) | (nodes >= len(parents))).any():
            raise ValueError("steps are missing")
        is_start, follows = depths[0] == 0, depths[1:] == depths[parents[1:]] + 1
        if not is_start or not follows.all() or (depths[nodes] != archive.store["num_steps"]).any():
            raise ValueError("steps lead elsewhere")
        archive._history = [
            (int(steps), int(cells), float(score)) for steps, cells, score in history.tolist()
        ]
        archive.num_env_steps, archive.identity = manifest["num_env_steps"], manifest["identity"]
        archive.generator.bit_generator.state = manifest["generator"]
        return archive

    # -- Takes the steps to cells again, to check states from files, or to compute them anew. Steps that
    # several cells share are taken once.

    def _leads_to_states(self, env: BatchStepper, cells: CellFunction | None, num_checks: int) -> bool:
        """Return whether the steps to some cells lead to their states."""
        if num_checks < 1:
            return True
        ends = np.flatnonzero(self.store["ended"])
        some = _spread(np.arange(self.num_cells), num_checks)
        checked = np.unique(np.concatenate([some, _spread(ends, num_checks), np.array([self.best])]))
        (states, differs), expected = self._step_again(env, checked), self.states(checked)
        if states.dtype != expected.dtype or differs.any():
            return False
        if any(bytes(state) != bytes(other) for state, other in zip(states, expected, strict=True)):
            return False
        if cells is not None:
            keys = keys_of(cells, env.observe(expected), len(checked), self.store["keys"][0])
            if (keys != self.store["keys"][checked]).any():
                raise InvalidBatchError(
                    "cells: expected the function of the exploration, got one that gives other cells; use "
                    "the same, or another directory"
                )
        return True

    def _replay_all(self, env: BatchStepper, cells: CellFunction | None, path: Path) -> None:
        """Compute the states of all cells from the seed and the actions."""
        if cells is None:
            raise InvalidBatchError(
                "cells: expected the function of the exploration, since the states do not fit this "
                "environment and have to be computed again, got None"
            )
        states, differs = self._step_again(env, np.arange(self.num_cells))
        blocks = [states[start : start + BLOCK] for start in range(0, len(states), BLOCK)]
        for number, block in enumerate(blocks):
            part = slice(number * BLOCK, number * BLOCK + len(block))
            expected = self.store["keys"][part]
            keys = keys_of(cells, env.observe(block), len(expected))
            differs[part] |= (keys != expected).any(axis=1) if keys.shape == expected.shape else True
        if differs.any():
            raise InvalidBatchError(
                f"env: expected the environment that was explored into {path}, got one in which the actions "
                f"lead to other scores, ends or cells, for {int(differs.sum()):,} of {len(states):,} cells, "
                f"the first of them cell {int(differs.argmax())}; explore another environment into another "
                "directory"
            )
        self.store.replace_states(blocks)
        self.origin = self.origin._replace(fingerprint=getattr(env, "fingerprint", ""))
        self.was_replayed = True

    def _step_again(
        self, env: BatchStepper, cells: NDArray[np.int64]
    ) -> tuple[np.ndarray, NDArray[np.bool_]]:
        """Take the steps to cells again; return the states, and where scores or ends are others, `[K]`."""
        ends = self.store["nodes"][cells]
        cell_of, row_of = np.full(len(self.steps), -1), np.zeros(len(self.steps), np.int64)
        cell_of[ends] = np.arange(len(cells))
        states, scores = np.empty(len(cells), env.state_dtype), np.zeros(len(cells))
        is_end = np.zeros(len(cells), np.bool_)
        # states and scores of the nodes of one depth; `row_of`: the row of each node in them
        level, totals = np.empty(1, env.state_dtype), np.zeros(1)
        level[0] = env.reset(seed=self.origin.seed).state
        if cell_of[0] >= 0:
            states[cell_of[0]] = level[0]
        for nodes in self.steps.levels_to(ends):
            before = row_of[self.steps["parents"][nodes]]
            states_before, totals = level[before], totals[before]
            level, ended = np.empty(len(nodes), env.state_dtype), np.zeros(len(nodes), np.bool_)
            for start in range(0, len(nodes), BLOCK):
                part = slice(start, start + BLOCK)
                actions, seeds = self.steps.arguments(nodes[part])
                out = env.step_batch(actions, states_before[part], self.origin.dt, seeds=seeds, blocking=True)
                level[part], ended[part] = out.new_states, out.terminated | out.truncated
                totals[part] += out.rewards
            row_of[nodes] = np.arange(len(nodes))
            rows = np.flatnonzero(cell_of[nodes] >= 0)
            reached = cell_of[nodes[rows]]
            states[reached], scores[reached], is_end[reached] = level[rows], totals[rows], ended[rows]
        differs: NDArray[np.bool_] = scores != self.store["scores"][cells]
        return states, differs | (is_end != self.store["ended"][cells])


def _spread(cells: NDArray[np.int64], num: int) -> NDArray[np.int64]:
    """Return at most some of the cells, evenly spread."""
    return cells[np.linspace(0, len(cells) - 1, min(num, len(cells))).astype(np.int64)]


def _read_only(array: np.ndarray) -> np.ndarray:
    array = array.view()
    array.flags.writeable = False
    return array


# -- The file and its directory ------------------------------------------------------------------------------

_FORMAT, _VERSION = "planvec archive", 2
_FILE_OF_VERSION_1 = "archive.json"
_FIELDS: dict[str, type] = {
    **dict.fromkeys(("identity", "fingerprint", "action_space"), str),
    **dict.fromkeys(("seed", "dt", "num_env_steps"), int),
    **{"is_stochastic": bool, "settings": dict, "generator": dict},
}


def holds_archive(path: Path) -> bool:
    """Return whether a directory holds an archive, of this version or of another one."""
    return (path / ARCHIVE_FILE).exists() or (path / _FILE_OF_VERSION_1).exists()


def _read_archive(path: Path, *names: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the manifest and the arrays of the archive in a directory, or only the arrays of some names."""
    if not holds_archive(path):
        raise InvalidBatchError(f"path: expected a directory that Archive.save wrote, got {path}")
    version: Any = 1
    if not (path / _FILE_OF_VERSION_1).exists():
        with damage_named(_damaged(path)):
            arrays = read_arrays(path / ARCHIVE_FILE, *names)
            manifest = json.loads(str(arrays["manifest"]))
            if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
                raise ValueError("no archive")
        version = manifest.get("version")
    if version != _VERSION:
        raise InvalidBatchError(
            f"path: expected an archive of version {_VERSION}, got {path} of version {version!r}, which "
            "another planvec wrote; use that, or another directory"
        )
    with damage_named(_damaged(path)):
        wrong = [name for name, kind in _FIELDS.items() if type(manifest.get(name)) is not kind]
        wrong += [name for name, one in manifest.items() if type(one) is int and not 0 <= one < 2**64]
        if wrong or not all(isinstance(text, str) for text in manifest["settings"].values()):
            raise ValueError(", ".join(wrong or ["settings"]))
    return manifest, arrays


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the archive in a directory, after a check."""
    return _read_archive(path, "manifest")[0]


def _damaged(path: Path) -> str:
    """Return the message for a file that cannot be an archive of the environment."""
    return f"path: expected an archive of this environment, got {path}, which is damaged or of another kind"


# locked directory, and the process and the thread that hold it, which may lock it again
_held: set[tuple[Path, int, int]] = set()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Make a directory, and keep other processes and threads from writing an archive there."""
    if path.exists() and not path.is_dir():
        raise InvalidBatchError(f"path: expected a directory, got the file {path}")
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    own = path.resolve(), os.getpid(), threading.get_ident()
    if own in _held:
        yield
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        try:
            # The system unlocks it if this process dies.
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InvalidBatchError(
                f"path: expected a directory to which nobody else writes, got {path}, where another "
                "exploration is in progress"
            ) from error
        _held.add(own)
        yield
    finally:
        _held.discard(own)
        os.close(directory)
        if is_new:
            with contextlib.suppress(OSError):  # it holds something
                path.rmdir()
