"""One decision of `MCTS` in progress.

Compiled functions run the simulations (`planvec.planners.mcts.simulations`). Between two calls of them,
this class requests steps and rollouts, and calls the functions of the user.

Letters: A actions, B rows, H steps.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Hashable
from typing import Any, NoReturn

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.kernels import Pointer, bytes_of
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.setup import create_tree, make_rules, observation_keys, tree_kind
from planvec.planners.mcts.simulations import (
    INVALID,
    LEAVES,
    NONE,
    PERFORM,
    STOP_REASONS,
    Steps,
    abandon,
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
    take_evaluations,
    take_values,
)
from planvec.planners.mcts.tree import OPEN_LOOP, OUT_OF_BOUNDS, ROOT_WEIGHT, SINGLE, Tree
from planvec.planners.plan import Plan
from planvec.planners.root_actions import draw_action, list_actions
from planvec.planners.search import EvaluationRequest, RolloutRequest, Search, Simulation, StepRequest
from planvec.rows import (
    ACTION_MASK_FIELD,
    BatchStepper,
    Transitions,
    action_masks,
    are_legal,
    draw_legal,
    empty_rows,
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

    averages = may_be_cut = True

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
        kind = tree_kind(config, env, listed is None, choice)
        rules = make_rules(config, kind, state, listed, int(generator.integers(2**62)))
        self.root_state = state
        self.tree = create_tree(config, env, state, kind, listed, tree)
        self._arrays = self.tree.arrays
        self._is_new_tree, self._is_new_root, self._info = tree is None, is_new_root, info
        # whether the states hold the masks of legal actions
        is_key = config.legal_actions == ACTION_MASK_FIELD
        self._reads_states = is_key and action_masks(env.action_space, state) is not None
        self._functions = config.evaluate_fn, config.value_fn, config.prior_fn
        self._has_functions = self._functions != (None, None, None)
        # Compiled code writes the evaluations of new nodes if it knows which actions are legal.
        reads_masks = rules.mask_at >= 0 and self._reads_states
        knows_legal = config.legal_actions is None or reads_masks
        evaluates = self._has_functions and knows_legal and kind.chance != OPEN_LOOP
        self.rules = rules = rules._replace(evaluates=evaluates)  # the settings of compiled code
        if tree is None:
            init(self._arrays, rules)
            if self.tree.states is not None:
                self.tree.states[:1] = state
            players = players_to_move(state)
            if players is not None:
                self._arrays.players[0] = players[0] == 1
            self._draw_actions(np.zeros(1, np.int64))
        # whether the generator in a state decides about chance
        self._foresees_chance = env.is_stochastic and kind.chance == SINGLE
        self._unevaluated = set[int]()  # nodes of an open loop where the episode ended each time so far
        self._parts = compared_parts(config.transpositions, state.dtype, kind, self._foresees_chance)
        self._numbers: dict[Hashable, int] = {}  # of the keys of states, where these are compared by keys
        self.num_in_flight = min(2, config.batch_size)
        self._free = [*range(self.num_in_flight)][::-1]
        has_bytes = rules.state_bytes > 0
        has_own = kind.chance == OPEN_LOOP and not has_bytes
        self._own_states = np.repeat(state, config.batch_size) if has_own else None
        # Whether nothing in Python takes part in the expansion of the tree but functions that evaluate new
        # nodes. Without a function, uniform priors of the legal actions are written in Python.
        has_others = self._has_functions or (
            config.legal_actions is not None and (kind.has_priors or not reads_masks)
        )
        needs_python = kind.has_own_actions or self._parts is None or (has_others and not evaluates)
        self.is_plain = has_bytes and not needs_python
        # memory for the observations `[K, ...]` of a compiled search whose nodes functions evaluate
        self.observations = np.empty(0, np.uint8)
        if self.is_plain and evaluates and is_fixed(env.observation_space):
            rows = empty_rows(env.observation_space, config.batch_size)
            self.observations = rows if isinstance(rows, np.ndarray) else self.observations
        self.has_entered = False  # see `enter_roots`
        self.evaluates_root = tree is None and (self._has_functions or callable(config.legal_actions))
        # what `evaluated` returns without a function
        self._num_actions = self.tree.num_actions
        self.no_values, self.no_priors = np.empty(0), np.empty((0, self._num_actions))

    def enter(self, observation: object, values: NDArray[np.float64], priors: NDArray[np.float64]) -> None:
        """Begin the search at its root. The arguments are those of a new tree; see `enter_roots`."""
        config, root, key = self.config, np.zeros(1, np.int64), self.config.legal_actions
        self.has_entered = True
        if self._is_new_tree:
            mask = np.ones((1, self.tree.num_actions), bool)
            if isinstance(key, str) and not self._reads_states and self._info and key in self._info:
                mask = np.asarray(self._info[key])[None]
            self._arrays.counters[ROOT_WEIGHT] = config.has_values
            self._write_evaluations(root, self.root_state, observation, mask, values, priors)
        if self._is_new_root:
            self._add_root_noise()
        halving = begin_halving(config, self.tree, self.generator)
        self.shared = new_shared(config, self.rules, self.tree, self.root_state, halving, self._parts)
        self.memory = Pointer(self.shared)  # what all compiled functions work on
        if self._parts is None:
            used = self.tree.num_nodes
            keys = self._keys(self.tree.saved_states, None, self._arrays.ended[:used])
            self.shared.table.keys[: len(keys)] = keys
        if not self.tree.kind.is_tree:
            call(enter_tree, self.memory)

    # -- simulations --------------------------------------------------------------------------------

    def simulate(self) -> Simulation:
        """Run the simulations of one half of the slots."""
        if not self.has_entered:  # it is run by somebody else's planner
            enter_roots(self._env, [self])
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
                    yield from self._add_steps(half, out)
                    status = call(go_on, self.memory, half)
            self.num_simulations = int(counts["num_simulations"])
        except GeneratorExit:  # time is up
            call(abandon, self.memory, half)
            raise
        finally:
            self._free.append(half)

    def rows_of(self, half: int) -> slice:
        """Return the rows of the request of a half, among those of all slots."""
        first, _, _, _, num_rows, *_ = self.shared.halves.item(half)
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
            observations = self._env.observe(states)
            values, _ = yield EvaluationRequest(self.evaluated, observations, len(states))
            checked: NDArray[np.float64] = values
            return checked
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

    def _add_steps(self, half: int, out: Transitions) -> Generator[Any, Any, None]:
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
        if self._parts is None:
            keys = self._keys(out.new_states, out.observations, out.terminated | out.truncated)
        call(add_steps, self.memory, steps, keys, half)
        if self.is_plain and not self.rules.evaluates:
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
        evaluated, kind, key = np.flatnonzero(chosen), self.rules.kind, self.config.legal_actions
        if not len(evaluated) or not (self._has_functions or kind.has_legal or kind.has_priors):
            return
        mask = None
        if isinstance(key, str) and not self._reads_states:
            if key not in out.infos:
                raise InvalidBatchError(
                    f"legal_actions: expected the key of an info, got {key!r}, which is not among "
                    f"{sorted(out.infos)}; pass it to make(info_keys=...), or pass a function"
                )
            mask = np.stack(list(out.infos[key][evaluated]))
        observations = out.observations
        if len(evaluated) < len(nodes):  # else a copy of large observations would be for nothing
            observations = _some_rows(self._env.observation_space, observations, evaluated)
        values, priors = self.no_values, self.no_priors
        if self._has_functions:
            values, priors = yield EvaluationRequest(self.evaluated, observations, len(evaluated))
        if not self.rules.evaluates:
            states = out.new_states[evaluated]
            self._write_evaluations(nodes[evaluated], states, observations, mask, values, priors)
        elif call(take_evaluations, self.memory, values, priors, half) == INVALID:
            self.refuse(values, priors)

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

    def evaluated(
        self, observations: object, num_rows: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the values `[B]` and priors `[B, A]` of the functions; `[0]` and `[0, A]` without one."""
        # It is called for every simulation where one is in flight: each line counts.
        evaluate_fn, value_fn, prior_fn = self._functions
        values: Any = self.no_values
        priors: Any = self.no_priors
        if evaluate_fn is not None:
            pair = evaluate_fn(observations)
            if not (isinstance(pair, (tuple, list)) and len(pair) == 2):
                got = f"{len(pair)} parts" if isinstance(pair, (tuple, list)) else type(pair).__name__
                raise InvalidBatchError(f"evaluate_fn: expected a tuple (values, priors), got {got}")
            values, priors = pair
        if value_fn is not None:
            values = value_fn(observations)
        if prior_fn is not None:
            priors = prior_fn(observations)
        if values is not self.no_values:
            values = np.asarray(values, np.float64, "C")
            if values.shape != (num_rows,):
                self._refuse_values(values, num_rows)
        if priors is not self.no_priors:
            priors = np.asarray(priors, np.float64, "C")
            if priors.shape != (num_rows, self._num_actions):
                self._refuse_priors(priors, num_rows)
        return values, priors

    def refuse(self, values: NDArray[np.float64], priors: NDArray[np.float64]) -> NoReturn:
        """Raise an error that says what is wrong with the evaluations of new nodes."""
        if not np.isfinite(values).all():
            self._refuse_values(values, len(values))
        self._refuse_priors(priors, len(priors))

    def _refuse_values(self, values: NDArray[np.float64], num_rows: int) -> NoReturn:
        name = "value_fn" if self.config.evaluate_fn is None else "evaluate_fn, values"
        raise InvalidBatchError(
            f"{name}: expected finite numbers of shape ({num_rows},), got {_described(values)}"
        )

    def _refuse_priors(self, priors: NDArray[np.float64], num_rows: int) -> NoReturn:
        name = "prior_fn" if self.config.evaluate_fn is None else "evaluate_fn, priors"
        shape = (num_rows, self.tree.num_actions)
        if priors.shape != shape or not np.isfinite(priors).all() or (priors < 0).any():
            raise InvalidBatchError(
                f"{name}: expected finite numbers of at least 0 of shape {shape}, got {_described(priors)}"
            )
        raise InvalidBatchError(f"{name}: expected a legal action above 0 in every row, got a row of zeros")

    def _write_evaluations(
        self,
        nodes: NDArray[np.int64],  # `[B]`
        states: np.ndarray,
        observations: object,
        mask: np.ndarray | None,  # `[B, A]`, the legal actions, where an info holds them
        values: NDArray[np.float64],
        priors: NDArray[np.float64],
    ) -> None:
        """Write values, legal actions and priors of nodes, as `take_evaluations` does in compiled code."""
        config, arrays, shape = self.config, self._arrays, (len(nodes), self.tree.num_actions)
        if config.has_values:
            if not np.isfinite(values).all():
                self._refuse_values(values, len(nodes))
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
        priors = priors if config.has_priors else np.ones(shape)
        legal = arrays.legal[nodes] if self.rules.kind.has_legal else True
        weights = priors * legal
        sums = weights.sum(axis=1, keepdims=True)
        if not (np.isfinite(priors).all() and (priors >= 0).all() and (sums > 0).all()):
            self._refuse_priors(priors, len(nodes))
        arrays.priors[nodes] = weights / sums

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
        if not arrays.edge_visits[0].any():  # there was no time for a simulation
            return self._plan_without()
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

    def _plan_without(self) -> Plan:
        """Return the decision where no simulation was completed: the action with the highest prior."""
        kind, actions = self.tree.kind, self.tree.node_actions(0)
        legal = self._arrays.legal[0] if kind.has_legal else np.ones(len(actions), bool)
        if kind.has_own_actions or not legal.any():  # these were drawn among the legal ones, if at all
            return Plan(draw_action(self._env, self.root_state, self.generator), math.nan)
        scores = self._arrays.priors[0] if kind.has_priors else self.generator.random(len(actions))
        best = int(np.where(legal, scores, -1.0).argmax())
        return Plan(actions[best], math.nan, search_data=self.tree)


