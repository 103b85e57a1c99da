"""Rollout-IW (Bandres, Bonet and Geffner 2018): random rollouts that end where nothing is new."""

from __future__ import annotations

from typing import Any

import numpy as np

from planvec.planners.search import Simulation
from planvec.planners.width.search import WidthSearch
from planvec.planners.width.tree import PENDING

__all__ = ["RolloutSearch"]


class RolloutSearch(WidthSearch):
    """One decision of `RolloutIW`. `batch_size` rollouts are in flight, in two halves."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._is_solved = np.zeros(len(self.tree.parents), np.bool_)
        halves = np.array_split(np.arange(self._config.batch_size), min(2, self._config.batch_size))
        self._free = [half.tolist() for half in halves][::-1]
        self.num_in_flight = len(halves)
        self._at = [0] * self._config.batch_size  # the node where each rollout is

    def simulate(self) -> Simulation:
        """Continue the rollouts of one half by one step each."""
        half = self._free.pop()
        try:
            yield from self._simulate(half)
        finally:
            self._free.append(half)

    def _simulate(self, half: list[int]) -> Simulation:
        left = self._config.simulation_limit - self.num_simulations - self._num_pending
        slots, parents, actions = [], [], []
        for slot in half[: max(0, left)]:
            step = self._next_step(slot)
            if step is not None:
                slots.append(slot)
                parents.append(step[0])
                actions.append(step[1])
        if not slots:
            if self._is_solved[0]:
                self.stop_reason = "exhausted"
            return
        nodes, taken = np.array(parents, np.int64), np.array(actions, np.int64)
        self._num_pending += len(slots)
        out = yield self.request(nodes, taken)
        self._num_pending -= len(slots)
        for slot, node in zip(slots, self.receive(nodes, taken, out), strict=True):
            if self.mark(node) and not self.tree.ended[node]:
                self._at[slot] = node
            else:
                self._solve(node)
                self._at[slot] = 0

    _num_pending = 0

    def _next_step(self, slot: int) -> tuple[int, int] | None:
        """Walk on from where a rollout is; return the node and the action of the next step, None: no one.

        A rollout that ends begins again at the root.
        """
        while not self._is_solved[0]:
            node = self._at[slot]
            if self._is_solved[node]:
                self._at[slot] = 0
                continue
            children = self.tree.children[node]
            open_actions = [
                action
                for action, child in enumerate(children.tolist())
                if child == -1 or (child >= 0 and not self._is_solved[child])
            ]
            if not open_actions:  # the others are in flight
                if node == 0:
                    return None
                self._at[slot] = 0
                if self._is_waiting(node):
                    return None
                continue
            action = open_actions[int(self._generator.integers(len(open_actions)))]
            child = int(children[action])
            if child == -1:
                self.tree.children[node, action] = PENDING
                return node, action
            self._walk_to(slot, child)
        return None

    def _walk_to(self, slot: int, child: int) -> None:
        """Walk to a node that exists, and end there if it is not novel."""
        if self.tree.ended[child]:
            is_novel = False
        elif self._is_marked[child]:
            is_novel = self.is_still_novel(child)
        else:  # of the last decision
            is_novel = self.mark(child)
        if is_novel:
            self._at[slot] = child
        else:
            self._solve(child)
            self._at[slot] = 0

    def _is_waiting(self, node: int) -> bool:
        """Return whether a child of a node is in flight."""
        return bool((self.tree.children[node] == PENDING).any())

    def _solve(self, node: int) -> None:
        """Label a node as solved, and its ancestors whose children all are."""
        tree = self.tree
        self._is_solved[node] = True
        while node:
            node = int(tree.parents[node])
            children = tree.children[node]
            if (children < 0).any() or not self._is_solved[children].all():
                return
            self._is_solved[node] = True
