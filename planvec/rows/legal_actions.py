"""Legal actions: reads masks from infos and states, and draws actions by them.

A mask has one number for each value of each number of an action: n for Discrete, the sum of `nvec` for
MultiDiscrete, two for each number of MultiBinary. Numbers of an action are legal independently.

Letters: B rows, K numbers of an action, M numbers of a mask, A listed actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import EnvError, InvalidBatchError, UnsupportedEnvError
from planvec.rows.saved_state import ACTION_MASK_FIELD


def mask_sizes(space: Space[Any]) -> NDArray[np.int64]:
    """Return the number of values of each number of an action, `[K]`; `[0]` where there are no masks."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.astype(np.int64).reshape(-1)
    size = int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else 0
    return np.full(size, 2, np.int64)


def mask_of_info(space: Space[Any], info: Mapping[str, Any], observation: Any) -> NDArray[np.bool_] | None:
    """Return the mask `[M]` in an info, or else in an observation that is a dict; None: there is none."""
    given = info.get(ACTION_MASK_FIELD)
    name = f"info[{ACTION_MASK_FIELD!r}]"
    if given is None and isinstance(observation, Mapping):
        given, name = observation.get(ACTION_MASK_FIELD), f"observation[{ACTION_MASK_FIELD!r}]"
    num_numbers = int(mask_sizes(space).sum())
    if given is None or not num_numbers:
        return None
    try:
        parts = given if isinstance(given, tuple) and np.ndim(given[0]) else (given,)
        mask = np.concatenate([np.asarray(part).reshape(-1) for part in parts])
    except (ValueError, IndexError):
        mask = np.empty(0)
    if mask.dtype.kind not in "biuf" or mask.shape != (num_numbers,) or not ((mask == 0) | (mask == 1)).all():
        raise EnvError(
            f"{name}: expected {num_numbers} zeros and ones (bool, integers or floats), a 1 for each action "
            f"of {space} that is legal, got {given!r:.200}; report such a mask, or give what it is another "
            "name"
        )
    return mask.astype(np.bool_)


def has_mask_field(space: Space[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether states of a dtype have a field for masks of a space."""
    return ACTION_MASK_FIELD in (dtype.names or ()) and mask_sizes(space).size > 0


def has_action_masks(states: NDArray[Any]) -> bool:
    """Return whether states tell which actions are legal."""
    if states.dtype.hasobject:
        return any(getattr(state, ACTION_MASK_FIELD, b"") for state in states)
    return ACTION_MASK_FIELD in (states.dtype.names or ())


def action_masks(space: Space[Any], states: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return which actions are legal at states, `[B, M]`; None where the states do not tell."""
    num_numbers = int(mask_sizes(space).sum())
    if not num_numbers or not has_action_masks(states):
        return None
    if states.dtype.hasobject:
        all_legal = b"\1" * num_numbers
        data = b"".join([getattr(state, ACTION_MASK_FIELD, b"") or all_legal for state in states])
        if len(data) != len(states) * num_numbers:
            raise InvalidBatchError(
                f"states: expected masks of {num_numbers} legal actions for {space}, got others"
            )
        masks: NDArray[np.bool_] = np.frombuffer(data, np.bool_).reshape(len(states), num_numbers)
        return masks
    field: NDArray[Any] = states[ACTION_MASK_FIELD]
    if field.shape[1:] != (num_numbers,) or field.dtype not in (np.bool_, np.int8, np.uint8):
        raise UnsupportedEnvError(
            f"state_dtype: expected a field {ACTION_MASK_FIELD!r} of {num_numbers} bools for {space}, got "
            f"{field.dtype} of shape {field.shape[1:]}"
        )
    return field.astype(np.bool_)


def draw_legal(space: Space[Any], masks: NDArray[np.bool_], uniforms: NDArray[np.float64]) -> NDArray[Any]:
    """Return legal actions `[B, *action shape]`, drawn evenly; where none is legal, the first one."""
    # `masks`: `[B, M]`. `uniforms`: `[B, *action shape]`, random numbers in [0, 1).
    drawn = uniforms.reshape(len(masks), -1)
    values, first = np.empty(drawn.shape, np.int64), 0
    for number, size in enumerate(mask_sizes(space).tolist()):
        counts = masks[:, first : first + size].cumsum(axis=1)
        wanted = (drawn[:, number] * counts[:, -1]).astype(np.int64)
        values[:, number] = (counts > wanted[:, None]).argmax(axis=1)
        first += size
    start: Any = getattr(space, "start", 0)
    actions: NDArray[Any] = (values.reshape(uniforms.shape) + start).astype(space.dtype)
    return actions


def are_legal(space: Space[Any], masks: NDArray[np.bool_], actions: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which actions are legal, with the leading axes of `masks` and `actions` broadcast."""
    # `actions`: `[..., *action shape]`.
    sizes = mask_sizes(space)
    values = np.asarray(actions, np.int64) - getattr(space, "start", 0)
    axes = values.shape[: values.ndim - len(space.shape or ())]
    indices = values.reshape(*axes, len(sizes)) + (np.cumsum(sizes) - sizes)
    masks = np.broadcast_to(masks, (*np.broadcast_shapes(masks.shape[:-1], axes), masks.shape[-1]))
    indices = np.broadcast_to(indices, (*masks.shape[:-1], len(sizes)))
    legal: Any = np.take_along_axis(masks, indices, axis=-1).all(axis=-1)
    return legal  # type: ignore[no-any-return] # a scalar without leading axes
