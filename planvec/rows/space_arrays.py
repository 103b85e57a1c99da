"""Allocates, checks, stacks, slices and copies batches of space elements. Letters: B rows.

A batch of elements of a *fixed-size* space (Box, Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of
those) is a tree of arrays `[B, ...]`, in the layout of `gymnasium.vector`. A batch of elements of any other
space (Text, Sequence, Graph, OneOf, a custom space) is a list of B elements, until Gymnasium's `concatenate`
converts it for the user.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from planvec.errors import EnvError

_ALL = slice(None)
_LEAVES = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
# bytes of an element above which elements are copied one by one, to save a second copy of all of them
_LARGE = 4096
# The types of space whose elements are one array. Testing the type first makes the usual case fast.
SIMPLE = frozenset(_LEAVES)


def is_fixed(space: Space[object]) -> bool:
    """Return whether every element of the space has the same number of bytes."""
    if type(space) in SIMPLE:
        return space.dtype is not None and not space.dtype.hasobject
    if isinstance(space, spaces.Dict):
        return all(is_fixed(child) for child in space.spaces.values())
    if isinstance(space, spaces.Tuple):
        return all(is_fixed(child) for child in space.spaces)
    return isinstance(space, _LEAVES) and not np.dtype(space.dtype).hasobject


def empty_rows(space: Space[object], num_rows: int, allocate: Callable[..., Any] = np.empty) -> Any:
    """Return a tree of uninitialised arrays `[num_rows, ...]`, or a list if the size is not fixed."""
    # `allocate`: Makes one array, called as `allocate(shape, dtype=...)` once per leaf.
    if type(space) in SIMPLE:
        assert space.shape is not None
        return allocate((num_rows, *space.shape), dtype=space.dtype)
    if is_fixed(space):
        return create_empty_array(space, n=num_rows, fn=allocate)
    return [None] * num_rows


def blank(space: Space[object]) -> Any:
    """Return an element of zeros, or the empty element (text, sequence), as Gymnasium makes it."""
    # It is None for a custom space.
    rows: Any = create_empty_array(space, n=1, fn=np.zeros)
    return None if rows is None else take_row(space, rows, 0)  # Gymnasium returns None for custom spaces


def put_row(space: Space[object], element: object, rows: object, row: int) -> None:
    """Write one element into a batch."""
    if isinstance(rows, list):
        rows[row] = element
    else:
        stack_rows(space, [element], take_rows(rows, slice(row, row + 1)))


def leaves(tree: Any) -> Iterator[np.ndarray]:
    """Yield the arrays of a tree, in order."""
    if isinstance(tree, dict):
        for child in tree.values():
            yield from leaves(child)
    elif isinstance(tree, tuple):
        for child in tree:
            yield from leaves(child)
    else:
        yield tree


def map_leaves(function: Callable[[Any], Any], tree: object) -> Any:
    """Return the same tree with `function` applied to each leaf."""
    if isinstance(tree, dict):
        return {key: map_leaves(function, child) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, child) for child in tree)
    return function(tree)


def copy_tree(tree: object) -> Any:
    """Return the same tree with copies of its arrays or lists."""
    return map_leaves(lambda leaf: leaf.copy(), tree)


def take_rows(tree: object, rows: Any) -> Any:
    """Return rows of a batch: views for a slice, copies for an index array."""
    return tree[rows] if isinstance(tree, np.ndarray) else map_leaves(lambda leaf: leaf[rows], tree)


_IMMUTABLE = frozenset((int, float, bool, str, bytes, complex, type(None)))


def own_copy(value: Any) -> Any:
    """Return a copy that shares no memory with the original: `copy.deepcopy`, faster for common types."""
    kind = type(value)
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    if kind in _IMMUTABLE or isinstance(value, np.generic):
        return value
    if kind is dict:
        return {key: own_copy(item) for key, item in value.items()} if value else {}
    if kind is tuple:
        return tuple(own_copy(item) for item in value)
    if isinstance(value, tuple) and hasattr(kind, "_fields") and not hasattr(value, "__dict__"):
        return tuple.__new__(kind, map(own_copy, value))  # a named tuple
    return copy.deepcopy(value)


def raw(records: np.ndarray) -> np.ndarray:
    """Return records viewed as blocks of bytes. NumPy copies blocks at once, but records field by field."""
    return records.view(_block_dtype(records.dtype.itemsize))


@functools.lru_cache(maxsize=64)
def _block_dtype(num_bytes: int) -> np.dtype[np.void]:
    return np.dtype(f"V{num_bytes}")


def take_row(space: Space[object], tree: Any, row: int) -> Any:
    """Return one element of a batch, in the form that the environment returns."""
    if isinstance(space, spaces.Dict):
        return {key: take_row(child, tree[key], row) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(take_row(child, part, row) for child, part in zip(space.spaces, tree, strict=True))
    return tree[row]


def copy_rows(source: Any, target: Any, rows: object = _ALL) -> None:
    """Copy a batch into rows (a slice or an index array) of another one."""
    if isinstance(target, dict):
        for key, child in target.items():
            copy_rows(source[key], child, rows)
    elif isinstance(target, tuple):
        for part, child in zip(source, target, strict=True):
            copy_rows(part, child, rows)
    else:
        target[rows] = source


def list_rows(space: Space[object], tree: Any, as_ints: bool = False) -> list[Any]:
    """Return the elements of a batch, each of the types that `space.sample()` gives."""
    # `as_ints`: Discrete elements as Python ints, which are faster; NumPy scalars differ in promotion,
    # overflow and division.
    # Arrays are rows of a new copy, because an environment may keep its action, and the memory of the batch
    # is overwritten by the next one.
    if isinstance(tree, list):
        return tree
    if isinstance(space, spaces.Discrete):
        return list(tree.tolist() if as_ints else tree)
    if isinstance(space, spaces.Dict):
        columns = [list_rows(child, tree[key], as_ints) for key, child in space.spaces.items()]
        return [dict(zip(space.spaces, row, strict=True)) for row in zip(*columns, strict=True)]
    if isinstance(space, spaces.Tuple):
        parts = zip(space.spaces, tree, strict=True)
        return list(zip(*(list_rows(child, part, as_ints) for child, part in parts), strict=True))
    return list(tree.copy())


def finish_rows(space: Space[object], rows: object) -> Any:
    """Return a batch in the form for users: a tree of arrays unchanged, a list converted by Gymnasium."""
    if isinstance(rows, list):
        empty: Any = create_empty_array(space, n=len(rows))
        return concatenate(space, rows, empty)
    return rows


def stack_rows(space: Space[object], rows: Sequence[object], out: Any) -> None:
    """Check the elements that an environment returned and stack them in `out`."""
    # Raises EnvError, whose row is the index of the wrong element.
    if type(space) in SIMPLE:
        _stack_leaf(space, rows, out)
    elif isinstance(out, list):
        out[:] = rows
    elif isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            stack_rows(child, _column(space, rows, key), out[key])
    elif isinstance(space, spaces.Tuple):
        for index, child in enumerate(space.spaces):
            stack_rows(child, _column(space, rows, index), out[index])
    else:
        _stack_leaf(space, rows, out)


def _column(space: Space[object], rows: Sequence[Any], key: object) -> list[Any]:
    column: list[Any] = []
    try:
        for row in rows:
            column.append(row[key])
    except (KeyError, IndexError, TypeError) as error:
        text = f"observation: expected an element of {space}, got {row!r} without {key!r}"
        raise EnvError(text, row=len(column)) from error
    return column


def _fits(space: Space[object], stacked: np.ndarray) -> bool:
    if isinstance(space, spaces.Box):
        return stacked.dtype == space.dtype
    return stacked.dtype.kind in "iub"


def _all_of(dtype: object, rows: Sequence[Any]) -> bool:
    """Return whether all rows are arrays (or NumPy scalars) of this dtype."""
    try:
        return [row.dtype for row in rows].count(dtype) == len(rows)
    except AttributeError:
        return False


def _stack_leaf(space: Space[object], rows: Sequence[Any], out: np.ndarray) -> None:
    if not len(rows):
        return
    first = rows[0]
    is_single = len(rows) == 1 and isinstance(first, np.ndarray)
    if is_single and first.shape == out.shape[1:] and first.dtype == out.dtype:
        out[0] = first  # faster than by np.array(rows)
        return
    stacked = None
    if out[0].nbytes <= _LARGE:
        try:
            stacked = np.array(rows)
        except ValueError:  # rows of different shapes
            stacked = None
    # Shapes are compared first, because NumPy would broadcast a (1,) observation to (3,). The dtype of each
    # row is compared, because NumPy promotes mixed dtypes, and the result would depend on how the batch was
    # cut.
    is_alike = not isinstance(space, spaces.Box) or _all_of(space.dtype, rows)
    if stacked is not None and is_alike and stacked.shape == out.shape and _fits(space, stacked):
        out[...] = stacked
        return
    for index, row in enumerate(rows):
        got = np.asarray(row)
        if got.shape != out.shape[1:] or not _fits(space, got):
            raise EnvError(
                f"observation: expected shape {out.shape[1:]} and dtype {out.dtype} as in {space}, "
                f"got shape {got.shape} and dtype {got.dtype}; return what the space declares, or declare "
                "the space of what you return",
                row=index,
            )
        out[index] = got
