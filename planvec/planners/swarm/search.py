"""One decision of a swarm in progress: its random draws, its walkers and their moves.

Letters: B walkers, A bytes of an action, N moves, L actions of a sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.planners.novelty.features import NewFeatures, features_for
from planvec.planners.plan import Plan
from planvec.planners.root_actions import action_statistics, draw_action, mean_action, most_visited
from planvec.planners.search import Search, Simulation, StepRequest, ended_error
from planvec.planners.swarm.config import Dt, SwarmConfig
from planvec.planners.swarm.iteration import (
    MOVE_DTYPE,
    WALKER_DTYPE,
    Moves,
    Outcomes,
    Rules,
    extrapolate_returns,
    find_first_moves,
    iterate,
    observation_features,
    prune_moves,
)
from planvec.rows import (
    BatchStepper,
    action_masks,
    are_legal,
    arrays_of_states,
    draw_legal,
    states_of_arrays,
    uniform_actions,
)

_BLOCK = 32  # iterations that are drawn at once, which costs little more than drawing one
_NO_NUMBERS, _NO_BYTES = np.empty(0), np.empty(0, np.uint8)


def draw_dt(dt: Dt, generator: np.random.Generator, num_draws: int) -> NDArray[np.int64]:
    """Draw for how many steps actions are repeated: `[num_draws]`."""
    if isinstance(dt, tuple):
        return generator.integers(dt[0], dt[1], num_draws, endpoint=True)
    if not callable(dt):
        return np.full(num_draws, dt, np.int64)
    drawn = np.asarray(dt(generator, num_draws))
    if drawn.shape != (num_draws,) or drawn.dtype.kind not in "iu" or (drawn < 1).any():
        raise ValueError(f"dt: expected {num_draws} integers of at least 1 from the sampler, got {drawn!r}")
    return drawn.astype(np.int64)


class Draw(NamedTuple):
    """The random choices of one iteration."""

    actions: np.ndarray  # `[B, *action shape]`
    action_bytes: NDArray[np.uint8]  # `[B, A]` uint8, the same memory
    dt: NDArray[np.int64]  # `[B]` int64, the number of steps of each action
    seeds: NDArray[np.uint64] | None  # `[B]` uint64, the seed of each step; None where a step has one outcome
    # `[3, B]` in [0, 1), to choose companions to compare with, to choose companions to clone, and to decide
    # whether to clone
    uniforms: NDArray[np.float64]


def draws(
    space: Space[object], generator: np.random.Generator, dt: Dt, num_walkers: int, needs_seeds: bool
) -> Iterator[Draw]:
    """Yield the random choices of one iteration after the other, endlessly."""
    while True:
        count = _BLOCK * num_walkers
        actions = uniform_actions(space, generator, count).reshape(_BLOCK, num_walkers, *(space.shape or ()))
        num_bytes = actions.nbytes // count
        action_bytes = actions.reshape(-1).view(np.uint8).reshape(_BLOCK, num_walkers, num_bytes)
        num_steps = draw_dt(dt, generator, count).reshape(_BLOCK, num_walkers)
        uniforms = generator.random((_BLOCK, 3, num_walkers))
        seeds: Any = [None] * _BLOCK
        if needs_seeds:
            seeds = generator.integers(0, 2**64, (_BLOCK, num_walkers), dtype=np.uint64)
        # A list, since views that are made together take less time than each before its step.
        yield from list(map(Draw, actions, action_bytes, num_steps, seeds, uniforms))


# -- The moves of a swarm as a tree. Letters: N nodes, B walkers, L actions of a sequence --------------------

_INITIAL_MOVES = 64  # Initial capacity in moves per walker. Most decisions make fewer moves and never prune.


class Lineage:
    """Records the moves that lead to the walkers: a tree as a struct of arrays."""

    # Node 0 is the start; every other node is one move of one walker, and its parent the move before. Clones
    # share nodes. Parents come before their children.
    # Nodes that lead to no walker are pruned whenever the arrays are full. With M nodes left by that, the
    # capacity is at most `max(64 B, 4 (M + B))`. Walkers soon share their early moves, so that M grows by
    # about one per iteration, however long a wave runs.

    def __init__(self, space: Space[np.ndarray], num_walkers: int) -> None:
        capacity = _INITIAL_MOVES * num_walkers + 1
        self._shape, self._dtype = space.shape or (), np.dtype(space.dtype)
        num_bytes = math.prod(self._shape) * self._dtype.itemsize
        # The arrays, with room for more moves. `append_moves` writes them.
        self.moves = Moves(np.zeros(capacity, MOVE_DTYPE), np.zeros((capacity, num_bytes), np.uint8))
        self.moves.nodes[0] = (-1, 0, 0.0)
        self.num_nodes = 1  # N

    @property
    def parents(self) -> NDArray[np.int64]:
        """Parent of each node, `[N]` int64; -1 for node 0."""
        return self.moves.nodes["parent"][: self.num_nodes]

    @property
    def actions(self) -> NDArray[np.generic]:
        """Action of each move, `[N, *action shape]`; that of node 0 is meaningless."""
        return self._actions_of(self.moves.actions[: self.num_nodes])

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """Number of environment steps of each move, `[N]` int64."""
        return self.moves.nodes["num_steps"][: self.num_nodes]

    @property
    def rewards(self) -> NDArray[np.float64]:
        """Sum of the rewards of each move, `[N]` float64."""
        return self.moves.nodes["reward"][: self.num_nodes]

    def make_room(self, walkers: np.ndarray) -> None:
        """Make room for one more move of every walker."""
        # `walkers`: `[B]` of `WALKER_DTYPE`. Nodes that lead to none of them may be pruned; the new indices
        # are written.
        if self.num_nodes + len(walkers) > len(self.moves.nodes):
            self.prune(walkers)
            if self.num_nodes + len(walkers) > len(self.moves.nodes) // 2:
                self.moves = Moves(*(np.concatenate([array, np.zeros_like(array)]) for array in self.moves))

    def prune(self, walkers: np.ndarray) -> None:
        """Remove all nodes that lead to no walker, and write the new indices of the latest moves."""
        self.num_nodes = prune_moves(self.moves, self.num_nodes, walkers)

    def first_moves(self, walkers: np.ndarray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first move `[B]` of each walker (0: none) and the number of its moves `[B]`."""
        firsts, num_moves = np.empty(len(walkers), np.int64), np.empty(len(walkers), np.int64)
        find_first_moves(self.moves, self.num_nodes, walkers, firsts, num_moves)
        return firsts, num_moves

    def sequence(self, node: int) -> tuple[NDArray[np.generic], NDArray[np.int64]]:
        """Return the actions `[L, *action shape]` that lead to a node, and the steps `[L]` of each."""
        parents, nodes = self.parents, []
        while node > 0:
            nodes.append(node)
            node = int(parents[node])
        path = np.array(nodes[::-1], np.int64)
        return self._actions_of(self.moves.actions[path]), self.moves.nodes["num_steps"][path]

    def _actions_of(self, rows: NDArray[np.uint8]) -> NDArray[np.generic]:
        """Return actions from their bytes."""
        return rows.view(self._dtype).reshape(len(rows), *self._shape)


