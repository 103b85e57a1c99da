"""The random numbers of random actions in compiled loops, those of `planvec.rows.random_actions`.

Letters: A numbers of an action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from planvec.kernels.memory import load, store
from planvec.kernels.random import philox_block

__all__ = ["draw_uniforms"]

BLOCK = 64
"""Number of random actions of a row that come from one section of Philox; see `ActionStreams`."""


@njit(nogil=True, error_model="numpy", forceinline=True)
def draw_uniforms(
    size: int, uniforms: Any, block: Any, seed: Any, stream_row: int, step: int, held: int
) -> int:
    """Draw the random numbers of an action.

    Args:
        size: A.
        uniforms: `[A]` float64, written.
        block: `[4]` float64, four numbers of the sequence, read and written.
        seed: Seed of all streams, a uint64.
        stream_row: Index of the row in the whole batch.
        step: The step of its rollout.
        held: The number of the four numbers in `block`, within the row and the section; -1: none.

    Returns:
        The new value of `held`.
    """
    within = step % BLOCK * size
    if within == 0:
        held = -1  # another section
    for index in range(size):
        four, place = (within + index) // 4, (within + index) % 4
        if four != held:
            counter = np.uint64(stream_row) * np.uint64(BLOCK * size // 4) + np.uint64(four)
            philox_block(seed, np.uint64(step // BLOCK), counter, block)
            held = four
        # `store`, because indexing would test whether each index is negative.
        store(uniforms, index * 8, np.float64, load(block, place * 8, np.float64))
    return held
