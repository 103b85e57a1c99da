"""Walks through a batch of elements of a nested space, and puts it together again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymnasium import Space, spaces
from numpy.typing import NDArray


def space_leaves(space: Space[Any], tree: Any, path: str = "") -> Iterator[tuple[str, Space[Any], Any]]:
    """Yield the parts of a stacked batch: dotted path ("" if there is one part), space, batch."""
    # Unlike `space_arrays.leaves` it takes a tuple for nested only where the space is a Tuple: a batch of
    # texts is a tuple of strings.
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from space_leaves(child, tree[key], f"{path}.{key}" if path else str(key))
    elif isinstance(space, spaces.Tuple):
        for index, (child, part) in enumerate(zip(space.spaces, tree, strict=True)):
            yield from space_leaves(child, part, f"{path}.{index}" if path else str(index))
    else:
        yield path, space, tree


def tree_of_leaves(space: Space[Any], name: str, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """Return a stacked batch from the arrays of its parts, which are named by `name` and their paths."""
    if isinstance(space, spaces.Dict):
        return {key: tree_of_leaves(child, f"{name}.{key}", arrays) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(
            tree_of_leaves(child, f"{name}.{index}", arrays) for index, child in enumerate(space.spaces)
        )
    return arrays[name]
