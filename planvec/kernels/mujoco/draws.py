"""Random actions in compiled loops. Letters: A numbers of an action."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.kernels.mujoco.compiling import inner
from planvec.kernels.uniforms import draw_uniforms


class Draws(NamedTuple):
    """Describes random actions; see `ActionRange`."""

    seed: np.uint64  # seed of all streams
    first_row: int  # index of the first row in the whole batch
    low: NDArray[np.float64]
    size: NDArray[np.float64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]


@inner
def draw_action(draws: Any, action: Any, uniforms: Any, block: Any, row: int, step: int, held: int) -> int:
    """Draw a random action, as `planvec.kernels.rollout_loop` does."""
    # `action`: `[A]`, written. `uniforms`: `[A]`, scratch.
    # Returns the new value of `held`.
    size = len(action)
    held = draw_uniforms(size, uniforms, block, draws.seed, draws.first_row + row, step, held)
    for index in range(size):
        drawn = np.float32(draws.low[index] + draws.size[index] * uniforms[index])
        drawn = max(drawn, np.float32(draws.lowest[index]))
        action[index] = min(drawn, np.float32(draws.highest[index]))
    return held
