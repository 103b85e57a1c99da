"""IW(1) (Lipovetzky, Ramirez and Geffner 2015): breadth-first search that prunes where nothing is new."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from planvec.planners.search import Simulation
from planvec.planners.width.search import WidthSearch
from planvec.planners.width.tree import PENDING

__all__ = ["BreadthSearch"]


class BreadthSearch(WidthSearch):
    """One decision of `IW`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._queue = deque([0])
        self._num_pending = 0
        self.num_in_flight = 2

    def simulate(self) -> Simulation:
        """Generate the children of the next nodes."""
        parents, actions = self._next_steps()
        if not len(parents):
            if not self._num_pending and not self._queue:
                self.stop_reason = "exhausted"
            return
        self._num_pending += len(parents)
        out = yield self.request(parents, actions)
        self._num_pending -= len(parents)
        for node in self.receive(parents, actions, out):
            self._look_at(node)

    def _next_steps(self) -> tuple[Any, Any]:
        """Return the nodes and the actions of the next steps, at most half a batch."""
        left = self._config.simulation_limit - self.num_simulations - self._num_pending
        room = min(left, max(1, self._config.batch_size // 2))
        parents: list[int] = []
        actions: list[int] = []
        while self._queue and len(parents) < room:
            node = self._queue[0]
            is_open = True
            for action, child in enumerate(self.tree.children[node].tolist()):
                if child == -1 and len(parents) < room:
                    parents.append(node)
                    actions.append(action)
                    self.tree.children[node, action] = PENDING
                elif child == -1:
                    is_open = False
                elif child >= 0 and not self._is_marked[child]:  # of the last decision
                    self._look_at(child)
            if not is_open:
                break
            self._queue.popleft()
        return np.array(parents, np.int64), np.array(actions, np.int64)

    def _look_at(self, node: int) -> None:
        """Mark a node, and let it be expanded if it is novel."""
        if self.mark(node) and not self.tree.ended[node]:
            self._queue.append(node)
