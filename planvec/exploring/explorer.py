"""`Explorer`, which fills an archive of cells (Go-Explore, Ecoffet et al. 2019 and 2021).

Letters: N cells.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from planvec.errors import EnvError, InvalidBatchError, UnsupportedEnvError
from planvec.exploring.archive import (
    Archive,
    Arrival,
    CellFunction,
    Origin,
    cells_for,
    holds_archive,
    keys_of,
    locked,
    read_manifest,
)
from planvec.planners import Plan, Planner, check_stepper
from planvec.rows import (
    BatchStepper,
    LivesUse,
    Promise,
    Transitions,
    action_masks,
    are_legal,
    check_integer,
    check_number,
    check_seed,
    draw_legal,
    has_players,
    is_uniform,
    read_lives,
    stacked_lives,
    uniform_actions,
)

# -- Half of the explorers: where they are, and the steps that they have taken since the last cell.
#
# Letters: B explorers, K some of them.


class _Explorers:
    """Explores from cells of an archive, and adds what it reaches."""

    # `sums`: `[N]`, cumulative weights of the cells to explore from. `cells`: the function of cells.

    def __init__(
        self,
        explorer: Explorer,
        env: BatchStepper,
        archive: Archive,
        sums: NDArray[np.float64],
        cells: CellFunction,
        num_rows: int,
    ) -> None:
        self._explorer, self._env, self._archive = explorer, env, archive
        self._sums, self._cells, self._lives_for = sums, cells, explorer._lives_for
        self._states = np.empty(num_rows, env.state_dtype)
        self._nodes = np.zeros(num_rows, np.int64)
        self._scores = np.zeros(num_rows)
        self._num_steps = np.zeros(num_rows, np.int64)
        self._lives = np.full(num_rows, np.nan)
        self._is_first = np.ones(num_rows, np.bool_)
        self._since: list[list[tuple[Any, int | None]]] = [[] for _ in range(num_rows)]
        self._planned: list[list[Any]] = [[] for _ in range(num_rows)]
        self._actions = uniform_actions(env.action_space, np.random.default_rng(0), num_rows)
        self._seeds: NDArray[np.uint64] | None = None
        self.begin(np.arange(num_rows))

    def begin(self, rows: NDArray[np.intp]) -> None:
        """Let some explorers begin at other cells, `[K]`."""
        archive, store = self._archive, self._archive.store
        drawn = archive.generator.random(len(rows)) * self._sums[-1]
        cells = np.searchsorted(self._sums, drawn, side="right")
        np.add.at(store["num_choices"], cells, 1)
        self._states[rows] = store.states(cells)
        self._nodes[rows], self._lives[rows] = store["nodes"][cells], store["lives"][cells]
        self._scores[rows], self._num_steps[rows] = store["scores"][cells], store["num_steps"][cells]
        self._is_first[rows] = True
        for row in rows.tolist():
            self._since[row], self._planned[row] = [], []
        planner = self._explorer.planner
        if planner is not None:
            seeds = archive.generator.integers(2**63, size=len(rows))
            for row, plan in zip(rows.tolist(), self._plans(planner, rows, seeds), strict=True):
                if plan is not None:
                    # each action as often as it is repeated in steps of the explorer, the next one last
                    repeats = -(-plan.best_num_steps // archive.origin.dt)
                    self._planned[row] = [*np.repeat(plan.best_actions, repeats, axis=0)][::-1]
                    archive.num_env_steps += plan.num_env_steps

    def _plans(self, planner: Planner, rows: NDArray[np.intp], seeds: NDArray[np.int64]) -> list[Plan | None]:
        """Return the plans of some explorers; None where a step raised and errors are masked."""
        infos = [{} if np.isnan(lives) else {"lives": lives} for lives in self._lives[rows]]
        try:
            return [*planner.plan_batch(self._env, self._states[rows], seeds=seeds, infos=infos)]
        except EnvError:
            if self._explorer.on_error == "raise":
                raise
        if len(rows) == 1:
            return [None]
        return [  # one by one, so that no plan depends on the others
            self._plans(planner, rows[index : index + 1], seeds[index : index + 1])[0]
            for index in range(len(rows))
        ]

    def send(self) -> Promise[Transitions]:
        """Request the next step of all explorers."""
        generator, num_rows = self._archive.generator, len(self._states)
        space = self._env.action_space
        drawn = uniform_actions(space, generator, num_rows)
        repeats = (generator.random(num_rows) < self._explorer.repeat) & ~self._is_first
        masks = action_masks(space, self._states)
        if masks is not None:
            drawn = draw_legal(space, masks, generator.random(drawn.shape))
            repeats &= are_legal(space, masks, self._actions)
        self._actions = np.where(repeats.reshape(-1, *[1] * (drawn.ndim - 1)), self._actions, drawn)
        for row, planned in enumerate(self._planned):
            if planned:
                action = planned.pop()
                if masks is None or are_legal(space, masks[row], np.asarray(action)):  # chance may differ
                    self._actions[row] = action
        self._is_first[:] = False
        if self._env.is_stochastic:
            self._seeds = generator.integers(2**64, size=num_rows, dtype=np.uint64)
        return self._env.step_batch(
            self._actions,
            self._states,
            self._archive.origin.dt,
            seeds=self._seeds,
            on_error=self._explorer.on_error,
            blocking=False,
        )

    def receive(self, out: Transitions) -> None:
        """Add the states that the steps have reached to the archive."""
        assert out.new_states is not None
        failed = out.infos.get("_error", np.zeros(len(self._states), np.bool_))
        self._archive.num_env_steps += int(out.infos["num_steps"].sum())
        like = self._archive.store["keys"][0]
        keys = keys_of(self._cells, out.observations, len(self._states), like)
        wrong = np.flatnonzero(~np.isfinite(out.rewards) & ~failed)
        if len(wrong):
            raise InvalidBatchError(
                f"rewards: expected finite numbers, got {out.rewards[wrong[0]]} for action "
                f"{self._actions[wrong[0]]} in row {wrong[0]}"
            )
        ended = out.terminated | out.truncated
        lost = np.zeros(len(failed), np.bool_)
        if self._lives_for is not None:
            lives = stacked_lives(out.infos, ~failed, self._lives_for)
            lost |= (lives < self._lives) & self._explorer.end_on_life_loss
            self._lives = lives
        self._states = out.new_states
        self._scores = self._scores + np.where(failed, 0.0, out.rewards)
        self._num_steps += 1
        for row in np.flatnonzero(~(failed | lost)).tolist():
            since = self._since[row]
            since.append((self._actions[row], None if self._seeds is None else int(self._seeds[row])))
            arrival = Arrival(
                keys[row],
                self._states[row],
                self._scores[row],
                int(self._num_steps[row]),
                bool(ended[row]),
                self._lives[row],
            )
            if not self._archive.store.visit(arrival):
                continue
            node = int(self._nodes[row])
            for action, seed in since:
                node = self._archive.steps.add(node, action, seed)
            since.clear()
            self._nodes[row] = node
            self._archive.store.put(arrival, node, self._archive.num_env_steps)
        over = np.flatnonzero(ended | lost | failed)
        if len(over):
            self.begin(over)


ArchiveCallback = Callable[[Archive], bool | None]  # called after each round; True ends the exploration
# `weights(archive) -> [N]`: with which weight exploration begins at each cell
WeightFunction = Callable[[Archive], NDArray[np.floating]]


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
            save_seconds: Seconds after which the archive is saved again at the end of a round; a large one is
                saved less often, so that this takes a tenth of the time at most. 0: after each round.
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
        limits = {"max_env_steps": max_env_steps, "max_rounds": max_rounds, "max_seconds": max_seconds}
        for name, limit in limits.items():
            if limit is not None:
                (check_number if name == "max_seconds" else check_integer)(name, limit, 0)
        check_number("save_seconds", save_seconds, 0)
        if callback is not None and not callable(callback):
            raise InvalidBatchError(f"callback: expected a function or None, got {callback!r}")
        if callback is None and all(limit is None for limit in limits.values()):
            raise InvalidBatchError("max_env_steps: expected a limit: max_env_steps, max_rounds, max_seconds")
        seed = None if seed is None else check_seed(seed)
        path = None if path is None else Path(path)
        with contextlib.nullcontext() if path is None else locked(path):
            started = saved = time.perf_counter()
            pause = save_seconds
            cells = cells_for(env.observation_space, self.cells)
            archive = self._resumed(env, path, seed, cells)
            is_saved = archive is not None and not archive.was_replayed
            if archive is None:
                archive = self._new_archive(env, seed, cells)
                if path is not None:
                    archive.save(path)  # now, since a path that cannot be written would cost all that follows
                    is_saved = True
            while (
                (max_env_steps is None or archive.num_env_steps < max_env_steps)
                and (max_rounds is None or len(archive.history) < max_rounds)
                and (max_seconds is None or time.perf_counter() - started < max_seconds)
            ):
                self._explore(env, archive, cells)
                is_saved = False
                if path is not None and time.perf_counter() - saved >= pause:
                    begun = time.perf_counter()
                    archive.save(path)
                    saved, is_saved = time.perf_counter(), True
                    # a large archive is saved less often; 0: after each round, whatever that costs
                    pause = save_seconds and max(save_seconds, 9 * (saved - begun))
                if callback is not None and callback(archive):
                    break
            if path is not None and not is_saved:
                archive.save(path)
            return archive

    @property
    def settings(self) -> dict[str, str]:
        """What determines an exploration, as text: field -> value, or name of a function."""
        settings = {}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            settings[name] = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))  # the same in every process
            if callable(value) and hasattr(value, "__qualname__"):
                settings[name] = f"{value.__module__}.{value.__qualname__}"
        return settings

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
        if has_players(state):
            raise UnsupportedEnvError(
                "Explorer: expected an environment with one player, got a game of two; it would explore as "
                "if both played together. planvec.MCTS plans against the other"
            )
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

    def _resumed(
        self, env: BatchStepper, path: Path | None, seed: int | None, cells: CellFunction
    ) -> Archive | None:
        """Return the archive in a directory, after a check that it is one of this exploration; None: none."""
        if path is None or not holds_archive(path):
            return None
        manifest = read_manifest(path)
        own = {**self.settings, "seed": str(manifest["seed"] if seed is None else seed)}
        for name, value in {**manifest["settings"], "seed": str(manifest["seed"])}.items():
            if own.get(name) != value:
                raise InvalidBatchError(
                    f"{name}: expected {value}, with which the exploration in {path} was begun, got "
                    f"{own.get(name)}; use the same settings, or another directory"
                )
        return Archive.load(path, env, cells=cells)

    def _explore(self, env: BatchStepper, archive: Archive, cells: CellFunction) -> None:
        """Carry out one round."""
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
        sums = (weights / weights.max()).cumsum()
        halves = []
        for part in np.array_split(np.arange(self.num_explorers), min(2, self.num_explorers)):
            half = _Explorers(self, env, archive, sums, cells, len(part))
            halves.append((half, half.send()))
        for step in range(self.num_steps):
            for number, (half, promise) in enumerate(halves):
                half.receive(promise.result())
                if step + 1 < self.num_steps:
                    halves[number] = half, half.send()
        score = float(archive.scores[archive.best])
        archive._history.append((archive.num_env_steps, archive.num_cells, score))
