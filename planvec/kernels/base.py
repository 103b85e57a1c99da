"""Defines `Kernel`, a step that can be compiled, and knows the kernels of environment classes.

A kernel is written as functions of numbers. planvec compiles them into loops over whole batches of states::

    state, action, constants, random  --step-->  state, reward, terminated, extra
    state, constants                  --observe-->  the numbers of an observation

It must give every bit that the environment's own step gives. `planvec.stepping.kernel_proof` compares both
before a kernel is used.

Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.rows import Columns, is_fixed, is_uniform


def never(state: object, ended: bool, constants: object) -> bool:
    """Accept every state: the default of `Kernel.refuses`."""
    return False


@dataclass(frozen=True)
class Kernel:
    """Describes a compiled step of one class of environments."""

    # The functions are compiled by numba. A state is a tuple with an entry for each field: a number, a tuple
    # of numbers, or an array of more than `MAX_SCALARS` numbers, which they change in place.

    # Names of the fields of the state that the functions take, in order. Others never change.
    fields: tuple[str, ...]
    # `step(state, action, constants, random) -> (state, reward, terminated, extra)`. The action is a number
    # for a Discrete space, else a tuple of numbers. `random` is the generator of the state, see
    # `planvec.kernels.random`. `extra` is a number for `columns`.
    step: Callable[..., Any]
    # `observe(state, constants) -> tuple`: the numbers of the observation, in order
    observe: Callable[..., Any]
    # `constants(env) -> tuple` of numbers and arrays that the functions take. Those of type bool are compiled
    # in. It is called before every batch, and raises an error for an environment that the kernel does not
    # know.
    constants: Callable[[Any], tuple[Any, ...]]
    # `refuses(state, ended, constants) -> bool`: whether the environment itself has to step such a state, or
    # to observe it if the episode has ended
    refuses: Callable[[Any, bool, Any], bool] = never
    # `spread(states, random, env)`: spreads states `[B]` over all that there are, for the proof. None: those
    # that random steps reach are enough.
    spread: Callable[[np.ndarray, np.random.Generator, Any], None] | None = None
    # `columns(constants, extras, observations, stepped) -> Columns`: the infos of a batch, from arrays `[B,
    # ...]`. None: there are none.
    columns: Callable[..., Columns] | None = None


# whether NumPy computes a float32 with a Python number in single precision, as it does since version 2
HAS_WEAK_SCALARS = int(np.__version__.partition(".")[0]) >= 2


# -- Describes where the numbers of states, actions and observations lie, for which kernels are compiled -----

# largest number of numbers of a field that a kernel takes one by one; a longer field is an array
MAX_SCALARS = 16


class Field(NamedTuple):
    """Describes numbers that lie one after another."""

    dtype: str  # their dtype as a string, such as "<f8"
    size: int  # how many they are
    offset: int = 0  # where they begin in a record, in bytes
    is_number: bool = False  # whether a kernel takes the field as one number, instead of a tuple of numbers

    @property
    def is_array(self) -> bool:
        """Whether a kernel takes the field as one array."""
        return self.size > MAX_SCALARS

    def number(self, entry: str, index: int) -> str:
        """Return an expression for one of the numbers in an entry of a state."""
        return entry if self.is_number else f"{entry}[{index}]"


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
    observation: tuple[Field, ...]  # the numbers of each array of an observation, in order
    held: int  # offset of the observation; -1 if states do not hold it


class OpenedEnv(NamedTuple):
    """Holds the environment for which a kernel is opened."""

    env: gymnasium.Env[Any, Any]
    dtype: np.dtype  # the dtype of one state
    time_limit: int | None  # steps after which an episode is truncated
    num_threads: int


def layout_of(opened: OpenedEnv, names: tuple[str, ...], may_hold: bool = False) -> Layout:
    """Return the layout of an environment."""
    # `may_hold`: whether states may hold the observation.
    env, dtype = opened.env, opened.dtype
    if dtype.fields is None:
        raise ValueError(
            "states of variable size; they hold the observation if `observe` gives other numbers than a "
            "reset, or not in the order of the space (a Dict sorts its keys)"
        )
    offsets = {name: int(field[1]) for name, field in dtype.fields.items()}
    missing = [name for name in names if name not in offsets]
    if missing:
        raise ValueError(f"states have no fields {missing}")
    if "observation" in offsets and not may_hold:
        raise ValueError(
            "states hold the observation: a wrapper changes it, or "
            "`observe` does not give the observation of a reset"
        )
    fields = tuple(_numbers(dtype[name].base, dtype[name].shape, offsets[name], "a field") for name in names)
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
        action=_numbers(action.dtype, action.shape, 0, "actions")._replace(
            is_number=isinstance(action, spaces.Discrete)
        ),
        observation=tuple(_observation(env.observation_space)),
        held=offsets.get("observation", -1),
    )


def _numbers(dtype: Any, shape: Any, offset: int, owner: str) -> Field:
    """Return the numbers of a field, or of an element of a space with one array."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "fiub":
        raise ValueError(f"{owner} of dtype {dtype}")
    return Field(dtype.str, int(np.prod(shape, dtype=np.int64)), offset, is_number=shape == ())


