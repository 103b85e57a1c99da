"""Runs one search in compiled loops. Letters: K slots, S bytes of a state."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import PlanvecError
from planvec.planners.driver import Budget, PlanCallback, perform
from planvec.planners.mcts.compiled.performing import run as loop
from planvec.planners.mcts.compiled.progress import (
    CALLBACK,
    ENDED,
    GOES_ON,
    MAX_ENV_STEPS,
    MAX_SECONDS,
    NUM_CHUNKS,
    NUM_ENV_STEPS,
    NUM_EVENTS,
    NUM_QUEUED,
    NUM_ROWS,
    NUM_SIMULATIONS,
    REFUSED,
    ROLLING,
    STOP,
    STOP_REASONS,
    Limits,
    new_progress,
    new_requests,
)
from planvec.planners.mcts.compiled.table import Table, enter_tree, new_table
from planvec.planners.mcts.rules import OPEN_LOOP, SINGLE
from planvec.planners.mcts.search import TreeSearch
from planvec.planners.search import Request, RolloutRequest, StepRequest, ended_error
from planvec.rows import (
    GENERATOR_FIELD,
    BatchStepper,
    KernelUse,
    Outputs,
    RolloutBatch,
    Rollouts,
    StepBatch,
)

__all__ = ["CompiledRun"]

_SECONDS_PER_RUN = 5e-3
"""Time after which the loop pauses, to look at the clock and at Ctrl-C."""


class CompiledRun:
    """Runs a search to its end, without Python between simulations.

    Args:
        search: A search that has not begun.
        env: The stepper.
        use: The use of its kernel.
        budget: The limits of the search.
        started: `time.perf_counter()` at the beginning of the call.
    """

    def __init__(
        self, search: TreeSearch, env: BatchStepper, use: KernelUse, budget: Budget, started: float
    ) -> None:
        self._search, self._env, self._use = search, env, use
        self._budget, self._started = budget, started
        config, rules, tree = search.config, search.rules, search.tree
        is_open_loop, has_seeds = rules.chance == OPEN_LOOP, rules.chance != SINGLE
        self._state_bytes = search.root_state.dtype.itemsize
        action_bytes = tree.actions[0].nbytes
        num_slots = config.batch_size
        self._progress = new_progress(search.halves)
        self._requests = new_requests(num_slots, self._state_bytes, action_bytes, has_seeds, is_open_loop)
        self._random = _words_of(search.generator)
        states = np.empty(0, np.uint8) if tree.states is None else _bytes_of(tree.states)
        self._table = _table_of(search, states)
        limit, max_steps = config.simulation_limit, budget.max_env_steps
        limits = Limits(
            -1 if limit is None else limit,
            -1 if max_steps is None else max_steps,
            use.kernel.time_limit,
            config.rollout_steps,
            float(config.discount),
            self._state_bytes,
            action_bytes,
        )
        self._arguments = (
            *(tree.arrays, search.paths, states, _bytes_of(tree.actions), _bytes_of(search.root_state)),
            *(rules, limits, self._table, float(config.discount) ** np.arange(config.dt + 1)),
            *(self._random, self._progress, self._requests),
            None if config.dt == 1 else np.full(num_slots, config.dt),
            use.kernel.action_range,
        )
        self._seconds = 0.0  # since the last audit
        self._num_recorded = (0, 0)

    def load(self) -> None:
        """Compile the loop, or load it from the cache."""
        has_repeats = self._search.config.dt > 1
        self._loop = self._use.kernel.open_loop(loop, has_repeats, *self._arguments, 1)

    def run(self, callback: PlanCallback | None, cancelled: Any) -> None:
        """Run the search.

        Args:
            callback: As for `drive`: called after each batch.
            cancelled: An event that ends the run: another one has failed.

        Raises:
            InvalidBatchError: The episode of the root had ended, or a reward is NaN.
            UnsupportedEnvError: An audit failed.
        """
        totals, max_events, status = self._progress.totals, 1, REFUSED
        while status and not cancelled.is_set():
            started, num_events = time.perf_counter(), totals[NUM_EVENTS]
            was_stopped = totals[STOP] != GOES_ON
            status = self._advance(max_events)
            seconds = time.perf_counter() - started
            self._record(seconds)
            if status == ENDED:
                raise ended_error()
            if status == REFUSED:
                self._perform_outside()
            has_event = totals[NUM_EVENTS] > num_events
            if callback is not None and has_event and callback(*self._counts()):
                if not was_stopped and totals[STOP] in (GOES_ON, MAX_ENV_STEPS):
                    totals[STOP] = CALLBACK
            elif totals[STOP] == GOES_ON and self._is_late():
                totals[STOP] = MAX_SECONDS
            if callback is None:
                max_events = max(1, max_events * 2 if seconds < _SECONDS_PER_RUN / 2 else max_events // 2)
        self._finish()

    def _advance(self, max_events: int) -> int:
        """Run the loop once. Returns its status.

        Raises:
            PlanvecError: The environment was changed, so that its kernel cannot step any more.
        """
        status: int | None = self._loop(*self._arguments, max_events)
        if status is None:
            raise PlanvecError(
                "env: expected an environment that does not change during a search, got one whose attributes "
                "or methods were changed; change it between two searches"
            )
        return status

    def _counts(self) -> tuple[int, int]:
        """Return the numbers of simulations and of environment steps."""
        totals = self._progress.totals
        return int(totals[NUM_SIMULATIONS]), int(totals[NUM_ENV_STEPS])

    def _is_late(self) -> bool:
        limit = self._budget.max_seconds
        return limit is not None and time.perf_counter() - self._started >= limit

    def _finish(self) -> None:
        """Write the counts and the random generator of the search."""
        search = self._search
        search.num_simulations, search.num_env_steps = self._counts()
        search.stop_reason = STOP_REASONS[self._progress.totals[STOP]]
        _put_words(search.generator, self._random)

    def _record(self, seconds: float) -> None:
        """Count rows and chunks, and audit a row from time to time."""
        totals = self._progress.totals
        num_rows, num_chunks = int(totals[NUM_ROWS]), int(totals[NUM_CHUNKS])
        self._use.record(num_rows - self._num_recorded[0], num_chunks - self._num_recorded[1])
        self._num_recorded = num_rows, num_chunks
        self._seconds += seconds
        if self._seconds >= _SECONDS_PER_RUN and totals[NUM_QUEUED]:
            self._use.audit(*self._audited(int(self._progress.queue[0])), self._seconds)
            self._seconds = 0.0

    # -- requests as arrays -----------------------------------------------------------------------

    def _rows(self, half: int) -> slice:
        """Return the rows of the buffers that the request of a half takes."""
        first = int(self._progress.bounds[half])
        return slice(first, first + int(self._progress.num_rows[half]))

    def _states(self, data: NDArray[np.uint8], rows: slice) -> NDArray[Any]:
        """Return states in the buffers, as a view."""
        size = self._state_bytes
        part: NDArray[Any] = data[rows.start * size : rows.stop * size]
        return part.view(self._search.root_state.dtype)

    def _request(self, half: int) -> Request:
        """Return the request of a half, in arrays of its own."""
        rows, requests, config = self._rows(half), self._requests, self._search.config
        states = self._states(requests.states, rows).copy()
        seeds = requests.seeds[rows].copy() if len(requests.seeds) else None
        if self._progress.stages[half] == ROLLING:
            action_seed = int(requests.action_seeds[half])
            return RolloutRequest(states, config.rollout_steps, None, action_seed, seeds, config.discount)
        like = self._search.tree.actions
        size = like[0].nbytes
        actions = requests.actions[rows.start * size : rows.stop * size].copy().view(like.dtype)
        actions = actions.reshape(-1, *like.shape[1:])
        return StepRequest(actions, states, np.full(len(states), config.dt), seeds)

    def _perform_outside(self) -> None:
        """Let the environment perform the request of the half that was queued last."""
        half = int(self._progress.queue[self._progress.totals[NUM_QUEUED] - 1])
        rows, requests = self._rows(half), self._requests
        out = perform(self._env, self._request(half))
        is_rollout = isinstance(out, Rollouts)
        self._states(requests.new_states, rows)[:] = out.new_states
        requests.rewards[rows] = out.returns if is_rollout else out.rewards
        requests.terminated[rows], requests.truncated[rows] = out.terminated, out.truncated
        requests.num_steps[rows] = out.num_steps if is_rollout else out.infos["num_steps"]

    def _audited(self, half: int) -> tuple[StepBatch | RolloutBatch, Outputs]:
        """Return the request of a half and its answer, for an audit."""
        rows, answer, request = self._rows(half), self._requests, self._request(half)
        batch: StepBatch | RolloutBatch
        if isinstance(request, StepRequest):
            dt = self._search.config.dt
            repeats = np.full(len(request.states), dt)
            batch = StepBatch(request.states, request.actions, repeats, request.seeds, same_dt=dt)
        else:
            assert request.action_seed is not None
            batch = RolloutBatch(
                request.states,
                request.horizon,
                None,
                request.action_seed,
                seeds=request.seeds,
                discount=request.discount,
            )
        outputs = Outputs(
            new_states=self._states(answer.new_states, rows),
            rewards=answer.rewards[rows],
            terminated=answer.terminated[rows].view(np.bool_),
            truncated=answer.truncated[rows].view(np.bool_),
            num_steps=answer.num_steps[rows],
        )
        return batch, outputs


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of a contiguous array, as a view."""
    flat: NDArray[np.uint8] = array.reshape(-1).view(np.uint8)
    return flat


