"""One decision in progress: what a planner implements, and the loop that runs the searches of all planners.

    Search.simulate()  --yield StepRequest-->  drive()  --step_batch(blocking=False)-->  env
          ^                                      |  ^                                     |
          +----------send(Transitions)-----------+  +--------------promise.result()-------+

A search requests batches and receives their results. It never learns when they were computed or by which
worker, so that its plan cannot depend on the number of workers. It may have several of its generators in
flight: while the workers step for one of them, the others select and back up. The step requests of several
searches (several roots) are sent as one batch.

Letters: B rows, H steps.
"""

from __future__ import annotations

import itertools
import math
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from types import GeneratorType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.plan import Plan
from planvec.rows import (
    BatchStepper,
    Promise,
    Rollouts,
    Transitions,
    copy_rows,
    empty_rows,
    is_fixed,
    take_rows,
)


class StepRequest(NamedTuple):
    """A request for `step_batch`; the answer is the `Transitions` of these rows.

    Attributes:
        actions: `[B, *action shape]`.
        states: `[B]`.
        dt: Environment steps for which each action is repeated: a number, or `[B]` int64.
        seeds: `[B]` uint64, fixes what is random in each row; None: the generator in the state decides, so
            that the planner foresees chance. A planner gives seeds in all of its requests or in none.
    """

    actions: np.ndarray
    states: np.ndarray
    dt: int | NDArray[np.int64] = 1
    seeds: NDArray[np.uint64] | None = None


class RolloutRequest(NamedTuple):
    """A request for `rollout_batch`; the answer is `Rollouts`.

    Attributes:
        states: `[B]`.
        horizon: H.
        actions: `[B, H, *action shape]`; None draws random ones.
        action_seed: Fixes the random actions.
        seeds: `[B]` uint64, fixes what is random in each row; see `StepRequest`.
        discount: Factor per environment step.
    """

    states: np.ndarray
    horizon: int
    actions: np.ndarray | None = None
    action_seed: int | None = None
    seeds: NDArray[np.uint64] | None = None
    discount: float = 1.0


class EvaluationRequest(NamedTuple):
    """A request to call a function of the user: once for the rows of all roots that need it at this time.

    Attributes:
        evaluate: `evaluate(observations, num_rows)`, which returns a tuple of arrays `[B, ...]`, or
            `[0, ...]`. The answer is such a tuple, for these rows. The searches of a planner share it.
        observations: `[B, ...]`, those of a batch.
        num_rows: B.
    """

    evaluate: Callable[[Any, int], tuple[np.ndarray, ...]]
    observations: Any
    num_rows: int


Request = StepRequest | RolloutRequest | EvaluationRequest

Simulation = Generator[Request, Any, None]  # A generator that yields requests and is sent their answers


class Search(ABC):
    """One decision in progress.

    Attributes:
        num_in_flight: How many simulations may run at once.
        num_simulations: Simulations completed, counted by the search.
        num_env_steps: Environment steps simulated, counted by the driver.
        averages: Whether the search averages rewards, which have to be finite.
        stop_reason: None while the search goes on. Setting it ends the search, once the simulations in
            flight are completed. See `Plan.stop_reason`.
        may_be_cut: Whether a batch may be cut at the end of `max_seconds`. Then the simulations that wait for
            it are closed (`GeneratorExit` is raised where they wait), but for those that `takes_parts`, and
            `plan` is called though none may be completed. Otherwise the last batches are waited for.
        takes_parts: Whether a simulation is sent a cut answer to a `RolloutRequest`, in which rows that are
            not complete have -1 as number of steps.
    """

    num_in_flight: int = 1
    num_simulations: int = 0
    num_env_steps: int = 0
    averages: bool = False
    may_be_cut: bool = False
    takes_parts: bool = False
    stop_reason: str | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.num_simulations} simulations, {self.num_env_steps} env steps, "
            f"{self.stop_reason or 'in progress'}>"
        )

    @abstractmethod
    def simulate(self) -> Simulation:
        """Run a batch of simulations: yield a request, receive its answer, and so on.

        The driver calls this again and again until `stop_reason` is set. A generator that yields nothing and
        completes no simulation is called again when an answer to another one has arrived.
        """

    @abstractmethod
    def plan(self) -> Plan:
        """Return the decision. The base class fills in what it counts; see `Plan`."""


def ended_error() -> InvalidBatchError:
    """Return the error for a state whose episode has ended."""
    return InvalidBatchError(
        "state: expected one whose episode goes on, got one that has ended; start another one with "
        "env.reset()"
    )


# -- Sends the requests of searches to a stepper, and checks its answers -------------------------------------


