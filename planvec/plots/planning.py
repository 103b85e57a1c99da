"""Draws what a planner has looked at: frames, visits, trees, swarms and sequences. Letters: B states."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.extras import install_command
from planvec.planners import Distribution, Plan, Tree, ViewedTree, Walkers
from planvec.plots.style import COLORS, MAP, faint, new_axes, outline, text_color


def plot_fan(
    env: Any, states: np.ndarray, *, titles: Sequence[object] | None = None, num_columns: int | None = None
) -> np.ndarray:
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
                is_number = isinstance(titles[index], (float, np.floating))
                title = f"{titles[index]:.4g}" if is_number else str(titles[index])
                ax.set_title(title, fontsize=8, pad=2)
    axes: np.ndarray = grid
    return axes


# -- Draws the statistics of a decision, and the visits of a tree on a map. Letters: A actions ---------------


def plot_visits(plan: Plan, *, names: Sequence[object] | None = None, ax: Axes | None = None) -> Axes:
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
    visits = tree.view().visits
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


# -- Draws a search tree. Letters: N nodes -------------------------------------------------------------------


class TreePicture(NamedTuple):
    """The part of a tree that is drawn, and where: N nodes, the root first, parents before their children.

    Attributes:
        nodes: `[N]` int64, indices in the tree.
        parents: `[N]` int64, rows of this picture; -1 for the root.
        actions: `[N]` int64, the index of the action that leads to each; -1 for the root.
        x: `[N]` float64, horizontal positions, from 0 to 1.
        depths: `[N]` int64, numbers of actions from the root.
        visits: `[N]` int64, the simulations that came to each.
        values: `[N]` float64, the mean return of the action that leads to each; the value of the root.
        is_best: `[N]` bool, whether it is on the path of best actions.
        best: `[P + 1]` int64, rows on the path of P best actions, from the root on.
        others: `[E, 2]` int64, rows of a parent and a child, for the actions that lead to a node besides the
            one in `parents`, where equal states share nodes.
    """

    nodes: NDArray[np.int64]
    parents: NDArray[np.int64]
    actions: NDArray[np.int64]
    x: NDArray[np.float64]
    depths: NDArray[np.int64]
    visits: NDArray[np.int64]
    values: NDArray[np.float64]
    is_best: NDArray[np.bool_]
    best: NDArray[np.int64]
    others: NDArray[np.int64]


def tree_picture(tree: Tree | ViewedTree, max_nodes: int) -> TreePicture:
    """Choose the most visited nodes of a tree, and lay them out.

    Where equal states share a node, it is drawn below the action that found it first, and other actions that
    lead to it are `others`.

    Args:
        tree: The tree.
        max_nodes: Largest number of nodes. The layout of many takes long, and shows little.

    Raises:
        ImportError: igraph is not installed.
    """
    try:
        import igraph
    except ModuleNotFoundError as error:
        raise ImportError(f"plot_tree needs igraph: {install_command('plot')}") from error
    view = tree.view()
    parents = view.parents
    order = np.argsort(-view.visits, kind="stable")[:max_nodes]
    kept = {0}
    for node in [*view.best.tolist(), *order.tolist()]:  # a node comes with all of its ancestors
        path = []
        while node >= 0 and node not in kept:
            path.append(node)
            node = int(parents[node])
        if len(kept) + len(path) <= max_nodes:
            kept.update(path)
    children: dict[int, list[int]] = {}
    for node in sorted(kept - {0}, key=lambda node: (int(view.actions[node]), node)):
        children.setdefault(int(parents[node]), []).append(node)
    level, in_order = [0], []  # level by level, and the children of each in the order of their actions
    while level:
        in_order += level
        level = [child for node in level for child in children.get(node, ())]
    nodes = np.array(in_order, np.int64)
    row_of = {node: row for row, node in enumerate(nodes.tolist())}
    rows = np.array([row_of.get(int(parents[node]), -1) for node in nodes], np.int64)
    depths = np.zeros(len(nodes), np.int64)
    for row, parent in enumerate(rows[1:].tolist(), start=1):  # parents come first
        depths[row] = depths[parent] + 1
    graph = igraph.Graph(n=len(nodes), edges=[(int(p), row) for row, p in enumerate(rows) if p >= 0])
    points = np.array(graph.layout_reingold_tilford(root=[0]).coords).reshape(len(nodes), 2)
    x = points[:, 0] - points[:, 0].min()
    best = np.array([row_of[node] for node in view.best.tolist() if node in row_of], np.int64)
    others = {
        (row_of[node], row_of[child])
        for node, child in view.links.tolist()
        if node in row_of and child in row_of and node != child
    }
    others -= {(int(parent), row) for row, parent in enumerate(rows)}
    return TreePicture(
        nodes,
        rows,
        view.actions[nodes],
        x / max(x.max(), 1e-9),
        depths,
        view.visits[nodes],
        view.values[nodes],
        np.isin(np.arange(len(nodes)), best),
        best,
        np.array(sorted(others), np.int64).reshape(-1, 2),
    )


def plot_tree(plan: Plan | Tree, *, max_nodes: int = 300, ax: Axes | None = None) -> Axes:
    """Draw a search tree: nodes by their visits and values, and the path of best actions.

    Args:
        plan: A plan of `MCTS`, `RolloutIW` or `IW`, or its tree.
        max_nodes: Largest number of nodes: the most visited ones.
        ax: Where to draw; None makes a figure.

    Returns:
        The axes. Nodes are larger with more visits (in width-based search: with more nodes below them), and
        coloured by the return of the action that leads to them; depth grows downwards. Where equal states
        share nodes, dashed lines are further actions that lead to a node.

    Raises:
        InvalidBatchError: The plan has no tree, or `max_nodes` is below 1.
        ImportError: igraph is not installed.
    """
    tree: Any = plan.search_data if isinstance(plan, Plan) else plan
    if not isinstance(tree, (Tree, ViewedTree)):
        raise InvalidBatchError(
            f"plan: expected a plan of planvec.MCTS, RolloutIW or IW, or its tree, got one with "
            f"{type(tree).__name__}; "
            "plot_swarm draws swarms, and plot_visits any plan"
        )
    if max_nodes < 1:
        raise InvalidBatchError(f"max_nodes: expected at least 1, got {max_nodes}")
    picture = tree_picture(tree, max_nodes)
    ax = new_axes(ax, (8.0, 5.0))
    points = np.column_stack([picture.x, picture.depths])
    is_child = picture.parents >= 0
    segments = np.stack([points[picture.parents[is_child]], points[is_child]], axis=1)
    share = picture.visits / max(1, picture.visits.max())
    widths = 0.4 + 3.0 * np.sqrt(share[is_child])
    for lines, options in (
        (
            points[picture.others],
            {"linewidths": 0.5, "colors": text_color(), "alpha": 0.3, "linestyles": "--"},
        ),
        (segments, {"linewidths": widths, "colors": text_color(), "alpha": 0.35}),
        (points[picture.best][None], {"linewidths": 2.4, "colors": COLORS[4], "alpha": 0.9}),
    ):
        ax.add_collection(LineCollection(list(lines), zorder=1, **options))
    sizes = 8 + 220 * share
    x, y = points.T
    dots = ax.scatter(x, y, s=sizes, c=picture.values, cmap=MAP, zorder=2, **outline())
    ax.figure.colorbar(
        dots,
        ax=ax,
        label="mean return of the action" if isinstance(tree, Tree) else "return of the action",
        fraction=0.04,
        pad=0.02,
    )
    is_below = picture.depths == 1
    actions = np.unique(picture.actions[is_below])
    for action in actions.tolist() if len(actions) <= 12 else ():  # the root's, above the nodes that follow
        middle = float(picture.x[is_below & (picture.actions == action)].mean())
        text = np.array2string(np.asarray(tree.node_actions(0)[action]), precision=2, separator=", ")
        text = f"action {text}" if len(actions) < 6 else text
        ax.annotate(text, (middle, 0.8), fontsize=8, ha="center")
    ax.set_ylim(picture.depths.max() + 0.6, -0.6)
    ax.set_xlim(-0.04, 1.04)
    ax.set_xticks([])
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel("actions from the root")
    shown = "" if len(picture.nodes) == tree.num_nodes else f", {len(picture.nodes)} most visited drawn"
    shared = "; dashed: other ways to a node" if len(picture.others) else ""
    ax.set_title(f"{tree.num_nodes:,} nodes{shown}; red: the best actions{shared}", fontsize=10)
    for side in ("top", "right", "bottom"):
        ax.spines[side].set_visible(False)
    return ax


# -- Draws the walkers of a swarm. Letters: N moves, B walkers -----------------------------------------------


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
    plan: Plan,
    env: Any = None,
    *,
    axes: tuple[int, int] = (0, 1),
    names: Sequence[str] | None = None,
    ax: Axes | None = None,
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


# -- Draws the action sequences that a shooting planner compares. Letters: H steps, L actions, K elites ------

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
    index = distribution.action_index(len(best))  # `[H]`, the index of the action at each environment step
    steps = np.arange(len(index) + 1)
    drawn: Any = distribution  # of one of several classes
    if hasattr(drawn, "probabilities"):
        count = int(drawn.num_categories.flat[component])
        categories = int(drawn.start.flat[component]) + np.arange(count)
        by_number = np.moveaxis(drawn.probabilities, -1, 1)  # [L, C, *action shape]
        shown = _column(by_number, 2, component)[index, :count].T
        edges = np.append(categories - 0.5, categories[-1] + 0.5)
        mesh = ax.pcolormesh(steps, edges, shown, cmap=MAP, vmin=0, vmax=1, alpha=0.6)
        ax.figure.colorbar(mesh, ax=ax, label="probability")
        ax.set_yticks(categories)
    elif hasattr(drawn, "mean"):
        mean, std = (_column(array, 1, component)[index] for array in (drawn.mean, drawn.std))
        bounds = (np.ravel(bound)[component] for bound in (drawn.space.low, drawn.space.high))
        band = np.clip([mean - std, mean + std], *bounds)  # what is drawn beyond the space is clipped, too
        low, high = np.column_stack([band, band[:, -1:]])
        ax.fill_between(steps, low, high, step="post", color=COLORS[0], alpha=0.25, linewidth=0)
        _step(ax, mean, color=COLORS[0], label="mean, one standard deviation")
    for row in _column(distribution.elites[:_MAX_ELITES], 2, component):
        _step(ax, row[index], color=text_color(), alpha=0.25, linewidth=0.6)
    _step(ax, best, color=COLORS[4], linewidth=1.8, label="best sequence")
    ax.set_xlabel("environment step")
    ax.set_ylabel("action" if plan.best_actions.ndim == 1 else f"action[{component}]")
    ax.set_title(f"best return {plan.best_return:.4g} of {plan.num_simulations} sequences", fontsize=10)
    ax.legend(frameon=False, fontsize=8, loc="best")
    return ax


def _step(ax: Axes, values: np.ndarray, **options: Any) -> None:
    """Draw a value for each environment step, from its begin to its end."""
    ax.step(np.arange(len(values) + 1), np.append(values, values[-1:]), where="post", **options)


def _column(array: np.ndarray, axis: int, component: int) -> np.ndarray:
    """Return one number of each action."""
    # `array`: `[..., *action shape]`.
    flat = array.reshape(*array.shape[:axis], int(np.prod(array.shape[axis:])))
    if not 0 <= component < flat.shape[-1]:
        raise InvalidBatchError(f"component: expected from 0 to {flat.shape[-1] - 1}, got {component}")
    column: np.ndarray = flat[..., component]
    return column
