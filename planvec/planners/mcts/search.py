"""One decision of `MCTS` in progress.

Compiled functions run the simulations (`planvec.planners.mcts.simulations.half`). Between two calls of them,
this class requests steps and rollouts, and calls the functions of the user.

Letters: B rows, K simulations in flight.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.adaptation import Choice
from planvec.planners.mcts.arrays import OUT_OF_BOUNDS, empty_paths
from planvec.planners.mcts.evaluation import Evaluation
from planvec.planners.mcts.expansion import init
from planvec.planners.mcts.halving import begin_halving, final_action
from planvec.planners.mcts.rollouts import LeafRollouts
from planvec.planners.mcts.rules import OPEN_LOOP, SINGLE
from planvec.planners.mcts.setup import create_tree, make_rules
from planvec.planners.mcts.simulations.memory import Simulations
from planvec.planners.mcts.simulations.progress import LEAVES, NONE, PERFORM, Steps
from planvec.planners.mcts.transpositions import TranspositionTable
from planvec.planners.mcts.tree import Tree
from planvec.planners.plan import Plan
from planvec.planners.root_actions import list_actions
from planvec.planners.search import Search, Simulation, StepRequest
from planvec.rows import PLAYER_FIELD, BatchStepper, Transitions, has_players


class TreeSearch(Search):
    """A search from one root."""

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
