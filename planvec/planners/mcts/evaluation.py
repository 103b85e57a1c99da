"""Evaluation of new nodes by the user's functions: values, priors, legal actions.

Letters: A actions, B nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.arrays import ROOT_WEIGHT
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.rules import Rules
from planvec.planners.mcts.tree import Tree
from planvec.rows import (
    ACTION_MASK_FIELD,
    BatchStepper,
    Transitions,
    action_masks,
    are_legal,
    draw_legal,
    finish_rows,
    is_fixed,
    take_row,
    take_rows,
    uniform_actions,
)


class Evaluation:
    """Calls the user's functions for whole batches of new nodes, and draws their actions."""

    def __init__(
        self,
        config: MCTSConfig,
        env: BatchStepper,
        tree: Tree,
        rules: Rules,
        generator: np.random.Generator,
        state: NDArray[Any],
    ) -> None:
        self._config = config
        self._env = env
        self._tree = tree
        self._rules = rules
        self._generator = generator
        is_key = config.legal_actions == ACTION_MASK_FIELD
        # whether the states hold the masks of legal actions
        self.reads_states = is_key and action_masks(env.action_space, state) is not None

    def evaluate_root(self, state: NDArray[Any], info: dict[str, Any] | None) -> None:
        """Evaluate the root and draw its actions."""
        config, root = self._config, np.zeros(1, np.int64)
        self.draw_actions(root)
        key = config.legal_actions
        needs_observation = config.has_values or config.has_priors or callable(key)
        observation = self._env.observe(state) if needs_observation else None
        if config.has_values:
            self._tree.arrays.counters[ROOT_WEIGHT] = 1
        mask = np.ones((1, self._tree.num_actions), bool)
        if self.reads_states:
            mask = self._masks_in(state)
        elif isinstance(key, str) and info is not None and key in info:
            mask = np.asarray(info[key])[None]
        self._call_functions(root, observation, mask)

    def _masks_in(self, states: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which actions of nodes are legal by their states, `[B, A]`."""
        space, actions = self._env.action_space, self._tree.actions
        masks = action_masks(space, states)
        if masks is None or self._tree.kind.has_own_actions:  # only legal ones were drawn
            return np.ones((len(states), self._tree.num_actions), np.bool_)
        return masks if actions.ndim == 1 else are_legal(space, masks[:, None], actions[None])

    def evaluate(self, nodes: NDArray[np.int64], rows: NDArray[np.int64], out: Transitions) -> None:
        """Evaluate new nodes whose episode goes on."""
        # `nodes`: `[B]`. `rows`: `[B]`, the row of `out` that led to each.
        config = self._config
        if not len(nodes) or not (config.has_values or self._rules.use_legal or self._rules.use_priors):
            return
        space = self._env.observation_space
        key, mask = config.legal_actions, None
        if self.reads_states:
            assert out.new_states is not None
            mask = self._masks_in(out.new_states[rows])
        elif isinstance(key, str):
            if key not in out.infos:
                raise InvalidBatchError(
                    f"legal_actions: expected the key of an info, got {key!r}, which is not among "
                    f"{sorted(out.infos)}; pass it to make(info_keys=...), or pass a function"
                )
            mask = np.stack(list(out.infos[key][rows]))
        if is_fixed(space):
            observations = take_rows(out.observations, rows)
        else:
            observations = finish_rows(space, [take_row(space, out.observations, row) for row in rows])
        self._call_functions(nodes, observations, mask)

    def _call_functions(self, nodes: NDArray[np.int64], observations: Any, mask: NDArray[Any] | None) -> None:
        """Write values, legal actions and priors of nodes."""
        # `nodes`: `[B]`. `mask`: `[B, A]`, the legal actions, where an info holds them.
        config, arrays = self._config, self._tree.arrays
        values, priors = self._evaluated(observations)
        if values is not None:
            self._check_values(values, len(nodes))
            arrays.raw_values[nodes] = arrays.values[nodes] = values
        if config.legal_actions is not None:
            if callable(config.legal_actions):
                mask = np.asarray(config.legal_actions(observations))
            assert mask is not None
            self._set_legal(nodes, mask)
        if self._rules.use_priors:
            self._set_priors(nodes, priors)

    def _evaluated(self, observations: Any) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        """Return the values `[B]` and priors `[B, A]` that the functions give; None without a function."""
        config = self._config
        values: Any = None
        priors: Any = None
        if config.evaluate_fn is not None:
            pair = config.evaluate_fn(observations)
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                got = f"{len(pair)} parts" if isinstance(pair, (tuple, list)) else type(pair).__name__
                raise InvalidBatchError(f"evaluate_fn: expected a tuple (values, priors), got {got}")
            values, priors = pair
        if config.value_fn is not None:
            values = config.value_fn(observations)
        if config.prior_fn is not None:
            priors = config.prior_fn(observations)
        return (
            None if values is None else np.asarray(values, np.float64),
            None if priors is None else np.array(priors, np.float64),
        )

    def values_of(self, observations: Any, num_rows: int) -> NDArray[np.float64]:
        """Return the values `[B]` that the functions give to observations."""
        values, _ = self._evaluated(observations)
        assert values is not None
        self._check_values(values, num_rows)
        return values

    def _check_values(self, values: NDArray[np.float64], num_rows: int) -> None:
        """Check that values are finite numbers, one for each row."""
        if values.shape != (num_rows,) or not np.isfinite(values).all():
            name = "value_fn" if self._config.evaluate_fn is None else "evaluate_fn, values"
            raise InvalidBatchError(
                f"{name}: expected finite numbers of shape ({num_rows},), got {_described(values)}"
            )

    def _set_legal(self, nodes: NDArray[np.int64], mask: NDArray[Any]) -> None:
        shape = (len(nodes), self._tree.num_actions)
        if mask.shape != shape or not mask.astype(bool).any(axis=1).all():
            raise InvalidBatchError(
                f"legal_actions: expected shape {shape} with at least one legal action per row, got "
                f"{_described(mask)}"
            )
        self._tree.arrays.legal[nodes] = mask.astype(bool)

    def _set_priors(self, nodes: NDArray[np.int64], priors: NDArray[np.float64] | None) -> None:
        shape = (len(nodes), self._tree.num_actions)
        name = "prior_fn" if self._config.evaluate_fn is None else "evaluate_fn, priors"
        if priors is None:
            priors = np.ones(shape)
        if priors.shape != shape or not np.isfinite(priors).all() or (priors < 0).any():
            raise InvalidBatchError(
                f"{name}: expected finite numbers of at least 0 of shape {shape}, got {_described(priors)}"
            )
        if self._rules.use_legal:
            priors = priors * self._tree.arrays.legal[nodes]
        sums = priors.sum(axis=1, keepdims=True)
        if not (sums > 0).all():
            raise InvalidBatchError(
                f"{name}: expected a legal action above 0 in every row, got a row of zeros"
            )
        self._tree.arrays.priors[nodes] = priors / sums

    def add_root_noise(self) -> None:
        """Mix Dirichlet noise into the priors at the root, if `root_noise` is given."""
        if self._config.root_noise is None:
            return
        alpha, fraction = self._config.root_noise
        arrays, num_actions = self._tree.arrays, self._tree.num_actions
        legal = arrays.legal[0] if self._rules.use_legal else np.ones(num_actions, bool)
        if not legal.any():
            return  # proven to be lost
        noise = np.zeros(num_actions)
        noise[legal] = self._generator.dirichlet(np.full(int(legal.sum()), alpha))
        arrays.priors[0] = (1 - fraction) * arrays.priors[0] + fraction * noise

    def draw_actions(self, nodes: NDArray[np.int64]) -> None:
        """Draw the actions of new nodes, if each node has its own."""
        if self._tree.kind.has_own_actions:
            num_actions = self._tree.num_actions
            space, count = self._env.action_space, len(nodes) * num_actions
            drawn = uniform_actions(space, self._generator, count)
            if self.reads_states and self._tree.states is not None:
                masks = action_masks(space, self._tree.states[nodes])
                if masks is not None:
                    uniforms = self._generator.random(drawn.shape)
                    drawn = draw_legal(space, masks.repeat(num_actions, axis=0), uniforms)
            self._tree.actions[nodes] = drawn.reshape(len(nodes), num_actions, *drawn.shape[1:])


def _described(array: NDArray[Any]) -> str:
    """Return the shape and the dtype of an array, and how many of its numbers are not finite."""
    text = f"shape {array.shape}, {array.dtype}"
    if array.dtype.kind == "f":
        for name, wrong in (("NaN", np.isnan(array)), ("inf", np.isinf(array))):
            if wrong.any():
                text += f", {name} at {int(wrong.sum())} of {array.size}"
    return text
