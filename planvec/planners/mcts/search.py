"""One decision of `MCTS` in progress.

    select --> step --> expand --> evaluate --> back up
                 ^         |
                 +---------+  (a sampled outcome that was in the tree already: select on from its node)

Letters: A actions, B rows, K simulations in flight, N nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, empty_paths
from planvec.planners.mcts.backup import back_up
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.evaluation import Evaluation
from planvec.planners.mcts.expansion import expand, init
from planvec.planners.mcts.rollouts import LeafRollouts
from planvec.planners.mcts.rules import MAX_IDLE, OPEN_LOOP, SAMPLE, SINGLE
from planvec.planners.mcts.selection import resume, select
from planvec.planners.mcts.setup import create_tree, list_actions, make_rules
from planvec.planners.mcts.transpositions import TranspositionTable
from planvec.planners.mcts.tree import Tree
from planvec.planners.plan import Plan
from planvec.planners.search import Search, Simulation, StepRequest
from planvec.rows import BatchStepper, Transitions

__all__ = ["TreeSearch"]


class TreeSearch(Search):
    """A search from one root.

    Args:
        config: The settings of the planner.
        env: The stepper.
        state: `[1]`.
        generator: The source of every random choice.
        tree: A tree of the same state to continue, which is copied.
        info: The environment's info at the state, if it is known.
        is_new_root: Whether to add noise at the root. A search that continues has added it before.

    Attributes:
        config: The settings of the planner.
        rules: The settings of the kernels.
        root_state: `[1]`.
        tree: The tree.
        paths: The paths of the simulations in flight.
        halves: Their slots in two halves; one half if there is one slot.
        foresees_chance: Whether the generator in a state decides about chance.
        generator: The source of every random choice.
    """

    def __init__(
        self,
        config: MCTSConfig,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        tree: Tree | None,
        info: dict[str, Any] | None,
        is_new_root: bool = True,
    ) -> None:
        self.config = config
        self._limit = config.simulation_limit
        self._env = env
        self.generator = generator
        listed = list_actions(env.action_space)
        self.rules = make_rules(config, env, listed is not None, int(generator.integers(2**62)))
        self.root_state = state
        self.tree = create_tree(config, env, state, self.rules, listed, tree)
        self._arrays = self.tree.arrays
        self._evaluation = Evaluation(config, env, self.tree, self.rules, generator)
        if tree is None:
            init(self._arrays, self.rules)
            if self.tree.states is not None:
                self.tree.states[:1] = state
            self._evaluation.evaluate_root(state, info)
        if is_new_root:
            self._evaluation.add_root_noise()
        self.foresees_chance = env.is_stochastic and self.rules.chance == SINGLE
        self._rollouts = LeafRollouts(config, env, self.rules, generator)
        self._unevaluated = set[int]()  # nodes of an open loop where the episode ended each time so far
        self.paths = empty_paths(config.batch_size, config.max_depth)
        self.halves = np.array_split(np.arange(config.batch_size), min(2, config.batch_size))
        self._free = self.halves[::-1]
        self.num_in_flight = len(self.halves)
        self._num_started = self._num_idle = 0

    @functools.cached_property
    def _table(self) -> TranspositionTable:
        """The transposition table."""
        return TranspositionTable(self.tree, self.rules, self.config.transpositions, self.foresees_chance)

    # -- simulations --------------------------------------------------------------------------------

    def simulate(self) -> Simulation:
        """Run the simulations of one half of the slots."""
        slots = self._free.pop()
        try:
            yield from self._simulate(slots)
        finally:
            self._free.append(slots)

    def _simulate(self, slots: NDArray[np.int64]) -> Simulation:
        """Run simulations whose paths are in these rows of `_paths`."""
        num_allowed = self._num_allowed()
        if num_allowed <= 0:
            return
        slots = slots[:num_allowed]
        statuses = np.empty(len(slots), np.int64)
        count = select(self._arrays, self.paths, slots, statuses, self.rules)
        if not count:
            return  # every action worth a simulation is in flight
        slots, statuses = slots[:count], statuses[:count]
        self._num_started += count
        is_new = np.zeros(count, bool)  # whether the last node is new
        own_states = np.repeat(self.root_state, count) if self.tree.states is None else None
        ended = np.zeros(count, bool)  # whether the episode has ended
        stepping = np.flatnonzero(statuses == SAMPLE)
        self._num_idle = 0 if len(stepping) else self._num_idle + count
        while len(stepping):
            own = None if own_states is None else own_states[stepping]
            out = yield self._step_request(slots[stepping], own)
            if own_states is not None:
                own_states[stepping] = out.new_states
                ended[stepping] = out.terminated | out.truncated
            is_new[stepping], goes_on = self._expand(slots[stepping], out)
            stepping = stepping[goes_on]
            if len(stepping):
                statuses = np.empty(len(stepping), np.int64)
                resume(self._arrays, self.paths, slots[stepping], statuses, self.rules)
                stepping = stepping[statuses == SAMPLE]
        if own_states is None:
            ended = self._arrays.ended[self._last_nodes(slots)]
        leaf_values = yield from self._leaf_values(slots, is_new, ended, own_states)
        back_up(self._arrays, self.paths, slots, leaf_values, self.rules)
        self.num_simulations += count

    def _leaf_values(
        self,
        slots: NDArray[np.int64],
        is_new: NDArray[np.bool_],
        ended: NDArray[np.bool_],
        own_states: NDArray[Any] | None,
    ) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the values `[B]` of the last nodes of simulations; a generator that yields rollout requests.

        With rollouts, a simulation makes a rollout if its last node is new, at the largest depth, or waiting
        for the rollout of another simulation. Any other one reached a node that another simulation has
        evaluated, whose value it takes.

        Args:
            slots: `[B]`, the rows of the paths.
            is_new: `[B]`, whether the last node is new.
            ended: `[B]`, whether the episode has ended.
            own_states: `[B]`, the states of an open loop; None: those of the nodes.
        """
        arrays, nodes = self._arrays, self._last_nodes(slots)
        is_deepest = self.paths.depths[slots] >= self.config.max_depth
        needed = ~ended & (is_new | arrays.pending[nodes] | is_deepest)
        values = (arrays.values if self.rules.backs_up_values else arrays.raw_values)[nodes]
        values[ended] = 0.0
        if self.config.rollout_steps and needed.any():
            states = self._states_of(nodes[needed]) if own_states is None else own_states[needed]
            values[needed] = yield from self._rollouts.returns(states)
            new = is_new & ~ended
            new_nodes = nodes[new]
            arrays.raw_values[new_nodes] = values[new]
            # Other simulations may have passed meanwhile; the value is then a mean without this one.
            arrays.values[new_nodes] += values[new] / (arrays.visits[new_nodes] + 1)
            arrays.pending[new_nodes] = False
        elif self.config.value_fn is not None and own_states is not None and needed.any():
            # A node of an open loop stands for many states.
            observations = self._env.observe(own_states[needed])
            values[needed] = self._evaluation.values_of(observations, int(needed.sum()))
        return values

    def _num_allowed(self) -> int:
        """Return how many simulations may begin; set `stop_reason` where it is 0 from now on."""
        if self._limit is not None and self._num_started >= self._limit:
            self.stop_reason = "num_simulations"
            return 0
        free = len(self._arrays.visits) - max(self._arrays.counters[: NUM_OUTCOMES + 1])
        free -= self._num_started - self.num_simulations
        if free <= 0 and self._num_started == self.num_simulations:
            self.stop_reason = "max_memory"
        if self._num_idle >= MAX_IDLE and self._limit is None:
            self.stop_reason = "exhausted"
            return 0
        remaining = free if self._limit is None else self._limit - self._num_started
        return int(min(free, remaining))

    def _step_request(self, slots: NDArray[np.int64], own_states: NDArray[Any] | None) -> StepRequest:
        """Return the request to take the last action of each path."""
        nodes = self._last_nodes(slots)
        edges = self.paths.actions[slots, self.paths.depths[slots]]
        tree = self.tree
        actions = tree.actions[nodes, edges] if tree.kind.has_own_actions else tree.actions[edges]
        states = self._states_of(nodes) if own_states is None else own_states
        return StepRequest(
            actions, states, np.full(len(slots), self.config.dt), self._rollouts.seeds(len(slots))
        )

    def _last_nodes(self, slots: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the last node `[B]` of each path."""
        nodes: NDArray[np.int32] = self.paths.nodes[slots, self.paths.depths[slots]]
        return nodes

    def _states_of(self, nodes: NDArray[np.int32]) -> NDArray[Any]:
        assert self.tree.states is not None
        states: NDArray[Any] = self.tree.states[nodes]
        return states

    # -- expansion ----------------------------------------------------------------------------------

    def _expand(
        self, slots: NDArray[np.int64], out: Transitions
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Add transitions to the tree and evaluate new nodes.

        Args:
            slots: `[B]`, the rows of the paths.
            out: The transitions.

        Returns:
            `[B]` whether the transition added a node; `[B]` whether the selection goes on from its node.
        """
        num_nodes = int(self._arrays.counters[NUM_NODES])
        num_outcomes = int(self._arrays.counters[NUM_OUTCOMES])
        ended = out.terminated | out.truncated
        edges = self.paths.actions[slots, self.paths.depths[slots]]
        outcomes, nodes = self._table.look_up(self._last_nodes(slots), edges, out)
        num_steps = out.infos["num_steps"]
        discounts = float(self.config.discount) ** num_steps
        expand(
            self._arrays,
            self.paths,
            slots,
            outcomes,
            nodes,
            out.rewards,
            discounts,
            num_steps,
            ended,
            self.rules,
        )
        is_new = np.zeros(len(slots), bool)
        is_new[np.unique(nodes, return_index=True)[1]] = True
        is_new &= nodes >= num_nodes
        rows = np.flatnonzero(is_new)
        if len(rows):
            if self.tree.states is not None:
                assert out.new_states is not None
                self.tree.states[nodes[rows]] = out.new_states[rows]
            self._evaluation.draw_actions(nodes[rows])
        rows = self._rows_to_evaluate(nodes, is_new, ended)
        self._evaluation.evaluate(nodes[rows], rows, out)
        goes_on = ~is_new & ~ended
        if self.rules.chance != OPEN_LOOP:
            # A new outcome that leads to a known node ends the simulation with the value of that node.
            goes_on &= outcomes < num_outcomes
        return is_new, goes_on

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

    # -- the decision -------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Return the decision by the statistics of the root."""
        tree, arrays = self.tree, self._arrays
        by_value = self.rules.backs_up_max
        best = tree.best_action(0, by_value)
        visits = arrays.edge_visits[0].astype(np.int64)
        path = tree.principal_variation(by_value)
        # Of drawn actions, only those that were tried.
        shown = np.flatnonzero(visits) if tree.kind.has_own_actions else np.arange(tree.num_actions)
        values = np.where(visits > 0, arrays.edge_values[0], np.nan)
        depths = np.flatnonzero(arrays.depth_histogram)
        return Plan(
            action=tree.node_actions(0)[best],
            value=float(values[best]),
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
