"""What both width-based searches share: the tree, the marking of nodes, and the decision.

Letters: N nodes, A actions, B rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.novelty.features import MEMORY_SHAPE, NoveltyTable, encode, features_for
from planvec.planners.plan import Plan
from planvec.planners.root_actions import list_actions
from planvec.planners.search import Search, Simulation, StepRequest
from planvec.planners.width.config import WidthConfig
from planvec.planners.width.tree import ILLEGAL, PENDING, Origin, WidthTree
from planvec.rows import (
    BatchStepper,
    LivesUse,
    Transitions,
    action_masks,
    are_legal,
    read_lives,
    stacked_lives,
)

_LARGEST_REWARD = 1e300  # so large that the sum along a path is finite


class WidthSearch(Search):
    """One decision in progress."""

    # `depths`: Number of actions from the root, for each node.

    averages = True

    def __init__(
        self,
        config: WidthConfig,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        previous: Plan | None,
        info: dict[str, Any] | None,
    ) -> None:
        config.check_space(env.action_space)
        self._config = config
        self._lives_use = LivesUse(f"life_cost={config.life_cost:g}", "life_cost=0")
        self._env = env
        self._generator = generator
        self._features = features_for(env.observation_space, config.features)
        tree = config.kept_tree(state, previous)
        if tree is None:
            actions = list_actions(env.action_space)
            assert actions is not None  # `check_space` has refused others
            memory = np.zeros(MEMORY_SHAPE, np.int32)
            codes = encode(self._features, env.observe(state), memory, 1)
            tree = WidthTree(actions, state, codes, memory, Origin.of(config.dt, config.features))
            if config.life_cost:
                tree.lives[0] = read_lives(info, self._lives_use)
        self.tree = tree
        self.depths, self._path_rewards, self._subtables = [0], [0.0], [0]
        self._tables: dict[int, NoveltyTable] = {}
        self._found: dict[int, NDArray[np.int64]] = {}  # of marked nodes: features with which it was novel
        self.num_pending = 0  # number of steps in flight
        for node in range(1, tree.num_nodes):
            self._place(node)
        self._forbid(0, tree.num_nodes)
        self.mark(0)

    # -- nodes ----------------------------------------------------------------------------------------

    @property
    def num_left(self) -> int:
        """How many steps may still be requested."""
        return self._config.simulation_limit - self.num_simulations - self.num_pending

    def reserve(self, parent: int, action: int) -> tuple[int, int]:
        """Return a node and the index of its action, whose step will be requested."""
        self.tree.children[parent, action] = PENDING
        return parent, action

    def generate(self, steps: list[tuple[int, int]]) -> Generator[StepRequest, Transitions, list[int]]:
        """Request steps that were reserved, `[B]`, and return the new nodes; a generator."""
        parents, actions = np.array(steps, np.int64).T
        seeds = None
        if self._env.is_stochastic:
            seeds = self._generator.integers(2**64, size=len(steps), dtype=np.uint64)
        self.num_pending += len(steps)
        out = yield StepRequest(self.tree.actions[actions], self.tree.states[parents], self._config.dt, seeds)
        self.num_pending -= len(steps)
        return self._receive(steps, out)

    def _receive(self, steps: list[tuple[int, int]], out: Transitions) -> list[int]:
        """Add the nodes that steps led to, and return their indices."""
        codes = encode(self._features, out.observations, self.tree.memory, len(steps), self.tree.codes)
        lives = np.full(len(steps), np.nan)
        if self._config.life_cost:
            lives = stacked_lives(out.infos, np.ones(len(steps), np.bool_), self._lives_use)
        nodes, first = [], self.tree.num_nodes
        assert out.new_states is not None
        for row, (parent, action) in enumerate(steps):
            node = self.tree.add(parent, action, out.new_states[row], codes[row])
            self.tree.rewards[node] = out.rewards[row]
            self.tree.ended[node] = out.terminated[row] or out.truncated[row]
            self.tree.lives[node] = lives[row]
            self._place(node)
            nodes.append(node)
        self._forbid(first, self.tree.num_nodes)
        self.num_simulations += len(nodes)
        if self.num_simulations >= self._config.simulation_limit:
            by_steps = self._config.num_simulations is None and self._config.max_env_steps is not None
            self.stop_reason = "max_env_steps" if by_steps else "num_simulations"
        return nodes

    def _forbid(self, first: int, last: int) -> None:
        """Mark the actions of nodes, from the first up to the last, that are illegal in their states."""
        space, tree = self._env.action_space, self.tree
        masks = action_masks(space, tree.states[first:last])
        if masks is not None:
            tree.children[first:last][~are_legal(space, masks[:, None], tree.actions[None])] = ILLEGAL

    def _place(self, node: int) -> None:
        """Note what follows from the path to a node, the next one."""
        parent, config = int(self.tree.parents[node]), self._config
        depth = self.depths[parent] + 1
        own = self.shaped_reward(node)
        if abs(own) > _LARGEST_REWARD:
            raise InvalidBatchError(
                f"rewards: expected numbers of at most {_LARGEST_REWARD:g}, got {own}, whose sums would be "
                "infinite; wrap the environment in gymnasium.wrappers.TransformReward"
            )
        reward = self._path_rewards[parent] + config.discount ** (depth - 1) * own
        has_table = config.subtables and reward > 0
        self.depths.append(depth)
        self._path_rewards.append(reward)
        self._subtables.append(max(0, int(np.floor(np.log2(reward)))) + 1 if has_table else 0)

    def is_marked(self, node: int) -> bool:
        """Return whether a node was marked in this decision."""
        return node in self._found

    def shaped_reward(self, node: int) -> float:
        """Return the reward of the action that leads to a node, with the weights of losses."""
        tree, config = self.tree, self._config
        reward = float(tree.rewards[node])
        if reward < 0:
            reward *= config.risk_aversion
        lost = tree.lives[tree.parents[node]] - tree.lives[node]
        return reward - config.life_cost * float(lost) if lost > 0 else reward

    def mark(self, node: int) -> bool:
        """Mark the features of a node that was not marked in this decision; return whether it is novel."""
        number = self._subtables[node]
        table = self._tables.get(number)
        if table is None:
            table = self._tables[number] = self._features.new_table()
        parent = int(self.tree.parents[node])
        before = self.tree.codes[parent] if node else None
        is_first = node == 0 or self._subtables[parent] != number
        found = table.mark(self.tree.codes[node], before, self.depths[node], is_first)
        self._found[node] = found
        return len(found) > 0

    def is_still_novel(self, node: int) -> bool:
        """Return whether a marked node has a feature that no shallower node has."""
        found, table = self._found[node], self._tables[self._subtables[node]]
        start = table.first_novel(found, self.depths[node])
        if start < 0:
            return False
        self._found[node] = found[start:]  # stamps only grow: the ones before stay old
        return True

    # -- the decision ---------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the action that leads to the best branch."""
        tree, discount = self.tree, self._config.discount
        size, num_actions = tree.num_nodes, len(tree.actions)
        values, lengths, best = np.zeros(size), np.zeros(size, np.int64), np.full(size, -1, np.int64)
        returns = np.full((size, num_actions), -np.inf)
        counts = np.ones(size, np.int64)
        noise = self._generator.random((size, num_actions))  # decides between equal branches
        for node in range(size - 1, -1, -1):  # children come after their parents
            if (returns[node] > -np.inf).any():
                best[node] = self._best_action(node, returns[node], lengths, noise[node])
                values[node] = returns[node, best[node]]
                lengths[node] = 1 + lengths[tree.children[node, best[node]]]
            if node:
                parent = tree.parents[node]
                returns[parent, tree.taken[node]] = self.shaped_reward(node) + discount * values[node]
                counts[parent] += counts[node]
        tried = returns[0] > -np.inf
        any_legal = np.where(tree.children[0] == ILLEGAL, -1.0, noise[0])
        action = int(best[0]) if best[0] >= 0 else int(any_legal.argmax())
        path, nodes = [], [0]
        while best[nodes[-1]] >= 0:
            path.append(int(best[nodes[-1]]))
            nodes.append(int(tree.children[nodes[-1], path[-1]]))
        tree.best = np.array(nodes)
        tree.returns[0] = values[0]
        tree.returns[1:size] = returns[tree.parents[1:size], tree.taken[1:size]]
        visits = np.zeros(num_actions, np.int64)
        visits[tried] = counts[tree.children[0, tried]]
        return Plan(
            action=tree.actions[action],
            value=float(values[0]),
            root_actions=tree.actions.copy(),
            visit_counts=visits,
            action_values=np.where(tried, returns[0], np.nan),
            standard_errors=np.full(num_actions, np.nan),
            best_actions=tree.actions[path],
            best_num_steps=np.full(len(path), self._config.dt, np.int64),
            best_return=float(values[0]),
            depth_histogram=np.bincount(self.depths),
            search_data=tree,
        )

    def _best_action(
        self,
        node: int,
        returns: NDArray[np.float64],
        lengths: NDArray[np.int64],
        noise: NDArray[np.float64],
    ) -> int:
        """Return the action with the highest return; of equal ones without a gain the longest branch."""
        best = np.flatnonzero(returns == returns.max())
        if len(best) > 1 and returns.max() <= 0:
            reach = lengths[self.tree.children[node, best]]
            best = best[reach == reach.max()]
        return int(best[noise[best].argmax()])


# -- IW(1) (Lipovetzky, Ramirez and Geffner 2015): breadth-first search that prunes where nothing is new -----


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


# -- Rollout-IW (Bandres, Bonet and Geffner 2018): random rollouts that end where nothing is new -------------


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
