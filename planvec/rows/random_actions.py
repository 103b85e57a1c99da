"""Draws uniformly random actions, one stream per row. They are the same in every process.

Letters: B rows.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import EnvError, InvalidBatchError, UnsupportedEnvError
from planvec.rows.states import ACTION_MASK_FIELD

# Number of actions of a row that are drawn at once. Changing it changes the actions that a seed gives.
_BLOCK = 64


def is_uniform(space: Space[object]) -> bool:
    """Return whether `actions_of` can make actions of the space: those that are one bounded array."""
    if isinstance(space, spaces.Box):
        return space.is_bounded("both")
    return isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary))


def actions_of(space: Space[object], uniforms: NDArray[np.float64]) -> np.ndarray:
    """Convert uniformly random numbers into actions."""
    # `uniforms`: `[..., *action shape]`, in [0, 1).
    # Returns `[..., *action shape]` of the space's dtype.
    # Any, because the stubs declare the bounds of a space as floats.
    low: Any
    size: Any
    dtype: Any = space.dtype
    if isinstance(space, spaces.Box) and dtype.kind == "f":
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            size = high - low
            drawn = low + size * uniforms
        if not np.isfinite(size).all():  # a range beyond the largest number
            drawn = np.where(np.isfinite(size), drawn, low * (1.0 - uniforms) + high * uniforms)
        # Rounding may leave the box by one unit in the last place.
        inside: np.ndarray = np.clip(drawn.astype(dtype), space.low, space.high)
        return inside
    if isinstance(space, spaces.Box):
        # Modulo 2^64, so that neither a range of all integers nor a negative low one overflows.
        with np.errstate(over="ignore"):
            low, last = (
                space.low.astype(np.uint64),
                space.high.astype(np.uint64) - space.low.astype(np.uint64),
            )
            size = last.astype(np.float64) + 1.0
            numbers: np.ndarray = low + np.minimum((uniforms * size).astype(np.uint64), last)
        return numbers.astype(np.int64 if dtype.kind == "i" else np.uint64).astype(dtype, copy=False)
    if isinstance(space, spaces.Discrete):
        low, size = int(space.start), int(space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        low, size = space.start, space.nvec
    else:
        low, size = 0, 2
    actions: np.ndarray = (low + (uniforms * size).astype(np.int64)).astype(dtype, copy=False)
    return actions


def uniform_actions(space: Space[object], generator: np.random.Generator, num_rows: int) -> np.ndarray:
    """Draw uniformly random actions `[num_rows, *action shape]`, for a space with `is_uniform`."""
    return actions_of(space, generator.random((num_rows, *(space.shape or ()))))


class _Philox(threading.local):
    """A generator per thread. A new one would ask the system for a seed each time, and throw it away."""

    def __init__(self) -> None:
        self._bits = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._bits)
        self._state: Any = self._bits.state

    def at(self, seed: int, number: int, count: int) -> np.random.Generator:
        """Return the generator at a count of the sequence of a key."""
        state = self._state
        state["state"]["key"] = np.array([seed, number], np.uint64)
        state["state"]["counter"] = np.array([count, 0, 0, 0], np.uint64)
        self._bits.state = state
        return self._generator


_philox = _Philox()


class ActionStreams:
    """Draws the random actions of neighbouring rows of a batch."""

    # Each row has a stream of its own, made of sections of the sequences of Philox (Salmon et al. 2011,
    # "Parallel random numbers: as easy as 1, 2, 3"). Philox is a counter-based generator, which can start at
    # any section. So the actions of a row depend on the seed and on its index in the batch, and not on how
    # the batch was cut.

    def __init__(
        self, space: Space[object], seed: int, first_row: int, num_rows: int, as_ints: bool = False
    ) -> None:
        self._space = space
        self._seed = seed
        self._first_row = first_row
        self._num_rows = num_rows
        self._as_ints = as_ints
        self._blocks: list[Any] = []

    def row(self, row: int) -> Iterator[Any]:
        """Yield the actions of a row without end, each of the type that `space.sample()` gives."""
        number = 0
        while True:
            if number == len(self._blocks):
                self._blocks.append(self._draw(number))
            yield from self._blocks[number][row]
            number += 1

    def column(self, step: int) -> np.ndarray:
        """Return the actions `[B, *action shape]` of all rows in a step, for a space with `is_uniform`."""
        if step % _BLOCK == 0:
            self._blocks = [self._draw_array(step // _BLOCK)]
        column: np.ndarray = self._blocks[0][:, step % _BLOCK]
        return column

    def _draw(self, number: int) -> list[Any]:
        """Draw block `number` of every row: B lists of `_BLOCK` actions."""
        if not is_uniform(self._space):
            return [self._sample(number, self._first_row + row) for row in range(self._num_rows)]
        actions = self._draw_array(number)
        if self._as_ints and isinstance(self._space, spaces.Discrete):
            return list(actions.tolist())
        return [list(row) for row in actions]

    def _draw_array(self, number: int) -> np.ndarray:
        """Draw block `number` of every row, `[B, _BLOCK, *action shape]`, for a space with `is_uniform`."""
        shape = (self._num_rows, _BLOCK, *(self._space.shape or ()))
        # One count of Philox gives four numbers, and _BLOCK is a multiple of four.
        count = self._first_row * math.prod(shape[1:]) // 4
        return actions_of(self._space, _philox.at(self._seed, number, count).random(shape))

    def _sample(self, number: int, row: int) -> list[Any]:
        """Draw block `number` of one row, for nested and unbounded spaces."""
        space = copy.deepcopy(self._space)
        words = np.random.SeedSequence([self._seed, number, row]).generate_state(1)
        space.seed(int(words[0]))
        return [space.sample() for _ in range(_BLOCK)]


# -- Legal actions: reads masks from infos and states, and draws actions by them.
#
# A mask has one number for each value of each number of an action: n for Discrete, the sum of `nvec` for
# MultiDiscrete, two for each number of MultiBinary. Numbers of an action are legal independently.
#
# Letters: B rows, K numbers of an action, M numbers of a mask, A listed actions.


def mask_sizes(space: Space[object]) -> NDArray[np.int64]:
    """Return the number of values of each number of an action, `[K]`; `[0]` where there are no masks."""
    if isinstance(space, spaces.Discrete):
        return np.array([space.n], np.int64)
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.astype(np.int64).reshape(-1)
    size = int(np.prod(space.shape)) if isinstance(space, spaces.MultiBinary) else 0
    return np.full(size, 2, np.int64)


def mask_of_info(
    space: Space[object], info: Mapping[str, object], observation: object
) -> NDArray[np.bool_] | None:
    """Return the mask `[M]` in an info, or else in an observation that is a dict; None: there is none."""
    # `info["action_mask"]`: M numbers, or a tuple with one array for each number of an action, as
    # `space.sample(mask)` takes it.
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


def has_mask_field(space: Space[object], dtype: np.dtype) -> bool:
    """Return whether states of a dtype have a field for masks of a space."""
    return ACTION_MASK_FIELD in (dtype.names or ()) and mask_sizes(space).size > 0


def has_action_masks(states: np.ndarray) -> bool:
    """Return whether states tell which actions are legal."""
    if states.dtype.hasobject:
        return any(getattr(state, ACTION_MASK_FIELD, b"") for state in states)
    return ACTION_MASK_FIELD in (states.dtype.names or ())


def action_masks(space: Space[object], states: np.ndarray) -> NDArray[np.bool_] | None:
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
    field: np.ndarray = states[ACTION_MASK_FIELD]
    if field.shape[1:] != (num_numbers,) or field.dtype not in (np.bool_, np.int8, np.uint8):
        raise UnsupportedEnvError(
            f"state_dtype: expected a field {ACTION_MASK_FIELD!r} of {num_numbers} bools for {space}, got "
            f"{field.dtype} of shape {field.shape[1:]}"
        )
    return field.astype(np.bool_)


def draw_legal(space: Space[object], masks: NDArray[np.bool_], uniforms: NDArray[np.float64]) -> np.ndarray:
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
    actions: np.ndarray = (values.reshape(uniforms.shape) + start).astype(space.dtype)
    return actions


def are_legal(space: Space[object], masks: NDArray[np.bool_], actions: np.ndarray) -> NDArray[np.bool_]:
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
