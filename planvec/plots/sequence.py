"""Draws the action sequences that a shooting planner compares. Letters: H steps, L actions, K elites."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners import Distribution, Plan
from planvec.plots.style import COLORS, MAP, faint, new_axes, text_color

_MAX_ELITES = 10  # sequences that are drawn of the best ones of the last iteration


def plot_sequence(plan: Plan, *, ax: Axes | None = None, component: int = 0) -> Axes:
    """Draw the best action sequence of a plan, and the distribution of sequences that it comes from.

    In a Box, the distribution is a band of one standard deviation about the mean; elsewhere, it is the
    probability of each action, as a colour. Random shooting has none: it draws uniformly.

    Args:
        plan: A plan of `RandomShooting`, `CEM`, `ICEM` or `MPPI`.
        ax: Where to draw; None makes a new figure.
        component: Index of the number that is drawn, where an action has several.

    Raises:
        InvalidBatchError: The plan is that of another planner, or an action has no such number.
    """
    distribution = plan.search_data
    if not isinstance(distribution, Distribution):
        raise InvalidBatchError(
            "plan: plot_sequence draws plans of RandomShooting, CEM, ICEM and MPPI, got one with "
            f"search_data {type(distribution).__name__}; see plot_tree and plot_swarm"
        )
    ax = new_axes(ax, (6.4, 3.0))
    faint(ax)
    best = np.repeat(_column(plan.best_actions, 1, component), plan.best_num_steps)
    index = distribution.action_index(len(best))
    if hasattr(distribution, "probabilities"):
        _draw_probabilities(ax, distribution, index, component)
    elif hasattr(distribution, "mean"):
        _draw_band(ax, distribution, index, component)
    for row in _column(distribution.elites[:_MAX_ELITES], 2, component):
        _step(ax, row[index], color=text_color(), alpha=0.25, linewidth=0.6)
    _step(ax, best, color=COLORS[4], linewidth=1.8, label="best sequence")
    ax.set_xlabel("environment step")
    ax.set_ylabel("action" if plan.best_actions.ndim == 1 else f"action[{component}]")
    ax.set_title(f"best return {plan.best_return:.4g} of {plan.num_simulations} sequences", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="best")
    return ax


def _step(ax: Axes, values: NDArray[Any], **options: Any) -> None:
    """Draw a value for each environment step, from its begin to its end."""
    ax.step(np.arange(len(values) + 1), np.append(values, values[-1:]), where="post", **options)


def _column(array: NDArray[Any], axis: int, component: int) -> NDArray[Any]:
    """Return one number of each action."""
    # `array`: `[..., *action shape]`.
    flat = array.reshape(*array.shape[:axis], int(np.prod(array.shape[axis:])))
    if not 0 <= component < flat.shape[-1]:
        raise InvalidBatchError(f"component: expected from 0 to {flat.shape[-1] - 1}, got {component}")
    column: NDArray[Any] = flat[..., component]
    return column


def _draw_band(ax: Axes, distribution: Any, index: NDArray[np.int64], component: int) -> None:
    """Draw the mean and the standard deviation of normal distributions."""
    # `index`: `[H]`, the index of the action at each environment step.
    steps = np.arange(len(index) + 1)
    mean = _column(distribution.mean, 1, component)[index]
    std = _column(distribution.std, 1, component)[index]
    bounds = (np.ravel(bound)[component] for bound in (distribution.space.low, distribution.space.high))
    band = np.clip([mean - std, mean + std], *bounds)  # what is drawn beyond the space is clipped, too
    low, high = np.column_stack([band, band[:, -1:]])
    ax.fill_between(steps, low, high, step="post", color=COLORS[0], alpha=0.25, linewidth=0)
    _step(ax, mean, color=COLORS[0], label="mean, one standard deviation")


def _draw_probabilities(ax: Axes, distribution: Any, index: NDArray[np.int64], component: int) -> None:
    """Draw the probability of each action at each step as a colour."""
    # `index`: `[H]`, the index of the action at each environment step.
    count = int(distribution.num_categories.flat[component])
    categories = int(distribution.start.flat[component]) + np.arange(count)
    by_number = np.moveaxis(distribution.probabilities, -1, 1)  # [L, C, *action shape]
    shown = _column(by_number, 2, component)[index, :count].T
    edges = np.append(categories - 0.5, categories[-1] + 0.5)
    mesh = ax.pcolormesh(np.arange(len(index) + 1), edges, shown, cmap=MAP, vmin=0, vmax=1, alpha=0.6)
    ax.figure.colorbar(mesh, ax=ax, label="probability")
    ax.set_yticks(categories)
