"""`Explorer`, which fills an archive of cells (Go-Explore, Ecoffet et al. 2019 and 2021).

Letters: N cells.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.exploring.archive import Archive
from planvec.exploring.cells import CellFunction, cells_for, keys_of
from planvec.exploring.contents import Origin
from planvec.exploring.header import HEADER, locked, read_header
from planvec.exploring.limits import ArchiveCallback, Limits
from planvec.exploring.store import Arrival
from planvec.exploring.walkers import Walkers
from planvec.planners import Planner, check_stepper
from planvec.rows import (
    BatchStepper,
    LivesUse,
    check_integer,
    check_number,
    check_seed,
    has_players,
    is_uniform,
    read_lives,
)

# `weights(archive) -> [N]`: with which weight exploration begins at each cell
WeightFunction = Callable[[Archive], NDArray[np.floating[Any]]]


@dataclass(frozen=True, kw_only=True)
class Explorer:
    """Explores an environment from the states that it has reached (Ecoffet et al., Nature 2021).

    In each round every explorer chooses a cell, restores its best state, and takes random actions from
    there, most of them several times. Each state that it reaches belongs to a cell; the archive keeps the
    best state of each cell, and the steps that lead to it. Where an episode ends, the explorer chooses again.
    This is the first phase of Go-Explore, with exact restored states instead of a return policy.

    Args:
        cells: `cells(observations) -> [B, F]` integers: observations with equal rows are of one cell. None:
            `planvec.Downscaled()` for images, integers as they are, and of other numbers the index of one of
            32 intervals.
        num_explorers: Explorers at work. In two halves, so that workers step for one while the other is
            added to the archive.
        num_steps: Actions of an explorer per round.
        repeat: Probability with which an explorer takes its last action again.
        dt: Environment steps for which an action is repeated in any case.
        weights: `weights(archive) -> [N]`: with which weight exploration begins at each cell; ends of
            episodes never count. None: `1 / sqrt(visits + 1)`, as in the paper.
        planner: A planner whose best sequence is taken first from each cell; its `dt` should be a multiple
            of that of the explorer. None: actions are random from the beginning.
        end_on_life_loss: Whether an explorer chooses again when a life is lost; the infos need "lives".
        on_error: "raise" the error of a step, or "mask": the explorer chooses again, and does not follow a
            planner whose steps raise.

    Raises:
        ValueError: A field is out of range. The message names it.
    """

    cells: CellFunction | None = None
    num_explorers: int = 64
    num_steps: int = 100
    repeat: float = 0.95
    dt: int = 1
    weights: WeightFunction | None = None
    planner: Planner | None = None
    end_on_life_loss: bool = False
    on_error: Literal["raise", "mask"] = "raise"

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("num_explorers", "num_steps", "dt"):
            check_integer(name, getattr(self, name), 1)
        check_number("repeat", self.repeat, 0, 1)
        for name in ("cells", "weights"):
            value = getattr(self, name)
            if value is not None and (not callable(value) or isinstance(value, type)):
                raise ValueError(f"{name}: expected a function or None, got {value!r}")
        if self.planner is not None and not isinstance(self.planner, Planner):
            raise ValueError(f"planner: expected a planvec.Planner or None, got {self.planner!r}")
        if not isinstance(self.end_on_life_loss, bool):
            raise ValueError(f"end_on_life_loss: expected True or False, got {self.end_on_life_loss!r}")
        if self.on_error not in ("raise", "mask"):
            raise ValueError(f'on_error: expected "raise" or "mask", got {self.on_error!r}')

    def run(
        self,
        env: BatchStepper,
        *,
        seed: int | None = None,
        max_env_steps: int | None = None,
        max_rounds: int | None = None,
        max_seconds: float | None = None,
        path: str | Path | None = None,
        save_seconds: float = 60.0,
        callback: ArchiveCallback | None = None,
    ) -> Archive:
        """Explore until a limit is reached; at least one is needed, or a callback that ends it.

        With a `path`, the archive is saved there. If it holds an archive already, the exploration goes on
        with it: in the end it has the same bits as if it had never been interrupted.

        Args:
            env: The stepper. Its base state changes.
            seed: Of the reset and of every random choice; None: a fresh one, or that of the archive.
            max_env_steps: Environment steps, those of the archive at `path` included.
            max_rounds: Rounds, those of the archive at `path` included.
            max_seconds: Seconds of this call.
            path: A directory.
            save_seconds: Seconds after which the archive is saved again at the end of a round.
            callback: `callback(archive)` after each round; True ends the exploration.

        Raises:
            InvalidBatchError: The directory holds something else, or an archive of another environment or of
                other settings; or a function returned something unexpected; or an argument is wrong.
            UnsupportedEnvError: Actions of this space cannot be drawn, or it is a game of two players.
            EnvError: The environment raised. What was saved last is whole.
            TypeError: `env` is something else.
        """
        check_stepper(env)
        if not is_uniform(env.action_space):
            raise UnsupportedEnvError(
                "action_space: expected Discrete, MultiDiscrete, MultiBinary or a bounded Box, got "
                f"{env.action_space}"
            )
        if has_players(env.state_dtype):
            raise UnsupportedEnvError(
                "Explorer: expected an environment with one player, got a game of two; it would explore as "
                "if both played together. planvec.MCTS plans against the other"
            )
        limits = Limits(max_env_steps, max_rounds, max_seconds, save_seconds, callback)
        limits.check()
        seed = None if seed is None else check_seed(seed)
        if path is None:
            return self._run(env, seed, limits, None)
        with locked(Path(path)):
            return self._run(env, seed, limits, Path(path))

    def _run(self, env: BatchStepper, seed: int | None, limits: Limits, path: Path | None) -> Archive:
        """Explore until a limit is reached; the arguments are those of `run`."""
        started = saved = time.perf_counter()
        cells = cells_for(env.observation_space, self.cells)
        archive = self._resumed(env, path, seed, cells)
        if archive is None:
            archive = self._new_archive(env, seed, cells)
            if path is not None:
                archive.save(path)  # now, since a path that cannot be written would cost all that follows
        while not limits.are_reached(archive, started):
            self._explore(env, archive, cells)
            if path is not None and time.perf_counter() - saved >= limits.save_seconds:
                archive.save(path)
                saved = time.perf_counter()
            if limits.callback is not None and limits.callback(archive):
                break
        if path is not None:
            archive.save(path)
        return archive

    @property
    def settings(self) -> dict[str, str]:
        """What determines an exploration, as text: field -> value, or name of a function."""
        return {name: _text(getattr(self, name)) for name in self.__dataclass_fields__}

    @property
    def _lives_for(self) -> LivesUse | None:
        """What needs lives in infos; None: nothing does."""
        if self.end_on_life_loss:
            return LivesUse("end_on_life_loss=True", "end_on_life_loss=False", first="")
        if self.planner is not None and "lives" in self.planner.info_keys:
            return LivesUse("this planner", "a planner that does not need them", first="")
        return None

    def _new_archive(self, env: BatchStepper, seed: int | None, cells: CellFunction) -> Archive:
        """Return an archive that holds the start of an episode."""
        seed = secrets.randbits(32) if seed is None else seed
        start = env.reset(seed=seed)
        state = np.empty(1, env.state_dtype)
        state[0] = start.state
        key = keys_of(cells, env.observe(state), 1)[0]
        origin = Origin(
            seed=seed,
            dt=self.dt,
            action_space=env.action_space,
            is_stochastic=env.is_stochastic,
            fingerprint=getattr(env, "fingerprint", ""),
            settings=self.settings,
        )
        lives = np.nan if self._lives_for is None else read_lives(start.info, self._lives_for)
        return Archive(origin, Arrival(key, state[0], 0.0, 0, False, lives))

    def _resumed(self, env: Any, path: Path | None, seed: int | None, cells: CellFunction) -> Archive | None:
        """Return the archive in a directory, after a check that it is one of this exploration; None: none."""
        if path is None or not (path / HEADER).exists():
            return None
        header = read_header(path)
        own = {**self.settings, "seed": str(header["seed"] if seed is None else seed)}
        for name, value in {**header["settings"], "seed": str(header["seed"])}.items():
            if own.get(name) != value:
                raise InvalidBatchError(
                    f"{name}: expected {value}, with which the exploration in {path} was begun, got "
                    f"{own.get(name)}; use the same settings, or another directory"
                )
        return Archive.load(path, env, cells=cells)

    def _explore(self, env: BatchStepper, archive: Archive, cells: CellFunction) -> None:
        """Carry out one round."""
        sums = self._weights(archive).cumsum()

        def choose(num: int) -> NDArray[np.int64]:
            drawn = archive.generator.random(num) * sums[-1]
            chosen: NDArray[np.int64] = np.searchsorted(sums, drawn, side="right")
            return chosen

        halves = []
        for part in np.array_split(np.arange(self.num_explorers), min(2, self.num_explorers)):
            walkers = Walkers(
                *(env, archive, choose, len(part)),
                cells=cells,
                repeat=self.repeat,
                planner=self.planner,
                ends_on_life_loss=self.end_on_life_loss,
                lives_for=self._lives_for,
                on_error=self.on_error,
            )
            walkers.begin_all()
            halves.append((walkers, walkers.send()))
        for step in range(self.num_steps):
            for number, (walkers, promise) in enumerate(halves):
                walkers.receive(promise.result())
                if step + 1 < self.num_steps:
                    halves[number] = walkers, walkers.send()
        archive.end_round()

    def _weights(self, archive: Archive) -> NDArray[np.float64]:
        """Return the weight of each cell, `[N]`."""
        if self.weights is None:
            given: Any = 1.0 / np.sqrt(archive.num_visits + 1.0)
        else:
            given = self.weights(archive)
        expected = "weights: expected a function that returns numbers of at least 0"
        try:
            weights = np.array(given)
        except ValueError as error:  # rows of different lengths
            raise InvalidBatchError(f"{expected}, [{archive.num_cells}], got {given!r}") from error
        if weights.shape != (archive.num_cells,) or weights.dtype.kind not in "biuf":
            raise InvalidBatchError(
                f"{expected}, [{archive.num_cells}], got {weights.dtype} of shape {weights.shape}"
            )
        weights = weights.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if len(wrong):
            raise InvalidBatchError(f"{expected}, got {weights[wrong[0]]} for cell {wrong[0]}")
        weights[archive.ended] = 0.0
        if not weights.max() > 0:
            raise InvalidBatchError("weights: expected a cell with a weight above 0 whose episode goes on")
        relative: NDArray[np.float64] = weights / weights.max()
        return relative


def _text(value: Any) -> str:
    """Return a setting as text, which is the same in every process."""
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
