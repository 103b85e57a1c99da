"""Tables that know at which depth each feature was seen first in a decision.

A node is novel if one of its features was not seen before at its depth or above. Depths are kept as stamps,
which are higher for smaller depths, so that a table of zeros knows nothing.

Letters: F columns, K features that are new.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.novelty.screens import (
    NUM_COLORS,
    NUM_FEATURES,
    NUM_WORDS,
    ROWS,
    SCRATCH,
    mark_features,
)
from planvec.planners.novelty.values import insert_all, mark_values

MAX_DEPTH = 1 << 24
# features of a node that are remembered: with one of them that no shallower node has, it is still novel
_NUM_KEPT = 1024


class NoveltyTable(ABC):
    """Knows the least depth of each feature."""

    stamps: NDArray[np.int32]  # `[N]` int32, one per feature

    @abstractmethod
    def mark(
        self, code: NDArray[Any], before: NDArray[Any] | None, depth: int, is_first: bool
    ) -> NDArray[np.int64]:
        """Mark the features of a node, and return those that were not seen before at this depth or above."""
        # Returns `[K]`, some of them; empty if the node is not novel.

    def first_novel(self, features: NDArray[np.int64], depth: int) -> int:
        """Return the index of the first feature that no shallower node has; -1: none."""
        stamp = MAX_DEPTH - depth
        for index in range(len(features)):
            if self.stamps[features[index]] == stamp:
                return index
        return -1


class ValueTable(NoveltyTable):
    """Takes pairs of a column and its value for features. Codes are `[F]` int64."""

    def __init__(self) -> None:
        self._keys = np.zeros(1024, np.uint64)
        self._numbers = np.zeros(1024, np.int64)
        self.stamps = np.zeros(512, np.int32)
        self._num_known = 0

    def mark(
        self, code: NDArray[Any], before: NDArray[Any] | None, depth: int, is_first: bool
    ) -> NDArray[np.int64]:
        """Mark the features of a node; see `NoveltyTable.mark`."""
        if self._num_known + len(code) > len(self.stamps):
            self._grow(self._num_known + len(code))
        found = np.empty(len(code), np.int64)
        stamp = np.int32(MAX_DEPTH - depth)
        table = (self._keys, self._numbers, self.stamps)
        count, self._num_known = mark_values(code, *table, self._num_known, stamp, found)
        return found[:count]

    def _grow(self, needed: int) -> None:
        """Make room for as many features."""
        size = 1 << int(np.ceil(np.log2(4 * needed)))
        keys, numbers = np.zeros(size, np.uint64), np.zeros(size, np.int64)
        insert_all(self._keys, self._numbers, keys, numbers)
        self._keys, self._numbers = keys, numbers
        stamps = np.zeros(size // 2, np.int32)
        stamps[: self._num_known] = self.stamps[: self._num_known]
        self.stamps = stamps


class ScreenTable(NoveltyTable):
    """Takes the B-PROST features of screens. Codes are `[128 * 14 + 64]` uint16: tiles, and what changed."""

    # Its arrays are large, and mostly never touched: the system provides memory for those parts that are.

    def __init__(self) -> None:
        self.stamps = np.zeros(NUM_FEATURES, np.int32)
        self._table = (self.stamps, np.zeros(NUM_WORDS, np.uint32), np.zeros(NUM_WORDS, np.int32))
        self._scratch = np.empty(SCRATCH, np.int64)
        self._found = np.empty(_NUM_KEPT, np.int64)

    def mark(
        self, code: NDArray[Any], before: NDArray[Any] | None, depth: int, is_first: bool
    ) -> NDArray[np.int64]:
        """Mark the features of a node; see `NoveltyTable.mark`."""
        tiles, changed = _parts(code)
        if before is None:
            old, had_changed = np.zeros_like(tiles), np.ones(NUM_COLORS, np.bool_)
        else:
            old, had_changed = _parts(before)
        stamp = np.int32(MAX_DEPTH - depth)
        arguments = (tiles, old, had_changed, changed, self._table, self._scratch)
        count = mark_features(*arguments, is_first, stamp, self._found)
        if before is None:
            changed[:] = True  # the distances to a screen before it were not marked
        return self._found[:count].copy()


def _parts(code: NDArray[Any]) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
    """Return the tiles `[128, 14]` and the changes `[128]` of a code, as views."""
    size = NUM_COLORS * ROWS
    return code[:size].reshape(NUM_COLORS, ROWS), code[size:].view(np.bool_)[:NUM_COLORS]
