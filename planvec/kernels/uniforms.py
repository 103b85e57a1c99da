"""The random numbers of random actions in compiled loops, those of `planvec.rows.random_actions`.

Letters: A numbers of an action.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from planvec.kernels.memory import load, store
from planvec.kernels.random import philox_block

BLOCK = 64  # number of random actions of a row that come from one section of Philox; see `ActionStreams`


@njit(nogil=True, error_model="numpy", forceinline=True)
def draw_uniforms(
    size: int, uniforms: Any, block: Any, seed: Any, stream_row: int, step: int, held: int
) -> int:
    """Draw the random numbers of an action."""
    # `uniforms`: `[A]` float64, written.
    # Returns the new value of `held`.
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
