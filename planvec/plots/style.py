"""Colours and axes that all pictures share."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

# the colours of Okabe and Ito (2008), which colour-blind people tell apart, on white and on black
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#999999")
MAP = "viridis"  # A map of colours whose lightness rises evenly


def new_axes(ax: Axes | None, size: tuple[float, float] = (6.4, 4.0)) -> Axes:
    """Return the axes to draw into."""
    if ax is not None:
        return ax
    _, made = plt.subplots(figsize=size, layout="constrained")
    return made


def text_color() -> Any:
    """Return the colour of text in the style in use."""
    return plt.rcParams["text.color"]


def outline() -> dict[str, Any]:
    """Return options of `scatter` that make points of any colour visible on white and on black."""
    return {"edgecolors": text_color(), "linewidths": 0.4}


def faint(ax: Axes) -> None:
    """Leave out the frame of axes, except the lines with ticks, and draw a faint grid."""
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.grid(visible=True, alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)
