"""Draws environment steps per second against rows per call."""

from __future__ import annotations

from typing import Any, Protocol

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, StrMethodFormatter
from numpy.typing import NDArray

from planvec.plots.style import COLORS, faint, new_axes

# decades that an axis spans at least, and the first digits of its ticks
_TICKS = ((2.0, (1.0,)), (1.0, (1.0, 2.0, 5.0)), (-1.0, (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
_MARKERS = "osD^vP*"


class Throughput(Protocol):
    """The part of `planvec.checking.Throughput` that is drawn: C contenders, R numbers of rows."""

    contenders: list[str]
    rows: list[int]
    steps_per_second: NDArray[Any]
    spread: NDArray[Any]


def plot_throughput(throughput: Throughput, *, ax: Axes | None = None) -> Axes:
    """Draw what `planvec.checking.measure_throughput` measured.

    Args:
        throughput: The measurements.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes: a line per contender, and the range of its turns.
    """
    ax = new_axes(ax)
    faint(ax)
    for index, name in enumerate(throughput.contenders):
        color, marker = COLORS[index % len(COLORS)], _MARKERS[index % len(_MARKERS)]
        low, high = throughput.spread[index].T
        ax.plot(throughput.rows, throughput.steps_per_second[index], color=color, marker=marker, label=name)
        ax.fill_between(throughput.rows, low, high, color=color, alpha=0.2, linewidth=0)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(throughput.rows, [f"{rows:,}" for rows in throughput.rows])
    ax.minorticks_off()
    low, high = ax.get_ylim()
    dense = next(ticks for decades, ticks in _TICKS if high / low > 10**decades)
    ax.yaxis.set_major_locator(LogLocator(subs=dense))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.set_xlabel("rows per call of step_batch")
    ax.set_ylabel("environment steps per second")
    ax.legend(frameon=False, fontsize=9)
    return ax
