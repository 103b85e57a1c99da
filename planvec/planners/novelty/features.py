"""Features of observations, by which width-based planners tell what is new.

Letters: B observations, F columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.kernels import jit
from planvec.planners.novelty.numbers import (
    MEMORY_SHAPE,
    NUM_COLORS,
    FeatureFunction,
    images_of,
    integer_rows,
    is_screen,
    numbers_of_space,
)

# -- Compiled B-PROST features of screens (Liang, Machado, Talvitie and Bowling 2016).
#
# A screen is divided into 14 rows of 16 tiles. A basic feature says that a tile has a colour; a B-PROS
# feature that two colours are at some distance, in tiles, from each other; a B-PROT feature that a colour
# was at some distance from where another one is now. The tiles of a colour are one bit each in a word per
# row.
#
# Letters: B screens, S features.

ROWS, COLUMNS = 14, 16
_ROW_OFFSETS, _COLUMN_OFFSETS = 2 * ROWS - 1, 2 * COLUMNS - 1
_OFFSETS = _ROW_OFFSETS * _COLUMN_OFFSETS
_NUM_BASIC = NUM_COLORS * ROWS * COLUMNS
_NUM_PAIRS = NUM_COLORS * NUM_COLORS * _OFFSETS
# length of a table of least depths: the basic features, then those of B-PROS, then those of B-PROT
NUM_FEATURES = _NUM_BASIC + 2 * _NUM_PAIRS
# number of words of features: the tiles of a colour in a row, or the distances of two colours in columns
NUM_WORDS = NUM_COLORS * ROWS + 2 * NUM_COLORS * NUM_COLORS * _ROW_OFFSETS
SCRATCH = 4 * NUM_COLORS + _ROW_OFFSETS
# the stamps `[NUM_FEATURES]`, higher for features that were seen at a smaller depth; for each word of
# features those that have a stamp, `[NUM_WORDS]`, and a lower bound of these
_SeenWords = tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.int32]]


@jit(cache=True)
def encode_screens(
    pixels: NDArray[np.uint8], keys: NDArray[np.int32], tiles: NDArray[np.uint16], levels: object
) -> None:
    """Find the tiles of each colour. Colours are numbered in the order in which they appear."""
    # `pixels`: `[B, height, width, channels]` uint8, 3 channels, or 1. `tiles`: `[B, 128, 14]` uint16, all 0;
    # written.
    height, width = pixels.shape[1], pixels.shape[2]
    for row in range(len(pixels)):
        last, number = np.int32(-1), 0
        for tile_row in range(ROWS):
            for y in range(tile_row * height // ROWS, (tile_row + 1) * height // ROWS):
                for column in range(COLUMNS):
                    bit = np.uint16(1 << column)
                    for x in range(column * width // COLUMNS, (column + 1) * width // COLUMNS):
                        color = np.int32(pixels[row, y, x, 0])
                        if levels:
                            color = (
                                color << 16
                                | np.int32(pixels[row, y, x, 1]) << 8
                                | np.int32(pixels[row, y, x, 2])
                            )
                        if color != last:
                            last, number = color, _number_of(color, keys)
                        tiles[row, number, tile_row] |= bit


@jit()
def _number_of(color: Any, keys: NDArray[np.int32]) -> int:
    """Return the number of a colour, a new one if it is new; beyond 128 colours share numbers."""
    mask = np.int64(len(keys) - 1)
    slot = (np.int64(color) * np.int64(2654435761) >> 12) & mask
    for _ in range(64):
        if slot == mask:  # the row of the count
            slot = np.int64(0)
        if keys[slot, 0] == color + 1:
            return int(keys[slot, 1])
        if keys[slot, 0] == 0:
            number = keys[mask, 1]
            if number < NUM_COLORS:
                keys[slot, 0], keys[slot, 1] = color + 1, number
                keys[mask, 1] = number + 1
                return int(number)
            break
        slot = (slot + 1) & mask
    return int((np.int64(color) * np.int64(2654435761) >> 16) & np.int64(NUM_COLORS - 1))


@jit(cache=True)
def mark_features(
    tiles: NDArray[np.uint16],
    before: NDArray[np.uint16],
    had_changed: NDArray[np.bool_],
    changed: NDArray[np.bool_],
    table: _SeenWords,
    scratch: NDArray[np.int64],  # `[SCRATCH]`, memory
    is_first: bool,
    stamp: object,
    found: NDArray[np.int64],
) -> int:
    """Mark the features of a screen that have no stamp as high as this one, and list them."""
    # What did not change since the screen before was marked with that one, whose stamp is higher; unless this
    # screen is the first of its kind in the table.
    # `table`: changed.
    # Returns the number of new features, at most the length of `found`.
    count, num_colors, num_before = 0, 0, 0
    colors, sizes = scratch[:NUM_COLORS], scratch[NUM_COLORS : 2 * NUM_COLORS]
    old_colors, old_sizes = scratch[2 * NUM_COLORS : 3 * NUM_COLORS], scratch[3 * NUM_COLORS : 4 * NUM_COLORS]
    words = scratch[4 * NUM_COLORS : 4 * NUM_COLORS + _ROW_OFFSETS]
    for color in range(NUM_COLORS):
        changed[color] = False
        size, old_size = _count(tiles[color]), _count(before[color])
        for row in range(ROWS):
            is_changed = tiles[color, row] != before[color, row]
            changed[color] = changed[color] or is_changed
            if tiles[color, row] and (is_first or is_changed):
                word, at = np.int64(tiles[color, row]), color * ROWS + row
                count = _mark_word(word, at, at * COLUMNS, table, stamp, found, count)
        if size:
            colors[num_colors], sizes[num_colors] = color, size
            num_colors += 1
        if old_size:
            old_colors[num_before], old_sizes[num_before] = color, old_size
            num_before += 1
    for one in range(num_colors):
        first = colors[one]
        for other in range(one, num_colors):
            second = colors[other]
            if is_first or changed[first] or changed[second]:
                pair = first * NUM_COLORS + second
                _find_offsets(tiles[first], sizes[one], tiles[second], sizes[other], words)
                start = 0
                if first == second:  # each distance is there twice
                    start = ROWS - 1
                    words[start] = words[start] >> COLUMNS << COLUMNS
                count = _mark_pair(words, start, pair, table, stamp, found, count)
    for one in range(num_before):
        first = old_colors[one]
        for other in range(num_colors):
            second = colors[other]
            if is_first or had_changed[first] or changed[second]:
                pair = NUM_COLORS * NUM_COLORS + first * NUM_COLORS + second
                _find_offsets(before[first], old_sizes[one], tiles[second], sizes[other], words)
                count = _mark_pair(words, 0, pair, table, stamp, found, count)
    return count


@jit(inline=True)
def _count(rows: NDArray[np.uint16]) -> Any:
    """Return the number of tiles."""
    size = np.int64(0)
    for row in range(ROWS):
        word = np.int64(rows[row])
        while word:
            word &= word - 1
            size += 1
    return size


@jit()
def _find_offsets(
    first: NDArray[np.uint16],
    num_first: int,
    second: NDArray[np.uint16],
    num_second: int,
    words: NDArray[np.int64],
) -> None:
    """Find the distances from the tiles of one colour to those of another."""
    words[:] = 0
    if num_first <= num_second:
        for row in range(ROWS):
            left = np.int64(first[row])
            for column in range(COLUMNS):
                if left >> column & 1:
                    for other in range(ROWS):
                        words[other - row + ROWS - 1] |= np.int64(second[other]) << (COLUMNS - 1 - column)
        return
    for other in range(ROWS):
        right = np.int64(second[other])
        for column in range(COLUMNS):
            if right >> column & 1:
                for row in range(ROWS):
                    words[other - row + ROWS - 1] |= _reversed(np.int64(first[row])) << column


@jit(inline=True)
def _reversed(word: Any) -> Any:
    """Return the 16 bits of a word in the opposite order."""
    word = (word & 0x5555) << 1 | (word >> 1) & 0x5555
    word = (word & 0x3333) << 2 | (word >> 2) & 0x3333
    word = (word & 0x0F0F) << 4 | (word >> 4) & 0x0F0F
    return (word & 0x00FF) << 8 | (word >> 8) & 0x00FF


@jit()
def _mark_pair(
    words: NDArray[np.int64],
    start: int,
    pair: Any,
    table: _SeenWords,
    stamp: object,
    found: NDArray[np.int64],
    count: int,
) -> int:
    """Mark the distances between two colours from a distance in rows on; see `mark_features`."""
    for offset in range(start, _ROW_OFFSETS):
        if words[offset]:
            at = pair * _ROW_OFFSETS + offset
            index = _NUM_BASIC + at * _COLUMN_OFFSETS
            count = _mark_word(words[offset], NUM_COLORS * ROWS + at, index, table, stamp, found, count)
    return count


@jit()
def _mark_word(
    word: Any, at: Any, index: Any, table: _SeenWords, stamp: Any, found: NDArray[np.int64], count: int
) -> int:
    """Mark the features of the bits of a word; see `mark_features`."""
    stamps, seen, lowest = table
    known = np.int64(seen[at])
    if word & ~known == 0 and lowest[at] >= stamp:
        return count
    every, low, place = word | known, np.int32(2147483647), np.int64(index)
    bits = every
    while bits:
        if bits & 1:
            if word & 1 and stamps[place] < stamp:
                stamps[place] = stamp
                if count < len(found):
                    found[count] = place
                    count += 1
            low = min(low, stamps[place])
        bits >>= 1
        word >>= 1
        place += 1
    seen[at], lowest[at] = np.uint32(every), low
    return count


# -- Compiled novelty of rows of integers: a feature says that a column has a value.
#
# Letters: S slots of a hash table, F columns, N features.


@jit(inline=True)
def _hash(column: Any, value: Any) -> Any:
    """Return 64 mixed bits of a column and a value (the finaliser of SplitMix64); never 0."""
    word = np.uint64(column + 1) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(value)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31)) | np.uint64(1)


@jit(cache=True)
def hash_values(values: NDArray[np.int64], hashes: NDArray[np.int64]) -> None:
    """Write a number for each column and its value, `[F]`."""
    for column in range(len(values)):
        hashes[column] = np.int64(_hash(column, values[column]))


@jit(inline=True)
def _find(key: Any, keys: NDArray[np.uint64]) -> Any:
    """Return the slot of a key, or the free one where it belongs."""
    mask = np.uint64(len(keys) - 1)
    slot = key >> np.uint64(7) & mask
    while keys[slot] != np.uint64(0) and keys[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@jit(cache=True)
def mark_values(
    values: NDArray[np.int64],  # `[F]`
    keys: NDArray[np.uint64],
    numbers: NDArray[np.int64],  # `[S]`, their numbers
    stamps: NDArray[np.int32],  # `[N]`, higher for features that were seen at a smaller depth; changed
    num_known: Any,
    stamp: Any,
    found: NDArray[np.int64],  # `[F]`, written: numbers of the features that are new
) -> tuple[int, int]:
    """Mark the features that have no stamp as high as this one, and list them."""
    # `keys`: `[S]`, the hashes of the features that are known; 0: free. More than F are free.
    # Returns the number of new features, and that of the features that are known now.
    count = 0
    for column in range(len(values)):
        key = _hash(column, values[column])
        slot = _find(key, keys)
        if keys[slot] == np.uint64(0):
            keys[slot], numbers[slot] = key, num_known
            num_known += 1
        number = numbers[slot]
        if stamps[number] < stamp:
            stamps[number] = stamp
            found[count] = number
            count += 1
    return count, num_known


@jit(cache=True)
def insert_all(
    keys: NDArray[np.uint64],
    numbers: NDArray[np.int64],
    new_keys: NDArray[np.uint64],
    new_numbers: NDArray[np.int64],
) -> None:
    """Copy the features of a hash table into a larger one."""
    for slot in range(len(keys)):
        if keys[slot] != np.uint64(0):
            place = _find(keys[slot], new_keys)
            new_keys[place], new_numbers[place] = keys[slot], numbers[slot]


# -- Tables that know at which depth each feature was seen first in a decision.
#
# A node is novel if one of its features was not seen before at its depth or above. Depths are kept as stamps,
# which are higher for smaller depths, so that a table of zeros knows nothing.
#
# Letters: F columns, K features that are new.

MAX_DEPTH = 1 << 24
# features of a node that are remembered: with one of them that no shallower node has, it is still novel
_NUM_KEPT = 1024


class NoveltyTable(ABC):
    """Knows the least depth of each feature."""

    stamps: NDArray[np.int32]  # `[N]` int32, one per feature

    @abstractmethod
    def mark(
        self, code: np.ndarray, before: np.ndarray | None, depth: int, is_first: bool
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
        self, code: np.ndarray, before: np.ndarray | None, depth: int, is_first: bool
    ) -> NDArray[np.int64]:
        """Mark the features of a node; see `NoveltyTable.mark`."""
        needed = self._num_known + len(code)
        if needed > len(self.stamps):
            size = 1 << int(np.ceil(np.log2(4 * needed)))
            keys, numbers = np.zeros(size, np.uint64), np.zeros(size, np.int64)
            insert_all(self._keys, self._numbers, keys, numbers)
            self._keys, self._numbers = keys, numbers
            stamps = np.zeros(size // 2, np.int32)
            stamps[: self._num_known] = self.stamps[: self._num_known]
            self.stamps = stamps
        found = np.empty(len(code), np.int64)
        stamp = np.int32(MAX_DEPTH - depth)
        table = (self._keys, self._numbers, self.stamps)
        count, self._num_known = mark_values(code, *table, self._num_known, stamp, found)
        return found[:count]


class ScreenTable(NoveltyTable):
    """Takes the B-PROST features of screens. Codes are `[128 * 14 + 64]` uint16: tiles, and what changed."""

    # Its arrays are large, and mostly never touched: the system provides memory for those parts that are.

    def __init__(self) -> None:
        self.stamps = np.zeros(NUM_FEATURES, np.int32)
        self._table = (self.stamps, np.zeros(NUM_WORDS, np.uint32), np.zeros(NUM_WORDS, np.int32))
        self._scratch = np.empty(SCRATCH, np.int64)
        self._found = np.empty(_NUM_KEPT, np.int64)

    def mark(
        self, code: np.ndarray, before: np.ndarray | None, depth: int, is_first: bool
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


def _parts(code: np.ndarray) -> tuple[NDArray[np.uint16], NDArray[np.bool_]]:
    """Return the tiles `[128, 14]` and the changes `[128]` of a code, as views."""
    size = NUM_COLORS * ROWS
    return code[:size].reshape(NUM_COLORS, ROWS), code[size:].view(np.bool_)[:NUM_COLORS]


# MiniGrid's number of the agent, and a bound of a cell's kind, colour and state in one number
_AGENT, _NUM_CONTENTS = 10, 2**24
_LARGEST_GRID = 31


class Features(ABC):
    """Turns observations into codes, and makes tables that know which features of codes were seen."""

    new_table: type[NoveltyTable]  # makes a table that has seen nothing
    dtype: type[np.integer[Any]]  # of codes

    @abstractmethod
    def encode(self, observations: Any, memory: NDArray[np.int32]) -> np.ndarray:
        """Return the codes `[B, ...]` of observations `[B, ...]`, stacked by the observation space."""
        # `memory`: `[1024, 2]` int32, zeros at first: what the codes of a tree depend on; changed.

    @abstractmethod
    def basic(self, code: np.ndarray) -> NDArray[np.int64]:
        """Return numbers of the basic features of a code: colours of tiles, or values of columns."""

    def codes(
        self,
        observations: object,
        memory: NDArray[np.int32],
        num_rows: int,
        before: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return the codes of observations, after a check of their shape."""
        codes = self.encode(observations, memory)
        num_columns = codes.shape[1] if before is None else before.shape[-1]
        if codes.shape != (num_rows, num_columns):
            expected = f"[{num_rows}, F]" if before is None else f"[{num_rows}, {num_columns}], as before"
            raise InvalidBatchError(f"features: expected integers {expected}, got shape {codes.shape}")
        return codes


