"""The loop that runs the searches of all planners.

    Search.simulate()  --yield StepRequest-->  drive()  --step_batch(blocking=False)-->  env
          ^                                      |  ^                                     |
          +----------send(Transitions)-----------+  +--------------promise.result()-------+

A search may have several of its generators in flight: while the workers step for one of them, the others
select and back up. The step requests of several searches (several roots) are sent as one batch.

Letters: B rows.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import GeneratorType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.search import Request, RolloutRequest, Search, Simulation, StepRequest, ended_error
from planvec.rows import BatchStepper, Promise, Rollouts, Transitions, is_fixed, take_rows

# -- Sends the requests of searches to a stepper, and divides its answers among them. Letters: B rows --------


def check_answer(request: Request, out: Transitions | Rollouts, are_averaged: bool) -> None:
    """Check that an answer has the rows of its request, and that planners can compute with its rewards."""
    # Compiled code reads the answers of steppers of any kind, and would read beyond one that is too short.
    if isinstance(out, Rollouts):
        numbers, num_steps, states = out.returns, out.num_steps, out.final_states
    else:
        numbers, num_steps, states = out.rewards, out.infos["num_steps"], out.new_states
    shape = request.states.shape
    fits = (
        _fits(numbers, shape, "fiub")
        and _fits(out.terminated, shape, "b")
        and _fits(out.truncated, shape, "b")
        and _fits(num_steps, shape, "iu")
        and _fits(states, shape, request.states.dtype.kind)
        and states.dtype == request.states.dtype
    )
    observations = None if isinstance(out, Rollouts) else out.observations
    if not fits or (isinstance(observations, np.ndarray) and len(observations) != len(states)):
        raise _unfit_error(request, out)
    if are_averaged or isinstance(request, StepRequest):
        actions = request.actions if isinstance(request, StepRequest) else None
        check_numbers(numbers, are_averaged, actions)


def _fits(part: Any, shape: tuple[int, ...], kinds: str) -> bool:
    """Return whether a part of an answer is an array of a shape, and of one of some kinds of numbers."""
    return isinstance(part, np.ndarray) and part.shape == shape and part.dtype.kind in kinds


def _unfit_error(request: Request, out: Transitions | Rollouts) -> InvalidBatchError:
    """Return the error for an answer of other sizes or types."""
    name = "step_batch" if isinstance(request, StepRequest) else "rollout_batch"
    parts = {**out._asdict(), **(out.infos if isinstance(request, StepRequest) else {})}
    got = ", ".join(f"{key} {_form(part)}" for key, part in parts.items() if key != "infos")
    return InvalidBatchError(
        f"{name}: expected arrays of {len(request.states)} rows: states of the state_dtype, numbers as "
        f"rewards, bools as flags and integers as num_steps; got {got}"
    )


def _form(part: Any) -> str:
    """Return the type of a part of an answer."""
    if not isinstance(part, np.ndarray):
        return type(part).__name__
    return f"{'records' if part.dtype.names else part.dtype} {part.shape}"


def check_numbers(numbers: NDArray[Any], are_averaged: bool, actions: Any) -> None:
    """Check that rewards or returns are numbers, and finite if they are averaged."""
    # `numbers`: `[B]`.
    if not len(numbers):
        return
    lowest = numbers.item(numbers.argmin())  # NaN if any of them is
    if are_averaged:
        are_right = math.isfinite(lowest) and math.isfinite(numbers.item(numbers.argmax()))
    else:
        are_right = not math.isnan(lowest)
    if are_right:
        return
    row = int((~np.isfinite(numbers) if are_averaged else np.isnan(numbers)).argmax())
    what, where = "returns of rollouts", ""
    if actions is not None:
        what, where = "rewards", f" for action {actions[row]}"
    raise InvalidBatchError(
        f"{what}: expected {'finite ' * are_averaged}numbers, got {numbers[row]}{where}, which would make "
        "every mean nan; wrap the environment in gymnasium.wrappers.TransformReward"
    )


def send_steps(env: BatchStepper, requests: list[Any]) -> Promise[Transitions]:
    """Step the rows of several requests as one batch."""
    if len(requests) == 1:
        actions, states, dt, seeds = requests[0]
    else:
        actions = np.concatenate([request.actions for request in requests])
        states = np.concatenate([request.states for request in requests])
        dt = np.concatenate([np.broadcast_to(request.dt, len(request.states)) for request in requests])
        seeds = None
        if requests[0].seeds is not None:
            seeds = np.concatenate([request.seeds for request in requests])
    promise: Promise[Transitions] = env.step_batch(actions, states, dt, seeds=seeds, blocking=False)
    return promise


def send_rollouts(env: BatchStepper, request: RolloutRequest) -> Promise[Rollouts]:
    """Roll out the rows of a request."""
    promise: Promise[Rollouts] = env.rollout_batch(
        request.states,
        request.horizon,
        actions=request.actions,
        action_seed=request.action_seed,
        seeds=request.seeds,
        discount=request.discount,
        blocking=False,
    )
    return promise


_FEW = 64  # numbers that Python adds up faster than NumPy

# `callback(num_simulations, num_env_steps)` after each batch; True stops the search
PlanCallback = Callable[[int, int], bool | None]


class PlanProgress:
    """A plan callback that shows progress now and then, and never stops a search."""

    # Compiled searches need not pause after each batch for it, so that it costs next to nothing.

    def __init__(self, show: Callable[[int, int], object], seconds: float = 0.1) -> None:
        self._show = show
        self._seconds = seconds
        self._next = time.perf_counter() + seconds

    def __call__(self, num_simulations: int, num_env_steps: int) -> None:
        """Show the progress if it is time."""
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + self._seconds
            self._show(num_simulations, num_env_steps)


class Budget(NamedTuple):
    """Limits of a decision, of which the first one reached ends it; None: no limit."""

    # Environment steps per root. No batch begins after them; those in flight are still counted.
    max_env_steps: int | None
    max_seconds: float | None  # seconds since the beginning of the call


class _Pending(NamedTuple):
    """A request of a search, and the simulation that waits for its answer."""

    number: int  # index of the search
    simulation: Simulation  # the generator that yielded the request
    request: Request


class _Batch(NamedTuple):
    """Requests that were sent to the workers as one batch, and the promise of its answer."""

    members: list[_Pending]
    promise: Promise[Any]


def drive(
    env: BatchStepper,
    searches: Sequence[Search],
    budget: Budget,
    started: float,
    callback: PlanCallback | None = None,
) -> None:
    """Run searches to their end."""
    driver = _Driver(env, searches, budget, started, callback)
    try:
        while driver.start_simulations() or driver.receive():
            pass
    except BaseException:
        driver.abandon()
        raise


class _Driver:
    """Sends the requests of searches to the workers and passes on the answers, in the order of sending."""

    def __init__(
        self,
        env: BatchStepper,
        searches: Sequence[Search],
        budget: Budget,
        started: float,
        callback: PlanCallback | None,
    ) -> None:
        self._env = env
        self._searches = searches
        self._budget = budget
        self._started = started
        self._callback = callback
        self._num_in_flight = [0] * len(searches)
        self._batches: deque[_Batch] = deque()

    def start_simulations(self) -> bool:
        """Start at most one simulation of each search; return whether any made progress."""
        # With two of one search in one batch, both answers would always arrive together, and the workers
        # would be idle while both are processed.
        members, has_completed = [], False
        for number, search in enumerate(self._searches):
            if search.stop_reason is None and self._num_in_flight[number] < search.num_in_flight:
                before = search.num_simulations
                simulation = _begun(search)
                request = _next_request(search, simulation, None)
                if request is not None:
                    members.append(_Pending(number, simulation, request))
                    self._num_in_flight[number] += 1
                has_completed = has_completed or search.num_simulations > before
        self._send(members)
        if has_completed:
            self._check_budget()
        return bool(members) or has_completed

    def receive(self) -> bool:
        """Pass on the answer to the oldest batch; return False where none is in flight."""
        if not self._batches:
            return False
        members = []
        for member, answer in _answers(self._batches.popleft()):
            request = self._resume(member, answer)
            if request is None:
                self._num_in_flight[member.number] -= 1
            else:
                members.append(member._replace(request=request))
        self._send(members)
        self._check_budget()
        return True

    def abandon(self) -> None:
        """Give up the answers that are still to come."""
        for batch in self._batches:
            batch.promise.abandon()

    def _resume(self, member: _Pending, answer: Any) -> Request | None:
        """Send a simulation its answer; return its next request, None at its end."""
        search, request = self._searches[member.number], member.request
        check_answer(request, answer, search.averages)
        num_steps = answer.infos["num_steps"] if isinstance(request, StepRequest) else answer.num_steps
        search.num_env_steps += _sum(num_steps)
        if not search.num_env_steps:
            raise ended_error()
        return _next_request(search, member.simulation, answer)

    def _check_budget(self) -> None:
        """Stop the searches that have reached a limit."""
        budget, searches = self._budget, self._searches
        late = budget.max_seconds is not None and time.perf_counter() - self._started >= budget.max_seconds
        stop = self._callback is not None and self._callback(
            sum(search.num_simulations for search in searches),
            sum(search.num_env_steps for search in searches),
        )
        for search in searches:
            spent = budget.max_env_steps is not None and search.num_env_steps >= budget.max_env_steps
            if search.stop_reason is None and (late or stop or spent):
                search.stop_reason = "callback" if stop else "max_env_steps" if spent else "max_seconds"

    def _send(self, members: list[_Pending]) -> None:
        """Send requests to the workers: all steps as one batch, every rollout as a batch of its own."""
        # Random rollouts draw by the index of a row in its batch, which must not depend on the other roots.
        if not members:
            return
        env = self._env
        steps = [member for member in members if isinstance(member.request, StepRequest)]
        # A batch of observations that are no arrays cannot be split again.
        is_one_batch = len(steps) == 1 or (bool(steps) and is_fixed(env.observation_space))
        for group in [steps] if is_one_batch else [[member] for member in steps]:
            self._batches.append(_Batch(group, send_steps(env, [member.request for member in group])))
        if len(steps) == len(members):
            return
        for member in members:
            if isinstance(member.request, RolloutRequest):
                self._batches.append(_Batch([member], send_rollouts(env, member.request)))


def _begun(search: Search) -> Simulation:
    """Return a new simulation of a search."""
    simulation = search.simulate()
    if not isinstance(simulation, GeneratorType):
        raise TypeError(
            f"{type(search).__name__}.simulate: expected a generator, got {type(simulation).__name__}; "
            "request steps by out = yield planvec.StepRequest(actions, states)"
        )
    return simulation


def _next_request(search: Search, simulation: Simulation, answer: Any) -> Request | None:
    """Send a simulation an answer (None: it begins); return its next request, None at its end."""
    try:
        request = simulation.send(answer)
    except StopIteration:
        return None
    if not isinstance(request, (StepRequest, RolloutRequest)):
        raise TypeError(
            f"{type(search).__name__}.simulate: expected it to yield StepRequests or RolloutRequests, got "
            f"{type(request).__name__}; out = yield planvec.StepRequest(actions, states) gets transitions"
        )
    return request


def _sum(numbers: NDArray[np.int64]) -> int:
    """Return the sum of integers. NumPy takes longer to begin than to add up a small batch."""
    return sum(numbers.tolist()) if len(numbers) <= _FEW else int(numbers.sum())


def _answers(batch: _Batch) -> list[tuple[_Pending, Any]]:
    """Wait for the answer to a batch and split it into those of its requests."""
    answer = batch.promise.result()
    if len(batch.members) == 1:
        return [(batch.members[0], answer)]
    answers, start = [], 0
    for member in batch.members:
        stop = start + len(member.request.states)
        answers.append((member, Transitions(*(take_rows(part, slice(start, stop)) for part in answer))))
        start = stop
    return answers
