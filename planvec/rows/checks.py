"""Turns the arguments of a batch call into a request: checks, converts and broadcasts them.

All checks come before anything is sent, so that a wrong argument does no harm. Letters: B rows, H horizon.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from gymnasium import Space

from planvec.errors import InvalidBatchError
from planvec.rows.actions import check_actions
from planvec.rows.arguments import MAX_STEPS, check_dt, check_on_error, check_seed, check_seeds
from planvec.rows.description import EnvDescription
from planvec.rows.requests import RolloutBatch, StepBatch
from planvec.rows.space_arrays import is_fixed, map_leaves
from planvec.rows.states import check_states


def check_step(
    about: EnvDescription,
    actions: Any,  # `[B, *action shape]`
    states: Any,  # `[B]`, or one state for all rows
    dt: Any,  # int or `[B]`, at least 1
    seeds: Any,  # `[B]` non-negative integers, or None
    return_state: bool,
    on_error: Any,
) -> StepBatch:
    """Check and broadcast the arguments of `step_batch`."""
    mask_errors = check_on_error(on_error)
    actions, num_rows = check_actions(about.action_space, actions)
    states = check_states(about.state_format, states, num_rows)
    same_dt = dt if type(dt) is int else None
    dt, seeds = check_dt(dt, num_rows), check_seeds(seeds, num_rows)
    return StepBatch(states, actions, dt, seeds, return_state, mask_errors, same_dt)


def check_rollout(
    about: EnvDescription,
    states: Any,  # `[B]`, or one state for all rows
    horizon: int | None,
    actions: Any,  # `[B, H, *action shape]`; None draws random actions
    action_seed: int | None,
    seeds: Any,  # `[B]` non-negative integers, or None
    discount: float,
    on_error: Any,
) -> RolloutBatch:
    """Check and broadcast the arguments of `rollout_batch`."""
    mask_errors = check_on_error(on_error)
    if horizon is None and actions is None:
        raise InvalidBatchError(
            "horizon: expected an integer of at least 1 because no actions are given, got None"
        )
    horizon = _length(actions) if horizon is None else horizon
    is_integer = isinstance(horizon, (int, np.integer)) and not isinstance(horizon, bool)
    if not is_integer or not 1 <= horizon <= MAX_STEPS:
        raise InvalidBatchError(f"horizon: expected an integer from 1 to {MAX_STEPS}, got {horizon!r}")
    if not isinstance(discount, (int, float, np.number)) or not 0 <= discount <= 1:
        raise InvalidBatchError(f"discount: expected a number in [0, 1], got {discount!r}")
    action_seed = secrets.randbits(63) if action_seed is None else check_seed(action_seed, "action_seed")
    num_rows = None
    if actions is not None:
        actions, num_rows = _check_sequences(about.action_space, actions, int(horizon))
    states = check_states(about.state_format, states, num_rows)
    seeds = check_seeds(seeds, len(states))
    return RolloutBatch(states, int(horizon), actions, action_seed, 0, seeds, float(discount), mask_errors)


def _length(actions: Any) -> int:
    """Return the H of actions `[B, H, ...]`."""
    while isinstance(actions, (dict, tuple)) and len(actions):
        actions = next(iter(actions.values())) if isinstance(actions, dict) else actions[0]
    try:
        return len(actions[0])
    except (TypeError, IndexError, KeyError) as error:
        raise InvalidBatchError(
            f"actions: expected shape (B, H, *action shape), got {np.shape(actions)}"
        ) from error


def _check_sequences(space: Space[Any], actions: Any, horizon: int) -> tuple[Any, int]:
    """Check actions `[B, H, ...]`. Returns them as `[B * H, ...]`, and B."""
    if not is_fixed(space):
        lengths = {len(sequence) for sequence in actions}
        if lengths - {horizon}:
            raise InvalidBatchError(f"actions: expected {horizon} per row, got rows of {sorted(lengths)}")
        flat, _ = check_actions(space, [action for sequence in actions for action in sequence])
        return flat, len(actions)
    shapes = []

    def flatten(leaf: Any) -> Any:
        try:
            array = np.asarray(leaf)
        except ValueError as error:
            raise InvalidBatchError(
                f"actions: expected {horizon} per row, got rows of different lengths"
            ) from error
        shapes.append(array.shape)
        if array.ndim < 2 or array.shape[1] != horizon:
            raise InvalidBatchError(
                f"actions: expected shape (B, {horizon}, *action shape), got {array.shape}"
            )
        return array.reshape(-1, *array.shape[2:])

    flat, total = check_actions(space, map_leaves(flatten, actions))
    if len({shape[0] for shape in shapes}) > 1:
        raise InvalidBatchError(
            f"actions: expected the same number of rows in every part, got shapes {shapes}"
        )
    return flat, total // horizon
