"""Draws the frames of many states. Letters: B states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError


def plot_fan(
    env: Any, states: NDArray[Any], *, titles: Sequence[Any] | None = None, num_columns: int | None = None
) -> NDArray[Any]:
    """Draw the frame that the environment renders at each state, in a grid.

    Args:
        env: A `BatchEnv` or `PlanEnv` that was made with `render_mode="rgb_array"`.
        states: `[B]`, at most 100.
        titles: B texts or numbers, such as returns, drawn above the frames.
        num_columns: Columns of the grid; None takes about the square root of B.

    Returns:
        The axes `[rows, columns]`.

    Raises:
        InvalidBatchError: There are no states, or more than 100, or another number of titles.
    """
    states = np.atleast_1d(states)
    if not 1 <= len(states) <= 100:
        raise InvalidBatchError(f"states: expected from 1 to 100, got {len(states)}")
    if titles is not None and len(titles) != len(states):
        raise InvalidBatchError(f"titles: expected one per state ({len(states)}), got {len(titles)}")
    if num_columns is not None and num_columns < 1:
        raise InvalidBatchError(f"num_columns: expected at least 1, got {num_columns}")
    frames = env.render(states)
    columns = num_columns or math.ceil(math.sqrt(len(states)))
    rows = math.ceil(len(states) / columns)
    height, width = np.asarray(frames[0]).shape[:2]
    size = 1.5 if columns > 3 else 2.4
    figure_size = (size * columns, (size * height / width + 0.22 * (titles is not None)) * rows)
    _, grid = plt.subplots(rows, columns, figsize=figure_size, squeeze=False, layout="constrained")
    for index, ax in enumerate(grid.flat):
        ax.set_axis_off()
        if index < len(frames):
            ax.imshow(frames[index])
            if titles is not None:
                ax.set_title(_short(titles[index]), fontsize=8, pad=2)
    axes: NDArray[Any] = grid
    return axes


def _short(title: Any) -> str:
    """Return a title; numbers with few digits."""
    return f"{title:.4g}" if isinstance(title, (float, np.floating)) else str(title)