def enter_roots(env: BatchStepper, searches: list[TreeSearch]) -> None:
    """Begin searches at their roots, which functions of the user evaluate in one call."""
    new = [search for search in searches if search.evaluates_root]
    observations: Any = None
    if new:
        first = new[0]  # all have the same functions
        observations = env.observe(np.concatenate([search.root_state for search in new]))
        values, priors = first.evaluated(observations, len(new))
    for search in searches:
        if not search.evaluates_root:
            search.enter(None, search.no_values, search.no_priors)
    for row, search in enumerate(new):
        observation = _some_rows(env.observation_space, observations, np.array([row]))
        search.enter(observation, values[row : row + 1], priors[row : row + 1])


def _some_rows(space: Space[Any], observations: Any, rows: NDArray[np.int64]) -> Any:
    """Return some of the observations of a batch."""
    if is_fixed(space):
        return take_rows(observations, rows)
    return finish_rows(space, [take_row(space, observations, row) for row in rows.tolist()])


def _described(array: np.ndarray) -> str:
    """Return the shape and the dtype of an array, and how many of its numbers are not finite."""
    text = f"shape {array.shape}, {array.dtype}"
    if array.dtype.kind == "f":
        for name, wrong in (("NaN", np.isnan(array)), ("inf", np.isinf(array))):
            if wrong.any():
                text += f", {name} at {int(wrong.sum())} of {array.size}"
    return text
