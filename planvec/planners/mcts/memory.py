"""Holds the simulations in flight of a search, and calls the compiled functions that run them.

Letters: B rows, K slots, S bytes of a state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from planvec.kernels import Pointer, bytes_of, compile_loop
from planvec.planners.mcts.arrays import OPEN_LOOP, SINGLE, Paths, Rules
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.phases import Halving
from planvec.planners.mcts.simulations import (
    NUM_SIMULATIONS,
    STOP,
    STOP_REASONS,
    Limits,
    Progress,
    Requests,
    Shared,
    Steps,
    Table,
    begin,
    enter_tree,
    expand_half,
    find_outcomes,
    go_on,
    key_of_fields,
    new_progress,
    new_steps,
    new_table,
    orient,
    search_code,
    take_steps,
    take_values,
)
from planvec.planners.mcts.tree import Tree
from planvec.rows import ACTION_MASK_FIELD, GENERATOR_FIELD, PLAYER_FIELD, Transitions


class _Functions(NamedTuple):
    """The compiled functions that searches through the driver call, with their first arguments."""

    begin: Callable[..., int]
    go_on: Callable[..., int]
    take_steps: Callable[..., int]
    orient: Callable[..., int]
    find: Callable[..., int]
    expand: Callable[..., int]
    take_values: Callable[..., int]


class Simulations:
    """Runs the simulations of a search, one half of the slots at a time."""

    # States of fixed size are bytes for compiled code. States that are objects stay with the search.

    def __init__(
        self,
        config: MCTSConfig,
        rules: Rules,
        tree: Tree,
        paths: Paths,
        root_state: NDArray[Any],
        halves: list[NDArray[np.int64]],
        foresees_chance: bool,
        halving: Halving,
    ) -> None:
        dtype, num_slots = root_state.dtype, config.batch_size
        self.has_bytes = not dtype.hasobject  # whether states have a fixed size
        state_bytes = dtype.itemsize if self.has_bytes else 0
        actions = _nothing() if tree.kind.has_own_actions else bytes_of(tree.actions)
        action_bytes = len(actions) // tree.num_actions
        is_open_loop = rules.chance == OPEN_LOOP
        self._action_like = tree.actions[:0] if action_bytes else None
        self._state_dtype = dtype
        self._field_key = key_of_fields(dtype, config.transpositions)
        is_simple = self._field_key is not None or (_is_packed(dtype) and not config.has_own_keys)
        always_new = rules.chance == SINGLE and not config.transpositions
        # whether the transposition table is compiled; otherwise the search has to keep one
        self.finds_outcomes = is_simple or always_new or is_open_loop
        states = bytes_of(tree.states) if self.has_bytes and tree.states is not None else _nothing()
        # what all compiled functions work on
        self.shared = Shared(
            tree.arrays,
            paths,
            states,
            actions,
            bytes_of(root_state.copy()) if self.has_bytes else _nothing(),
            rules,
            _limits_of(config, dtype, action_bytes, is_open_loop, tree.actions.ndim == 1),
            self._new_table(config, rules, tree, foresees_chance, states),
            new_progress(halves),
            Requests(
                np.zeros(num_slots * state_bytes, np.uint8),
                np.zeros(num_slots * action_bytes, np.uint8),
                np.zeros(num_slots * state_bytes if is_open_loop else 0, np.uint8),
            ),
            halving,
        )
        self.memory = Pointer(self.shared)  # points to it
        self._bounds = [int(bound) for bound in self.progress.bounds]

    def load(self) -> None:
        """Compile the functions that searches through the driver need, or load them from the cache."""
        assert self._functions

    @functools.cached_property
    def _functions(self) -> _Functions:
        """The compiled functions with the shared memory, for searches through the driver."""
        steps, values = new_steps(1, self.shared.limits.state_bytes), np.zeros(1)
        return _Functions(
            begin=self._bound("begin", begin, 0),
            go_on=self._bound("go_on", go_on, 0, 0),
            take_steps=self._bound("take_steps", take_steps, steps, 0),
            orient=self._bound("orient", orient, steps, 0),
            find=self._bound("find_outcomes", find_outcomes, steps, 0),
            expand=self._bound("expand_half", expand_half, steps, 0),
            take_values=self._bound("take_values", take_values, values, 0),
        )

    def _bound(self, name: str, function: Any, *examples: Any) -> Callable[..., int]:
        """Return a compiled function with its first arguments, the code and the shared memory."""
        if name not in _entries:
            types = map(numba.typeof, (self.memory, *examples))
            _entries[name] = compile_loop(function, search_code(), *types)
        return functools.partial(_entries[name], None, self.memory)

    @property
    def progress(self) -> Progress:
        """The simulations in flight."""
        return self.shared.progress

    def _new_table(
        self,
        config: MCTSConfig,
        rules: Rules,
        tree: Tree,
        foresees_chance: bool,
        states: NDArray[np.uint8],
    ) -> Table:
        """Return the transposition table, with what the tree contains."""
        dtype, shares_nodes = self._state_dtype, bool(config.transpositions)
        always_new = rules.chance == SINGLE and not shares_nodes
        if always_new or not self.finds_outcomes:
            return new_table(1, False, (-1, -1, -1, -1))
        key = (0, dtype.itemsize, 0, 0)
        if rules.chance == OPEN_LOOP:
            key = (-1, -1, -1, -1)
        elif self._field_key is not None:
            key = self._field_key
        elif GENERATOR_FIELD in (dtype.fields or ()) and not foresees_chance:
            assert dtype.fields is not None
            generator, offset = dtype.fields[GENERATOR_FIELD][:2]
            key = (0, offset, offset + generator.itemsize, dtype.itemsize)
        table = new_table(len(tree.arrays.nodes), shares_nodes, key)
        if tree.num_nodes > 1 or shares_nodes:
            enter_tree(table, tree.arrays, states, dtype.itemsize)
        return table

    @property
    def num_simulations(self) -> int:
        """Number of completed simulations."""
        return int(self.progress.totals[NUM_SIMULATIONS])

    @property
    def stop_reason(self) -> str | None:
        """Why no more simulations can begin; None if they can."""
        return STOP_REASONS[self.progress.totals[STOP]]

    def begin(self, half: int) -> int:
        """Begin the simulations of a half. Returns `NONE`, `COMPLETED` or `PERFORM`."""
        return self._functions.begin(half)

    def take_steps(self, half: int, steps: Steps) -> int:
        """Add the steps of a half to the tree, and continue. Returns `COMPLETED` or `PERFORM`."""
        return self._functions.take_steps(steps, half)

    def orient(self, half: int, steps: Steps) -> None:
        """Turn the rewards of the steps of a half into those of the players who took them."""
        self._functions.orient(steps, half)

    def find_outcomes(self, half: int, steps: Steps) -> None:
        """Find the outcomes and the nodes of the steps of a half, which are written to `progress`."""
        self._functions.find(steps, half)

    def expand(self, half: int, steps: Steps) -> int:
        """Add the steps of a half to the tree, whose outcomes and nodes are in `progress`."""
        # Returns how many selections go on from their node, for `go_on`.
        return self._functions.expand(steps, half)

    def go_on(self, half: int, num_rows: int) -> int:
        """Continue the simulations of a half. Returns `COMPLETED` or `PERFORM`."""
        return self._functions.go_on(half, num_rows)

    def take_values(self, half: int, values: NDArray[np.float64]) -> int:
        """Take the values `[B]` of leaves, which completes the simulations of a half."""
        return self._functions.take_values(np.ascontiguousarray(values, np.float64), half)

    def rows(self, half: int) -> slice:
        """Return the rows of the request of a half, among those of all slots."""
        first = self._bounds[half]
        return slice(first, first + int(self.progress.num_rows[half]))

    def states(self, rows: slice) -> NDArray[Any]:
        """Return the states `[B]` of a request. They are overwritten by the next request of the half."""
        return self.states_in(self.shared.requests.states, rows)

    def actions_of(self, rows: slice) -> NDArray[Any]:
        """Return the actions `[B, ...]` of a request, if all nodes have the same actions; see `states`."""
        size, like = self.shared.limits.action_bytes, self._action_like
        assert like is not None
        part = self.shared.requests.actions[rows.start * size : rows.stop * size].view(like.dtype)
        return part.reshape(-1, *like.shape[1:])

    def states_in(self, data: NDArray[np.uint8], rows: slice) -> NDArray[Any]:
        """Return some of the states whose bytes are in an array, a view."""
        size = self.shared.limits.state_bytes
        states: NDArray[Any] = data[rows.start * size : rows.stop * size].view(self._state_dtype)
        return states

    def steps_of(self, out: Transitions) -> Steps:
        """Return an answer in the form that compiled functions take. The driver has checked its sizes."""
        states = _nothing()
        if self.has_bytes:
            assert out.new_states is not None
            states = bytes_of(out.new_states)
        return Steps(
            states,
            np.array(out.rewards, np.float64),  # `orient` changes them
            np.ascontiguousarray(out.terminated).view(np.uint8),
            np.ascontiguousarray(out.truncated).view(np.uint8),
            np.ascontiguousarray(out.infos["num_steps"], np.int64),
        )


# name -> the compiled function, which is called without looking at the types of its arguments
_entries: dict[str, Callable[..., int]] = {}


def _is_packed(dtype: np.dtype[Any]) -> bool:
    """Return whether equal states have equal bytes: they are no objects and have no unused bytes."""
    return dtype.fields is not None and dtype.itemsize == sum(
        field[0].itemsize for field in dtype.fields.values()
    )


def _limits_of(
    config: MCTSConfig, dtype: np.dtype[Any], action_bytes: int, is_open_loop: bool, are_numbers: bool
) -> Limits:
    """Return the limits of a search of states of a dtype. Compiled code reads the masks of numbers alone."""
    has_masks = are_numbers and config.legal_actions == ACTION_MASK_FIELD
    return Limits(
        num_simulations=-1 if config.simulation_limit is None else config.simulation_limit,
        max_env_steps=-1 if config.max_env_steps is None else config.max_env_steps,
        asks_leaves=config.rollout_steps > 0 or (config.has_values and is_open_loop),
        rollout_steps=config.rollout_steps,
        discount=float(config.discount),
        state_bytes=0 if dtype.hasobject else dtype.itemsize,
        action_bytes=action_bytes,
        player_at=_offset(dtype, PLAYER_FIELD),
        mask_at=_offset(dtype, ACTION_MASK_FIELD) if has_masks else -1,
    )


def _offset(dtype: np.dtype[Any], name: str) -> int:
    """Return the index of the first byte of a field of a state; -1 if it has no such field."""
    return dtype.fields[name][1] if dtype.fields is not None and name in dtype.fields else -1


def _nothing() -> NDArray[np.uint8]:
    return np.empty(0, np.uint8)
