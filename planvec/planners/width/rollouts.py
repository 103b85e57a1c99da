"""Rollout-IW (Bandres, Bonet and Geffner 2018): random rollouts that end where nothing is new."""

from __future__ import annotations

from typing import Any

import numpy as np

from planvec.planners.search import Simulation
from planvec.planners.width.search import WidthSearch
from planvec.planners.width.tree import ILLEGAL


class RolloutSearch(WidthSearch):
    """One decision of `RolloutIW`. `batch_size` rollouts are in flight, in two halves."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._solved = {ILLEGAL}
        self._waited_at = -1  # the number of simulations when a half had nothing to do
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
        if self.num_simulations == self._waited_at:
            return  # how often a search is asked in vain depends on the other roots
        slots, steps = [], []
        for slot in half[: max(0, self.num_left)]:
            step = self._next_step(slot)
            if step is not None:
                slots.append(slot)
                steps.append(step)
        if not slots:
            self._waited_at = self.num_simulations
            if 0 in self._solved:
                self.stop_reason = "exhausted"
            return
        nodes = yield from self.generate(steps)
        for slot, node in zip(slots, nodes, strict=True):
            self._go_on(slot, node, self.mark(node) and not self.tree.ended[node])

    def _next_step(self, slot: int) -> tuple[int, int] | None:
        """Walk on from where a rollout is; return the node and the action of the next step; None: wait."""
        # A rollout that ends begins again at the root.
        while 0 not in self._solved:
            node = self._at[slot]
            if node in self._solved:
                self._at[slot] = 0
                continue
            children = self.tree.children[node]
            open_actions = [
                action
                for action, child in enumerate(children.tolist())
                if child == -1 or (child >= 0 and child not in self._solved)
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
        return self.is_still_novel(node) if self.is_marked(node) else self.mark(node)

    def _go_on(self, slot: int, node: int, is_novel: bool) -> None:
        """Go on with a rollout at a node, or end it there."""
        if not is_novel:
            self._solve(node)
        self._at[slot] = node if is_novel else 0

    def _solve(self, node: int) -> None:
        """Label a node as solved, and its ancestors whose children all are."""
        tree = self.tree
        self._solved.add(node)
        while node:
            node = int(tree.parents[node])
            if not self._solved.issuperset(tree.children[node].tolist()):  # those to come are below 0
                return
            self._solved.add(node)