def _table_of(search: TreeSearch, states: NDArray[np.uint8]) -> Table:
    """Return the transposition table of a search, with what its tree contains."""
    arrays, dtype = search.tree.arrays, search.root_state.dtype
    shares_nodes = bool(search.config.transpositions)
    if search.rules.chance == SINGLE and not shares_nodes:
        return new_table(1, False, (-1, -1, -1, -1))  # every transition is new
    key = (0, dtype.itemsize, 0, 0)
    assert dtype.fields is not None
    if search.rules.chance == OPEN_LOOP:
        key = (-1, -1, -1, -1)
    elif GENERATOR_FIELD in dtype.fields and not search.foresees_chance:
        generator, offset = dtype.fields[GENERATOR_FIELD][:2]
        key = (0, offset, offset + generator.itemsize, dtype.itemsize)
    table = new_table(len(arrays.nodes), shares_nodes, key)
    enter_tree(table, arrays, states, dtype.itemsize)
    return table


def _words_of(generator: np.random.Generator) -> NDArray[np.uint64]:
    """Return the state of a PCG64 generator as words; see `planvec.kernels.random`."""
    state = generator.bit_generator.state
    low = 2**64 - 1
    numbers = [state["state"]["state"], state["state"]["inc"]]
    words = [part for number in numbers for part in (number & low, number >> 64)]
    return np.array([*words, state["uinteger"], state["has_uint32"]], np.uint64)


def _put_words(generator: np.random.Generator, words: NDArray[np.uint64]) -> None:
    """Set the state of a PCG64 generator from words."""
    state = generator.bit_generator.state
    state["state"]["state"] = int(words[0]) | int(words[1]) << 64
    generator.bit_generator.state = state
