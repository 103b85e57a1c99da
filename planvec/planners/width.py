"""Width-based planners, which look for new features: `RolloutIW`, `IW`, their tree and their searches.

Letters: N nodes, A actions, B rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.planners.base import SearchPlanner, option
from planvec.planners.novelty.numbers import MEMORY_SHAPE, NUM_COLORS, FeatureFunction, check_features
from planvec.planners.plan import Plan, TreeView
from planvec.planners.root_actions import equal_actions, list_actions
from planvec.planners.search import Search, Simulation, StepRequest
from planvec.rows import (
    BatchStepper,
    LivesUse,
    Transitions,
    action_masks,
    are_legal,
    arrays_of_states,
    read_lives,
    stacked_lives,
    state_keys,
    states_of_arrays,
)

if TYPE_CHECKING:
    from planvec.planners.novelty.features import NoveltyTable

_DEFAULT_SIMULATIONS = 200
_LARGEST_REWARD = 1e300  # so large that the sum along a path is finite
_NUM_IDLE = 20  # decisions in a row without a positive reward, after which plans go to what is not yet seen
_SAFE_DEPTH = 10  # actions that the branch to there has to survive
_STILL_DEPTH = 40  # actions from the root up to which branches that end in a still are followed on
_SHARE_OF_LOSSES = 0.3  # of the lives that random steps lose, how many a search that goes on is taken to lose


# -- The settings -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WidthConfig(SearchPlanner):
    """Holds the settings of `RolloutIW` and `IW`, which describe them."""

    num_simulations: int | None = option(
        None,
        "Steps from nodes of the tree per decision, one for each new node. None: as many as another budget "
        "allows, or 200.",
    )
    batch_size: int = option(
        4,
        "Steps in flight. With more of them, rollouts look into more directions at once, and less far where "
        "the budget is small.",
    )
    features: FeatureFunction | Any = option(
        None,
        "`features(observations) -> [B, F]` integers: a feature says that a column has a value. Or "
        "`planvec.Screens()`, B-PROST of images. None: `Screens` for images, and numbers as they are, or as "
        "one of 32 intervals where they are not integers.",
        is_function=True,
    )
    discount: float = option(0.995, "Factor per action, in [0, 1].")
    dt: int = option(1, "Environment steps for which an action is repeated.")
    horizon: int | None = option(
        None,
        "Actions from the root after which a branch is not followed farther, once the tree has a positive "
        "reward or (with `life_cost`) a lost life. With few steps a decision, a short one lets more rollouts "
        "begin. None: no limit.",
    )
    subtables: bool = option(
        True,
        "Whether features are counted apart for paths whose return has another order of magnitude (a power "
        "of two).",
    )
    risk_aversion: float = option(1.0, "Factor of negative rewards.")
    life_cost: float = option(
        0.0, 'Cost of a lost life. The infos, and the `info` that is given to `plan`, need "lives".'
    )
    reuse_tree: bool = option(
        True, "Whether a decision goes on with the tree of the previous one. Its nodes cost no steps."
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_integers(1, "num_simulations", "horizon")
        self._check_integers(1, "batch_size", "dt", optional=False)
        self._check_numbers(0, 1, "discount")
        self._check_numbers(0, np.finfo(np.float64).max, "risk_aversion", "life_cost")
        check_features(self.features)

    @property
    def simulation_limit(self) -> int:
        """Largest number of new nodes of a decision."""
        if self.num_simulations is not None:
            return self.num_simulations
        if self.max_env_steps is not None:
            return self.max_env_steps
        return _DEFAULT_SIMULATIONS if self.max_seconds is None else 1_000_000

    @property
    def num_planned(self) -> int | None:
        """Simulations of a decision, for progress bars; None if another budget ends it."""
        return self.num_simulations if self.max_seconds is None else None

    @property
    def info_keys(self) -> tuple[str, ...]:
        """Keys of the infos that the planner reads."""
        return ("lives",) if self.life_cost else ()

    def check_space(self, action_space: Space[object]) -> None:
        """Check that actions can be listed.

        Raises:
            UnsupportedEnvError: They cannot.
        """
        if list_actions(action_space) is None:
            raise UnsupportedEnvError(
                f"action_space: expected actions that can be listed, got {action_space}; plan those with "
                "Swarm or CEM"
            )


@dataclass(frozen=True)
class RolloutIW(WidthConfig):
    """Plans by rollouts that end where nothing is new (Bandres, Bonet and Geffner, AAAI 2018).

    A rollout takes random actions from the root on, among those whose subtrees are not solved. A node is
    novel if one of its features was not seen before at its depth or above in this decision. Where a node is
    not, the rollout ends, and the node is solved; a node whose children are all solved is solved, too. The
    plan's action leads to the branch with the highest return; of equal ones without a gain, to the longest.
    After 20 decisions in a row whose best branch has no positive reward, it leads, without a negative one, to
    a feature that no root has had for the longest time, as far as the tree was kept (`reuse_tree`).

    A branch that does not end is taken to go on, as far as the tree is deep: each step costs as much as the
    median one of the tree, if that is negative, and (with `life_cost`) loses a life with 0.3 times the rate
    of the tree. With `life_cost`, up to half of the steps go on from the best branch while its basic features
    (colours of tiles, values of columns) stay the same: in many games a life is lost some steps after the
    player was hit, and nothing moves meanwhile.

    It suits environments whose rewards are rare, with actions that can be listed. Where steps are random,
    each is sampled once, so that it takes luck for skill.

    Raises:
        ValueError: A field is out of range. The message names it.
    """

    def _search_class(self) -> type[Search]:
        return RolloutSearch


@dataclass(frozen=True)
class IW(WidthConfig):
    """Plans by breadth-first search that goes on only from new nodes (Lipovetzky, Ramirez, Geffner 2015).

    Nodes are generated level by level. One without a feature that was not seen before is not expanded, so
    that the search ends after about as many nodes as there are features, times the actions. This is IW(1).
    Branches are compared as by `RolloutIW`.

    Raises:
        ValueError: A field is out of range. The message names it.
    """

    def _search_class(self) -> type[Search]:
        return BreadthSearch


# -- The tree ------------------------------------------------------------------------------------------------

_PENDING, _ILLEGAL = -2, -3  # child of an action whose step was requested; of one that is not legal
_FIRST_CAPACITY = 256
# array with an entry for each node -> what the spare entries hold
_FILL: dict[str, float] = {
    "parents": -1,
    "taken": -1,
    "children": -1,
    "rewards": 0,
    "lives": np.nan,
    "ended": False,
    "returns": np.nan,
}
_SAVED = tuple(name for name in _FILL if name != "children")  # arrays that files hold


class _Origin(NamedTuple):
    """What the nodes of a tree depend on besides the state of the root."""

    dt: int  # environment steps of an action
    features: str  # name of the features, which files hold
    function: Any  # the features that were given; None: the default, or the tree comes from a file

    @classmethod
    def of(cls, config: WidthConfig) -> _Origin:
        """Return the origin by settings of a planner."""
        features = config.features
        named = features if hasattr(features, "__qualname__") else type(features)
        return cls(config.dt, f"{named.__module__}.{named.__qualname__}", features)


class WidthTree:
    """The nodes of a search, node 0 the root; children come after their parents."""

    def __init__(
        self,
        actions: np.ndarray,  # `[A, *action shape]`, the actions of every node
        states: np.ndarray,  # `[N]`, those of all nodes so far
        codes: np.ndarray,  # `[N, ...]`
        memory: NDArray[np.int32],
        origin: _Origin,
    ) -> None:
        self.actions = actions  # `[A, *action shape]`
        self.parents = np.empty(0, np.int32)  # `[N]`; -1 for the root
        self.taken = np.empty(0, np.int32)  # `[N]`, index of the action that leads to a node; -1 for the root
        self.children = np.empty((0, len(actions)), np.int32)  # `[N, A]`; -1: not generated
        self.rewards = np.empty(0)  # `[N]`, reward of the action that leads to a node
        self.lives = np.empty(0)  # `[N]`, lives that are left; NaN if unknown
        # `[N]`, the return of the action that leads to a node and of the best ones from there; the value of
        # the root; NaN before a decision is made
        self.returns = np.empty(0)
        self.ended = np.empty(0, np.bool_)  # `[N]`, whether the episode has ended
        self.states, self.codes = states[:0], codes[:0]
        self.best = np.zeros(1, np.int64)  # `[P + 1]` int64, the nodes on the path of best actions
        self.memory = memory  # what the codes depend on
        # `[2, K]`: the basic features that this and earlier roots had, in order, and when each was there last
        self.seen = np.empty((2, 0), np.int64)
        self.num_idle = 0  # decisions in a row, up to this one, whose best branch had no positive reward
        self.origin = origin
        self.num_nodes = 0  # N
        self._make_room(len(states))
        self.states[:], self.codes[:] = states, codes
        self.num_nodes = len(states)

    def _make_room(self, capacity: int) -> None:
        """Make room for a number of nodes."""
        for name in (*_FILL, "states", "codes"):
            held = getattr(self, name)[: self.num_nodes]
            array = np.empty((capacity, *held.shape[1:]), held.dtype)
            array[: self.num_nodes] = held
            if name in _FILL:
                array[self.num_nodes :] = _FILL[name]
            setattr(self, name, array)

    def __repr__(self) -> str:
        return f"<WidthTree: {self.num_nodes} nodes, {len(self.actions)} actions>"

    def add(self, parent: int, action: int, state: object, code: np.ndarray) -> int:
        """Add a node and return its index."""
        node = self.num_nodes
        if node == len(self.parents):
            self._make_room(max(_FIRST_CAPACITY, 2 * node))
        self.num_nodes += 1
        self.parents[node], self.taken[node] = parent, action
        self.children[parent, action] = node
        self.states[node], self.codes[node] = state, code
        return node

    def node_actions(self, node: int) -> np.ndarray:
        """Return the actions `[A, *action shape]`, which are those of every node."""
        return self.actions

    def view(self) -> TreeView:
        """Return what pictures show; visits are the numbers of nodes at and below each node."""
        size = self.num_nodes
        parents, visits = self.parents[:size].astype(np.int64), np.ones(size, np.int64)
        for node in range(size - 1, 0, -1):  # children come after their parents
            visits[parents[node]] += visits[node]
        links = np.column_stack([parents, np.arange(size)])[1:]
        return TreeView(
            parents, self.taken[:size].astype(np.int64), visits, self.returns[:size], self.best, links
        )

    def subtree(self, root: int) -> WidthTree:
        """Return a copy of the tree below a node."""
        kept = np.zeros(self.num_nodes, np.bool_)
        kept[root] = True
        for node in range(root + 1, self.num_nodes):
            kept[node] = kept[self.parents[node]]
        nodes = np.flatnonzero(kept)
        number = np.full(self.num_nodes + 1, -1, np.int32)  # the last entry is that of -1
        number[nodes] = np.arange(len(nodes))
        tree = WidthTree(self.actions, self.states[nodes], self.codes[nodes], self.memory.copy(), self.origin)
        for name in ("taken", "rewards", "lives", "ended"):
            getattr(tree, name)[:] = getattr(self, name)[nodes]
        tree.parents[:] = number[self.parents[nodes]]
        tree.children[:] = number[np.maximum(self.children[nodes], -1)]
        tree.parents[0] = tree.taken[0] = -1
        tree.rewards[0] = 0.0
        tree.seen, tree.num_idle = self.seen, self.num_idle
        return tree

    # -- files ----------------------------------------------------------------------------------------

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the tree as arrays of numbers and text, without spare capacity."""
        arrays = {name: getattr(self, name)[: self.num_nodes] for name in (*_SAVED, "codes")}
        return {
            **arrays,
            "actions": self.actions,
            "memory": self.memory,
            "dt": np.array(self.origin.dt),
            "features": np.array(self.origin.features),
            "best": self.best,
            "seen": self.seen,
            "num_idle": np.array(self.num_idle),
            **arrays_of_states("states", self.states[: self.num_nodes]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], action_space: Space[object]) -> WidthTree:
        """Return the tree that `to_arrays` turned into arrays."""
        states, codes = states_of_arrays("states", arrays), arrays["codes"]
        size, memory = len(states), np.array(arrays["memory"], np.int32)
        if not size or codes.ndim != 2 or codes.dtype.kind not in "iu" or memory.shape != MEMORY_SHAPE:
            raise ValueError("a tree without nodes, codes, or the memory of its codes")
        if ((memory[:, 1] < 0) | (memory[:, 1] > NUM_COLORS)).any() or (memory[:-1, 1] == NUM_COLORS).any():
            raise ValueError("colours of other numbers")  # compiled code would write elsewhere
        origin = _Origin(int(arrays["dt"]), str(arrays["features"]), None)
        tree = cls(arrays["actions"], states, codes, memory, origin)
        for name in _SAVED:
            getattr(tree, name)[:] = arrays[name]
        nodes = np.arange(1, size)
        parents, taken = tree.parents[1:], tree.taken[1:]
        if ((parents < 0) | (parents >= nodes) | (taken < 0) | (taken >= len(tree.actions))).any():
            raise ValueError("parents or actions that are not there")
        tree.children[parents, taken] = nodes
        if (tree.children[parents, taken] != nodes).any() or not np.isfinite(tree.rewards).all():
            raise ValueError("an action that leads to two nodes, or rewards that are not finite")
        tree.best = arrays["best"].astype(np.int64)
        if tree.best.ndim != 1 or ((tree.best < 0) | (tree.best >= size)).any():
            raise ValueError("a best path of nodes that are not there")
        tree.seen, tree.num_idle = arrays["seen"].astype(np.int64), int(arrays["num_idle"])
        if tree.seen.ndim != 2 or len(tree.seen) != 2 or (tree.seen[0, 1:] <= tree.seen[0, :-1]).any():
            raise ValueError("features out of order")
        if ((tree.seen[1] < 0) | (tree.seen[1] > 2**32)).any():
            raise ValueError("features of no decision")
        return tree

    @property
    def saved_states(self) -> np.ndarray:
        """The states of the nodes."""
        return self.states[: self.num_nodes]


