"""Draws a search tree. Letters: N nodes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.extras import install_command
from planvec.planners import Plan, Tree, TreeView, ViewedTree, view_of
from planvec.plots.style import COLORS, MAP, new_axes, outline, text_color


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
    view = view_of(tree) if isinstance(tree, Tree) else tree.view()
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
    nodes = _in_order(kept, parents, view.actions)
    row_of = {node: row for row, node in enumerate(nodes.tolist())}
    rows = np.array([row_of.get(int(parents[node]), -1) for node in nodes], np.int64)
    depths = np.zeros(len(nodes), np.int64)
    for row, parent in enumerate(rows[1:].tolist(), start=1):  # parents come first
        depths[row] = depths[parent] + 1
    graph = igraph.Graph(n=len(nodes), edges=[(int(p), row) for row, p in enumerate(rows) if p >= 0])
    points = np.array(graph.layout_reingold_tilford(root=[0]).coords).reshape(len(nodes), 2)
    x = points[:, 0] - points[:, 0].min()
    best = np.array([row_of[node] for node in view.best.tolist() if node in row_of], np.int64)
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
        _other_links(view, row_of, rows),
    )


def _other_links(view: TreeView, row_of: dict[int, int], parents: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the links `[E, 2]` between drawn nodes that are not those of `parents`, each once."""
    pairs = {
        (row_of[node], row_of[child])
        for node, child in view.links.tolist()
        if node in row_of and child in row_of and node != child
    }
    pairs -= {(int(parent), row) for row, parent in enumerate(parents)}
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def _in_order(
    kept: set[int], parents: NDArray[np.int64], actions: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    """Return nodes level by level, and the children of each in the order of their actions."""
    children: dict[int, list[int]] = {}
    for node in sorted(kept - {0}, key=lambda node: (int(actions[node]), node)):
        children.setdefault(int(parents[node]), []).append(node)
    level, nodes = [0], []
    while level:
        nodes += level
        level = [child for node in level for child in children.get(node, ())]
    return np.array(nodes, np.int64)


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
    _label_actions(ax, tree, picture)
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


def _label_actions(ax: Axes, tree: Tree | ViewedTree, picture: TreePicture) -> None:
    """Write the root's actions above the nodes that they lead to, if there are few."""
    is_below = picture.depths == 1
    actions = np.unique(picture.actions[is_below])
    if len(actions) > 12:
        return
    for action in actions.tolist():
        x = float(picture.x[is_below & (picture.actions == action)].mean())
        text = np.array2string(np.asarray(tree.node_actions(0)[action]), precision=2, separator=", ")
        ax.annotate(f"action {text}" if len(actions) < 6 else text, (x, 0.8), fontsize=8, ha="center")
