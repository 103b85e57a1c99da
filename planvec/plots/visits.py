"""Draws the statistics of a decision, and the visits of a tree on a map. Letters: A actions."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from planvec.errors import InvalidBatchError
from planvec.planners import Plan, Tree, ViewedTree, node_visits
from planvec.plots.style import COLORS, MAP, faint, new_axes, text_color


def plot_visits(plan: Plan, *, names: Any = None, ax: Axes | None = None) -> Axes:
    """Draw how often each action of the root was tried, and what it was worth.

    Args:
        plan: A plan of any planner.
        names: A names of the actions, such as ("left", "right"); None takes the actions.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes. Bars are visit counts, points are mean returns with their standard errors, on the right.
        Actions of one number in a Box are placed by it.

    Raises:
        InvalidBatchError: The planner compares no actions, or there is another number of names.
    """
    if not len(plan.visit_counts):
        raise InvalidBatchError("plan: expected one with visit_counts, got none")
    ax = new_axes(ax)
    actions = np.asarray(plan.root_actions)
    is_number = actions.dtype.kind == "f" and actions[0].size == 1
    x = actions.reshape(-1) if is_number else np.arange(len(actions))
    span = float(np.ptp(x)) or 1.0
    width = span / 60 if is_number else 0.7
    ax.bar(x, plan.visit_counts, width, color=COLORS[0], alpha=0.65, label="visits")
    ax.set_ylabel("visits (bars)")
    values = ax.twinx()
    errors = np.nan_to_num(plan.standard_errors)
    values.errorbar(x, plan.action_values, errors, fmt="o", color=COLORS[1], markersize=5, capsize=3)
    values.set_ylabel("mean return (points)")
    values.spines["top"].set_visible(False)
    faint(ax)
    ax.set_xlabel("action")
    if is_number:
        ax.set_xlim(x.min() - span / 10, x.max() + span / 10)
    else:
        texts = [str(name) for name in (actions.tolist() if names is None else names)]
        if len(texts) != len(x):
            raise InvalidBatchError(f"names: expected one per action ({len(x)}), got {len(texts)}")
        ax.set_xticks(x, texts, rotation=0 if max(map(len, texts)) < 6 else 60)
    ax.set_title(f"{plan.num_simulations:,} simulations, value {plan.value:.4g}", fontsize=10)
    return ax


def plot_map(
    plan: Plan | Tree | ViewedTree, shape: tuple[int, int], *, field: str = "cell", ax: Axes | None = None
) -> Axes:
    """Draw how often the states of a tree were visited, on the cells of a map such as that of FrozenLake.

    Args:
        plan: A plan of `MCTS`, `RolloutIW` or `IW`, or its tree.
        shape: Rows and columns of the map.
        field: The field of the states that holds the index of the cell, row by row.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes. Cells are darker with fewer visits, and the numbers are visits: how many simulations came
        to the cell.

    Raises:
        InvalidBatchError: The plan has no tree with states, they have no such field, or more cells.
    """
    tree: Any = plan.search_data if isinstance(plan, Plan) else plan
    states = getattr(tree, "saved_states", None)
    is_tree = isinstance(tree, Tree | ViewedTree)
    if not is_tree or states is None or field not in (states.dtype.names or ()):
        raise InvalidBatchError(
            f"plan: expected one of planvec.MCTS, RolloutIW or IW whose states have a field {field!r}"
        )
    visits = np.rint(node_visits(tree)) if isinstance(tree, Tree) else tree.view().visits
    cells = states[field].astype(np.int64)
    if len(np.shape(shape)) != 1 or len(shape) != 2:
        raise InvalidBatchError(f"shape: expected rows and columns of the map, such as (4, 4), got {shape!r}")
    if cells.max() >= shape[0] * shape[1]:
        raise InvalidBatchError(f"shape: expected at least {cells.max() + 1} cells, got {shape}")
    counts = np.bincount(cells, visits, minlength=shape[0] * shape[1]).reshape(shape)
    ax = new_axes(ax, (4.4, 4.0))
    ax.imshow(np.log10(counts + 1), cmap=MAP)
    middle = np.log10(counts.max() + 1) / 2
    for (row, column), count in np.ndenumerate(counts):
        color = "black" if np.log10(count + 1) > middle else "white"
        text = f"{count:.0f}" if count < 10_000 else f"{count / 1000:.0f}k"
        ax.text(column, row, text if count else "", ha="center", va="center", fontsize=8, color=color)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.set_title("visits of each cell", fontsize=10, color=text_color())
    return ax
