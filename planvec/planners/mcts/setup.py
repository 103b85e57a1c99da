"""Sets up a tree search: its kernel settings, an empty or copied tree, and what its settings leave open.

Letters: A actions, N nodes.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import pickle
import time
from collections import Counter
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.tree import (
    AS_GIVEN,
    GRAPH,
    NODES,
    NUM_OUTCOMES,
    OPEN_LOOP,
    SHORT_ROLLOUTS,
    SINGLE,
    STATES,
    Tree,
    TreeKind,
    bytes_per_node,
    empty_arrays,
)
from planvec.planners.root_actions import list_actions, space_leaves
from planvec.planners.search import StepRequest, check_answer, send_steps, takes_deadlines
from planvec.rows import (
    ACTION_MASK_FIELD,
    PLAYER_FIELD,
    BatchStepper,
    Transitions,
    has_players,
    is_fixed,
    state_keys,
)

_log = logging.getLogger("planvec")

_BYTES_OF_OBJECT = 160  # memory of a `SavedState`, besides its data


# special values of `Rules.value_scale`; any other value is the scale itself
SCALE_BY_TREE, SCALE_BY_NODE = -1.0, -2.0
_ALL = (math.inf, 0.0)  # A value of `Rules.widening`: no limit


class Rules(NamedTuple):
    """The settings of a search, and the form of its states, as compiled code reads them."""

    kind: TreeKind  # the settings that the tree depends on
    exploration: float = 1.0  # factor of the exploration term
    value_scale: float = 1.0  # further factor of it: a number, `SCALE_BY_TREE` or `SCALE_BY_NODE`
    max_depth: int = 1  # D
    # A node tries `widening[0] * visits ** widening[1]` actions; (inf, 0): all
    widening: tuple[float, float] = _ALL
    outcome_widening: tuple[float, float] = _ALL  # the same for the outcomes sampled of an action
    # whether a value is computed from the values of its outcomes, as a graph needs it, or is the mean of the
    # returns of its simulations
    backs_up_values: bool = False
    # whether the value of a node is that of its best action, or the mean of its simulations
    backs_up_max: bool = False
    # whether simulations go to the nearest untried actions where they find nothing new: not where priors, or
    # a number of visits, say which actions are worth trying
    explores: bool = False
    proves: bool = False  # whether exactly known values are passed up
    # the lowest and the highest return that is possible
    value_bounds: tuple[float, float] = (-math.inf, math.inf)
    seed: int = 0  # fixes the choice among ties and among outcomes, in [0, 2**62)
    num_simulations: int = -1  # at most; -1: no limit
    max_env_steps: int = -1  # environment steps; -1: no limit
    rollout_steps: int = 0  # H of the rollouts from new nodes; 0: none
    # whether the values of leaves are requested: with rollouts, and for an open loop with a function of the
    # user
    asks_leaves: bool = False
    # whether new nodes are evaluated by functions of the user before simulations go on
    evaluates: bool = False
    state_bytes: int = 0  # S; 0 if states are objects, which compiled code does not see
    action_bytes: int = 0  # bytes of one action; 0 if every node has its own
    # Index of the byte of a state that holds the player to move; -1: there is one player. Where states are
    # objects, answers bring these bytes instead of the states.
    player_at: int = -1
    # index of the first of the A bytes of a state that hold the legal actions; -1: there are none
    mask_at: int = -1


def tree_kind(config: MCTSConfig, env: BatchStepper, has_own_actions: bool, choice: int) -> TreeKind:
    """Return the settings that a tree has to be searched with so that this search can continue it."""
    chance = SINGLE
    if env.is_stochastic and config.chance != "foresee":
        chance = OPEN_LOOP if config.chance == "open_loop" else NODES
    return TreeKind(
        has_own_actions=has_own_actions,
        has_priors=config.selection == "puct",
        has_legal=config.legal_actions is not None or config.value_bounds is not None,
        shares_nodes=bool(config.transpositions),
        chance=chance,
        discount=float(config.discount),
        dt=config.dt,
        choice=choice,
    )


def make_rules(
    config: MCTSConfig,
    kind: TreeKind,
    state: np.ndarray,  # `[1]`, the root
    listed: np.ndarray | None,  # `[A, *action shape]`, the result of `list_actions`
    seed: int,
) -> Rules:
    """Return the settings of the kernels."""
    widening = config.widening or ((1.0, 0.5) if listed is None else _ALL)
    scale = config.value_scale
    low, high = config.value_bounds or (-np.inf, np.inf)
    scales = {"tree": SCALE_BY_TREE, "node": SCALE_BY_NODE}
    # Compiled code reads the masks of actions that are numbers alone.
    has_masks = config.legal_actions == ACTION_MASK_FIELD and listed is not None and listed.ndim == 1
    return Rules(
        kind=kind,
        exploration=float(config.exploration),
        value_scale=scales[scale] if isinstance(scale, str) else float(scale),
        max_depth=config.max_depth,
        widening=(float(widening[0]), float(widening[1])),
        outcome_widening=(float(config.outcome_widening[0]), float(config.outcome_widening[1])),
        backs_up_values=kind.shares_nodes or config.backup == "max",
        backs_up_max=config.backup == "max",
        explores=config.backup == "max"
        and not (kind.has_priors or math.isfinite(widening[0]) or config.root_selection == "gumbel"),
        proves=config.value_bounds is not None and kind.chance == SINGLE,
        value_bounds=(float(low), float(high)),
        seed=seed,
        num_simulations=-1 if config.num_planned is None else config.num_planned,
        max_env_steps=-1 if config.max_env_steps is None else config.max_env_steps,
        rollout_steps=config.rollout_steps,
        asks_leaves=config.rollout_steps > 0 or (config.has_values and kind.chance == OPEN_LOOP),
        state_bytes=0 if state.dtype.hasobject else state.dtype.itemsize,
        action_bytes=0 if listed is None else listed.nbytes // len(listed),
        player_at=0 if state.dtype.hasobject and has_players(state) else _offset(state.dtype, PLAYER_FIELD),
        mask_at=_offset(state.dtype, ACTION_MASK_FIELD) if has_masks else -1,
    )


def _offset(dtype: np.dtype, name: str) -> int:
    """Return the index of the first byte of a field of a state; -1 if it has no such field."""
    return dtype.fields[name][1] if dtype.fields is not None and name in dtype.fields else -1


def create_tree(
    config: MCTSConfig,
    env: BatchStepper,
    state: np.ndarray,
    kind: TreeKind,
    listed: np.ndarray | None,  # `[A, *action shape]`, the result of `list_actions`
    known: Tree | None,
) -> Tree:
    """Return a tree with capacity for every simulation of a search."""
    space = env.action_space
    num_actions = config.max_actions if listed is None else len(listed)
    if listed is None and config.has_priors:
        name = "prior_fn" if config.evaluate_fn is None else "evaluate_fn"
        raise InvalidBatchError(
            f"{name}: expected a space whose actions can be listed, got {space}, where it cannot know "
            "which actions were drawn; leave it out, or give a value_fn"
        )
    if known is not None:
        if known.kind.choice != kind.choice:
            raise InvalidBatchError(
                "tree: expected one that was searched with the same settings, got one for which a look at "
                "the environment has chosen them; resume it without transpositions, rollout_horizon and "
                "backup, or call plan() instead"
            )
        wanted = {"actions a node": num_actions, **kind._asdict()}
        got = {"actions a node": known.num_actions, **known.kind._asdict()}
        for name, value in wanted.items():
            if got[name] != value:
                raise InvalidBatchError(
                    f"tree: expected one that was searched with the same settings, with {name}: {value}, got "
                    f"{got[name]}; call plan() instead"
                )
        # Compiled steps do not look at listed actions any more. Drawn ones are checked in each batch.
        if listed is not None and not (
            known.actions.dtype == listed.dtype and np.array_equal(known.actions, listed)
        ):
            raise InvalidBatchError(
                f"tree: expected the {len(listed)} actions of {space}, got "
                f"{known.actions.tolist()!s:.100}; call plan() instead"
            )
    capacity = _capacity(config, env, state, kind, num_actions, known)
    if known is not None:
        return known.with_capacity(capacity, config.max_depth)
    arrays = empty_arrays(capacity, num_actions, config.max_depth, kind)
    states = None if kind.chance == OPEN_LOOP else np.empty(capacity, state.dtype)
    if listed is None:
        listed = np.empty((capacity, num_actions, *(space.shape or ())), space.dtype)
    return Tree(arrays, states, listed, kind)


def has_room(config: MCTSConfig, env: BatchStepper, state: np.ndarray, known: Tree) -> bool:
    """Return whether a search that continues a tree fits into `max_memory`."""
    try:
        _capacity(config, env, state, known.kind, known.num_actions, known)
    except InvalidBatchError:
        return False
    return True


def _capacity(
    config: MCTSConfig,
    env: BatchStepper,
    state: np.ndarray,
    kind: TreeKind,
    num_actions: int,
    known: Tree | None,
) -> int:
    """Return N: a node per simulation, those of a known tree, and one for each simulation in flight."""
    space = env.action_space
    action_bytes = int(np.prod(space.shape or ())) * np.dtype(space.dtype).itemsize
    state_bytes = 0 if kind.chance == OPEN_LOOP else state.dtype.itemsize
    if state_bytes and state.dtype.hasobject:
        state_bytes = _BYTES_OF_OBJECT + len(bytes(state[0]))
    per_node = bytes_per_node(num_actions, state_bytes, action_bytes, kind)
    num_used = 1 + config.batch_size
    in_flight = config.batch_size * (24 * config.max_depth + 8)
    if known is not None:
        num_used += max(known.num_nodes, int(known.arrays.counters[NUM_OUTCOMES]))
    affordable = max(config.max_memory - in_flight, 0) // per_node - num_used
    limits = [config.num_planned, config.max_env_steps]
    wanted = min((limit for limit in limits if limit is not None), default=max(affordable, 1))
    if wanted > affordable:
        needed = (num_used + wanted) * per_node + in_flight
        raise InvalidBatchError(
            f"max_memory: expected at least {needed:,} bytes for {wanted:,} simulations "
            f"({per_node:,} bytes a node, {in_flight:,} for those in flight), got "
            f"{config.max_memory:,}; simulate less, or raise max_memory"
        )
    return num_used + wanted


# -- Chooses what a search does where its settings leave it open, by a look at the environment.
#
# A look is a few short random walks from the root. What they show decides between four ways to search, as
# `MCTS` describes them. A tree keeps the number of the choice in its `TreeKind`, so that the next decisions,
# and a search that goes on from a file, need no look of their own.
#
# Letters: B rows, W walks, T steps of a walk.


def observation_keys(space: Space[object], observations: object, num_rows: int) -> list[Hashable]:
    """Return a key for each observation of a batch: equal keys for equal observations only."""
    columns: list[list[Hashable]] = []
    for _, leaf, part in space_leaves(space, observations):
        if is_fixed(leaf):
            data = np.ascontiguousarray(part)
            size = data.nbytes // max(num_rows, 1)
            joined = data.tobytes()
            columns.append([joined[row * size : (row + 1) * size] for row in range(num_rows)])
        else:
            elements = (part[row] for row in range(num_rows))
            columns.append([one if isinstance(one, str) else pickle.dumps(one) for one in elements])
    return list(zip(*columns, strict=True))


_NUM_WALKS, _NUM_STEPS = 6, 24  # W and T, at most
_SHARE = 1 / 6  # part of the budget of a decision that a look may take
# Where states with equal observations would be shared, a look goes on: up to this part of the budget in all,
# and so many times what it took before
_CHECK_SHARE, _CHECK_TIMES = 1 / 3, 2
_NUM_AGAIN = 32  # steps with other seeds that tell chance from what observations hide
_SHORT_HORIZON = 5
# part of its value that each step of a graph costs: of two ways to the same return, the shorter one wins
_STEP_COST = 1e-6
# `outcome_widening` of a graph, where a look saw no chance: each action is sampled once
_ONE_OUTCOME = (1.0, 0.0)
_MIN_REVISITED = 0.5
_MIN_CONFIRMED = 8
# Part of the confirmed transitions. Partial views of a grid differ now and then in what they do not show.
_MAX_CONTRADICTED = 0.02


def with_choice(config: MCTSConfig, number: int) -> MCTSConfig:
    """Return the settings of a planner with those that a choice fills in."""
    if not config.is_adaptive or number == AS_GIVEN:
        return config
    if number == SHORT_ROLLOUTS:
        return dataclasses.replace(config, rollout_horizon=_SHORT_HORIZON)
    is_default = config.outcome_widening == MCTSConfig.outcome_widening
    return dataclasses.replace(
        config,
        rollout_horizon=0,
        transpositions="observation" if number == GRAPH else True,
        backup="max",
        discount=config.discount * (1.0 - _STEP_COST),
        outcome_widening=_ONE_OUTCOME if is_default else config.outcome_widening,
    )


def choose(
    config: MCTSConfig, env: BatchStepper, state: np.ndarray, generator: np.random.Generator
) -> tuple[int, int]:
    """Choose the way to search from a state, by a look: W random walks of at most T steps."""
    # Returns the number of the choice, and the environment steps that the look took.
    limits = [config.max_env_steps, config.num_planned]
    per_simulation = (1, config.dt + config.rollout_steps)
    steps = (limit * each for limit, each in zip(limits, per_simulation, strict=True) if limit is not None)
    budget = min([*steps, 1e9])  # environment steps that a decision would take
    num_walks = min(_NUM_WALKS, int(budget * _SHARE) // (_NUM_STEPS * config.dt))
    listed = list_actions(env.action_space)
    is_open = config.is_adaptive and not has_players(state)
    if not is_open or listed is None or num_walks < 2:
        return AS_GIVEN, 0
    # A spawned generator: a search as given draws the same numbers with and without a look.
    look = _Look(config, env, state, num_walks, listed, generator.spawn(1)[0])
    look.walk(_NUM_STEPS, is_random=True)
    # Values of a graph that are not discounted grow without bounds where a cycle pays: each turn adds to
    # them.
    has_values = config.discount < 1 or not look.num_paid
    number = AS_GIVEN
    if has_values and look.repeats():
        is_consistent = look.is_consistent()
        if is_consistent:
            # What observations hide takes longer to show: a key that was picked up, a door that it opens.
            # Only what matters counts: partial views of a grid differ in much that does not.
            left = min(_CHECK_SHARE * budget - look.num_env_steps, _CHECK_TIMES * look.num_env_steps)
            look.walk(int(left) // (num_walks * config.dt), is_random=False)
            is_consistent = not look.num_severe
        if is_consistent:
            number = GRAPH
        elif look.states_repeat() and not look.saw_chance():
            number = STATES
            _log.info(
                "MCTS: the same action after equal observations had different results: the observations do "
                "not show the whole state. Nodes are shared by states"
            )
    elif len(look.rewards) == 1 and min(look.rewards) > 0 and 2 * look.num_ended >= num_walks:
        number = SHORT_ROLLOUTS  # only survival counts
    return number, look.num_env_steps


class _Look:
    """Walks from a root, and what they have shown."""

    def __init__(
        self,
        config: MCTSConfig,
        env: BatchStepper,
        state: np.ndarray,
        num_walks: int,
        actions: np.ndarray,  # all that there are
        generator: np.random.Generator,
    ) -> None:
        self._config, self._env, self._actions, self._generator = config, env, actions, generator
        # `time.perf_counter()` at its end, and what batches are sent with
        self._end = time.perf_counter() + _SHARE * (config.max_seconds or math.inf)
        is_cut = math.isfinite(self._end) and takes_deadlines(env)
        self._options = {"deadline": self._end} if is_cut else {}
        self._num_walks = num_walks
        self._root, self._root_key = state, observation_keys(env.observation_space, env.observe(state), 1)[0]
        self._states, self._keys = state.repeat(num_walks), [self._root_key] * num_walks
        self._step = 0
        self._times = {self._root_key: 0}  # observation -> the time of its first visit
        # Observation and action -> result, the time of the first one, and the state before it. A result:
        # observation, reward, and whether the episode has ended.
        self._results: dict[tuple[Hashable, int], tuple[tuple[Hashable, float, bool], int, np.ndarray]] = {}
        self._contradicted: tuple[Hashable, int] | None = None  # the last one that had another result later
        # how often each walk has been at an observation
        self._visits: list[Counter[Hashable]] = [Counter() for _ in range(num_walks)]
        self.rewards: set[float] = set()  # the different ones
        self.num_env_steps = self._num_transitions = 0
        # number of transitions to an observation that was seen before, at another time
        self._num_revisits = 0
        self._state_times: dict[Hashable, int] = {}  # state -> the time of its first visit
        self._num_same_states = 0  # number of transitions to a state that was seen before, at another time
        # number of transitions with an observation and an action that were seen before, at another time, and
        # had the same result then; of those that had another result then; and of these, those that paid much
        # more or less, or ended the episode
        self._num_confirmed = self._num_contradicted = self.num_severe = 0
        self.num_ended = 0  # number of walks that ended the episode
        self.num_paid = 0  # number of transitions with a reward above 0 after which the episode went on

    def repeats(self) -> bool:
        """Return whether observations and actions repeat, so that nodes could be shared."""
        is_dense = self._num_revisits >= _MIN_REVISITED * self._num_transitions
        return is_dense and self._num_confirmed >= _MIN_CONFIRMED

    def states_repeat(self) -> bool:
        """Return whether states repeat like observations do. Those that count steps do not."""
        return self._num_same_states >= _MIN_REVISITED * self._num_revisits

    def is_consistent(self) -> bool:
        """Return whether the same action after equal observations had the same results, but for a few."""
        return self._num_contradicted <= _MAX_CONTRADICTED * self._num_confirmed

    def saw_chance(self) -> bool:
        """Return whether a step that had different results has them from the same state, too."""
        if not self._env.is_stochastic or self._contradicted is None:
            return False
        first, _, state = self._results[self._contradicted]
        stepped = self._step_rows(np.full(_NUM_AGAIN, self._contradicted[1]), state.repeat(_NUM_AGAIN))
        return stepped is None or any(result != first for result in stepped[1])  # None: nobody knows

    def _step_rows(
        self, indices: NDArray[np.int64], states: np.ndarray
    ) -> tuple[Transitions, list[tuple[Hashable, float, bool]]] | None:
        """Step rows; return their transitions and results (see `_results`), or None if time is up."""
        env, seeds = self._env, None
        if env.is_stochastic:
            seeds = self._generator.integers(0, 2**64, len(states), dtype=np.uint64)
        request = StepRequest(self._actions[indices], states, self._config.dt, seeds)
        out = send_steps(env, [request], self._options).result()
        check_answer(request, out, True)
        num_steps = out.infos["num_steps"]
        self.num_env_steps += int(np.maximum(num_steps, 0).sum())
        if self._options and num_steps.min() < 0:
            return None
        keys = observation_keys(env.observation_space, out.observations, len(states))
        return out, list(zip(keys, out.rewards.tolist(), out.terminated.tolist(), strict=True))

    def walk(self, num_steps: int, is_random: bool) -> None:
        """Take steps of all walks: random actions, or those that lead a walk to where it has not been."""
        for _ in range(num_steps):
            if not is_random:  # those that have ended begin anew
                num_new = self._num_walks - len(self._keys)
                self._states = np.concatenate([self._states, self._root.repeat(num_new)])
                self._keys = self._keys + [self._root_key] * num_new
                self._visits += [Counter() for _ in range(num_new)]
            states, keys = self._states, self._keys
            indices = self._generator.integers(len(self._actions), size=len(states))
            if not is_random:
                indices = np.array([self._to_new_places(*pair) for pair in enumerate(indices.tolist())])
            stepped = self._step_rows(indices, states)
            if stepped is None:
                return
            out, results = stepped
            for row, taken in enumerate(zip(keys, indices.tolist(), results, strict=True)):
                self._add(states[row : row + 1], *taken)
            assert out.new_states is not None
            for state_key in state_keys(out.new_states):
                first_time = self._state_times.setdefault(state_key, self._step)
                self._num_same_states += first_time != self._step
            self._step += 1
            after = [key for key, _, _ in results]
            for visits, key in zip(self._visits, after, strict=True):
                visits[key] += 1
            going_on = np.flatnonzero(~(out.terminated | out.truncated))
            self._visits = [self._visits[row] for row in going_on.tolist()]
            self._states, self._keys = out.new_states[going_on], [after[row] for row in going_on.tolist()]
            is_over = is_random and not len(going_on)
            if is_over or time.perf_counter() > self._end:
                return

    def _to_new_places(self, walk: int, first: int) -> int:
        """Return the action after which a walk has been least often; of equals, the next from `first` on."""
        # So that a walk comes far, with whatever it has picked up on the way.
        key, number, visits = self._keys[walk], len(self._actions), self._visits[walk]

        def num_visits(action: int) -> int:
            known = self._results.get((key, action % number))
            return 0 if known is None else visits[known[0][0]]

        return min(range(first, first + number), key=num_visits) % number

    def _add(
        self, state: np.ndarray, key: Hashable, action: int, result: tuple[Hashable, float, bool]
    ) -> None:
        new_key, reward, terminated = result
        self.rewards.add(reward)
        self._num_transitions += 1
        self._num_revisits += self._times.setdefault(new_key, self._step + 1) != self._step + 1
        first, first_time, _ = self._results.setdefault((key, action), (result, self._step, state))
        self._num_confirmed += result == first and first_time != self._step
        if result != first:
            self._num_contradicted += 1
            pays_else = abs(reward - first[1]) > 0.5 * max(abs(reward), abs(first[1]))
            self.num_severe += terminated != first[2] or pays_else
            self._contradicted = key, action
        self.num_ended += terminated
        self.num_paid += reward > 0 and not terminated


def advance_by_observation(env: BatchStepper, tree: Tree, action: object, state: np.ndarray) -> Tree | None:
    """Return the part of a graph below the node of an observation, with another state as that of its root."""
    # States that share a node may differ in what observations do not show, such as the number of steps so
    # far.
    assert tree.states is not None
    nodes = tree.arrays.outcome_nodes[tree.outcomes(0, tree.index_of(action))]
    nodes = nodes[~tree.arrays.ended[nodes]]
    if not len(nodes):
        return None
    states = np.concatenate([state, tree.states[nodes]])
    wanted, *keys = observation_keys(env.observation_space, env.observe(states), len(states))
    if wanted not in keys:
        return None
    part = tree.subtree(int(nodes[keys.index(wanted)]))
    assert part.states is not None
    part.states[:1] = state
    return part
