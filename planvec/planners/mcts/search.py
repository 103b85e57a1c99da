"""One decision of `MCTS` under way: what happens between selecting simulations and backing them up.

    select --> step --> attach --> evaluate --> back_up
                 ^        |
                 +--------+  (a sampled outcome that was there before: go on down from it)

Letters: A actions, B rows, K simulations in flight, N nodes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.driver import RolloutRequest, Search, Simulation, StepRequest
from planvec.planners.mcts import backup, kernels
from planvec.planners.mcts.arrays import NUM_NODES, NUM_OUTCOMES, OPEN_LOOP, SAMPLE, SINGLE, empty_paths
from planvec.planners.mcts.evaluation import Evaluation
from planvec.planners.mcts.opening import list_actions, make_rules, open_tree
from planvec.planners.mcts.places import Places
from planvec.planners.mcts.tree import Tree
from planvec.planners.plan import Plan
from planvec.rows import BatchStepper, Transitions
from planvec.rows.random_actions import uniform_actions

if TYPE_CHECKING:
    from planvec.planners.mcts.mcts import MCTS

__all__ = ["TreeSearch"]

_MAX_IDLE = 10_000
"""Simulations in a row that met nothing but known ends: the tree is exhausted."""


class TreeSearch(Search):
    """A search from one root.

    Args:
        config: What to go by.
        env: The stepper.
        state: `[1]`.
        generator: For every random choice.
        tree: What is known of the state already; it is copied.
        info: The environment's info at the state, if it is at hand.
        is_new_root: Whether noise belongs at the root; not where a search of it goes on.
    """

    def __init__(
        self,
        config: MCTS,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        tree: Tree | None,
        info: dict[str, Any] | None,
        is_new_root: bool = True,
    ) -> None:
        self._config = config
        self._limit = config.simulation_limit
        self._env = env
        self._generator = generator
        listed = list_actions(env.action_space)
        self._rules = make_rules(config, env, listed is not None, int(generator.integers(2**62)))
        self._root_state = state
        self._tree = open_tree(config, env, state, self._rules, listed, tree)
        self._arrays = self._tree.arrays
        self._evaluation = Evaluation(config, env, self._tree, self._rules, generator)
        if tree is None:
            backup.plant(self._arrays, self._rules)
            if self._tree.states is not None:
                self._tree.states[:1] = state
            self._evaluation.evaluate_root(state, info)
        if is_new_root:
            self._evaluation.add_root_noise()
        foresees = env.is_stochastic and self._rules.chance == SINGLE
        self._places = Places(self._tree, self._rules, config.transpositions, foresees)
        self._unasked = set[int]()  # nodes of an open loop where the episode ended each time so far
        self._paths = empty_paths(config.batch_size, config.max_depth)
        halves = np.array_split(np.arange(config.batch_size), min(2, config.batch_size))
        self._free = halves[::-1]
        self.num_in_flight = len(halves)
        self._num_started = self._num_idle = 0

    # -- simulations --------------------------------------------------------------------------------

    def simulate(self) -> Simulation:
        """See `Search.simulate`."""
        slots = self._free.pop()
        try:
            yield from self._simulate(slots)
        finally:
            self._free.append(slots)

    def _simulate(self, slots: NDArray[np.int64]) -> Simulation:
        wanted = self._room()
        if wanted <= 0:
            return
        slots = slots[:wanted]
        statuses = np.empty(len(slots), np.int64)
        count = kernels.select(self._arrays, self._paths, slots, statuses, self._rules)
        if not count:
            return  # everything worth trying is under way
        slots, statuses = slots[:count], statuses[:count]
        self._num_started += count
        fresh = np.zeros(count, bool)  # whose last node is new
        own_states = np.repeat(self._root_state, count) if self._tree.states is None else None
        over = np.zeros(count, bool)  # whose episode has ended
        stepping = np.flatnonzero(statuses == SAMPLE)
        self._num_idle = 0 if len(stepping) else self._num_idle + count
        while len(stepping):
            own = None if own_states is None else own_states[stepping]
            out = yield self._step_request(slots[stepping], own)
            if own_states is not None:
                own_states[stepping] = out.new_states
                over[stepping] = out.terminated | out.truncated
            fresh[stepping], goes_on = self._attach(slots[stepping], out)
            stepping = stepping[goes_on]
            if len(stepping):
                statuses = np.empty(len(stepping), np.int64)
                kernels.resume(self._arrays, self._paths, slots[stepping], statuses, self._rules)
                stepping = stepping[statuses == SAMPLE]
        if own_states is None:
            over = self._arrays.ended[self._last_nodes(slots)]
        leaf_values = yield from self._leaf_values(slots, fresh, over, own_states)
        backup.back_up(self._arrays, self._paths, slots, leaf_values, self._rules)
        self.num_simulations += count

    def _leaf_values(
        self,
        slots: NDArray[np.int64],
        fresh: NDArray[np.bool_],
        over: NDArray[np.bool_],
        own_states: NDArray[Any] | None,
    ) -> Generator[Any, Any, NDArray[np.float64]]:
        """Returns `[B]` from the last node of each simulation on.

        With rollouts, one that ends at a new node, at the greatest depth, or where the rollout of another
        is still under way makes its own. Others came by a new way to a node that was there before, whose
        value is known.
        """
        arrays, nodes = self._arrays, self._last_nodes(slots)
        is_deepest = self._paths.depths[slots] >= self._config.max_depth
        wants = ~over & (fresh | arrays.pending[nodes] | is_deepest)
        values = (arrays.values if self._rules.backs_up_values else arrays.own_values)[nodes]
        values[over] = 0.0
        if self._config.rollout_steps and wants.any():
            states = self._states_of(nodes[wants]) if own_states is None else own_states[wants]
            values[wants] = yield from self._roll_out(states)
            new, new_nodes = fresh & ~over, nodes[fresh & ~over]
            arrays.own_values[new_nodes] = values[new]
            # Others may have come by in the meantime: theirs is a mean without this one.
            arrays.values[new_nodes] += values[new] / (arrays.visits[new_nodes] + 1)
            arrays.pending[new_nodes] = False
        elif self._config.value_fn is not None and own_states is not None and wants.any():
            # A node of an open loop stands for many states.
            observations = self._env.observe(own_states[wants])
            values[wants] = self._evaluation.values_of(observations, int(wants.sum()))
        return values

    def _room(self) -> int:
        """How many simulations may begin; sets `stop_reason` where it is 0 for good."""
        if self._limit is not None and self._num_started >= self._limit:
            self.stop_reason = "num_simulations"
            return 0
        free = len(self._arrays.visits) - max(self._arrays.counters[: NUM_OUTCOMES + 1])
        free -= self._num_started - self.num_simulations
        if free <= 0 and self._num_started == self.num_simulations:
            self.stop_reason = "max_memory"
        if self._num_idle >= _MAX_IDLE and self._limit is None:
            self.stop_reason = "exhausted"
            return 0
        left = free if self._limit is None else self._limit - self._num_started
        return int(min(free, left))

    def _step_request(self, slots: NDArray[np.int64], own_states: NDArray[Any] | None) -> StepRequest:
        nodes = self._last_nodes(slots)
        edges = self._paths.actions[slots, self._paths.depths[slots]]
        tree = self._tree
        actions = tree.actions[nodes, edges] if tree.kind.has_own_actions else tree.actions[edges]
        states = self._states_of(nodes) if own_states is None else own_states
        return StepRequest(actions, states, np.full(len(slots), self._config.dt), self._seeds(len(slots)))

    def _seeds(self, num_rows: int) -> NDArray[np.uint64] | None:
        if self._rules.chance == SINGLE:
            return None
        return self._generator.integers(0, 2**64, num_rows, dtype=np.uint64)

    def _last_nodes(self, slots: NDArray[np.int64]) -> NDArray[np.int32]:
        nodes: NDArray[np.int32] = self._paths.nodes[slots, self._paths.depths[slots]]
        return nodes

    def _states_of(self, nodes: NDArray[np.int32]) -> NDArray[Any]:
        assert self._tree.states is not None
        states: NDArray[Any] = self._tree.states[nodes]
        return states

    # -- what came back -----------------------------------------------------------------------------

    def _attach(
        self, slots: NDArray[np.int64], out: Transitions
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Hang transitions into the tree.

        Returns:
            `[B]` whether a new node was made; `[B]` whether the simulation goes on from one that was there.
        """
        num_nodes = int(self._arrays.counters[NUM_NODES])
        num_outcomes = int(self._arrays.counters[NUM_OUTCOMES])
        ended = out.terminated | out.truncated
        edges = self._paths.actions[slots, self._paths.depths[slots]]
        outcomes, nodes = self._places.find(self._last_nodes(slots), edges, out)
        num_steps = out.infos["num_steps"]
        discounts = float(self._config.discount) ** num_steps
        backup.attach(
            self._arrays,
            self._paths,
            slots,
            outcomes,
            nodes,
            out.rewards,
            discounts,
            num_steps,
            ended,
            self._rules,
        )
        is_new = np.zeros(len(slots), bool)
        is_new[np.unique(nodes, return_index=True)[1]] = True
        is_new &= nodes >= num_nodes
        rows = np.flatnonzero(is_new)
        if len(rows):
            if self._tree.states is not None:
                assert out.new_states is not None
                self._tree.states[nodes[rows]] = out.new_states[rows]
            self._evaluation.draw_actions(nodes[rows])
        asked = self._to_ask(nodes, is_new, ended)
        self._evaluation.evaluate(nodes[asked], asked, out)
        goes_on = ~is_new & ~ended
        if self._rules.chance != OPEN_LOOP:
            # By a way that is new to a node that is not, the value of that node is what was asked for.
            goes_on &= outcomes < num_outcomes
        return is_new, goes_on

    def _to_ask(
        self, nodes: NDArray[np.int64], is_new: NDArray[np.bool_], ended: NDArray[np.bool_]
    ) -> NDArray[np.int64]:
        """The rows whose nodes are to be evaluated: the first to come there with an episode that goes on."""
        asked = is_new & ~ended
        if self._rules.chance == OPEN_LOOP:
            self._unasked.update(nodes[is_new & ended].tolist())
            if self._unasked:
                for row in np.flatnonzero(~ended).tolist():
                    if nodes[row] in self._unasked:
                        self._unasked.discard(int(nodes[row]))
                        asked[row] = True
        return np.flatnonzero(asked)

    def _roll_out(self, states: NDArray[Any]) -> Generator[Any, Any, NDArray[np.float64]]:
        """The returns of rollouts from states."""
        config = self._config
        if config.rollout_policy is None:
            seed = int(self._generator.integers(2**63))
            seeds = self._seeds(len(states))
            actions = self._held_actions(len(states)) if config.dt > 1 else None
            out = yield RolloutRequest(states, config.rollout_steps, actions, seed, seeds, config.discount)
            returns: NDArray[np.float64] = out.returns
            return returns
        returns, discounts = np.zeros(len(states)), np.ones(len(states))
        observations = self._env.observe(states)
        for _ in range(config.rollout_steps):
            actions = np.asarray(config.rollout_policy(observations))
            steps = np.ones(len(states), np.int64)
            out = yield StepRequest(actions, states, steps, self._seeds(len(states)))
            returns += discounts * out.rewards
            discounts *= config.discount
            states, observations = out.new_states, out.observations
            if (out.terminated | out.truncated).all():
                break
        return returns

    def _held_actions(self, num_rows: int) -> NDArray[Any]:
        """Random actions `[num_rows, H, *action shape]`, each held for `dt` steps."""
        horizon, dt = self._config.rollout_steps, self._config.dt
        num_drawn = -(-horizon // dt)
        drawn = uniform_actions(self._env.action_space, self._generator, num_rows * num_drawn)
        held = drawn.reshape(num_rows, num_drawn, *drawn.shape[1:]).repeat(dt, axis=1)
        return held[:, :horizon]

    # -- the decision -------------------------------------------------------------------------------

    def plan(self, elapsed: float) -> Plan:
        """See `Search.plan`."""
        tree, arrays = self._tree, self._arrays
        by_value = self._rules.backs_up_max
        best = tree.best_action(0, by_value)
        visits = arrays.edge_visits[0].astype(np.int64)
        branch = tree.principal_variation(by_value)
        # Of drawn actions only those that were tried.
        weighed = np.flatnonzero(visits) if tree.kind.has_own_actions else np.arange(tree.num_actions)
        values = np.where(visits > 0, arrays.edge_values[0], np.nan)
        depths = np.flatnonzero(arrays.depth_histogram)
        return Plan(
            action=tree.node_actions(0)[best],
            value=float(values[best]),
            root_actions=tree.node_actions(0)[weighed].copy(),
            visit_counts=visits[weighed],
            action_values=values[weighed],
            standard_errors=tree.standard_errors()[weighed],
            best_actions=branch.actions,
            best_num_steps=branch.num_steps,
            best_return=branch.total_return,
            depth_histogram=arrays.depth_histogram[: depths[-1] + 1 if len(depths) else 0].copy(),
            num_simulations=self.num_simulations,
            num_env_steps=self.num_env_steps,
            elapsed=elapsed,
            stop_reason=self.stop_reason or "num_simulations",
            search=tree,
        )
