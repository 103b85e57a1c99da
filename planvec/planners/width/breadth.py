"""IW(1) (Lipovetzky, Ramirez and Geffner 2015): breadth-first search that prunes where nothing is new."""

from __future__ import annotations

from collections import deque
from typing import Any

from planvec.planners.search import Simulation
from planvec.planners.width.search import WidthSearch


class BreadthSearch(WidthSearch):
    """One decision of `IW`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._queue = deque([0])
        self.num_in_flight = 2

    def simulate(self) -> Simulation:
        """Generate the children of the next nodes."""
        steps = self._next_steps()
        if not steps:
            if not self.num_pending and not self._queue:
                self.stop_reason = "exhausted"
            return
        for node in (yield from self.generate(steps)):
            self._look_at(node)

    def _next_steps(self) -> list[tuple[int, int]]:
        """Return the nodes and the actions of the next steps, at most half a batch."""
        room = min(self.num_left, max(1, self._config.batch_size // 2))
        steps: list[tuple[int, int]] = []
        while self._queue and len(steps) < room:
            node = self._queue[0]
            is_open = True
            for action, child in enumerate(self.tree.children[node].tolist()):
                if child == -1 and len(steps) < room:
                    steps.append(self.reserve(node, action))
                elif child == -1:
                    is_open = False
                elif child >= 0 and not self.is_marked(child):  # of the last decision
                    self._look_at(child)
            if not is_open:
                break
            self._queue.popleft()
        return steps

    def _look_at(self, node: int) -> None:
        """Mark a node, and let it be expanded if it is novel."""
        if self.mark(node) and not self.tree.ended[node]:
            self._queue.append(node)