def _observation(space: gymnasium.Space[object]) -> Iterator[Field]:
    """Yield the numbers of each array of an observation."""
    if isinstance(space, spaces.Dict):
        for child in space.spaces.values():
            yield from _observation(child)
    elif isinstance(space, spaces.Tuple):
        for child in space.spaces:
            yield from _observation(child)
    elif is_fixed(space):
        yield _numbers(space.dtype, space.shape, 0, f"elements of {space}")
    else:
        raise ValueError(f"observations of {space}")


# -- The range of random actions, in the form that kernels take. Letters: A numbers of an action -------------

_EXACT = 2.0**53  # largest integer up to which float64 holds all integers


class ActionRange(NamedTuple):
    """Describes the random actions of a space: `low + size * u`, with u in [0, 1), between limits."""

    # Integers are rounded down before `low` is added. See `planvec.rows.random_actions.actions_of`.

    # all four `[A]` float64; `lowest` and `highest` are the limits that rounding may exceed
    low: NDArray[np.float64]
    size: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]

    @classmethod
    def of(cls, space: gymnasium.Space[object]) -> ActionRange | None:
        """Return the range of a space; None if its random actions are drawn otherwise."""
        if not is_uniform(space):
            return None
        low: Any
        size: Any
        if isinstance(space, spaces.Box):
            low = space.low.astype(np.float64)
            with np.errstate(over="ignore"):
                size = space.high.astype(np.float64) - low + (space.dtype.kind != "f")
        elif isinstance(space, spaces.Discrete):
            low, size = int(space.start), int(space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            low, size = space.start, space.nvec
        else:
            low, size = np.zeros(space.shape), np.full(space.shape, 2)
        low, size = (np.array(part, np.float64).reshape(-1) for part in (low, size))
        is_integer = space.dtype is None or space.dtype.kind != "f"
        if not np.isfinite(size).all() or (
            is_integer and max(abs(low).max(initial=0), size.max(initial=0)) > _EXACT
        ):
            return None
        highest = np.array(getattr(space, "high", low), np.float64).reshape(-1)
        return cls(low, size, low, highest)


# -- Gives arrays the form that compiled loops take ----------------------------------------------------------


def bytes_of(array: Any) -> NDArray[np.uint8]:
    """Return the bytes of an array in one dimension: a view if they are contiguous, else a copy."""
    if array.flags.c_contiguous and array.nbytes:
        try:
            return np.frombuffer(array, np.uint8)  # in a third of the time of the views below
        except ValueError:
            pass  # of dates, which have no buffer
    flat: NDArray[np.uint8] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat
