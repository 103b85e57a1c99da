"""What pictures show of a search tree of any planner. Letters: N nodes, E links, P actions of a path."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class TreeView(NamedTuple):
    """The nodes of a tree, node 0 the root."""

    parents: NDArray[np.int64]  # `[N]` int64, the node from which each was reached first; -1 for the root
    actions: NDArray[np.int64]  # `[N]` int64, index of the action that leads there; -1 for the root
    visits: NDArray[np.int64]  # `[N]` int64, how many simulations came there
    # `[N]` float64, the return of the action that leads there; the value of the root
    values: NDArray[np.float64]
    best: NDArray[np.int64]  # `[P + 1]` int64, nodes on the path of best actions, from the root on
    links: NDArray[np.int64]  # `[E, 2]` int64, a node and one to which an action leads, for every such pair


@runtime_checkable
class ViewedTree(Protocol):
    """A search tree that can be drawn."""

    num_nodes: int  # N

    def view(self) -> TreeView:
        """Return what pictures show."""
        ...

    def node_actions(self, node: int) -> NDArray[Any]:
        """Return the actions `[A, *action shape]` of a node."""
        ...
