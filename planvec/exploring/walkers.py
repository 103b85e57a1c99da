"""Half of the explorers: where they are, and the steps that they have taken since the last cell.

Letters: B explorers, K some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import EnvError, InvalidBatchError
from planvec.exploring.cells import CellFunction, keys_of
from planvec.exploring.contents import Contents
from planvec.exploring.store import Arrival
from planvec.planners import Plan, Planner
from planvec.rows import (
    BatchStepper,
    LivesUse,
    Promise,
    Transitions,
    action_masks,
    are_legal,
    draw_legal,
    stacked_lives,
    uniform_actions,
)


class Walkers:
    """Explores from cells of an archive, and adds what it reaches."""

    # `choose`: `choose(num)` returns as many cells to explore from, `[num]`.

    def __init__(
        self,
        env: BatchStepper,
        archive: Contents,
        choose: Callable[[int], NDArray[np.int64]],
        num_rows: int,
        *,
        cells: CellFunction,
        repeat: float,
        planner: Planner | None,
        ends_on_life_loss: bool,
        lives_for: LivesUse | None,
        on_error: Any,
    ) -> None:
        self._env, self._archive, self._choose = env, archive, choose
        self._cells, self._repeat, self._planner = cells, repeat, planner
        self._ends_on_life_loss, self._lives_for = ends_on_life_loss, lives_for
        self._on_error = on_error
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

    def begin(self, rows: NDArray[np.intp]) -> None:
        """Let some explorers begin at other cells, `[K]`."""
        archive, store = self._archive, self._archive.store
        cells = self._choose(len(rows))
        store.choose(cells)
        self._states[rows] = store.states(cells)
        self._nodes[rows], self._lives[rows] = store["nodes"][cells], store["lives"][cells]
        self._scores[rows], self._num_steps[rows] = store["scores"][cells], store["num_steps"][cells]
        self._is_first[rows] = True
        for row in rows.tolist():
            self._since[row], self._planned[row] = [], []
        if self._planner is not None:
            seeds = archive.generator.integers(2**63, size=len(rows))
            for row, plan in zip(rows.tolist(), self._plans(self._planner, rows, seeds), strict=True):
                if plan is not None:
                    self._planned[row] = _sequence(plan, archive.origin.dt)[::-1]
                    archive.num_env_steps += plan.num_env_steps

    def _plans(self, planner: Planner, rows: NDArray[np.intp], seeds: NDArray[np.int64]) -> list[Plan | None]:
        """Return the plans of some explorers; None where a step raised and errors are masked."""
        infos = [{} if np.isnan(lives) else {"lives": lives} for lives in self._lives[rows]]
        try:
            return [*planner.plan_batch(self._env, self._states[rows], seeds=seeds, infos=infos)]
        except EnvError:
            if self._on_error == "raise":
                raise
        if len(rows) == 1:
            return [None]
        return [  # one by one, so that no plan depends on the others
            self._plans(planner, rows[index : index + 1], seeds[index : index + 1])[0]
            for index in range(len(rows))
        ]

    def begin_all(self) -> None:
        """Let all explorers begin at other cells."""
        self.begin(np.arange(len(self._states)))

    def send(self) -> Promise[Transitions]:
        """Request the next step of all explorers."""
        generator, num_rows = self._archive.generator, len(self._states)
        space = self._env.action_space
        drawn = uniform_actions(space, generator, num_rows)
        repeats = (generator.random(num_rows) < self._repeat) & ~self._is_first
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
            on_error=self._on_error,
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
        lost = self._lost_lives(out, failed)
        self._states = out.new_states
        self._scores = self._scores + np.where(failed, 0.0, out.rewards)
        self._num_steps += 1
        for row in np.flatnonzero(~(failed | lost)).tolist():
            self._arrive(row, keys[row], bool(ended[row]))
        over = np.flatnonzero(ended | lost | failed)
        if len(over):
            self.begin(over)

    def _lost_lives(self, out: Transitions, failed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which explorers have lost a life and stop for it."""
        if self._lives_for is None:
            return np.zeros(len(failed), np.bool_)
        lives = stacked_lives(out.infos, ~failed, self._lives_for)
        lost: NDArray[np.bool_] = lives < self._lives
        self._lives = lives
        return lost & self._ends_on_life_loss

    def _arrive(self, row: int, key: NDArray[Any], ended: bool) -> None:
        """Add the state of an explorer to the archive if it is the best of its cell."""
        since = self._since[row]
        since.append((self._actions[row], None if self._seeds is None else int(self._seeds[row])))
        arrival = Arrival(
            key, self._states[row], self._scores[row], int(self._num_steps[row]), ended, self._lives[row]
        )
        if not self._archive.store.visit(arrival):
            return
        node = int(self._nodes[row])
        for action, seed in since:
            node = self._archive.steps.add(node, action, seed)
        since.clear()
        self._nodes[row] = node
        self._archive.store.put(arrival, node, self._archive.num_env_steps)


def _sequence(plan: Plan, dt: int) -> list[Any]:
    """Return the best actions of a plan, each as often as it is repeated in steps of `dt`."""
    return [
        action
        for action, num in zip(plan.best_actions, plan.best_num_steps.tolist(), strict=True)
        for _ in range(-(-num // dt))
    ]