class WidthSearch(Search):
    """One decision in progress."""

    # `depths`: Number of actions from the root, for each node.

    averages = True
    may_be_cut = True

    def __init__(
        self,
        config: WidthConfig,
        env: BatchStepper,
        state: np.ndarray,
        generator: np.random.Generator,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> None:
        from planvec.planners.novelty.features import features_for  # here, since numba takes long to import

        config.check_space(env.action_space)
        self._config = config
        self._lives_use = LivesUse(f"life_cost={config.life_cost:g}", "life_cost=0")
        self._env = env
        self._generator = generator
        self._noise_seed = int(generator.integers(2**63))
        self._features = features_for(env.observation_space, config.features)
        tree = self._kept_tree(state, previous)
        if tree is None:
            actions = list_actions(env.action_space)
            assert actions is not None  # `check_space` has refused others
            memory = np.zeros(MEMORY_SHAPE, np.int32)
            codes = self._features.codes(env.observe(state), memory, 1)
            tree = WidthTree(actions, state, codes, memory, _Origin.of(config))
            if config.life_cost:
                tree.lives[0] = read_lives(info, self._lives_use)
        self.tree = tree
        self.depths, self._path_rewards, self._subtables = [0], [0.0], [0]
        self._rewards = [0.0]  # `[N]`, with the weights of losses
        self._losses = [0.0]  # `[N]`, how many lives the action that leads to a node has lost
        self._has_event = False  # whether an action of the tree has a positive reward, or has lost a life
        self._tables: dict[int, NoveltyTable] = {}
        self._found: dict[int, NDArray[np.int64]] = {}  # of marked nodes: features with which it was novel
        self.num_pending = 0  # number of steps in flight
        for node in range(1, tree.num_nodes):
            self._place(node)
        self._forbid(0, tree.num_nodes)
        self.mark(0)
        shown, (keys, times) = self._features.basic(tree.codes[0]), tree.seen
        every = np.union1d(keys, shown)
        tree.seen = np.stack([every, np.empty_like(every)])
        tree.seen[1, np.searchsorted(every, keys)] = times
        tree.seen[1, np.searchsorted(every, shown)] = times.max(initial=-1) + 1  # now

    def _kept_tree(self, state: np.ndarray, previous: Plan | None) -> WidthTree | None:
        """Return the tree that is left of the last decision, at a state; None for a new one."""
        config = self._config
        if not config.reuse_tree or previous is None or not isinstance(previous.search_data, WidthTree):
            return None
        tree = previous.search_data
        taken = equal_actions(tree.actions, previous.action)
        child = int(tree.children[0, int(taken.argmax())]) if taken.any() else -1
        if child < 0 or tree.ended[child]:
            return None
        origin, other = tree.origin, _Origin.of(config)
        is_known = origin.function is not None and other.function is not None
        if origin[:2] != other[:2] or (is_known and origin.function != other.function):
            return None
        if tree.codes.dtype != self._features.dtype:
            return None
        if config.life_cost and np.isnan(tree.lives[: tree.num_nodes]).any():
            return None  # made without a cost of lost lives
        # The generator in the state may differ: it was reseeded.
        if state_keys(tree.states[child : child + 1])[0] != state_keys(state)[0]:
            return None
        return tree.subtree(child)

    # -- nodes ----------------------------------------------------------------------------------------

    @property
    def num_left(self) -> int:
        """How many steps may still be requested."""
        return self._config.simulation_limit - self.num_simulations - self.num_pending

    def generate(self, steps: list[tuple[int, int]]) -> Generator[StepRequest, Transitions, list[int]]:
        """Request the steps of open actions of nodes, `[B]`, and return the new nodes; a generator."""
        parents, actions = np.array(steps, np.int64).T
        seeds = None
        if self._env.is_stochastic:
            seeds = self._generator.integers(2**64, size=len(steps), dtype=np.uint64)
        self.num_pending += len(steps)
        try:
            out = yield StepRequest(
                self.tree.actions[actions], self.tree.states[parents], self._config.dt, seeds
            )
        except GeneratorExit:  # they are not stepped any more
            self.tree.children[parents, actions] = -1
            raise
        finally:
            self.num_pending -= len(steps)
        codes = self._features.codes(out.observations, self.tree.memory, len(steps), self.tree.codes)
        lives = np.full(len(steps), np.nan)
        if self._config.life_cost:
            lives = stacked_lives(out.infos, np.ones(len(steps), np.bool_), self._lives_use)
        nodes, first = [], self.tree.num_nodes
        assert out.new_states is not None
        for row, (parent, action) in enumerate(steps):
            node = self.tree.add(parent, action, out.new_states[row], codes[row])
            self.tree.rewards[node] = out.rewards[row]
            self.tree.ended[node] = out.terminated[row] or out.truncated[row]
            self.tree.lives[node] = lives[row]
            self._place(node)
            nodes.append(node)
        self._forbid(first, self.tree.num_nodes)
        self.num_simulations += len(nodes)
        if self.num_simulations >= self._config.simulation_limit:
            by_steps = self._config.num_simulations is None and self._config.max_env_steps is not None
            self.stop_reason = "max_env_steps" if by_steps else "num_simulations"
        return nodes

    def _forbid(self, first: int, last: int) -> None:
        """Mark the actions of nodes, from the first up to the last, that are illegal in their states."""
        space, tree = self._env.action_space, self.tree
        masks = action_masks(space, tree.states[first:last])
        if masks is not None:
            tree.children[first:last][~are_legal(space, masks[:, None], tree.actions[None])] = _ILLEGAL

    def _place(self, node: int) -> None:
        """Note what follows from the path to a node, the next one."""
        parent, config = int(self.tree.parents[node]), self._config
        depth = self.depths[parent] + 1
        lost = float(self.tree.lives[parent] - self.tree.lives[node])
        lost = lost if lost > 0 else 0.0  # gains, and NaN, where it is unknown
        own = float(self.tree.rewards[node])
        self._has_event |= own > 0 or lost > 0
        own = own * (config.risk_aversion if own < 0 else 1.0) - config.life_cost * lost
        if abs(own) > _LARGEST_REWARD:
            raise InvalidBatchError(
                f"rewards: expected numbers of at most {_LARGEST_REWARD:g}, after risk_aversion and "
                f"life_cost, got {own}, whose sums would be infinite; wrap the environment in "
                "gymnasium.wrappers.TransformReward, or lower these"
            )
        reward = self._path_rewards[parent] + config.discount ** (depth - 1) * own
        has_table = config.subtables and reward > 0
        self.depths.append(depth)
        self._rewards.append(own)
        self._losses.append(lost)
        self._path_rewards.append(reward)
        self._subtables.append(max(0, int(np.floor(np.log2(reward)))) + 1 if has_table else 0)

    def _values_beyond(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what is taken to follow each node, `[N]`, by the rewards of all nodes.

        Where every step costs something, or lives are lost often, the branch that was followed least far
        would look best. An episode that has not ended is therefore taken to go on as far as the tree is
        deep: each step costs as much as the median one, and loses a life with a part of the tree's rate, at
        most one in all.
        """
        depths = np.array(self.depths)
        values = np.zeros(depths.max() + 1)  # by the number of further steps
        if len(rewards) > 1:
            losses, life_cost = np.array(self._losses[1:]), self._config.life_cost
            risk = _SHARE_OF_LOSSES * float(np.mean(losses > 0))
            reward = min(0.0, float(np.median(rewards[1:] + life_cost * losses))) - risk * life_cost
            factor = self._config.discount * (1 - risk)
            for steps in range(1, len(values)):  # like the returns of branches, so that equal ones are equal
                values[steps] = reward + factor * values[steps - 1]
        return np.where(self.tree.ended[: len(depths)], 0.0, values[depths.max() - depths])

    def mark(self, node: int) -> bool:
        """Mark the features of a node that was not marked in this decision; return whether it is novel."""
        number = self._subtables[node]
        table = self._tables.get(number)
        if table is None:
            table = self._tables[number] = self._features.new_table()
        parent = int(self.tree.parents[node])
        before = self.tree.codes[parent] if node else None
        is_first = node == 0 or self._subtables[parent] != number
        found = table.mark(self.tree.codes[node], before, self.depths[node], is_first)
        self._found[node] = found
        return len(found) > 0

    def goes_on(self, node: int, is_novel: bool) -> bool:
        """Return whether a branch is followed farther than a node."""
        horizon = self._config.horizon
        # before anything happens there is nothing for which a shorter search would be better
        is_near = horizon is None or not self._has_event or self.depths[node] < horizon
        return is_novel and is_near and not self.tree.ended[node]

    def is_still_novel(self, node: int) -> bool:
        """Return whether a marked node has a feature that no shallower node has."""
        found, table = self._found[node], self._tables[self._subtables[node]]
        start = table.first_novel(found, self.depths[node])
        if start < 0:
            return False
        self._found[node] = found[start:]  # stamps only grow: the ones before stay old
        return True

    # -- the decision ---------------------------------------------------------------------------------

    def _branches(self) -> tuple[Any, ...]:
        """Compare all branches: see `best_branches`.

        Returns rewards `[N]`, noise and returns `[N, A]`, values, best actions and numbers of nodes `[N]`.
        """
        from planvec.planners.novelty.branches import best_branches  # here, since numba takes long to import

        tree = self.tree
        size, shape = tree.num_nodes, (tree.num_nodes, len(tree.actions))
        rewards, returns = np.array(self._rewards), np.empty(shape)
        values = self._values_beyond(rewards)
        best, lengths, counts = np.empty((3, size), np.int64)
        # decides between equal branches; that of a node is the same throughout a decision
        noise = np.random.default_rng(self._noise_seed).random(shape)
        best_branches(
            tree.parents[:size],
            tree.taken[:size],
            tree.children[:size],
            rewards,
            float(self._config.discount),
            noise,
            returns,
            values,
            best,
            lengths,
            counts,
        )
        return rewards, noise, returns, values, best, counts

    def plan(self) -> Plan:
        """Return the action that leads to the best branch."""
        tree, discount = self.tree, self._config.discount
        size, num_actions = tree.num_nodes, len(tree.actions)
        rewards, noise, returns, values, best, counts = self._branches()
        tried = returns[0] > -np.inf
        any_legal = np.where(tree.children[0] == _ILLEGAL, -1.0, noise[0])
        tree.best = self._path(best)
        tree.num_idle = 0 if (rewards[tree.best] > 0).any() else tree.num_idle + 1
        if tree.num_idle > _NUM_IDLE:
            self._go_to_stalest(rewards, noise, best)
            tree.best = self._path(best)
        path = tree.best[1:]
        action = int(best[0]) if best[0] >= 0 else int(any_legal.argmax())
        tree.returns[0] = values[0]
        tree.returns[1:size] = returns[tree.parents[1:size], tree.taken[1:size]]
        visits = np.zeros(num_actions, np.int64)
        visits[tried] = counts[tree.children[0, tried]]
        return Plan(
            action=tree.actions[action],
            value=float(values[0]),
            root_actions=tree.actions.copy(),
            visit_counts=visits,
            action_values=np.where(tried, returns[0], np.nan),
            standard_errors=np.full(num_actions, np.nan),
            best_actions=tree.actions[tree.taken[path]],
            best_num_steps=np.full(len(path), self._config.dt, np.int64),
            best_return=float(tree.rewards[path] @ discount ** np.arange(len(path))),
            depth_histogram=np.bincount(self.depths),
            search_data=tree,
        )

    def _path(self, best: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the nodes on the path of the best actions `[N]`, the root first."""
        nodes = [0]
        while best[nodes[-1]] >= 0:
            nodes.append(int(self.tree.children[nodes[-1], best[nodes[-1]]]))
        return np.array(nodes)

    def _go_to_stalest(
        self, rewards: NDArray[np.float64], noise: NDArray[np.float64], best: NDArray[np.int64]
    ) -> None:
        """Let the best actions `[N]` lead to a basic feature that no root has had for the longest time.

        Plans that see no gain would walk to and fro otherwise. The branch there has no negative reward, and
        an action that was tried leads on without one; of those that are alike the deepest is taken.
        """
        tree, depths = self.tree, np.array(self.depths)
        keys, times = tree.seen
        is_lost = (rewards < 0) | tree.ended[: len(depths)]
        has_way = np.zeros(len(depths), np.bool_)  # whether an action that was tried does not lead to a loss
        for node in range(len(depths) - 1, 0, -1):  # children come after their parents
            is_lost[node] |= best[node] >= 0 and not has_way[node]
            has_way[tree.parents[node]] |= not is_lost[node]
        is_safe = np.zeros(len(depths), np.bool_)
        is_safe[0] = True
        stalest = np.full(len(depths), times.max())  # `[N]`, when the stalest feature of a branch was seen
        for node in range(1, len(depths)):
            parent = tree.parents[node]
            if is_safe[parent] and not is_lost[node]:
                is_safe[node] = True
                shown = self._features.basic(tree.codes[node])
                at = np.minimum(np.searchsorted(keys, shown), len(keys) - 1)
                seen = np.where(keys[at] == shown, times[at], -1)
                stalest[node] = seen.min(initial=stalest[parent])
        # a branch that is short may be followed by a loss
        far = np.flatnonzero(is_safe & (depths >= min(_SAFE_DEPTH, depths[is_safe].max())))
        node = int(far[np.lexsort((noise[far, 0], depths[far], -stalest[far]))[-1]])
        if node:
            best[node] = -1  # the plan ends there
        while node:
            best[tree.parents[node]] = tree.taken[node]
            node = int(tree.parents[node])


# -- IW(1) (Lipovetzky, Ramirez and Geffner 2015): breadth-first search that prunes where nothing is new -----


class BreadthSearch(WidthSearch):
    """One decision of `IW`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._queue = deque([0])
        self.num_in_flight = 2

    def simulate(self) -> Simulation:
        """Generate the children of the next nodes, at most half a batch."""
        room = min(self.num_left, max(1, self._config.batch_size // 2))
        steps: list[tuple[int, int]] = []
        while self._queue and len(steps) < room:
            node = self._queue[0]
            is_open = True
            for action, child in enumerate(self.tree.children[node].tolist()):
                if child == -1 and len(steps) < room:
                    self.tree.children[node, action] = _PENDING
                    steps.append((node, action))
                elif child == -1:
                    is_open = False
                elif child >= 0 and child not in self._found:  # of the last decision
                    self._look_at(child)
            if not is_open:
                break
            self._queue.popleft()
        if steps:
            for node in (yield from self.generate(steps)):
                self._look_at(node)
        elif not self.num_pending and not self._queue:
            self.stop_reason = "exhausted"

    def _look_at(self, node: int) -> None:
        """Mark a node, and let it be expanded if it is novel."""
        if self.goes_on(node, self.mark(node)):
            self._queue.append(node)


# -- Rollout-IW (Bandres, Bonet and Geffner 2018): random rollouts that end where nothing is new -------------


class RolloutSearch(WidthSearch):
    """One decision of `RolloutIW`. `batch_size` rollouts are in flight, in two halves."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._solved = {_ILLEGAL}
        self._waited_at = -1  # the number of simulations when a half had nothing to do
        halves = np.array_split(np.arange(self._config.batch_size), min(2, self._config.batch_size))
        self._free = [half.tolist() for half in halves][::-1]
        self.num_in_flight = len(halves)
        self._at = [0] * self._config.batch_size  # the node where each rollout is

    def simulate(self) -> Simulation:
        """Continue the rollouts of one half by one step each."""
        half = self._free.pop()
        try:
            if self.num_simulations == self._waited_at:
                return  # how often a search is asked without a step depends on the other roots
            slots, steps = [], []
            for slot in half[: max(0, self.num_left)]:
                step = self._step_after_still()
                if step is not None:
                    slot = -1  # no rollout's
                else:
                    step = self._next_step(slot)
                if step is not None:
                    slots.append(slot)
                    steps.append(step)
            if not slots:
                self._waited_at = self.num_simulations
                if 0 in self._solved and not self.num_pending:
                    self.stop_reason = "exhausted"
                return
            nodes = yield from self.generate(steps)
            for slot, node in zip(slots, nodes, strict=True):
                if slot >= 0:
                    self._go_on(slot, node, self.mark(node))
        finally:
            self._free.append(half)

    def _step_after_still(self) -> tuple[int, int] | None:
        """Return the node and the action of a step on from the best branch if it ends in a still; else None.

        In many games a life is lost some steps after the player was hit, and nothing moves meanwhile.
        Rollouts end there, since nothing is new, and the branch would look like one that has lost nothing.
        So the second half of the steps, and those that are left where nothing is new, go on from the best
        branch while it ends in a still.
        """
        is_late = 0 in self._solved or 2 * self.num_simulations >= self._config.simulation_limit
        if not self._config.life_cost or not is_late:
            return None
        tree, node = self.tree, int(self._path(self._branches()[4])[-1])
        children = tree.children[node]
        if not node or tree.ended[node] or self.depths[node] >= _STILL_DEPTH or _PENDING in children:
            return None
        shown, before = map(self._features.basic, tree.codes[[node, tree.parents[node]]])
        open_actions = np.flatnonzero(children == -1)
        if not np.array_equal(shown, before) or not len(open_actions):
            return None
        action = int(self._generator.choice(open_actions))
        children[action] = _PENDING
        return node, action

    def _next_step(self, slot: int) -> tuple[int, int] | None:
        """Walk on from where a rollout is; return the node and the action of the next step; None: wait."""
        # A rollout that ends begins again at the root.
        while 0 not in self._solved:
            node = self._at[slot]
            if node in self._solved:
                self._at[slot] = 0
                continue
            children = self.tree.children[node]
            open_actions = [
                action
                for action, child in enumerate(children.tolist())
                if child == -1 or (child >= 0 and child not in self._solved)
            ]
            if not open_actions:  # those that are not solved are in flight
                self._at[slot] = 0
                return None
            action = open_actions[int(self._generator.integers(len(open_actions)))]
            child = int(children[action])
            if child == -1:
                self.tree.children[node, action] = _PENDING
                return node, action
            is_novel = self.is_still_novel if child in self._found else self.mark
            self._go_on(slot, child, is_novel(child))
        return None

    def _go_on(self, slot: int, node: int, is_novel: bool) -> None:
        """Go on with a rollout at a node, or end it there and label the node as solved."""
        if self.goes_on(node, is_novel):
            self._at[slot] = node
            return
        self._at[slot] = 0
        tree = self.tree
        self._solved.add(node)
        while node:  # and its ancestors whose children all are; those to come are below 0
            node = int(tree.parents[node])
            if not self._solved.issuperset(tree.children[node].tolist()):
                return
            self._solved.add(node)
