"""Draws how an archive grows. Letters: N cells, R rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter, FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.exploring import Archive
from planvec.plots.style import COLORS, faint


def plot_exploration(
    archives: Archive | Mapping[str, Archive], *, groups: Any = None, group_name: str = "groups"
) -> NDArray[Any]:
    """Draw the number of cells and the best score over the environment steps of explorations.

    Args:
        archives: An archive, or several by name, to compare them.
        groups: `groups(keys) -> [N]` integers, the group of each cell `[N, F]`, such as the room. Their
            number is drawn, too.
        group_name: What the groups are called.

    Returns:
        Two axes, three with groups: cells, groups, best score.

    Raises:
        InvalidBatchError: There is no archive, or `groups` returns something else.
    """
    named = {"": archives} if isinstance(archives, Archive) else archives
    if (
        not isinstance(named, Mapping)
        or not named
        or not all(isinstance(archive, Archive) for archive in named.values())
    ):
        raise InvalidBatchError(
            f'archives: expected an Archive, or {{"name": archive, ...}}, got {archives!r}'
        )
    num_panels = 2 if groups is None else 3
    _, axes = plt.subplots(num_panels, 1, figsize=(6.4, 2.0 * num_panels), sharex=True, layout="constrained")
    for number, (name, archive) in enumerate(named.items()):
        color = COLORS[number % len(COLORS)]
        history = archive.history
        firsts = np.sort(archive.first_visits)
        _draw_count(axes[0], firsts, archive.num_env_steps, color, name)
        if groups is not None:
            _draw_count(axes[1], _first_of_groups(archive, groups), archive.num_env_steps, color, name)
        scores = np.concatenate([[0.0], history[:, 2]])
        if scores[-1] < 0:  # rewards are costs, and no episode had ended yet where the score is 0
            scores[scores == 0] = np.nan
        axes[-1].step(np.concatenate([[0.0], history[:, 0]]), scores, where="post", color=color, label=name)
    labels = ["cells", "best score"] if groups is None else ["cells", group_name, "best score"]
    for ax, label in zip(axes, labels, strict=True):
        faint(ax)
        ax.set_ylabel(label)
        if ax.get_ylim()[0] > 0:
            ax.set_ylim(bottom=0.0)
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        if label != "best score":
            ax.yaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes[-1].set_xlabel("environment steps")
    axes[-1].xaxis.set_major_formatter(EngFormatter())
    if len(named) > 1:
        axes[0].legend(frameon=False, fontsize=9)
    drawn: NDArray[Any] = axes
    return drawn


def _draw_count(ax: Axes, firsts: NDArray[np.int64], num_env_steps: int, color: str, name: str) -> None:
    """Draw how many were there, from the steps at which each was first."""
    steps, counts = np.append(firsts, num_env_steps), np.append(np.arange(1, len(firsts) + 1), len(firsts))
    ax.step(steps, counts, where="post", color=color, label=name)


def _first_of_groups(archive: Archive, groups: Any) -> NDArray[np.int64]:
    """Return the steps at which each group was first, in order."""
    given = np.asarray(groups(archive.keys))
    if given.shape != (archive.num_cells,):
        raise InvalidBatchError(
            f"groups: expected a function that returns [{archive.num_cells}], got shape {given.shape}"
        )
    firsts = [archive.first_visits[given == group].min() for group in np.unique(given)]
    return np.sort(np.array(firsts, np.int64))
