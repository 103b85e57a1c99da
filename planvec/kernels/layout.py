"""Describes where the numbers of states, actions and observations lie, for which kernels are compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from planvec.rows import is_fixed

# largest number of numbers of a field that a kernel takes one by one; a longer field is an array
MAX_SCALARS = 16


class Field(NamedTuple):
    """Describes numbers that lie one after another."""

    dtype: str  # their dtype as a string, such as "<f8"
    size: int  # how many they are
    offset: int = 0  # where they begin in a record, in bytes

    @property
    def is_array(self) -> bool:
        """Whether a kernel takes the field as one array."""
        return self.size > MAX_SCALARS


class Layout(NamedTuple):
    """Describes the memory of states, actions and observations."""

    itemsize: int  # bytes of one state
    fields: tuple[Field, ...]  # the fields that a kernel takes
    has_rest: bool  # whether a state has other fields, or arrays, which are copied
    elapsed: int  # offset of the steps since the reset; -1 if states do not count them
    terminated: int  # offset of a flag
    truncated: int  # offset of a flag
    generator: int  # offset of the generator; -1 if there is none
    action: Field  # the numbers of an action
    has_scalar_action: bool  # whether a kernel takes the action as one number
    observation: tuple[Field, ...]  # the numbers of each array of an observation, in order


def layout_of(dtype: np.dtype[Any], names: tuple[str, ...], env: gymnasium.Env[Any, Any]) -> Layout:
    """Return the layout of an environment."""
    # `dtype`: The dtype of one state.
    if dtype.fields is None:
        raise ValueError(
            "states of variable size; they hold the observation if `observe` gives other numbers than a "
            "reset, or not in the order of the space (a Dict sorts its keys)"
        )
    offsets = {name: int(field[1]) for name, field in dtype.fields.items()}
    missing = [name for name in names if name not in offsets]
    if missing:
        raise ValueError(f"states have no fields {missing}")
    if "observation" in offsets:
        raise ValueError(
            "states hold the observation: a wrapper changes it, or "
            "`observe` does not give the observation of a reset"
        )
    fields = tuple(_field(dtype[name], offsets[name]) for name in names)
    own = {"elapsed_steps", "terminated", "truncated", "generator"}
    action = env.action_space
    if type(action) not in (spaces.Discrete, spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary):
        raise ValueError(f"actions of {action}")
    return Layout(
        itemsize=dtype.itemsize,
        fields=fields,
        has_rest=bool(set(offsets) - own - set(names)) or any(field.is_array for field in fields),
        elapsed=offsets.get("elapsed_steps", -1),
        terminated=offsets["terminated"],
        truncated=offsets["truncated"],
        generator=offsets.get("generator", -1),
        action=_numbers(action),
        has_scalar_action=isinstance(action, spaces.Discrete),
        observation=tuple(_observation(env.observation_space)),
    )


def _field(dtype: np.dtype[Any], offset: int) -> Field:
    """Return the numbers of a field of a state."""
    base = dtype.base
    if base.kind not in "fiub":
        raise ValueError(f"a field of dtype {base}")
    return Field(base.str, int(np.prod(dtype.shape, dtype=np.int64)), offset)


def _numbers(space: Any) -> Field:
    """Return the numbers of an element of a space with one array."""
    dtype = np.dtype(space.dtype)
    if dtype.kind not in "fiub":
        raise ValueError(f"elements of {space}")
    return Field(dtype.str, int(np.prod(space.shape, dtype=np.int64)))


def _observation(space: gymnasium.Space[Any]) -> Iterator[Field]:
    """Yield the numbers of each array of an observation."""
    if isinstance(space, spaces.Dict):
        for child in space.spaces.values():
            yield from _observation(child)
    elif isinstance(space, spaces.Tuple):
        for child in space.spaces:
            yield from _observation(child)
    elif is_fixed(space):
        yield _numbers(space)
    else:
        raise ValueError(f"observations of {space}")
