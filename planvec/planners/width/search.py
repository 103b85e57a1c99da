"""What both width-based searches share: the tree, the marking of nodes, and the decision.

Letters: N nodes, A actions, B rows.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.novelty.features import MEMORY_SHAPE, encode, features_for
from planvec.planners.novelty.tables import NoveltyTable
from planvec.planners.plan import Plan
from planvec.planners.root_actions import list_actions
from planvec.planners.search import Search, StepRequest
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
        tree: WidthTree | None,
        info: dict[str, Any] | None,
    ) -> None:
        self._config = config
        self._lives_use = LivesUse(f"life_cost={config.life_cost:g}", "life_cost=0")
        self._env = env
        self._generator = generator
        self._features = features_for(env.observation_space, config.features)
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
