"""One decision of `MCTS` in progress.

Compiled functions run the simulations (`planvec.planners.mcts.simulations`). Between two calls of them,
this class requests steps and rollouts, and calls the functions of the user.

Letters: B rows, K simulations in flight.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.adaptation import Choice, observation_keys
from planvec.planners.mcts.arrays import (
    NUM_NODES,
    NUM_OUTCOMES,
    OPEN_LOOP,
    OUT_OF_BOUNDS,
    ROOT_WEIGHT,
    SINGLE,
    Rules,
    empty_paths,
)
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.memory import Simulations
from planvec.planners.mcts.phases import begin_halving, final_action, init
from planvec.planners.mcts.setup import create_tree, make_rules
from planvec.planners.mcts.simulations import LEAVES, NONE, PERFORM, Steps
from planvec.planners.mcts.tree import Tree
from planvec.planners.plan import Plan
from planvec.planners.root_actions import list_actions
from planvec.planners.search import RolloutRequest, Search, Simulation, StepRequest
from planvec.rows import (
    ACTION_MASK_FIELD,
    PLAYER_FIELD,
    BatchStepper,
    Transitions,
    action_masks,
    are_legal,
    draw_legal,
    finish_rows,
    has_action_masks,
    has_players,
    is_fixed,
    state_keys,
    take_row,
    take_rows,
    uniform_actions,
)

# -- Evaluation of new nodes by the user's functions: values, priors, legal actions.
#
# Letters: A actions, B nodes.


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


# -- Rollouts from new nodes of a search tree. Letters: B states, H steps ------------------------------------


class LeafRollouts:
    """Requests rollouts from states, by random actions or by the user's policy."""

    def __init__(
        self, config: MCTSConfig, env: BatchStepper, rules: Rules, generator: np.random.Generator
    ) -> None:
        self._config = config
        self._env = env
        self._has_seeds = rules.chance != SINGLE
        self._generator = generator

    def seeds(self, num_rows: int) -> NDArray[np.uint64] | None:
        """Draw the seeds `[num_rows]` of a batch; None where a step has one outcome."""
        if not self._has_seeds:
            return None
        return self._generator.integers(0, 2**64, num_rows, dtype=np.uint64)

    def returns(self, states: NDArray[Any]) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the discounted returns `[B]` of a rollout from each state. Yields requests."""
        # `states`: `[B]`.
        if self._config.rollout_policy is not None:
            return (yield from self._policy_returns(states))
        config = self._config
        if config.dt > 1 and has_action_masks(states):
            return (yield from self._legal_returns(states))
        action_seed = int(self._generator.integers(2**63))
        seeds = self.seeds(len(states))
        actions = self._repeated_actions(len(states)) if config.dt > 1 else None
        out = yield RolloutRequest(states, config.rollout_steps, actions, action_seed, seeds, config.discount)
        returns: NDArray[np.float64] = out.returns
        return returns

    def _policy_returns(self, states: NDArray[Any]) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the returns `[B]` of rollouts by `rollout_policy`; a generator that yields requests."""
        config = self._config
        assert config.rollout_policy is not None
        returns, discounts = np.zeros(len(states)), np.ones(len(states))
        observations = self._env.observe(states)
        for _ in range(config.rollout_steps):
            actions = np.asarray(config.rollout_policy(observations))
            num_steps = np.ones(len(states), np.int64)
            out = yield StepRequest(actions, states, num_steps, self.seeds(len(states)))
            returns += discounts * out.rewards
            discounts *= config.discount
            states, observations = out.new_states, out.observations
            if (out.terminated | out.truncated).all():
                break
        return returns

    def _legal_returns(self, states: NDArray[Any]) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the returns `[B]` of random legal actions that are repeated; a generator of requests."""
        config, space = self._config, self._env.action_space
        returns, discounts = np.zeros(len(states)), np.ones(len(states))
        for first in range(0, config.rollout_steps, config.dt):
            masks = action_masks(space, states)
            assert masks is not None
            uniforms = self._generator.random((len(states), *(space.shape or ())))
            dt = min(config.dt, config.rollout_steps - first)
            actions, seeds = draw_legal(space, masks, uniforms), self.seeds(len(states))
            out = yield StepRequest(actions, states, dt, seeds)
            returns += discounts * out.rewards
            discounts *= float(config.discount) ** out.infos["num_steps"]
            states = out.new_states
            if (out.terminated | out.truncated).all():
                break
        return returns

    def _repeated_actions(self, num_rows: int) -> NDArray[Any]:
        """Draw random actions `[num_rows, H, *action shape]`, each repeated for `dt` steps."""
        horizon, dt = self._config.rollout_steps, self._config.dt
        num_drawn = -(-horizon // dt)
        drawn = uniform_actions(self._env.action_space, self._generator, num_rows * num_drawn)
        repeated = drawn.reshape(num_rows, num_drawn, *drawn.shape[1:]).repeat(dt, axis=1)
        return repeated[:, :horizon]


# -- The transposition table: finds the nodes of states that are in the tree already. Letters: B rows --------

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


# -- One decision --------------------------------------------------------------------------------------------


class TreeSearch(Search):
    """A search from one root."""

    # `tree`: one of the same state, which is copied; `is_new_root`: add noise (a search that continues has
    # it).

    averages = True

    def __init__(
        self,
        choice: Choice,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        tree: Tree | None,
        info: dict[str, Any] | None,
        is_new_root: bool = True,
    ) -> None:
        config = choice.config
        self.config = config  # the settings of the planner
        self.num_env_steps = choice.num_env_steps
        self._env = env
        self.generator = generator  # the source of every random choice
        listed = list_actions(env.action_space)
        # the settings of the kernels
        self.rules = make_rules(config, env, listed is not None, int(generator.integers(2**62)))
        self.root_state = state
        self.tree = create_tree(config, env, state, self.rules, listed, tree, choice.number)
        self._arrays = self.tree.arrays
        self._evaluation = Evaluation(config, env, self.tree, self.rules, generator, state)
        if tree is None:
            init(self._arrays, self.rules)
            if self.tree.states is not None:
                self.tree.states[:1] = state
            if has_players(state.dtype):
                self._arrays.players[0] = state[PLAYER_FIELD][0] == 1
            self._evaluation.evaluate_root(state, info)
        if is_new_root:
            self._evaluation.add_root_noise()
        halving = begin_halving(config, self.tree, generator)
        # whether the generator in a state decides about chance
        self.foresees_chance = env.is_stochastic and self.rules.chance == SINGLE
        self._rollouts = LeafRollouts(config, env, self.rules, generator)
        self._unevaluated = set[int]()  # nodes of an open loop where the episode ended each time so far
        # the paths of the simulations in flight
        self.paths = empty_paths(config.batch_size, config.max_depth)
        halves = np.array_split(np.arange(config.batch_size), min(2, config.batch_size))
        self._free = [*range(len(halves))][::-1]
        self.num_in_flight = len(halves)
        # the simulations in flight
        self.simulations = Simulations(
            config, self.rules, self.tree, self.paths, state, halves, self.foresees_chance, halving
        )
        is_open_loop = self.rules.chance == OPEN_LOOP
        has_own = is_open_loop and not self.simulations.has_bytes
        self._own_states = np.repeat(state, config.batch_size) if has_own else None
        self._is_plain = self.is_plain

    @property
    def is_plain(self) -> bool:
        """Whether nothing in Python takes part in the expansion of the tree."""
        config = self.config
        has_masks = self.simulations.shared.limits.mask_at >= 0 and self._evaluation.reads_states
        has_masks &= not self.rules.use_priors  # those of legal ones differ
        has_functions = config.has_values or config.has_priors
        has_functions |= config.legal_actions is not None and not has_masks
        return (
            self.simulations.finds_outcomes
            and self.simulations.has_bytes
            and not (has_functions or self.tree.kind.has_own_actions)
        )

    @functools.cached_property
    def _table(self) -> TranspositionTable:
        """The transposition table, where the keys of states are objects."""
        shared = self.config.transpositions or False
        return TranspositionTable(self._env, self.tree, self.rules, shared, self.foresees_chance)

    # -- simulations --------------------------------------------------------------------------------

    def simulate(self) -> Simulation:
        """Run the simulations of one half of the slots."""
        half = self._free.pop()
        try:
            yield from self._simulate(half)
        finally:
            self._free.append(half)

    def _simulate(self, half: int) -> Simulation:
        simulations = self.simulations
        status = simulations.begin(half)
        self.stop_reason = simulations.stop_reason
        if status == NONE:
            return  # a limit was reached, or every action worth a simulation is in flight
        if self._own_states is not None:
            self._own_states[self._slots(half)] = self.root_state
        while status == PERFORM:
            if simulations.progress.stages[half] == LEAVES:
                values = yield from self._leaf_values(half)
                status = simulations.take_values(half, values)
            else:
                out = yield self._step_request(half)
                steps = simulations.steps_of(out)
                if self._is_plain:
                    status = simulations.take_steps(half, steps)
                else:
                    status = self._take(half, steps, out)
        self.num_simulations = simulations.num_simulations

    def _step_request(self, half: int) -> StepRequest:
        """Return the request to take the last action of each path of a half."""
        rows = self.simulations.rows(half)
        if self.tree.kind.has_own_actions:
            slots = self.simulations.progress.rows[rows]
            actions = self.tree.actions[self._last_nodes(slots), self._last_actions(slots)]
        else:
            actions = self.simulations.actions_of(rows)
        seeds = self._rollouts.seeds(rows.stop - rows.start)
        return StepRequest(actions, self._states(rows), self.config.dt, seeds)

    def _leaf_values(self, half: int) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the values `[B]` that a half asks for; a generator that yields requests for rollouts."""
        rows = self.simulations.rows(half)
        states = self._states(rows)
        if self.config.rollout_steps:
            return (yield from self._rollouts.returns(states))
        # A node of an open loop stands for many states.
        return self._evaluation.values_of(self._env.observe(states), len(states))

    def _take(self, half: int, steps: Steps, out: Transitions) -> int:
        """Add the steps of a half to the tree, let the user's functions evaluate new nodes, and continue."""
        simulations, progress = self.simulations, self.simulations.progress
        rows = simulations.rows(half)
        slots = progress.rows[rows].copy()
        simulations.orient(half, steps)
        if simulations.finds_outcomes:
            simulations.find_outcomes(half, steps)
        else:
            taken = out._replace(rewards=steps.rewards)
            found = self._table.look_up(self._last_nodes(slots), self._last_actions(slots), taken)
            progress.outcomes[rows], progress.nodes[rows] = found
        num_going_on = simulations.expand(half, steps)
        nodes, is_new, ended = progress.nodes[rows], progress.is_new[slots], progress.ends[rows]
        if self._own_states is not None:
            self._own_states[slots] = out.new_states
        elif self.tree.states is not None:
            assert out.new_states is not None
            self.tree.states[nodes[is_new]] = out.new_states[is_new]
        self._evaluation.draw_actions(nodes[is_new])
        evaluated = self._rows_to_evaluate(nodes, is_new, ended)
        self._evaluation.evaluate(nodes[evaluated], evaluated, out)
        return simulations.go_on(half, num_going_on)

    def _rows_to_evaluate(
        self, nodes: NDArray[np.int64], is_new: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """Return the rows whose nodes to evaluate: the first at each node with an episode that goes on."""
        chosen = is_new & ~ended
        if self.rules.chance == OPEN_LOOP:
            self._unevaluated.update(nodes[is_new & ended].tolist())
            if self._unevaluated:
                for row in np.flatnonzero(~ended).tolist():
                    if nodes[row] in self._unevaluated:
                        self._unevaluated.discard(int(nodes[row]))
                        chosen[row] = True
        return np.flatnonzero(chosen)

    # -- states and paths ---------------------------------------------------------------------------

    def _slots(self, half: int) -> slice:
        """Return the slots of the simulations of a half."""
        progress = self.simulations.progress
        first = int(progress.bounds[half])
        return slice(first, first + int(progress.counts[half]))

    def _states(self, rows: slice) -> NDArray[Any]:
        """Return the states `[B]` of the rows of a request."""
        if self.simulations.has_bytes:
            return self.simulations.states(rows)
        slots = self.simulations.progress.rows[rows]
        if self._own_states is not None:
            own: NDArray[Any] = self._own_states[slots]
            return own
        assert self.tree.states is not None
        states: NDArray[Any] = self.tree.states[self._last_nodes(slots)]
        return states

    def _last_nodes(self, slots: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the last node `[B]` of each path."""
        nodes: NDArray[np.int32] = self.paths.nodes[slots, self.paths.depths[slots]]
        return nodes

    def _last_actions(self, slots: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the index `[B]` of the last action of each path."""
        actions: NDArray[np.int32] = self.paths.actions[slots, self.paths.depths[slots]]
        return actions

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
        halving = self.simulations.shared.halving
        by_halving = len(halving.sequence) > 0 and not is_proven
        best = final_action(arrays, halving) if by_halving else tree.best_action(0, by_value)
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
