"""Runs one search in compiled loops. Letters: K slots, S bytes of a state."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import PlanvecError
from planvec.planners.driver import Budget, PlanCallback
from planvec.planners.mcts.compiled.performing import Draws
from planvec.planners.mcts.compiled.performing import run as loop
from planvec.planners.mcts.rules import SINGLE
from planvec.planners.mcts.search import TreeSearch
from planvec.planners.mcts.simulations.progress import (
    CALLBACK,
    ENDED,
    GOES_ON,
    LEAVES,
    MAX_ENV_STEPS,
    MAX_SECONDS,
    NUM_CHUNKS,
    NUM_ENV_STEPS,
    NUM_EVENTS,
    NUM_QUEUED,
    NUM_ROWS,
    NUM_SIMULATIONS,
    REFUSED,
    STOP,
    STOP_REASONS,
    new_steps,
)
from planvec.planners.requests import perform
from planvec.planners.search import Request, RolloutRequest, StepRequest, ended_error
from planvec.rows import (
    BatchStepper,
    KernelUse,
    Outputs,
    RolloutBatch,
    Rollouts,
    StepBatch,
)

__all__ = ["CompiledRun"]

_log = logging.getLogger("planvec")

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
        config, simulations = search.config, search.simulations
        num_slots, num_seeds = config.batch_size, config.batch_size * (search.rules.chance != SINGLE)
        self._progress = simulations.progress
        self._answers = new_steps(num_slots, simulations.shared.limits.state_bytes)
        self._draws = Draws(
            _words_of(search.generator), np.zeros(num_seeds, np.uint64), np.zeros(2, np.uint64)
        )
        self._arguments = (
            *(simulations.memory, self._answers, self._draws, use.kernel.time_limit),
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
        totals, status = self._progress.totals, REFUSED
        max_events = 16 if callback is None else 1
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
            if callback is None and status != REFUSED:  # which pauses the loop before
                max_events = max(1, max_events * 2 if seconds < _SECONDS_PER_RUN / 2 else max_events // 2)
        self._finish()

    def _advance(self, max_events: int) -> int:
        """Run the loop once. Returns its status.

        Raises:
            PlanvecError: The environment was changed, so that its kernel cannot step any more.
        """
        try:
            status: int | None = self._loop(*self._arguments, max_events)
        except Exception:  # of the function of a user; the environment tells what is wrong
            _log.debug("the environment performs a request of a search itself", exc_info=True)
            return REFUSED
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
        _put_words(search.generator, self._draws.random)

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

    def _request(self, half: int) -> Request:
        """Return the request of a half, in arrays of its own."""
        simulations, config = self._search.simulations, self._search.config
        rows = simulations.rows(half)
        states = simulations.states(rows).copy()
        seeds = self._draws.seeds[rows].copy() if len(self._draws.seeds) else None
        if self._progress.stages[half] == LEAVES:
            action_seed = int(self._draws.action_seeds[half])
            return RolloutRequest(states, config.rollout_steps, None, action_seed, seeds, config.discount)
        return StepRequest(simulations.actions_of(rows).copy(), states, config.dt, seeds)

    def _outputs(self, half: int) -> Outputs:
        """Return the memory of the answer of a half."""
        simulations, answers = self._search.simulations, self._answers
        rows = simulations.rows(half)
        return Outputs(
            new_states=simulations.states_in(answers.new_states, rows),
            rewards=answers.rewards[rows],
            terminated=answers.terminated[rows].view(np.bool_),
            truncated=answers.truncated[rows].view(np.bool_),
            num_steps=answers.num_steps[rows],
        )

    def _perform_outside(self) -> None:
        """Let the environment perform the request of the half that was queued last."""
        half = int(self._progress.queue[self._progress.totals[NUM_QUEUED] - 1])
        out = perform(self._env, self._request(half), are_averaged=True)
        if isinstance(out, Rollouts):
            answer = Outputs(out.final_states, rewards=out.returns, num_steps=out.num_steps)
        else:
            answer = Outputs(out.new_states, rewards=out.rewards, num_steps=out.infos["num_steps"])
        answer.terminated, answer.truncated = out.terminated, out.truncated
        self._outputs(half).put(slice(None), answer)

    def _audited(self, half: int) -> tuple[StepBatch | RolloutBatch, Outputs]:
        """Return the request of a half and its answer, for an audit."""
        request = self._request(half)
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
        return batch, self._outputs(half)


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
