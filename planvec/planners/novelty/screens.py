"""Compiled B-PROST features of screens (Liang, Machado, Talvitie and Bowling 2016).

A screen is divided into 14 rows of 16 tiles. A basic feature says that a tile has a colour; a B-PROS feature
that two colours are at some distance, in tiles, from each other; a B-PROT feature that a colour was at some
distance from where another one is now. The tiles of a colour are one bit each in a word per row.

Letters: B screens, S features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit

ROWS, COLUMNS, NUM_COLORS = 14, 16, 128
_ROW_OFFSETS, _COLUMN_OFFSETS = 2 * ROWS - 1, 2 * COLUMNS - 1
_OFFSETS = _ROW_OFFSETS * _COLUMN_OFFSETS
_NUM_BASIC = NUM_COLORS * ROWS * COLUMNS
_NUM_PAIRS = NUM_COLORS * NUM_COLORS * _OFFSETS
# length of a table of least depths: the basic features, then those of B-PROS, then those of B-PROT
NUM_FEATURES = _NUM_BASIC + 2 * _NUM_PAIRS
# number of words of features: the tiles of a colour in a row, or the distances of two colours in columns
NUM_WORDS = NUM_COLORS * ROWS + 2 * NUM_COLORS * NUM_COLORS * _ROW_OFFSETS
SCRATCH = 4 * NUM_COLORS + _ROW_OFFSETS


@jit(cache=True)
def encode_screens(
    pixels: NDArray[np.uint8], keys: NDArray[np.int32], tiles: NDArray[np.uint16], levels: Any
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
    table: tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.int32]],
    scratch: NDArray[np.int64],  # `[SCRATCH]`, memory
    is_first: bool,
    stamp: Any,
    found: NDArray[np.int64],
) -> int:
    """Mark the features of a screen that have no stamp as high as this one, and list them."""
    # What did not change since the screen before was marked with that one, whose stamp is higher; unless this
    # screen is the first of its kind in the table.
    # `table`: The stamps `[NUM_FEATURES]`, higher for features that were seen at a smaller depth; for each
    # word of features those that have a stamp, `[NUM_WORDS]`, and a lower bound of these; changed.
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
    table: tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.int32]],
    stamp: Any,
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
    word: Any,
    at: Any,
    index: Any,
    table: tuple[NDArray[np.int32], NDArray[np.uint32], NDArray[np.int32]],
    stamp: Any,
    found: NDArray[np.int64],
    count: int,
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
