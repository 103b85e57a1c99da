"""Draws returns of rollouts, episodes or planners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners import Episode
from planvec.plots.style import COLORS, faint, new_axes, text_color
from planvec.rows import Rollouts

_BOX = 5  # numbers of returns from which on there is a box: quartiles of fewer would be invented
_FEW = 60  # numbers of returns that are drawn as points


def plot_returns(returns: Any, *, ax: Axes | None = None) -> Axes:
    """Draw how returns are distributed.

    Args:
        returns: Numbers `[B]`, `Rollouts`, a list of `Episode`s; or a dict of them by name, such as one
            entry per planner.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes: a histogram; for a dict, a box for each name that has five returns or more, and points where
        they are few.

    Raises:
        InvalidBatchError: There are no returns.
    """
    ax = new_axes(ax)
    faint(ax)
    if isinstance(returns, Mapping):
        groups = {str(name): _numbers(group)[0] for name, group in returns.items()}
        if not groups:
            raise InvalidBatchError("returns: expected at least one name, got an empty dict")
        large = [numbers if len(numbers) >= _BOX else numbers[:0] for numbers in groups.values()]
        boxes = ax.boxplot(large, widths=0.5, showfliers=False, patch_artist=True)
        for box, color in zip(boxes["boxes"], COLORS * len(groups), strict=False):
            box.set(facecolor=color, alpha=0.5, edgecolor=text_color())
        for part in ("whiskers", "caps"):
            for line in boxes[part]:
                line.set_color(text_color())
        for line in boxes["medians"]:
            line.set(color=text_color(), linewidth=1.6)
        jitter = np.random.default_rng(0)
        for index, numbers in enumerate(groups.values()):
            if len(numbers) <= _FEW:
                x = index + 1 + jitter.uniform(-0.12, 0.12, len(numbers))
                ax.scatter(x, numbers, s=12, color=text_color(), alpha=0.7, zorder=3)
        ax.set_xticks(range(1, len(groups) + 1), list(groups))
        ax.set_ylabel("return")
        return ax
    numbers, num_left_out = _numbers(returns)
    ax.hist(numbers, bins=min(40, max(5, len(numbers) // 8)), color=COLORS[0], alpha=0.75)
    mean = float(numbers.mean())
    ax.axvline(mean, color=COLORS[4], linewidth=1.8)
    note = f", {num_left_out} not finite" if num_left_out else ""
    ax.set_title(f"{len(numbers):,} returns, mean {mean:.4g}{note}", fontsize=10)
    ax.set_xlabel("return")
    ax.set_ylabel("number")
    return ax


def _numbers(returns: Any) -> tuple[NDArray[np.float64], int]:
    """Return returns as numbers, and how many were left out, since they are not finite."""
    if isinstance(returns, Rollouts):
        returns = returns.returns
    elif isinstance(returns, Episode):
        returns = [returns.total_return]
    elif isinstance(returns, Sequence) and any(isinstance(one, Episode) for one in returns):
        returns = [episode.total_return for episode in returns]
    try:
        numbers = np.asarray(returns, np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise InvalidBatchError(f"returns: expected numbers or episodes, got {returns!r}") from error
    finite = numbers[np.isfinite(numbers)]
    if not len(finite):
        raise InvalidBatchError("returns: expected at least one finite number, got none")
    return finite, len(numbers) - len(finite)
