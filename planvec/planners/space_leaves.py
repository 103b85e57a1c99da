"""Walk through a batch of elements of a nested space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gymnasium import Space, spaces

__all__ = ["space_leaves"]


def space_leaves(space: Space[Any], tree: Any, path: str = "") -> Iterator[tuple[str, Space[Any], Any]]:
    """Yield the parts of a stacked batch: dotted path ("" if there is one part), space, batch.

    Unlike `space_arrays.leaves` it takes a tuple for nested only where the space is a Tuple: a batch
    of texts is a tuple of strings.

    Args:
        space: The space of one element.
        tree: The batch, stacked by that space.
        path: Prefix of the paths.
    """
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            yield from space_leaves(child, tree[key], f"{path}.{key}" if path else str(key))
    elif isinstance(space, spaces.Tuple):
        for index, (child, part) in enumerate(zip(space.spaces, tree, strict=True)):
            yield from space_leaves(child, part, f"{path}.{index}" if path else str(index))
    else:
        yield path, space, tree
