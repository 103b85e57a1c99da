"""Sends the requests of searches to a stepper, and divides its answers among them. Letters: B rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.search import Request, RolloutRequest, StepRequest
from planvec.rows import BatchStepper, Promise, Rollouts, Transitions, take_rows


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


def rows_of(out: Transitions, rows: slice) -> Transitions:
    """Return some rows of a batch of transitions."""
    assert out.new_states is not None
    return Transitions(
        out.new_states[rows],
        take_rows(out.observations, rows),
        out.rewards[rows],
        out.terminated[rows],
        out.truncated[rows],
        _slice_infos(out.infos, rows),
    )


def _slice_infos(infos: dict[str, Any], rows: slice) -> dict[str, Any]:
    return {
        key: _slice_infos(value, rows) if isinstance(value, dict) else value[rows]
        for key, value in infos.items()
    }
