"""The transposition table: finds the nodes of states that are in the tree already. Letters: B rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES
from planvec.planners.mcts.observation_keys import observation_keys
from planvec.planners.mcts.rules import OPEN_LOOP, SINGLE, Rules
from planvec.planners.mcts.tree import Tree
from planvec.rows import BatchStepper, Transitions, state_keys

_Edge = tuple[int, int]


def is_by_observation(shared: Any) -> bool:
    """Return whether states with equal observations share a node; see `MCTS.transpositions`."""
    return isinstance(shared, (str, tuple)) and shared in ("observation", ("observation",))


class TranspositionTable:
    """Maps transitions to outcomes and nodes of a tree."""

    # Two outcomes of an action are the same if they lead to equal states with equal rewards. With `shared`
    # nodes, equal states are one node, whatever actions led there.

    def __init__(
        self,
        env: BatchStepper,
        tree: Tree,
        rules: Rules,
        shared: bool | str | tuple[str, ...] | Callable[[NDArray[Any]], NDArray[Any]],
        with_generator: bool,
    ) -> None:
        self._env = env
        self._tree = tree
        self._is_open_loop = rules.chance == OPEN_LOOP
        self._shared = shared
        self._with_generator = with_generator
        self._always_new = rules.chance == SINGLE and not shared
        self._outcomes: dict[tuple[_Edge, Hashable, float], int] = {}
        self._nodes: dict[Hashable, int] = {}
        if not self._always_new:
            self._enter_tree()

    def look_up(
        self, nodes: NDArray[np.int32], actions: NDArray[np.int32], out: Transitions
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the outcome and the node of each transition; new ones get the next free indices."""
        # `nodes`: `[B]`, the node that each began at. `actions`: `[B]`, the index of its action.
        counters = self._tree.arrays.counters
        next_node, next_outcome = int(counters[NUM_NODES]), int(counters[NUM_OUTCOMES])
        if self._always_new:
            new = next_node + np.arange(len(nodes))
            return new, new
        keys: list[Hashable] = [None] * len(nodes)
        rewards = [0.0] * len(nodes)
        if not self._is_open_loop:
            assert out.new_states is not None
            rewards = out.rewards.tolist()
            if is_by_observation(self._shared):
                keys = self._observation_keys(out.observations, out.terminated | out.truncated)
            else:
                keys = self._keys(out.new_states)
        pairs = []
        edges = zip(nodes.tolist(), actions.tolist(), strict=True)
        for edge, key, reward in zip(edges, keys, rewards, strict=True):
            outcome = self._outcomes.setdefault((edge, key, reward), next_outcome)
            if outcome < next_outcome:
                node = self._node_of_outcome[outcome]
            else:
                next_outcome += 1
                node = self._nodes.setdefault(key, next_node) if self._shared else next_node
                next_node += node == next_node
                self._node_of_outcome[outcome] = node
            pairs.append((outcome, node))
        columns = np.array(pairs, np.int64).reshape(-1, 2)
        return columns[:, 0].copy(), columns[:, 1].copy()

    def _keys(self, states: NDArray[Any]) -> list[Hashable]:
        """Return a key per state: equal keys for equal states."""
        if callable(self._shared):
            return list(np.asarray(self._shared(states)).tolist())
        if not isinstance(self._shared, bool):
            return _field_keys(states, self._shared)
        return state_keys(states, self._with_generator)

    def _observation_keys(self, observations: Any, ended: NDArray[np.bool_]) -> list[Hashable]:
        """Return a key per row: of the observation, and whether the episode has ended."""
        keys = observation_keys(self._env.observation_space, observations, len(ended))
        return list(zip(keys, ended.tolist(), strict=True))

    def _enter_tree(self) -> None:
        """Enter the outcomes and the nodes of the tree."""
        tree, arrays = self._tree, self._tree.arrays
        keys: list[Hashable] = [None] * tree.num_nodes
        if tree.states is not None:
            states = tree.states[: tree.num_nodes]
            if is_by_observation(self._shared):
                keys = self._observation_keys(self._env.observe(states), arrays.ended[: tree.num_nodes])
            else:
                keys = self._keys(states)
        for node in range(tree.num_nodes):
            self._nodes.setdefault(keys[node], node)
            for action in np.flatnonzero(arrays.first_outcomes[node] >= 0).tolist():
                for outcome in tree.outcomes(node, action):
                    child = int(arrays.outcome_nodes[outcome])
                    reward = 0.0 if self._is_open_loop else float(arrays.outcome_rewards[outcome])
                    self._outcomes[(node, action), keys[child], reward] = outcome

    @property
    def _node_of_outcome(self) -> Any:
        return self._tree.arrays.outcome_nodes


def _field_keys(states: NDArray[Any], names: str | tuple[str, ...]) -> list[Hashable]:
    """Return a key per state: equal keys for states that are equal in some fields."""
    names = (names,) if isinstance(names, str) else names
    fields = states.dtype.names or ()
    unknown = [name for name in names if name not in fields]
    if unknown or not names:
        raise InvalidBatchError(
            f"transpositions: expected fields of the states ({', '.join(fields) or 'which have none'}), got "
            f"{', '.join(map(repr, unknown)) or 'none'}"
        )
    parts = [np.ascontiguousarray(states[name]).view(np.uint8).reshape(len(states), -1) for name in names]
    return [row.tobytes() for row in np.concatenate(parts, axis=1)]
