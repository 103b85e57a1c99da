"""Sends the requests of searches to a stepper, and divides its answers among them. Letters: B rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from planvec.errors import InvalidBatchError
from planvec.planners.search import Request, RolloutRequest
from planvec.rows import BatchStepper, Promise, Rollouts, Transitions, take_rows

__all__ = ["check_answer", "perform", "rows_of", "send_rollouts", "send_steps"]


def perform(env: BatchStepper, request: Request) -> Transitions | Rollouts:
    """Perform one request. Returns the answer, as the driver passes it on.

    Raises:
        InvalidBatchError: It has other rows than the request, or a reward is NaN.
    """
    out: Transitions | Rollouts
    if isinstance(request, RolloutRequest):
        out = send_rollouts(env, request).result()
    else:
        out = send_steps(env, [request]).result()
    check_answer(request, out)
    return out


def check_answer(request: Request, out: Transitions | Rollouts) -> None:
    """Check that an answer has the rows of its request, and that the rewards of steps are numbers.

    Compiled code reads the answers of steppers of any kind, and would read beyond one that is too short.

    Raises:
        InvalidBatchError: It has other rows, or a reward is NaN.
    """
    num_rows = len(request.states)
    if isinstance(out, Rollouts):
        if not num_rows == len(out.returns) == len(out.num_steps):
            raise InvalidBatchError(
                f"rollout_batch: expected {num_rows} rows, got {len(out.returns)} returns and "
                f"{len(out.num_steps)} numbers of steps"
            )
        return
    assert out.new_states is not None
    # One comparison: this is called for every request.
    num_observations = len(out.observations) if isinstance(out.observations, np.ndarray) else num_rows
    fits = (
        len(out.new_states)
        == len(out.rewards)
        == len(out.terminated)
        == len(out.truncated)
        == len(out.infos["num_steps"])
        == num_observations
        == num_rows
    )
    if not fits or out.new_states.dtype != request.states.dtype:
        raise InvalidBatchError(
            f"step_batch: expected {num_rows} rows, got results of other sizes: new_states "
            f"{out.new_states.shape} {out.new_states.dtype}, rewards {out.rewards.shape}, terminated "
            f"{out.terminated.shape}, truncated {out.truncated.shape}, observations "
            f"{np.shape(out.observations)}"
        )
    _check_rewards(request, out)


def _check_rewards(request: Request, out: Transitions) -> None:
    """Check that the rewards of a step are numbers.

    Raises:
        InvalidBatchError: One is NaN.
    """
    rewards = out.rewards
    if len(rewards) and math.isnan(rewards.item(rewards.argmin())):  # the least of numbers is NaN if one is
        is_nan = np.isnan(rewards)
        action = None if request.actions is None else request.actions[is_nan.argmax()]
        raise InvalidBatchError(
            f"rewards: expected numbers, got nan for action {action}, which would make every mean nan; wrap "
            "the environment in gymnasium.wrappers.TransformReward"
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
