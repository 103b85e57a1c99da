"""Draws the walkers of a swarm. Letters: N moves, B walkers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners import Plan, Walkers
from planvec.plots.style import COLORS, MAP, faint, new_axes, outline, text_color


class SwarmPicture(NamedTuple):
    """The moves of a swarm: N nodes of a tree, the start first, parents before their children.

    Attributes:
        parents: `[N]` int64; -1 for the start.
        steps: `[N]` int64, environment steps from the start.
        returns: `[N]` float64, sums of the rewards from the start.
        ends: `[B]` int64, the node of each walker.
        is_best: `[N]` bool, whether it is on the way to the walker with the highest value.
    """

    parents: NDArray[np.int64]
    steps: NDArray[np.int64]
    returns: NDArray[np.float64]
    ends: NDArray[np.int64]
    is_best: NDArray[np.bool_]


def swarm_picture(walkers: Walkers) -> SwarmPicture:
    """Return the moves that lead to the walkers.

    Args:
        walkers: `Plan.search_data` of a swarm.
    """
    lineage = walkers.lineage
    parents = lineage.parents.copy()
    steps, returns = lineage.num_steps.copy(), lineage.rewards.copy()
    for node in range(1, len(parents)):  # parents come first
        steps[node] += steps[parents[node]]
        returns[node] += returns[parents[node]]
    is_best = np.zeros(len(parents), bool)
    node = int(walkers.nodes[int(walkers.values().argmax())])
    while node >= 0:
        is_best[node] = True
        node = int(parents[node])
    return SwarmPicture(parents, steps, returns, walkers.nodes.copy(), is_best)


def plot_swarm(
    plan: Plan, env: Any = None, *, axes: tuple[int, int] = (0, 1), names: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw a swarm: its moves over time, or its walkers in the space of observations.

    Args:
        plan: A plan of `Swarm` or `SwarmWave`.
        env: None draws the tree of moves: steps against returns. With the stepper, each walker is drawn at
            two numbers of its observation (the phase space), coloured by its return.
        axes: Indices of these two numbers.
        names: Names of the two numbers.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes.

    Raises:
        InvalidBatchError: The plan is not one of a swarm, or there are no such two numbers or names.
    """
    walkers: Any = plan.search_data
    if not isinstance(walkers, Walkers):
        raise InvalidBatchError(
            f"plan: expected a plan of planvec.Swarm, got one with {type(walkers).__name__}; plot_tree draws "
            "trees, and plot_visits any plan"
        )
    ax = new_axes(ax)
    faint(ax)
    if env is not None:
        return _draw_observations(ax, walkers, env, axes, names)
    picture = swarm_picture(walkers)
    points = np.column_stack([picture.steps, picture.returns])
    is_child = picture.parents >= 0
    segments = np.stack([points[picture.parents[is_child]], points[is_child]], axis=1)
    best = picture.is_best[is_child]
    for chosen, color, width, alpha in ((~best, text_color(), 0.7, 0.35), (best, COLORS[4], 2.0, 0.95)):
        lines = LineCollection(list(segments[chosen]), linewidths=width, colors=color, alpha=alpha, zorder=1)
        ax.add_collection(lines)
    is_dead = walkers.terminated
    for chosen, marker, label in ((~is_dead, "o", "walkers"), (is_dead, "x", "ended")):
        if chosen.any():
            x, y = points[picture.ends[chosen]].T
            ax.scatter(x, y, s=26, marker=marker, color=COLORS[0], zorder=2, label=label)
    ax.autoscale_view()
    ax.set_xlabel("environment steps")
    ax.set_ylabel("return")
    ax.legend(frameon=False, fontsize=8)
    ax.set_title(f"{len(walkers.states)} walkers; the line leads to the best one", fontsize=10)
    return ax


def _draw_observations(ax: Axes, walkers: Walkers, env: Any, axes: tuple[int, int], names: Any) -> Axes:
    """Draw walkers at two numbers of their observations."""
    observed = np.asarray(env.observe(walkers.states), np.float64).reshape(len(walkers.states), -1)
    start = np.asarray(env.observe(walkers.start), np.float64).reshape(1, -1)
    x, y = axes
    if not (0 <= x < observed.shape[1] and 0 <= y < observed.shape[1]):
        raise InvalidBatchError(f"axes: expected two from 0 to {observed.shape[1] - 1}, got {axes}")
    labels = names or (f"observation {x}", f"observation {y}")
    if len(labels) != 2:
        raise InvalidBatchError(f"names: expected two, got {len(labels)}")
    dots = ax.scatter(
        observed[:, x], observed[:, y], s=26, c=walkers.returns, cmap=MAP, zorder=2, **outline()
    )
    ax.scatter(start[:, x], start[:, y], s=90, marker="+", color=COLORS[4], zorder=3)
    ax.annotate(
        "start",
        (start[0, x], start[0, y]),
        xytext=(6, 6),
        textcoords="offset points",
        color=COLORS[4],
        fontsize=8,
        zorder=3,
    )
    ax.figure.colorbar(dots, ax=ax, label="return", fraction=0.04, pad=0.02)
    ax.set_xlabel(labels[0])
    ax.set_ylabel(labels[1])
    return ax