def check_answer(
    request: StepRequest | RolloutRequest, out: Transitions | Rollouts, are_averaged: bool
) -> None:
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
        name = "step_batch" if isinstance(request, StepRequest) else "rollout_batch"
        parts = {**out._asdict(), **(out.infos if isinstance(out, Transitions) else {})}
        got = ", ".join(f"{key} {_form(part)}" for key, part in parts.items() if key != "infos")
        raise InvalidBatchError(
            f"{name}: expected arrays of {len(request.states)} rows: states of the state_dtype, numbers as "
            f"rewards, bools as flags and integers as num_steps; got {got}"
        )
    if are_averaged or isinstance(request, StepRequest):
        actions = request.actions if isinstance(request, StepRequest) else None
        check_numbers(numbers, are_averaged, actions)


def _fits(part: object, shape: tuple[int, ...], kinds: str) -> bool:
    """Return whether a part of an answer is an array of a shape, and of one of some kinds of numbers."""
    return isinstance(part, np.ndarray) and part.shape == shape and part.dtype.kind in kinds


def _form(part: object) -> str:
    """Return the type of a part of an answer."""
    if not isinstance(part, np.ndarray):
        return type(part).__name__
    return f"{'records' if part.dtype.names else part.dtype} {part.shape}"


def check_numbers(numbers: np.ndarray, are_averaged: bool, actions: Any) -> None:
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


def takes_deadlines(env: object) -> bool:
    """Return whether a stepper says that its own batches, not those that it forwards to, take a deadline."""
    return hasattr(type(env), "has_deadlines") and bool(getattr(env, "has_deadlines", False))


def send_steps(
    env: BatchStepper, requests: list[Any], options: dict[str, Any] | None = None
) -> Promise[Transitions]:
    """Step the rows of several requests as one batch. `options`: further ones of `step_batch`."""
    if len(requests) == 1:
        actions, states, dt, seeds = requests[0]
    else:
        actions = np.concatenate([request.actions for request in requests])
        states = np.concatenate([request.states for request in requests])
        dt = np.concatenate([np.broadcast_to(request.dt, len(request.states)) for request in requests])
        seeds = None
        if requests[0].seeds is not None:
            seeds = np.concatenate([request.seeds for request in requests])
    more = options or {}
    promise: Promise[Transitions] = env.step_batch(actions, states, dt, seeds=seeds, blocking=False, **more)
    return promise


# -- The loop ------------------------------------------------------------------------------------------------

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


class _Pending(NamedTuple):
    """A request of a search, and the simulation that waits for its answer."""

    number: int  # index of the search
    simulation: Simulation  # the generator that yielded the request
    request: Any  # what it has yielded, a `Request`; None before it begins


_FEW = 64  # numbers that Python adds up faster than NumPy


