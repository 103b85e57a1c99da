"""One decision under way, and the loop that all planners share.

A search asks for batches and is told what came; it never sees when, so that what it finds cannot depend
on the number of workers:

    Search.simulate()  --yield StepRequest-->  drive()  --step_batch(blocking=False)-->  env
          ^                                      |  ^                                     |
          +----------send(Transitions)-----------+  +--------------promise.result()-------+

A search may keep several of these generators in flight: while the workers step for one of them, the
others select and learn. Those of several searches (several roots) are sent to the workers as one batch.

Letters: B rows.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.plan import Plan
from planvec.rows import BatchStepper, Transitions
from planvec.rows.space_arrays import is_fixed, take_rows

__all__ = [
    "Budget",
    "PlanCallback",
    "RolloutRequest",
    "Search",
    "Simulation",
    "StepRequest",
    "drive",
    "ended_error",
]

PlanCallback = Callable[[int, int], bool | None]
"""`callback(num_simulations, num_env_steps)` after each batch; True stops the search."""


class StepRequest(NamedTuple):
    """Arguments of `step_batch`, answered by `Transitions` of these rows.

    A search gives seeds in all of its requests or in none, as the others of its planner do.
    """

    actions: NDArray[Any]
    states: NDArray[Any]
    dt: NDArray[np.int64]
    seeds: NDArray[np.uint64] | None


class RolloutRequest(NamedTuple):
    """Arguments of `rollout_batch`, answered by `Rollouts`."""

    states: NDArray[Any]
    horizon: int
    actions: NDArray[Any] | None
    seed: int | None
    seeds: NDArray[np.uint64] | None
    discount: float


Simulation = Generator[StepRequest | RolloutRequest, Any, None]
"""Asks by `yield`, is told by `send`."""


class Budget(NamedTuple):
    """Whatever is spent first ends a decision; None has no limit.

    Attributes:
        max_env_steps: Environment steps per root. No batch begins once they are spent; those in
            flight are still counted.
        max_seconds: From the call on.
    """

    max_env_steps: int | None
    max_seconds: float | None


class Search(ABC):
    """One decision under way.

    Attributes:
        num_in_flight: How many simulations may be under way at once.
        num_simulations: Counted by the search.
        num_env_steps: Counted by `drive`.
        stop_reason: Set to end the search; what is under way is finished first.
    """

    num_in_flight = 1
    num_simulations = 0
    num_env_steps = 0
    stop_reason: str | None = None

    @abstractmethod
    def simulate(self) -> Simulation:
        """A batch of simulations. One that asks for nothing and changes nothing waits for the others."""

    @abstractmethod
    def plan(self, elapsed: float) -> Plan:
        """The decision, in the end.

        Args:
            elapsed: Seconds, for the plan.
        """


class _Turn(NamedTuple):
    """A request and who made it."""

    search: Search
    simulation: Simulation
    request: StepRequest | RolloutRequest


class _Sent(NamedTuple):
    """Turns that went to the workers as one batch, and the promise of its answer."""

    turns: list[_Turn]
    promise: Any


def drive(
    env: BatchStepper,
    searches: Sequence[Search],
    budget: Budget,
    started: float,
    callback: PlanCallback | None = None,
) -> None:
    """Run searches to their end.

    Args:
        env: The stepper.
        searches: One per root.
        budget: Ends each of them.
        started: `time.perf_counter()` when the seconds began.
        callback: Called after each batch with the sums over all roots; True stops.
    """
    under_way = [0] * len(searches)
    index = {id(search): number for number, search in enumerate(searches)}
    pending: deque[_Sent] = deque()
    try:
        while True:
            turns, has_moved = [], False
            # One of each search: two of one search, sent as one batch, would come back together for ever,
            # and the workers wait while both learn.
            for number, search in enumerate(searches):
                if search.stop_reason is None and under_way[number] < search.num_in_flight:
                    before = search.num_simulations
                    turn = _begin(search)
                    if turn is not None:
                        turns.append(turn)
                        under_way[number] += 1
                    has_moved = has_moved or search.num_simulations > before
            if turns or has_moved:
                pending.extend(_send(env, turns))
                if has_moved:
                    _check(searches, budget, started, callback)
                continue
            if not pending:
                return
            turns = []
            sent = pending.popleft()
            for turn, answer in _answers(sent):
                request = _tell(turn, answer)
                if request is None:
                    under_way[index[id(turn.search)]] -= 1
                else:
                    turns.append(turn._replace(request=request))
            pending.extend(_send(env, turns))
            _check(searches, budget, started, callback)
    except BaseException:
        for sent in pending:
            abandon = getattr(sent.promise, "abandon", None)
            if abandon is not None:
                abandon()
        raise


def _begin(search: Search) -> _Turn | None:
    """Start a simulation; None where it asks for nothing."""
    simulation = search.simulate()
    request = next(simulation, None)
    return None if request is None else _Turn(search, simulation, request)


def _tell(turn: _Turn, answer: Any) -> StepRequest | RolloutRequest | None:
    """Hand an answer over; returns what the simulation asks for next, None at its end."""
    has_stepped = isinstance(turn.request, StepRequest)
    num_steps = answer.infos["num_steps"] if has_stepped else answer.num_steps
    turn.search.num_env_steps += int(num_steps.sum())
    if not turn.search.num_env_steps:
        raise ended_error()
    if isinstance(turn.request, StepRequest) and np.isnan(answer.rewards).any():
        action = turn.request.actions[np.isnan(answer.rewards).argmax()]
        raise InvalidBatchError(
            f"rewards: expected numbers, got nan for action {action}, which no mean could go on with; wrap "
            "the environment in gymnasium.wrappers.TransformReward"
        )
    try:
        return turn.simulation.send(answer)
    except StopIteration:
        return None


def ended_error() -> InvalidBatchError:
    """What a planner raises at a state whose episode has ended."""
    return InvalidBatchError(
        "state: expected one whose episode goes on, got one that has ended; start another one with "
        "env.reset()"
    )


def _check(searches: Sequence[Search], budget: Budget, started: float, callback: PlanCallback | None) -> None:
    """Stop the searches whose budget is spent."""
    late = budget.max_seconds is not None and time.perf_counter() - started >= budget.max_seconds
    stop = callback is not None and callback(
        sum(search.num_simulations for search in searches), sum(search.num_env_steps for search in searches)
    )
    for search in searches:
        spent = budget.max_env_steps is not None and search.num_env_steps >= budget.max_env_steps
        if search.stop_reason is None and (late or stop or spent):
            search.stop_reason = "callback" if stop else "max_env_steps" if spent else "max_seconds"


def _send(env: BatchStepper, turns: list[_Turn]) -> list[_Sent]:
    """Send requests to the workers: all steps as one batch, every rollout by itself.

    Random rollouts draw by the number of a row in its batch, which must not depend on the other roots.
    """
    steps = [turn for turn in turns if isinstance(turn.request, StepRequest)]
    # Observations that are no arrays cannot be parted again.
    groups = [steps] if steps and is_fixed(env.observation_space) else [[turn] for turn in steps]
    sent = [_Sent(group, _step(env, [turn.request for turn in group])) for group in groups]
    for turn in turns:
        if isinstance(turn.request, RolloutRequest):
            sent.append(_Sent([turn], _roll_out(env, turn.request)))
    return sent


def _step(env: BatchStepper, requests: list[Any]) -> Any:
    actions, states, dt, seeds = (
        column[0] if len(column) == 1 or column[0] is None else np.concatenate(column)
        for column in zip(*requests, strict=True)
    )
    return env.step_batch(actions, states, dt, seeds=seeds, blocking=False)


def _roll_out(env: BatchStepper, request: RolloutRequest) -> Any:
    states, horizon, actions, seed, seeds, discount = request
    return env.rollout_batch(
        states, horizon, actions=actions, action_seed=seed, seeds=seeds, discount=discount, blocking=False
    )


def _answers(sent: _Sent) -> list[tuple[_Turn, Any]]:
    """What each of the turns gets of the answer to all of them."""
    answer = sent.promise.result()
    if len(sent.turns) == 1:
        return [(sent.turns[0], answer)]
    parts, start = [], 0
    for turn in sent.turns:
        stop = start + len(turn.request.states)
        parts.append((turn, _rows(answer, slice(start, stop))))
        start = stop
    return parts


def _rows(out: Transitions, rows: slice) -> Transitions:
    assert out.new_states is not None
    return Transitions(
        out.new_states[rows],
        take_rows(out.observations, rows),
        out.rewards[rows],
        out.terminated[rows],
        out.truncated[rows],
        _info_rows(out.infos, rows),
    )


def _info_rows(infos: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {
        key: _info_rows(value, rows) if isinstance(value, dict) else value[rows]
        for key, value in infos.items()
    }