class Values(Features):
    """Features of a function that returns integers."""

    # `function`: `function(observations) -> [B, F]`.

    new_table = ValueTable
    dtype = np.int64

    def __init__(self, function: FeatureFunction) -> None:
        self._function = function

    def encode(self, observations: object, memory: NDArray[np.int32]) -> np.ndarray:
        """Return `[B, F]` int64; see `Features.encode`."""
        values = integer_rows(self._function(observations), "features")
        return np.ascontiguousarray(values, np.int64)

    def basic(self, code: np.ndarray) -> NDArray[np.int64]:
        """Return a hash of each column and its value, `[F]`; see `Features.basic`."""
        hashes = np.empty(len(code), np.int64)
        hash_values(code, hashes)
        return hashes


@dataclass(unsafe_hash=True, repr=False)
class Screens(Features):
    """B-PROST features of images (Liang et al. 2016): colours of tiles, and distances between colours.

    Images are `[height, width, 3]` or `[height, width]` uint8 of any size, divided into 14 rows of 16 tiles.
    The first 128 colours are told apart.
    """

    new_table = ScreenTable
    dtype = np.uint16

    def encode(self, observations: object, memory: NDArray[np.int32]) -> np.ndarray:
        """Return `[B, 128 * 14 + 64]` uint16; see `Features.encode`.

        Raises:
            InvalidBatchError: The observations are no images.
        """
        pixels = images_of(observations, "features")
        codes = np.zeros((len(pixels), NUM_COLORS * ROWS + NUM_COLORS // 2), np.uint16)
        tiles = np.zeros((len(pixels), NUM_COLORS, ROWS), np.uint16)
        encode_screens(pixels, memory, tiles, pixels.shape[3] == 3)
        codes[:, : NUM_COLORS * ROWS] = tiles.reshape(len(pixels), -1)
        return codes

    def basic(self, code: np.ndarray) -> NDArray[np.int64]:
        """Return the numbers of the tiles that have each colour; see `Features.basic`."""
        tiles = np.ascontiguousarray(code[: NUM_COLORS * ROWS])
        return np.flatnonzero(np.unpackbits(tiles.view(np.uint8)))


class NewFeatures:
    """Counts the features of observations that were not seen before in a decision."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._table = features.new_table()
        self._memory = np.zeros(MEMORY_SHAPE, np.int32)

    def count(
        self, observations: object, num_rows: int, parents: np.ndarray | None
    ) -> tuple[NDArray[np.float64], np.ndarray]:
        """Return how many features of each observation are new, and remember them."""
        codes = self._features.codes(observations, self._memory, num_rows, parents)
        numbers = np.empty(len(codes))
        for row, code in enumerate(codes):
            before = None if parents is None else parents[row]
            numbers[row] = len(self._table.mark(code, before, 0, before is None))
        return numbers, codes


def features_for(space: Space[object], given: Features | FeatureFunction | None) -> Features:
    """Return the features that were given, or those that suit an observation space."""
    # Images of at least 32 x 32 get `Screens`, those of MiniGrid `grid_features`; bytes (the RAM of Atari)
    # and other integers are features themselves; of numbers in a bounded Box, the index of one of 32 equal
    # intervals, elsewhere of intervals whose width grows with the number.
    if isinstance(given, Features):
        return given
    if given is not None:
        return Values(given)
    if is_screen(space):
        return Screens()
    if _is_grid(space):
        return Values(grid_features)
    return Values(numbers_of_space(space, "features"))


def grid_features(observations: Any) -> NDArray[np.int64]:
    """Return what each cell of a MiniGrid holds, together with the direction of the agent and its cell."""
    # In the agent's own view its cell, the middle of the last row, shows what it carries: a key that is
    # carried makes every other cell new again. `FullyObsWrapper` shows where the agent is; that a key is
    # carried makes only the cell new in which it lay.
    # `observations`: A dict with "image" `[B, width, height, 3]`, and perhaps "direction" `[B]`.
    image = np.asarray(observations["image"]).astype(np.int64)
    num_rows, width, height, _ = image.shape
    cells = (image @ np.array([1, 2**8, 2**16])).reshape(num_rows, -1)
    is_agent = image[..., 0].reshape(num_rows, -1) == _AGENT
    own_place = (width // 2) * height + height - 1
    places = np.where(is_agent.any(axis=1), is_agent.argmax(axis=1), own_place)
    direction = np.asarray(observations.get("direction", 0), np.int64)
    context = (places * _NUM_CONTENTS + cells[np.arange(num_rows), places]) * 4 + direction
    features: NDArray[np.int64] = context[:, None] * _NUM_CONTENTS + cells
    return features


def _is_grid(space: Space[object]) -> bool:
    """Return whether observations are those of MiniGrid."""
    if not isinstance(space, spaces.Dict) or not space.keys() <= {"image", "direction", "mission"}:
        return False
    image, direction = space.get("image"), space.get("direction", spaces.Discrete(4))
    if not isinstance(direction, spaces.Discrete) or (direction.start, direction.n) != (0, 4):
        return False
    if not isinstance(image, spaces.Box) or image.dtype != np.uint8 or len(image.shape) != 3:
        return False
    return image.shape[2] == 3 and max(image.shape[:2]) <= _LARGEST_GRID
