"""Calls the NumPy functions of a user with blocks of rows, and checks the forms of their results.

A block has 1, 2, 4, ... or 4096 rows; missing ones are copies of the last row. NumPy and BLAS may round by
the number of rows, so the comparison with the environment covers each of these sizes.

Letters: B rows, n rows of a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.kernels.own.declared import (
    OBSERVE_ARGUMENTS,
    STEP_ARGUMENTS,
    OwnKernel,
    arguments_of,
    python_function,
)
from planvec.rows import leaves

BLOCK_SIZES = tuple(2**power for power in range(13))  # numbers of rows with which functions are called

Arrays = list[NDArray[Any]]
# rewards, `terminated` and the numbers for infos of some rows
Stepped = tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]


class Blocks:
    """Calls the functions of a kernel."""

    def __init__(self, own: OwnKernel, space: gymnasium.Space[Any]) -> None:
        self._own, self._space = own, space
        self._step = python_function(own.step)
        self._step_names = arguments_of(own.step, "step", STEP_ARGUMENTS)
        self._observe: Callable[..., Any] | None = None
        if own.observe is not None:
            self._observe = python_function(own.observe)
            self._observe_names = arguments_of(own.observe, "observe", OBSERVE_ARGUMENTS)
        self._num_results = 3 if own.infos is None else 4

    def step(
        self, columns: Arrays, rows: NDArray[np.int64], actions: NDArray[Any], constants: Any
    ) -> Stepped:
        """Step some rows."""
        rewards, extras = np.empty(len(rows)), np.zeros(len(rows))
        terminated = np.empty(len(rows), np.bool_)
        for place in _blocks(len(rows)):
            given = {
                "state": tuple([column[rows[place.padded]] for column in columns]),
                "action": actions[place.padded],
                "constants": constants,
            }
            results = self._step(*[given[name] for name in self._step_names])
            after, *others = self._checked(results)
            names, size, own = self._own.state, place.last - place.first, rows[place.first : place.last]
            for name, column, array in zip(names, columns, after, strict=True):
                column[own] = self._cast(name, array, place.num_rows, column)[:size]
            part = slice(place.first, place.last)
            for name, target, array in zip(
                ("reward", "terminated", "extra"), (rewards, terminated, extras), others, strict=False
            ):
                target[part] = self._numbers(name, array, place.num_rows)[:size]
        return rewards, terminated, extras

    def observe(self, columns: Arrays, constants: Any, out: Any) -> None:
        """Write the observations of all rows."""
        targets = list(leaves(out))
        for place in _blocks(len(columns[0])):
            state = tuple([column[place.padded] for column in columns])
            if self._observe is None:
                parts: list[Any] = [np.concatenate([part.reshape(place.num_rows, -1) for part in state], 1)]
            else:
                given = {"state": state, "constants": constants}
                observed = self._observe(*[given[name] for name in self._observe_names])
                parts = list(observed) if isinstance(observed, (tuple, list)) else [observed]
            if len(parts) != len(targets):
                raise ValueError(
                    f"observe of {self._own.owner}: expected {len(targets)} arrays as in {self._space}, "
                    f"got {len(parts)}"
                )
            for target, part in zip(targets, parts, strict=True):
                array = np.asarray(part)
                expected = (place.num_rows, *target.shape[1:])
                if array.shape[:1] != expected[:1] or array.size != np.prod(expected):
                    raise ValueError(
                        f"observe of {self._own.owner}: expected shape {expected}, got {array.shape}"
                    )
                target[place.first : place.last] = array.reshape(expected)[: place.last - place.first]

    def _checked(self, results: Any) -> tuple[Any, ...]:
        """Return the results of a step."""
        names, owner = self._own.state, self._own.owner
        if not isinstance(results, tuple) or len(results) != self._num_results:
            form = "(state, reward, terminated" + (", extra)" if self._num_results == 4 else ")")
            got = f"{len(results)} results" if isinstance(results, tuple) else f"a {type(results).__name__}"
            raise ValueError(f"step of {owner}: expected {form}, got {got}")
        if not isinstance(results[0], (tuple, list)) or len(results[0]) != len(names):
            is_sized = isinstance(results[0], (tuple, list))
            got = f"{len(results[0])} entries" if is_sized else f"a {type(results[0]).__name__}"
            raise ValueError(f"step of {owner}: expected a state of {len(names)} arrays {names}, got {got}")
        return tuple(results)

    def _cast(self, name: str, array: Any, num_rows: int, column: NDArray[Any]) -> NDArray[Any]:
        """Return an attribute of the new states as an array of its dtype."""
        array = np.asarray(array)
        expected = (num_rows, *column.shape[1:])
        if array.shape != expected or not np.can_cast(array.dtype, column.dtype, "same_kind"):
            raise ValueError(
                f"step of {self._own.owner}: expected {name} of shape {expected} and dtype {column.dtype}, "
                f"got {array.shape} and {array.dtype}"
            )
        cast: NDArray[Any] = array
        return cast

    def _numbers(self, name: str, array: Any, num_rows: int) -> NDArray[Any]:
        """Return one number for each row."""
        array = np.asarray(array)
        if array.shape not in ((num_rows,), ()) or array.dtype.kind not in "fiub":
            raise ValueError(
                f"step of {self._own.owner}: expected {name} of shape {(num_rows,)}, got {array.dtype} "
                f"of shape {array.shape}"
            )
        return np.broadcast_to(array, (num_rows,))


class _Place:
    """Describes a block: rows from `first` to `last`, padded to `num_rows` with copies of the last one."""

    def __init__(self, first: int, last: int, num_rows: int) -> None:
        self.first, self.last, self.num_rows = first, last, num_rows
        self.padded = np.minimum(np.arange(first, first + num_rows), last - 1)


def _blocks(num_rows: int) -> Iterator[_Place]:
    """Yield the blocks of so many rows."""
    for first in range(0, num_rows, BLOCK_SIZES[-1]):
        size = min(num_rows - first, BLOCK_SIZES[-1])
        yield _Place(first, first + size, 1 << (size - 1).bit_length())
