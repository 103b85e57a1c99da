"""Holds the results of rows as arrays, in the shared memory of a worker or in this process.

Letters: N environments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import EnvError
from planvec.rows import empty_rows, leaves, take_rows

_NONE, _FALSE = np.zeros(0), np.zeros(0, bool)

Rows = slice | NDArray[np.intp]  # selects rows of arrays

_LARGE = 4096  # bytes of an observation above which observations are copied one by one


def part_of(values: Any, rows: Rows) -> Any:
    """Return rows of a list, or of a tree of arrays."""
    if not isinstance(values, list):
        return take_rows(values, rows)
    return values[rows] if isinstance(rows, slice) else [values[row] for row in rows]


@dataclass(slots=True)
class RowArrays:
    """Holds one element per environment."""

    # A tree of arrays `[N, ...]`, or a list if the size of observations varies; None as long as the arrays
    # are not made (`unmade`)
    observations: Any
    rewards: NDArray[np.float64]  # `[N]` float64
    terminated: NDArray[np.bool_]  # `[N]` bool
    truncated: NDArray[np.bool_]  # `[N]` bool

    @classmethod
    def allocate(cls, observation_space: Space[Any], num_rows: int, make: Callable[..., Any]) -> RowArrays:
        """Return arrays for a number of rows, each made by `make(shape, dtype=...)`."""
        return cls(
            empty_rows(observation_space, num_rows, make),
            make(num_rows, dtype=np.float64),
            make(num_rows, dtype=np.bool_),
            make(num_rows, dtype=np.bool_),
        )

    @classmethod
    def unmade(cls) -> RowArrays:
        """Return a holder for arrays that `make` makes, or that are made from lists, which is faster."""
        return cls(None, _NONE, _FALSE, _FALSE)

    def make(self, observation_space: Space[Any], num_rows: int) -> None:
        """Make the arrays of results, if that was not done."""
        if self.observations is None:
            self.observations = empty_rows(observation_space, num_rows, np.empty)
            self.rewards = np.empty(num_rows)
            self.terminated, self.truncated = np.empty(num_rows, bool), np.empty(num_rows, bool)

    @classmethod
    def joined(cls, parts: Sequence[RowArrays]) -> RowArrays:
        """Return the results of several parts, one after another."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            _concatenated([part.observations for part in parts]),
            np.concatenate([part.rewards for part in parts]),
            np.concatenate([part.terminated for part in parts]),
            np.concatenate([part.truncated for part in parts]),
        )

    def results(self, rows: Rows) -> RowArrays:
        """Return the results of some rows, as views for a slice."""
        observations = part_of(self.observations, rows)
        return RowArrays(observations, self.rewards[rows], self.terminated[rows], self.truncated[rows])


def _concatenated(trees: Sequence[Any]) -> Any:
    first = trees[0]
    if isinstance(first, dict):
        return {key: _concatenated([tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(_concatenated(parts) for parts in zip(*trees, strict=True))
    if isinstance(first, list):
        return [row for tree in trees for row in tree]
    return np.concatenate(trees)


_WRONG = (EnvError, KeyError, IndexError, TypeError, ValueError)  # what observations of another form raise


def write_observations(
    space: Space[Any], observations: Sequence[Any], out: Any, rows: Rows
) -> dict[int, EnvError]:
    """Write observations into arrays, converted to the dtype of the space as Gymnasium does."""
    # Returns index into `observations` -> the error, for each observation of another form. It is not written.
    if isinstance(out, list):
        picked = range(*rows.indices(len(out))) if isinstance(rows, slice) else rows
        for row, observation in zip(picked, observations, strict=True):
            out[row] = observation
        return {}
    try:
        _write(space, observations, out, rows)
        return {}
    except _WRONG:
        errors: dict[int, EnvError] = {}
    targets = np.arange(len(next(leaves(out))))[rows]
    for index, observation in enumerate(observations):
        try:
            _write(space, [observation], out, targets[index : index + 1])
        except EnvError as error:
            errors[index] = error
        except _WRONG as error:
            text = f"observation: expected an element of {space}, got {observation!r} ({error})"
            errors[index] = EnvError(text)
    return errors


def _write(space: Space[Any], observations: Sequence[Any], out: Any, rows: Rows) -> None:
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            _write(child, [observation[key] for observation in observations], out[key], rows)
    elif isinstance(space, spaces.Tuple):
        for index, child in enumerate(space.spaces):
            _write(child, [observation[index] for observation in observations], out[index], rows)
    elif len(observations):
        _write_leaf(space, observations, out, rows)


def _write_leaf(space: Space[Any], observations: Sequence[Any], out: NDArray[Any], rows: Rows) -> None:
    shape = out.shape[1:]
    if out[0].nbytes <= _LARGE:
        stacked = np.array(observations)
        if stacked.shape == (len(observations), *shape):
            out[rows] = stacked
            return
    for row, observation in zip(np.arange(len(out))[rows].tolist(), observations, strict=True):
        array = np.asarray(observation)
        if array.shape != shape:  # NumPy would broadcast a `(1,)` observation to `(3,)`
            raise EnvError(
                f"observation: expected shape {shape} as in {space}, got {array.shape}; return what "
                "the space declares, or declare the space of what you return"
            )
        out[row] = array


def fits_arrays(actions: Any, target: Any) -> bool:
    """Return whether actions have the structure, the dtypes and the shapes of the arrays in memory."""
    if isinstance(target, dict):
        return isinstance(actions, dict) and all(fits_arrays(actions[key], target[key]) for key in target)
    if isinstance(target, tuple):
        return isinstance(actions, tuple) and all(map(fits_arrays, actions, target))
    return (
        isinstance(actions, np.ndarray)
        and actions.dtype == target.dtype
        and actions.shape[1:] == target.shape[1:]
    )


def action_of(actions: Any, row: int) -> Any:
    """Return the action of one row, for messages."""
    if isinstance(actions, (dict, tuple)):
        return None
    action = actions[row]
    return action.item() if isinstance(action, np.generic) else action
