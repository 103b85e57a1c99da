"""Rollout-IW (Bandres, Bonet and Geffner 2018): random rollouts that end where nothing is new."""

from __future__ import annotations

from typing import Any

import numpy as np

from planvec.planners.search import Simulation
from planvec.planners.width.search import WidthSearch

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
        slots, steps = [], []
        for slot in half[: max(0, self.num_left)]:
            step = self._next_step(slot)
            if step is not None:
                slots.append(slot)
                steps.append(step)
        if not slots:
            if self._is_solved[0]:
                self.stop_reason = "exhausted"
            return
        nodes = yield from self.generate(steps)
        for slot, node in zip(slots, nodes, strict=True):
            self._go_on(slot, node, self.mark(node) and not self.tree.ended[node])

    def _next_step(self, slot: int) -> tuple[int, int] | None:
        """Walk on from where a rollout is; return the node and the action of the next step; None: wait.

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
            if not open_actions:  # those that are not solved are in flight
                self._at[slot] = 0
                return None
            action = open_actions[int(self._generator.integers(len(open_actions)))]
            child = int(children[action])
            if child == -1:
                return self.reserve(node, action)
            self._go_on(slot, child, self._is_novel(child))
        return None

    def _is_novel(self, node: int) -> bool:
        """Return whether a rollout goes on at a node that exists."""
        if self.tree.ended[node]:
            return False
        return self.is_still_novel(node) if self._is_marked[node] else self.mark(node)

    def _go_on(self, slot: int, node: int, is_novel: bool) -> None:
        """Go on with a rollout at a node, or end it there."""
        if not is_novel:
            self._solve(node)
        self._at[slot] = node if is_novel else 0

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
