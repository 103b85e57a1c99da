"""One decision of `MCTS` in progress.

Compiled functions run the simulations (`planvec.planners.mcts.simulations`). Between two calls of them,
this class requests steps and rollouts, and calls the functions of the user.

Letters: A actions, B rows, H steps.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.kernels import Pointer, bytes_of
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.setup import create_tree, make_rules, observation_keys, tree_kind
from planvec.planners.mcts.simulations import (
    LEAVES,
    NONE,
    PERFORM,
    STOP_REASONS,
    Steps,
    add_steps,
    begin,
    begin_halving,
    call,
    compared_parts,
    enter_tree,
    go_on,
    halving_action,
    init,
    is_by_observation,
    new_shared,
    take_values,
)
from planvec.planners.mcts.tree import OPEN_LOOP, OUT_OF_BOUNDS, ROOT_WEIGHT, SINGLE, Tree
from planvec.planners.plan import Plan
from planvec.planners.root_actions import list_actions
from planvec.planners.search import RolloutRequest, Search, Simulation, StepRequest
from planvec.rows import (
    ACTION_MASK_FIELD,
    BatchStepper,
    Transitions,
    action_masks,
    are_legal,
    draw_legal,
    finish_rows,
    has_action_masks,
    is_fixed,
    players_to_move,
    state_keys,
    take_row,
    take_rows,
    uniform_actions,
)


class TreeSearch(Search):
    """A search from one root."""

    # `config`: the settings of the planner, with those that `choice` fills in. `tree`: one of the same state,
    # which is copied. `is_new_root`: add noise (a search that continues has it).

    averages = True

    def __init__(
        self,
        config: MCTSConfig,
        choice: int,
        env: BatchStepper,
        state: np.ndarray,
        generator: np.random.Generator,
        tree: Tree | None,
        info: dict[str, Any] | None,
        is_new_root: bool = True,
    ) -> None:
        self.config = config
        self._env = env
        self.generator = generator  # the source of every random choice
        listed = list_actions(env.action_space)
        # the settings of the kernels
        kind = tree_kind(config, env, listed is None, choice)
        self.rules = make_rules(config, kind, state, listed, int(generator.integers(2**62)))
        self.root_state = state
        self.tree = create_tree(config, env, state, kind, listed, tree)
        self._arrays = self.tree.arrays
        # whether the states hold the masks of legal actions
        is_key = config.legal_actions == ACTION_MASK_FIELD
        self._reads_states = is_key and action_masks(env.action_space, state) is not None
        if tree is None:
            init(self._arrays, self.rules)
            if self.tree.states is not None:
                self.tree.states[:1] = state
            players = players_to_move(state)
            if players is not None:
                self._arrays.players[0] = players[0] == 1
            self._evaluate_root(state, info)
        if is_new_root:
            self._add_root_noise()
        halving = begin_halving(config, self.tree, generator)
        # whether the generator in a state decides about chance
        self._foresees_chance = env.is_stochastic and self.rules.kind.chance == SINGLE
        self._unevaluated = set[int]()  # nodes of an open loop where the episode ended each time so far
        parts = compared_parts(config.transpositions, state.dtype, kind, self._foresees_chance)
        self.shared = new_shared(config, self.rules, self.tree, state, halving, parts)
        self.memory = Pointer(self.shared)  # what all compiled functions work on
        self._needs_keys = parts is None  # whether states are compared by numbers of their keys
        self._numbers: dict[Hashable, int] = {}  # these
        if self._needs_keys:
            used = self.tree.num_nodes
            keys = self._keys(self.tree.saved_states, None, self._arrays.ended[:used])
            self.shared.table.keys[: len(keys)] = keys
        if not kind.is_tree:
            call(enter_tree, self.memory)
        self.num_in_flight = min(2, config.batch_size)
        self._free = [*range(self.num_in_flight)][::-1]
        is_open_loop = self.rules.kind.chance == OPEN_LOOP
        has_bytes = self.rules.state_bytes > 0
        has_own = is_open_loop and not has_bytes
        self._own_states = np.repeat(state, config.batch_size) if has_own else None
        # whether nothing in Python takes part in the expansion of the tree; with priors, those of legal
        # actions differ
        has_masks = self.rules.mask_at >= 0 and self._reads_states and not self.rules.kind.has_priors
        has_functions = config.has_values or config.has_priors
        has_functions |= config.legal_actions is not None and not has_masks
        self.is_plain = has_bytes and not (has_functions or kind.has_own_actions or self._needs_keys)

    # -- simulations --------------------------------------------------------------------------------

    def simulate(self) -> Simulation:
        """Run the simulations of one half of the slots."""
        half = self._free.pop()
        try:
            counts, group = self.shared.counts[0], self.shared.halves[half]
            status = call(begin, self.memory, half)
            self.stop_reason = STOP_REASONS[counts["stop"]]
            if status == NONE:
                return  # a limit was reached, or every action worth a simulation is in flight
            if self._own_states is not None:
                self._own_states[group["first"] : group["first"] + group["num_simulations"]] = self.root_state
            while status == PERFORM:
                if group["stage"] == LEAVES:
                    values = yield from self._leaf_values(half)
                    status = call(take_values, self.memory, np.ascontiguousarray(values, np.float64), half)
                else:
                    rows = self.rows_of(half)
                    actions, states = self.actions_of(rows), self.states_of(rows)
                    out = yield StepRequest(actions, states, self.config.dt, self._seeds(len(states)))
                    self._add_steps(half, out)
                    status = call(go_on, self.memory, half)
            self.num_simulations = int(counts["num_simulations"])
        finally:
            self._free.append(half)

    def rows_of(self, half: int) -> slice:
        """Return the rows of the request of a half, among those of all slots."""
        first, _, _, _, num_rows = self.shared.halves.item(half)
        return slice(first, first + num_rows)

    def _ends_of(self, rows: slice) -> np.ndarray:
        """Return the records `[B]` of the last nodes on the paths of rows, which hold their actions."""
        slots = self.shared.rows["slot"][rows]
        ends: np.ndarray = self.shared.paths[slots, self.shared.slots["depth"][slots]]
        return ends

    def actions_of(self, rows: slice) -> np.ndarray:
        """Return the actions `[B, ...]` of a request. Its next one overwrites them."""
        actions = self.tree.actions
        if self.tree.kind.has_own_actions:
            ends = self._ends_of(rows)
            taken: np.ndarray = actions[ends["node"], ends["action"]]
            return taken
        return self.shared.request_actions.view(actions.dtype).reshape(-1, *actions.shape[1:])[rows]

    def states_of(self, rows: slice) -> np.ndarray:
        """Return the states `[B]` of a request. Its next one overwrites them."""
        if self.rules.state_bytes:
            states: np.ndarray = self.shared.request_states.view(self.root_state.dtype)[rows]
        elif self._own_states is not None:
            states = self._own_states[self.shared.rows["slot"][rows]]
        else:
            assert self.tree.states is not None
            states = self.tree.states[self._ends_of(rows)["node"]]
        return states

    def _seeds(self, num_rows: int) -> NDArray[np.uint64] | None:
        """Draw the seeds `[num_rows]` of a batch; None where a step has one outcome."""
        if self.rules.kind.chance == SINGLE:
            return None
        return self.generator.integers(0, 2**64, num_rows, dtype=np.uint64)

    def _leaf_values(self, half: int) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the values `[B]` that a half asks for; a generator that yields requests for rollouts."""
        config, space = self.config, self._env.action_space
        states = self.states_of(self.rows_of(half))
        if not config.rollout_steps:  # a node of an open loop stands for many states
            values, _ = self._evaluated(self._env.observe(states), len(states))
            assert values is not None
            return values
        if config.rollout_policy is not None or (config.dt > 1 and has_action_masks(states)):
            return (yield from self._stepped_returns(states))
        action_seed = int(self.generator.integers(2**63))
        seeds, actions = self._seeds(len(states)), None
        if config.dt > 1:  # random actions `[B, H, *action shape]`, each repeated for `dt` steps
            num_drawn = -(-config.rollout_steps // config.dt)
            drawn = uniform_actions(space, self.generator, len(states) * num_drawn)
            repeated = drawn.reshape(len(states), num_drawn, *drawn.shape[1:]).repeat(config.dt, axis=1)
            actions = repeated[:, : config.rollout_steps]
        out = yield RolloutRequest(states, config.rollout_steps, actions, action_seed, seeds, config.discount)
        returns: NDArray[np.float64] = out.returns
        return returns

    def _stepped_returns(self, states: np.ndarray) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the returns `[B]` of rollouts by `rollout_policy`, or of random legal actions, repeated."""
        config, space, policy = self.config, self._env.action_space, self.config.rollout_policy
        returns, discounts = np.zeros(len(states)), np.ones(len(states))
        observations = None if policy is None else self._env.observe(states)
        repeats = config.dt if policy is None else 1
        for first in range(0, config.rollout_steps, repeats):
            if policy is not None:
                actions = np.asarray(policy(observations))
            else:
                masks = action_masks(space, states)
                assert masks is not None
                uniforms = self.generator.random((len(states), *(space.shape or ())))
                actions = draw_legal(space, masks, uniforms)
            dt = min(repeats, config.rollout_steps - first)
            out = yield StepRequest(actions, states, dt, self._seeds(len(states)))
            returns += discounts * out.rewards
            discounts *= float(config.discount) ** out.infos["num_steps"]
            states, observations = out.new_states, out.observations
            if (out.terminated | out.truncated).all():
                break
        return returns

    def _add_steps(self, half: int, out: Transitions) -> None:
        """Add the steps of a half to the tree, and let the user's functions evaluate new nodes."""
        shared, rows = self.shared, self.rows_of(half)
        slots = shared.rows["slot"][rows].copy()
        assert out.new_states is not None
        states = keys = np.empty(0, np.uint8)
        if self.rules.state_bytes:
            states = keys = bytes_of(out.new_states)
        elif self.rules.player_at >= 0:
            players = players_to_move(out.new_states)
            assert players is not None
            states = players.view(np.uint8)
        steps = Steps(  # the driver has checked the sizes
            states,
            np.ascontiguousarray(out.rewards, np.float64),
            np.ascontiguousarray(out.terminated).view(np.uint8),
            np.ascontiguousarray(out.truncated).view(np.uint8),
            np.ascontiguousarray(out.infos["num_steps"], np.int64),
        )
        if self._needs_keys:
            keys = self._keys(out.new_states, out.observations, out.terminated | out.truncated)
        call(add_steps, self.memory, steps, keys, half)
        if self.is_plain:
            return
        nodes, is_new = shared.rows["node"][rows], shared.slots["is_new"][slots]
        ended = shared.rows["ended"][rows]
        if self._own_states is not None:
            self._own_states[slots] = out.new_states
        elif self.tree.states is not None:
            self.tree.states[nodes[is_new]] = out.new_states[is_new]
        self._draw_actions(nodes[is_new])
        # Evaluate the first row at each node with an episode that goes on.
        chosen = is_new & ~ended
        if self.rules.kind.chance == OPEN_LOOP:
            self._unevaluated.update(nodes[is_new & ended].tolist())
            if self._unevaluated:
                for row in np.flatnonzero(~ended).tolist():
                    if nodes[row] in self._unevaluated:
                        self._unevaluated.discard(int(nodes[row]))
                        chosen[row] = True
        evaluated = np.flatnonzero(chosen)
        self._evaluate(nodes[evaluated], evaluated, out)

    def _keys(self, states: np.ndarray, observations: object, ended: NDArray[np.bool_]) -> NDArray[np.uint8]:
        """Return the bytes of a number per state: the same for states that are equal to the table."""
        # `observations`: those of the states, if they are known. `ended`: whether the episode has ended.
        shared = self.config.transpositions
        if callable(shared):
            keys = np.asarray(shared(states)).tolist()
        elif is_by_observation(shared):
            observations = self._env.observe(states) if observations is None else observations
            seen = observation_keys(self._env.observation_space, observations, len(ended))
            keys = list(zip(seen, ended.tolist(), strict=True))
        else:
            keys = state_keys(states, self._foresees_chance)
        if len(keys) != len(states):  # compiled code would read beyond them
            raise InvalidBatchError(
                f"transpositions: expected a key for each of {len(states)} states, got {len(keys)}"
            )
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        return bytes_of(np.array(numbers, np.int64))

    # -- evaluation of new nodes by functions of the user: values, priors, legal actions -------------

    def _evaluate_root(self, state: np.ndarray, info: dict[str, Any] | None) -> None:
        """Evaluate the root and draw its actions."""
        config, root, key = self.config, np.zeros(1, np.int64), self.config.legal_actions
        self._draw_actions(root)
        needs_observation = config.has_values or config.has_priors or callable(key)
        observation = self._env.observe(state) if needs_observation else None
        if config.has_values:
            self._arrays.counters[ROOT_WEIGHT] = 1
        mask = np.ones((1, self.tree.num_actions), bool)
        if isinstance(key, str) and not self._reads_states and info is not None and key in info:
            mask = np.asarray(info[key])[None]
        self._call_functions(root, state, observation, mask)

    def _evaluate(self, nodes: NDArray[np.int64], rows: NDArray[np.int64], out: Transitions) -> None:
        """Evaluate new nodes whose episode goes on."""
        # `nodes`: `[B]`. `rows`: `[B]`, the row of `out` that led to each.
        config, kind = self.config, self.tree.kind
        if not len(nodes) or not (config.has_values or kind.has_legal or kind.has_priors):
            return
        assert out.new_states is not None
        space = self._env.observation_space
        key, mask = config.legal_actions, None
        if isinstance(key, str) and not self._reads_states:
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
        self._call_functions(nodes, out.new_states[rows], observations, mask)

    def _call_functions(
        self, nodes: NDArray[np.int64], states: np.ndarray, observations: object, mask: np.ndarray | None
    ) -> None:
        """Write values, legal actions and priors of nodes."""
        # `nodes`: `[B]`. `mask`: `[B, A]`, the legal actions, where an info holds them.
        config, arrays, shape = self.config, self._arrays, (len(nodes), self.tree.num_actions)
        values, priors = self._evaluated(observations, len(nodes))
        if values is not None:
            arrays.raw_values[nodes] = arrays.values[nodes] = values
        if config.legal_actions is not None:
            if callable(config.legal_actions):
                mask = np.asarray(config.legal_actions(observations))
            elif self._reads_states and not self.tree.kind.has_own_actions:  # else legal ones were drawn
                space, actions = self._env.action_space, self.tree.actions
                masks = action_masks(space, states)
                assert masks is not None
                mask = masks if actions.ndim == 1 else are_legal(space, masks[:, None], actions[None])
            elif self._reads_states:
                mask = np.ones(shape, np.bool_)
            assert mask is not None
            if mask.shape != shape or not mask.astype(bool).any(axis=1).all():
                raise InvalidBatchError(
                    f"legal_actions: expected shape {shape} with at least one legal action per row, got "
                    f"{_described(mask)}"
                )
            arrays.legal[nodes] = mask.astype(bool)
        if not self.rules.kind.has_priors:
            return
        name = "prior_fn" if config.evaluate_fn is None else "evaluate_fn, priors"
        if priors is None:
            priors = np.ones(shape)
        if priors.shape != shape or not np.isfinite(priors).all() or (priors < 0).any():
            raise InvalidBatchError(
                f"{name}: expected finite numbers of at least 0 of shape {shape}, got {_described(priors)}"
            )
        if self.rules.kind.has_legal:
            priors = priors * arrays.legal[nodes]
        sums = priors.sum(axis=1, keepdims=True)
        if not (sums > 0).all():
            raise InvalidBatchError(
                f"{name}: expected a legal action above 0 in every row, got a row of zeros"
            )
        arrays.priors[nodes] = priors / sums

    def _evaluated(
        self, observations: object, num_rows: int
    ) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        """Return the values `[B]` and priors `[B, A]` that the functions give; None without a function."""
        config = self.config
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
        if values is not None:
            values = np.asarray(values, np.float64)
            if values.shape != (num_rows,) or not np.isfinite(values).all():
                name = "value_fn" if config.evaluate_fn is None else "evaluate_fn, values"
                raise InvalidBatchError(
                    f"{name}: expected finite numbers of shape ({num_rows},), got {_described(values)}"
                )
        return values, None if priors is None else np.array(priors, np.float64)

    def _add_root_noise(self) -> None:
        """Mix Dirichlet noise into the priors at the root, if `root_noise` is given."""
        if self.config.root_noise is None:
            return
        alpha, fraction = self.config.root_noise
        arrays, num_actions = self.tree.arrays, self.tree.num_actions
        legal = arrays.legal[0] if self.rules.kind.has_legal else np.ones(num_actions, bool)
        if not legal.any():
            return  # proven to be lost
        noise = np.zeros(num_actions)
        noise[legal] = self.generator.dirichlet(np.full(int(legal.sum()), alpha))
        arrays.priors[0] = (1 - fraction) * arrays.priors[0] + fraction * noise

    def _draw_actions(self, nodes: NDArray[np.int64]) -> None:
        """Draw the actions of new nodes, if each node has its own."""
        if self.tree.kind.has_own_actions:
            num_actions = self.tree.num_actions
            space, count = self._env.action_space, len(nodes) * num_actions
            drawn = uniform_actions(space, self.generator, count)
            if self._reads_states and self.tree.states is not None:
                masks = action_masks(space, self.tree.states[nodes])
                if masks is not None:
                    uniforms = self.generator.random(drawn.shape)
                    drawn = draw_legal(space, masks.repeat(num_actions, axis=0), uniforms)
            self.tree.actions[nodes] = drawn.reshape(len(nodes), num_actions, *drawn.shape[1:])

    # -- the decision -------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the decision by the statistics of the root."""
        tree, arrays = self.tree, self._arrays
        if arrays.counters[OUT_OF_BOUNDS]:
            raise InvalidBatchError(
                "value_bounds: expected the lowest and the highest return from any state on, got "
                f"{self.config.value_bounds}, and the search found a return outside"
            )
        is_proven = bool(arrays.proven[0])  # all values of actions are exact then
        by_value = self.rules.backs_up_max or is_proven
        halving = self.shared.halving
        by_halving = len(halving.sequence) > 0 and not is_proven
        # by halving, the action with the best score among the most visited ones of this search
        best = halving_action(arrays, halving, -1) if by_halving else tree.best_action(0, by_value)
        visits = arrays.edge_visits[0].astype(np.int64)
        path = tree.principal_variation(by_value, best)
        # Of drawn actions, only those that were tried.
        shown = np.flatnonzero(visits) if tree.kind.has_own_actions else np.arange(tree.num_actions)
        values = np.where(visits > 0, arrays.edge_values[0], np.nan)
        depths = np.flatnonzero(arrays.depth_histogram)
        return Plan(
            action=tree.node_actions(0)[best],
            value=float(values[best]) + 0.0,  # the other player's 0 is -0.0
            root_actions=tree.node_actions(0)[shown].copy(),
            visit_counts=visits[shown],
            action_values=values[shown],
            standard_errors=tree.standard_errors()[shown],
            best_actions=path.actions,
            best_num_steps=path.num_steps,
            best_return=path.total_return,
            depth_histogram=arrays.depth_histogram[: depths[-1] + 1 if len(depths) else 0].copy(),
            search_data=tree,
        )


def _described(array: np.ndarray) -> str:
    """Return the shape and the dtype of an array, and how many of its numbers are not finite."""
    text = f"shape {array.shape}, {array.dtype}"
    if array.dtype.kind == "f":
        for name, wrong in (("NaN", np.isnan(array)), ("inf", np.isinf(array))):
            if wrong.any():
                text += f", {name} at {int(wrong.sum())} of {array.size}"
    return text