@dataclass(slots=True, eq=False)
class Walkers:
    """The state of every walker, and the actions that led to it."""

    start: np.ndarray  # `[1]`, the state at which the planner plans
    states: np.ndarray  # `[B]` states
    table: np.ndarray  # `[B]` of `WALKER_DTYPE`, what is known of each walker besides
    lineage: Lineage  # the moves of all walkers, a tree
    num_ended: int = 0  # how many have terminated or were truncated

    def __repr__(self) -> str:
        return f"<Walkers: {len(self.table)}, of which {self.num_ended} have ended>"

    @property
    def returns(self) -> NDArray[np.float64]:
        """Undiscounted returns, `[B]` float64."""
        return self.table["total"]

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """Ages in environment steps, `[B]` int64."""
        return self.table["num_steps"]

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The latest node of each walker in the lineage, `[B]` int64."""
        return self.table["node"]

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """Which walkers have terminated, `[B]` bool."""
        return self.table["terminated"]

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Which walkers were truncated, `[B]` bool."""
        return self.table["truncated"]

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the swarm as arrays of numbers and text."""
        lineage = self.lineage
        return {
            **arrays_of_states("start", self.start),
            **arrays_of_states("states", self.states),
            "table": self.table,
            "moves": lineage.moves.nodes[: lineage.num_nodes],
            "actions": lineage.moves.actions[: lineage.num_nodes],
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], action_space: Space[Any]) -> Walkers:
        """Return the swarm that `to_arrays` turned into arrays."""
        start, states = states_of_arrays("start", arrays), states_of_arrays("states", arrays)
        table = arrays["table"]
        if start.shape != (1,) or states.shape != table.shape or table.dtype != WALKER_DTYPE:
            raise ValueError(f"table: expected one row for each of {len(states)} walkers")
        lineage, moves, actions = Lineage(action_space, len(table)), arrays["moves"], arrays["actions"]
        is_tree = moves.dtype == MOVE_DTYPE and len(moves) > 0 and moves["parent"][0] == -1
        is_tree = is_tree and bool((moves["parent"][1:] < np.arange(1, len(moves))).all())
        is_tree = is_tree and bool((moves["parent"][1:] >= 0).all())
        shape = (len(moves), lineage.moves.actions.shape[1])
        if not is_tree or actions.shape != shape or actions.dtype != np.uint8:
            raise ValueError("moves: expected a tree of moves, parents before their children")
        for name, limit in (("node", len(moves)), ("source", len(table))):
            if ((table[name] < 0) | (table[name] >= limit)).any():
                raise ValueError(f"{name}: expected indices from 0 to {limit - 1}")
        lineage.moves, lineage.num_nodes = Moves(moves, actions), len(moves)
        num_ended = int((table["terminated"] | table["truncated"]).sum())
        return cls(start, states, table, lineage, num_ended)

    @property
    def saved_states(self) -> np.ndarray:
        """The states of the walkers, and the one at which the planner plans."""
        return np.concatenate([self.states, self.start])

    def values(self) -> NDArray[np.float64]:
        """Return the returns `[B]`, extrapolated to the age of the oldest walker."""
        values = np.empty(len(self.table))
        extrapolate_returns(self.table, values)
        return values


# -- The decision by a swarm ---------------------------------------------------------------------------------

# actions `[L, *action shape]`, and the environment steps `[L]` for which each is repeated
ActionSequence = tuple[np.ndarray, NDArray[np.int64]]


class SwarmSearch(Search):
    """One decision of a swarm; every simulation is one iteration of all walkers."""

    may_be_cut = True

    def __init__(
        self,
        config: SwarmConfig,
        env: BatchStepper,
        state: np.ndarray,
        generator: np.random.Generator,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        config.check_space(env.action_space)
        self._config = config
        self._env = env
        self._observation_space = env.observation_space
        self._rules = Rules(
            float(config.reward_scale),
            float(config.distance_scale),
            float(config.novelty_scale),
            min(int(config.num_elites), config.num_walkers),
        )
        self._generator = generator
        self._previous = previous  # for `WaveSearch`
        # what walker 0 does: the best sequence of the last decision without its first environment step
        self._guide: ActionSequence | None = None
        if previous is not None and len(previous.best_actions):
            num_steps = previous.best_num_steps.copy()
            num_steps[0] -= 1
            remains = num_steps > 0
            self._guide = (previous.best_actions[remains], num_steps[remains]) if remains.any() else None
        self._new_features: NewFeatures | None = None
        if config.novelty_scale:
            self._new_features = NewFeatures(features_for(env.observation_space, config.features))
        self._codes: np.ndarray | None = None  # of the observations where the walkers are
        self._num_iterations = 0
        self._draws = draws(
            env.action_space, generator, config.dt, config.num_walkers, needs_seeds=env.is_stochastic
        )
        num_walkers = config.num_walkers
        self.walkers = Walkers(
            start=state,
            states=np.repeat(state, num_walkers),
            table=np.zeros(num_walkers, WALKER_DTYPE),
            lineage=Lineage(env.action_space, num_walkers),
        )

    def simulate(self) -> Simulation:
        """Move every walker once, then clone."""
        walkers, lineage, space = self.walkers, self.walkers.lineage, self._env.action_space
        draw, num_walkers = next(self._draws), self._config.num_walkers
        masks = action_masks(space, walkers.states)
        if masks is not None:
            draw.actions[:] = draw_legal(space, masks, self._generator.random(draw.actions.shape))
        if self._guide is not None:
            (actions, num_steps), at = self._guide, self._num_iterations
            if at < len(actions) and (masks is None or are_legal(space, masks[0], np.asarray(actions[at]))):
                draw.actions[0], draw.dt[0] = actions[at], num_steps[at]
            else:  # it is used up, or chance has led to a state where the action is illegal
                self._guide = None
        out = yield StepRequest(draw.actions, walkers.states, draw.dt, draw.seeds)
        self._num_iterations += 1
        self.num_simulations += num_walkers
        features = observation_features(self._observation_space, out.observations, num_walkers)
        novelty = _NO_NUMBERS
        if self._new_features is not None:
            novelty, self._codes = self._new_features.count(out.observations, num_walkers, self._codes)
        is_guided = self._guide is not None and self._num_iterations < len(self._guide[0])
        lineage.make_room(walkers.table)
        outcomes = Outcomes(
            np.ascontiguousarray(out.rewards, np.float64),
            np.ascontiguousarray(out.infos["num_steps"], np.int64),
            np.ascontiguousarray(out.terminated, bool),
            np.ascontiguousarray(out.truncated, bool),
        )
        states = out.new_states
        are_objects = states.dtype.hasobject
        held = _NO_BYTES if are_objects else np.ascontiguousarray(states).view(np.uint8)
        copies = np.empty_like(held)
        lineage.num_nodes, walkers.num_ended, first_was_dead = iterate(
            *(walkers.table, lineage.moves, lineage.num_nodes, outcomes, features, draw.action_bytes),
            *(held, copies, draw.uniforms, novelty, self._rules, is_guided),
        )
        sources = walkers.table["source"]
        walkers.states = states[sources] if are_objects else copies.view(states.dtype)
        if first_was_dead:
            self._guide = None  # walker 0 is a clone now, whose state the guide does not fit
        if self._codes is not None:
            self._codes = self._codes[sources]
        if lineage.num_nodes == 1:
            raise ended_error()
        if walkers.num_ended == num_walkers:
            self.stop_reason = "ended"
        elif self._num_iterations == self._config.num_iterations:
            self.stop_reason = "num_iterations"

    def plan(self) -> Plan:
        """Return the decision by the walkers' first actions: that of most of them, in a Box their mean."""
        walkers, space = self.walkers, self._env.action_space
        if self._num_iterations == 0:  # there was no time for one; the best sequence goes on
            if self._guide is None:
                return Plan(draw_action(self._env, walkers.start, self._generator), math.nan)
            actions, num_steps = self._guide
            return Plan(actions[0], math.nan, best_actions=actions, best_num_steps=num_steps)
        walkers.lineage.prune(walkers.table)
        values = walkers.values()
        first_moves, num_moves = walkers.lineage.first_moves(walkers.table)
        first_actions = walkers.lineage.actions[first_moves]
        statistics = action_statistics(space, first_actions, values)
        best = int(values.argmax())
        best_actions, best_num_steps = walkers.lineage.sequence(int(walkers.nodes[best]))
        if isinstance(space, spaces.Box):
            action: Any = mean_action(space, first_actions)
            value = float(values.mean())
        else:
            index = most_visited(statistics.counts, statistics.means)
            action, value = statistics.actions[index], float(statistics.means[index])
        return Plan(
            action=action,
            value=value,
            root_actions=statistics.actions,
            visit_counts=statistics.counts,
            action_values=statistics.means,
            standard_errors=statistics.standard_errors,
            best_actions=best_actions,
            best_num_steps=best_num_steps,
            best_return=float(walkers.returns[best]),
            depth_histogram=np.bincount(num_moves),
            search_data=walkers,
        )