def drive(
    env: BatchStepper,
    searches: Sequence[Search],
    started: float,
    callback: PlanCallback | None,
    max_env_steps: int | None,
    max_seconds: float | None,
) -> None:
    """Run searches to their end."""
    # `started`: `perf_counter()` at the beginning of the call. `max_env_steps`: per root.
    num_in_flight = [0] * len(searches)
    # what batches are sent with; steppers that know deadlines say so, as those of planvec do
    options: dict[str, Any] = {}
    # The roots of `plan_batch` share the time, of which preparing them takes a part: none is cut.
    if max_seconds is not None and len(searches) == 1 and searches[0].may_be_cut and takes_deadlines(env):
        options = {"deadline": started + max_seconds}
    # Searches that began nothing when they were asked. What they begin depends on how often they are asked:
    # so that each root has the plan that it has alone, they are not asked again before an answer of their own
    # has arrived.
    is_blocked = [False] * len(searches)
    # the requests of each batch, and the promise of its answer, in the order of sending
    batches: deque[tuple[list[_Pending], Promise[Any]]] = deque()

    def send(members: list[_Pending]) -> None:
        """Send requests to the workers: all steps as one batch, every rollout as a batch of its own."""
        # Random rollouts draw by the index of a row in its batch, which must not depend on the other roots.
        steps = [member for member in members if isinstance(member.request, StepRequest)]
        # A batch of observations that are no arrays cannot be split again.
        is_one_batch = len(steps) == 1 or (bool(steps) and is_fixed(env.observation_space))
        for group in [steps] if is_one_batch else [[member] for member in steps]:
            batches.append((group, send_steps(env, [member.request for member in group], options)))
        for member in members:
            if isinstance(member.request, RolloutRequest):
                sent = {**member.request._asdict(), **options}
                batches.append(([member], env.rollout_batch(**sent, blocking=False)))

    def go_on(members: list[_Pending], answers: list[Any]) -> list[_Pending]:
        """Pass on answers (None: it begins). Returns the members that request steps or rollouts next."""
        going_on = []
        while members:
            asking = []  # for evaluations, by one call for all roots
            for member, answer in zip(members, answers, strict=True):
                request = _next_request(searches[member.number], member.simulation, answer)
                if request is None:
                    num_in_flight[member.number] -= 1
                elif isinstance(request, EvaluationRequest):
                    asking.append(member._replace(request=request))
                else:
                    going_on.append(member._replace(request=request))
            members, answers = asking, _evaluated(env, asking)
        return going_on

    def check_budget() -> None:
        """Stop the searches that have reached a limit."""
        late = max_seconds is not None and time.perf_counter() - started >= max_seconds
        stop = callback is not None and callback(
            sum(search.num_simulations for search in searches),
            sum(search.num_env_steps for search in searches),
        )
        for search in searches:
            spent = max_env_steps is not None and search.num_env_steps >= max_env_steps
            if search.stop_reason is None and (late or stop or spent):
                search.stop_reason = "callback" if stop else "max_env_steps" if spent else "max_seconds"

    try:
        while True:
            # Start at most one simulation of each search: with two of one search in one batch, both answers
            # would always arrive together, and the workers would be idle while both are processed.
            members, before = [], sum([search.num_simulations for search in searches])
            for number, search in enumerate(searches):
                has_room = num_in_flight[number] < search.num_in_flight
                if search.stop_reason is None and has_room and not is_blocked[number]:
                    simulation = search.simulate()
                    if not isinstance(simulation, GeneratorType):
                        raise TypeError(
                            f"{type(search).__name__}.simulate: expected a generator, got "
                            f"{type(simulation).__name__}; request steps by "
                            "out = yield planvec.StepRequest(actions, states)"
                        )
                    members.append(_Pending(number, simulation, None))
                    num_in_flight[number] += 1
            counts_before = {one.number: searches[one.number].num_simulations for one in members}
            members = go_on(members, [None] * len(members))
            asking = {member.number for member in members}
            for number, count in counts_before.items():
                is_blocked[number] = number not in asking and searches[number].num_simulations == count
            if members:
                send(members)
            has_completed = sum([search.num_simulations for search in searches]) > before
            if has_completed:
                check_budget()
            if members or has_completed:
                continue
            if not batches:
                return
            # None can start: pass on the answer to the oldest batch, and send what is requested next.
            members, complete = [], []
            for member, answer in zip(*_answered(*batches.popleft()), strict=True):
                search, request = searches[member.number], member.request
                is_blocked[member.number] = False
                check_answer(request, answer, search.averages)
                is_step = isinstance(request, StepRequest)
                counts = answer.infos["num_steps"] if is_step else answer.num_steps
                if options and len(counts) and counts.min() < 0:
                    search.stop_reason = search.stop_reason or "max_seconds"
                    counts = np.maximum(counts, 0)
                    if is_step or not search.takes_parts:
                        search.num_env_steps += int(counts.sum())
                        member.simulation.close()
                        num_in_flight[member.number] -= 1
                        continue
                search.num_env_steps += sum(counts.tolist()) if len(counts) <= _FEW else int(counts.sum())
                if not search.num_env_steps and search.stop_reason is None:
                    raise ended_error()
                members.append(member)
                complete.append(answer)
            members = go_on(members, complete)
            if members:
                send(members)
            check_budget()
    except BaseException:
        for _, promise in batches:  # their answers are still to come
            promise.abandon()
        raise


def _next_request(search: Search, simulation: Simulation, answer: object) -> Request | None:
    """Send a simulation an answer (None: it begins); return its next request, None at its end."""
    try:
        request = simulation.send(answer)
    except StopIteration:
        return None
    if not isinstance(request, (StepRequest, RolloutRequest, EvaluationRequest)):
        raise TypeError(
            f"{type(search).__name__}.simulate: expected it to yield StepRequests or RolloutRequests, got "
            f"{type(request).__name__}; out = yield planvec.StepRequest(actions, states) gets transitions"
        )
    return request


def _answered(members: list[_Pending], promise: Promise[Any]) -> tuple[list[_Pending], list[Any]]:
    """Wait for the answer to a batch and split it into those of its members."""
    answer = promise.result()
    if len(members) == 1:
        return members, [answer]
    answers, start = [], 0
    for member in members:
        stop = start + len(member.request.states)
        answers.append(Transitions(*(take_rows(part, slice(start, stop)) for part in answer)))
        start = stop
    return members, answers


def _evaluated(env: BatchStepper, members: list[_Pending]) -> list[tuple[np.ndarray, ...]]:
    """Perform the requests for evaluations by one call, if their observations can be merged."""
    space = env.observation_space
    if len(members) < 2 or not is_fixed(space):
        return [one.request.evaluate(one.request.observations, one.request.num_rows) for one in members]
    counts = [member.request.num_rows for member in members]
    ends = list(itertools.accumulate(counts))
    parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    merged = empty_rows(space, ends[-1])
    for member, part in zip(members, parts, strict=True):
        copy_rows(member.request.observations, merged, part)
    results = members[0].request.evaluate(merged, ends[-1])
    return [tuple([array[part] for array in results]) for part in parts]