# -- One decision of a swarm wave in progress: a whole episode, or the rest of the one planned before --------


class WaveSearch(SwarmSearch):
    """One decision of a wave. It searches only where the previous sequence does not lead to the state."""

    _sequence: ActionSequence | None = None  # the rest of the previous sequence, if it leads to the state
    _sequence_return = 0.0

    def simulate(self) -> Simulation:
        """Check by one step whether the previous sequence leads to the state; if not, search."""
        previous, sequence = self._previous, self._guide
        self._previous = None
        is_wave = previous is not None and isinstance(previous.search_data, Walkers)
        if previous is not None and sequence is not None and is_wave and not self._env.is_stochastic:
            out = yield StepRequest(
                previous.best_actions[:1], previous.search_data.start, np.ones(1, np.int64), None
            )
            new, start = out.new_states, self.walkers.start
            # by their bytes, so that equal NaNs are equal
            if new[0] == start[0] if new.dtype.hasobject else new.tobytes() == start.tobytes():
                self._sequence = sequence
                self._sequence_return = previous.best_return - float(out.rewards[0])
                self.stop_reason = previous.stop_reason
                return
        self._guide = None  # in a search, no walker follows it
        yield from super().simulate()

    def plan(self) -> Plan:
        """Return the rest of the previous sequence, or the sequence of the best walker."""
        if self._sequence is None:
            plan = super().plan()
            if not len(plan.best_actions):
                return plan
            return replace(plan, action=plan.best_actions[0], value=plan.best_return)
        best_actions, best_num_steps = self._sequence
        return Plan(
            action=best_actions[0],
            value=self._sequence_return,
            root_actions=best_actions[:1],
            visit_counts=np.ones(1, np.int64),
            action_values=np.array([self._sequence_return]),
            standard_errors=np.array([np.nan]),
            best_actions=best_actions,
            best_num_steps=best_num_steps,
            best_return=self._sequence_return,
            depth_histogram=np.bincount([len(best_actions)]),
            search_data=self.walkers,
        )
