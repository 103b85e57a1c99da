"""The arrays of a search tree, and their memory.

The tree is a struct of arrays of records with node 0 as its root. An edge is an action at a node. It has one
or more outcomes, each of which leads to a node. Where a step has one outcome, outcome and node have the same
index.

Letters: N nodes, A actions per node, M outcomes, K simulations in flight, D depths.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# -- The settings of the kernels of tree search, and the constants that they share ---------------------------

# how a selection ends: at an action to step; at a node whose value is known; at a step that is in flight
SAMPLE, RESOLVED, COLLIDED = 0, 1, 2
# an action has one outcome; a node for each of its outcomes; one node for all of its outcomes
SINGLE, NODES, OPEN_LOOP = 0, 1, 2
# special values of `Rules.value_scale`; any other value is the scale itself
SCALE_BY_TREE, SCALE_BY_NODE = -1.0, -2.0
MAX_IDLE = 10_000  # simulations in a row without a step, after which the tree counts as exhausted
ALL = (math.inf, 0.0)  # A value of `Rules.widening`: no limit

# what a look at the environment has chosen: nothing; shorter rollouts; a graph of observations
AS_GIVEN, SHORT_ROLLOUTS, GRAPH = 0, 1, 2


class TreeKind(NamedTuple):
    """The settings with which a tree was searched. Only a search with the same ones can continue it."""

    has_own_actions: bool  # whether every node has its own, drawn actions
    has_priors: bool  # whether there are priors (PUCT)
    has_legal: bool  # whether there are masks of legal actions
    shares_nodes: bool  # whether equal states share a node
    chance: int  # `SINGLE`, `NODES` or `OPEN_LOOP`
    discount: float  # factor per environment step
    dt: int  # environment steps for which an action is repeated
    choice: int = AS_GIVEN  # `AS_GIVEN`, `SHORT_ROLLOUTS` or `GRAPH`


class Rules(NamedTuple):
    """The settings of a search, and the form of its states, as compiled code reads them."""

    exploration: float = 1.0  # factor of the exploration term
    value_scale: float = 1.0  # further factor of it: a number, `SCALE_BY_TREE` or `SCALE_BY_NODE`
    use_priors: bool = False  # whether to select by PUCT, else by UCT
    use_legal: bool = False  # whether there are masks of legal actions
    chance: int = SINGLE  # `SINGLE`, `NODES` or `OPEN_LOOP`
    max_depth: int = 1  # D
    # A node tries `widening[0] * visits ** widening[1]` actions; (inf, 0): all
    widening: tuple[float, float] = ALL
    outcome_widening: tuple[float, float] = ALL  # the same for the outcomes sampled of an action
    # whether a value is computed from the values of its outcomes, as a graph needs it, or is the mean of the
    # returns of its simulations
    backs_up_values: bool = False
    # whether the value of a node is that of its best action, or the mean of its simulations
    backs_up_max: bool = False
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
    discount: float = 1.0  # factor per environment step
    state_bytes: int = 0  # S; 0 if states are objects, which compiled code does not see
    action_bytes: int = 0  # bytes of one action; 0 if every node has its own
    player_at: int = -1  # index of the byte of a state that holds the player to move; -1: there is one player
    # index of the first of the A bytes of a state that hold the legal actions; -1: there are none
    mask_at: int = -1


# indices of `TreeArrays.counters`: number of nodes, of outcomes, of random draws; whether the root was
# evaluated; whether a certain value was outside `value_bounds`
NUM_NODES, NUM_OUTCOMES, NUM_DRAWS, ROOT_WEIGHT, OUT_OF_BOUNDS = 0, 1, 2, 3, 4
NUM_COUNTERS = 5


class _Field:
    """A field of an array of records, which it gives as an array, a view."""

    def __init__(self, records: str, dtype: type[np.generic]) -> None:
        self.records, self.dtype = records, dtype

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, arrays: Any, owner: Any = None) -> NDArray[Any]:
        field: NDArray[Any] = getattr(arrays, self.records)[self._name]
        return field


class _Records(NamedTuple):
    """The arrays of a tree as compiled code sees them."""

    nodes: NDArray[Any]  # `[N]` records of the fields below
    edges: NDArray[Any]  # `[N, A]`
    outcomes: NDArray[Any]  # `[M]`
    root_edges: NDArray[Any]  # `[A]`
    priors: NDArray[np.float64]  # `[N, A]` float64, or `[1, 1]` without priors
    # `[N, A]` bool, the actions that may be taken, without those that are proven to be of no use; or `[1, 1]`
    # where all may
    legal: NDArray[np.bool_]
    bounds: NDArray[np.float64]  # `[2]` float64, the lowest and the highest return that were backed up
    # `[D + 1]` int64, number of simulations that ended after 0, 1, ... actions
    depth_histogram: NDArray[np.int64]
    counters: NDArray[np.int64]  # `[5]` int64; the constants above are its indices


class TreeArrays(_Records):
    """The arrays of a tree. What a search reads together lies together, in records."""

    __slots__ = ()

    visits = _Field("nodes", np.int32)  # completed simulations that took an action here
    unobserved = _Field("nodes", np.int32)  # those in flight (the O of WU-UCT)
    values = _Field("nodes", np.float64)  # estimated return from the node on, for the player to move
    raw_values = _Field("nodes", np.float64)  # its first evaluation, by a rollout or `value_fn`
    ended = _Field("nodes", np.bool_)  # whether the episode has ended
    pending = _Field("nodes", np.bool_)  # whether the first evaluation (a rollout) is in flight
    players = _Field("nodes", np.int8)  # the player to move; 0 at ends, and where there is one player
    # whether the value is exactly known though the episode goes on (`value_bounds`)
    proven = _Field("nodes", np.bool_)
    starts = _Field("nodes", np.int32)  # the action that wins ties; further ones follow it cyclically
    parents = _Field("nodes", np.int32)  # the first parent; -1 for the root
    parent_actions = _Field("nodes", np.int32)  # the action of that parent
    edge_visits = _Field("edges", np.int32)  # completed simulations that took the action
    edge_unobserved = _Field("edges", np.int32)  # those in flight
    edge_values = _Field("edges", np.float64)  # mean return, for the player who takes the action
    edge_samples = _Field("edges", np.int32)  # how often an outcome was sampled
    first_outcomes = _Field("edges", np.int32)  # the latest outcome, first of a linked list; -1: none yet
    outcome_rewards = _Field("outcomes", np.float64)  # sum of rewards, for the player who takes the action
    # the discount to the power of the number of environment steps; negative where the other player is to move
    # next, whose values have the other sign
    outcome_discounts = _Field("outcomes", np.float64)
    outcome_nodes = _Field("outcomes", np.int32)  # the node that it leads to
    outcome_steps = _Field("outcomes", np.int32)  # number of environment steps
    outcome_counts = _Field("outcomes", np.int32)  # how often it was sampled
    next_outcomes = _Field("outcomes", np.int32)  # the next outcome of the edge; -1 at the end of the list
    # the returns of the root's actions, while this node was the root: their number, their means, and the sums
    # of their squared deviations
    root_visits = _Field("root_edges", np.int64)
    root_means = _Field("root_edges", np.float64)
    root_squares = _Field("root_edges", np.float64)

    def named(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name: the fields of records, and the others."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, array in self._asdict().items():
            names = array.dtype.names
            arrays |= {name: array} if names is None else {field: array[field] for field in names}
        return arrays

    def rows(self) -> dict[str, int]:
        """Return the number of rows in use, for each array of nodes, of their edges, and of outcomes."""
        num_nodes, num_outcomes = int(self.counters[NUM_NODES]), int(self.counters[NUM_OUTCOMES])
        counts = {"nodes": num_nodes, "edges": num_nodes, "outcomes": num_outcomes}
        counts |= {name: num_nodes for name in ("priors", "legal") if getattr(self, name).size > 1}
        return counts


class Paths(NamedTuple):
    """The paths of the simulations in flight, from the root on."""

    depths: NDArray[np.int32]  # `[K]` int32, number of actions
    nodes: NDArray[np.int32]  # `[K, D + 1]` int32, the nodes, from the root on
    actions: NDArray[np.int32]  # `[K, D]` int32, the index of the action at each node
    rewards: NDArray[np.float64]  # `[K, D]` float64, the reward of each action
    discounts: NDArray[np.float64]  # `[K, D]` float64, the discount of each action


_NODE, _EDGE, _OUTCOME, _ROOT_EDGE = (
    np.dtype(
        [
            (name, field.dtype)
            for name, field in vars(TreeArrays).items()
            if isinstance(field, _Field) and field.records == records
        ],
        align=True,
    )
    for records in ("nodes", "edges", "outcomes", "root_edges")
)

# memory of a state in the transposition table: entries of dictionaries, and their keys
_BYTES_OF_TABLE_ENTRY = 400


def bytes_per_node(num_actions: int, state_bytes: int, action_bytes: int, kind: TreeKind) -> int:
    """Return the memory in bytes of a node: its edges, its state, its actions and the outcome before it."""
    # `state_bytes`: Bytes of one state; 0 without states. `action_bytes`: Bytes of one action; counted where
    # every node has its own actions.
    per_edge = _EDGE.itemsize + 8 * kind.has_priors + kind.has_legal + action_bytes * kind.has_own_actions
    has_table = kind.chance != SINGLE or kind.shares_nodes
    per_node = _NODE.itemsize + _OUTCOME.itemsize
    return per_node + num_actions * per_edge + state_bytes + _BYTES_OF_TABLE_ENTRY * has_table


def empty_arrays(
    capacity: int, num_actions: int, max_depth: int, use_priors: bool, use_legal: bool
) -> TreeArrays:
    """Return uninitialised arrays for a tree. The system provides their memory when it is written."""
    edges = (capacity, num_actions)
    return TreeArrays(
        nodes=np.empty(capacity, _NODE),
        edges=np.empty(edges, _EDGE),
        outcomes=np.empty(capacity, _OUTCOME),
        root_edges=np.zeros(num_actions, _ROOT_EDGE),
        priors=np.empty(edges if use_priors else (1, 1)),
        legal=np.empty(edges if use_legal else (1, 1), np.bool_),
        bounds=np.empty(2),
        depth_histogram=np.zeros(max_depth + 1, np.int64),
        counters=np.zeros(NUM_COUNTERS, np.int64),
    )


def empty_paths(num_slots: int, max_depth: int) -> Paths:
    """Return empty paths for simulations in flight."""
    return Paths(
        np.zeros(num_slots, np.int32),
        np.zeros((num_slots, max_depth + 1), np.int32),
        np.zeros((num_slots, max_depth), np.int32),
        np.zeros((num_slots, max_depth)),
        np.zeros((num_slots, max_depth)),
    )


# -- The memory of the simulations in flight, of their requests, and of the answers.
#
# The slots of the simulations in flight form two halves. Each half has at most one request, whose rows are in
# the part of the buffers that belongs to its slots. Letters: B rows, K slots, S bytes of a state.

NUM_STARTED, NUM_SIMULATIONS, NUM_ENV_STEPS, NUM_IDLE, STOP = 0, 1, 2, 3, 4
NUM_FREE, NUM_QUEUED, NUM_ROWS, NUM_CHUNKS, NUM_EVENTS = 5, 6, 7, 8, 9  # indices of `Progress.totals`
# values of `Progress.totals[STOP]`
GOES_ON, NUM_SIMULATIONS_REACHED, MAX_MEMORY, EXHAUSTED, MAX_ENV_STEPS, MAX_SECONDS, CALLBACK = range(7)
# the same in words; see `Plan.stop_reason`
STOP_REASONS = (
    None,
    "num_simulations",
    "max_memory",
    "exhausted",
    "max_env_steps",
    "max_seconds",
    "callback",
)
# the kinds of requests: steps; values of leaves, by rollouts or by a function of the user
STEPS, LEAVES = 0, 1
# what a half does: it began no simulations; it has completed them; its request has to be performed
NONE, COMPLETED, PERFORM = 0, 1, 2
# How the loop ends: the search is over; it goes on with the next call; the environment has to perform the
# request of the half that was queued last; the root's episode had ended.
DONE, PAUSED, REFUSED, ENDED = 0, 1, 2, 3


class Progress(NamedTuple):
    """The simulations in flight."""

    totals: NDArray[np.int64]  # `[10]` int64, counts; the constants above are their indices
    free: NDArray[np.int64]  # `[2]` int64, the halves without simulations, the next one last
    queue: NDArray[np.int64]  # `[2]` int64, the halves whose requests were performed, the oldest first
    # `[3]` int64: the slots of half `h` are those from `bounds[h]` up to `bounds[h + 1]`
    bounds: NDArray[np.int64]
    counts: NDArray[np.int64]  # `[2]` int64, number of simulations of each half
    stages: NDArray[np.int64]  # `[2]` int64, the kind of its request
    num_rows: NDArray[np.int64]  # `[2]` int64, the rows of its request
    rows: NDArray[np.int64]  # `[K]` int64, the slot of each row of a request
    slots: NDArray[np.int64]  # `[K]` int64: 0, 1, 2, ...
    statuses: NDArray[np.int64]  # `[K]` int64, of selections
    nodes: NDArray[np.int64]  # `[K]` int64, the node of each row
    ends: NDArray[np.bool_]  # `[K]` bool, whether the episode of each row has ended
    is_new: NDArray[np.bool_]  # `[K]` bool, whether the last node of each simulation is new
    has_ended: NDArray[np.bool_]  # `[K]` bool, whether its episode has ended
    leaf_values: NDArray[np.float64]  # `[K]` float64, the values of the last nodes


class Requests(NamedTuple):
    """The rows of requests."""

    states: NDArray[np.uint8]  # `[K * S]` uint8
    actions: NDArray[np.uint8]  # the bytes of K actions
    own_states: NDArray[np.uint8]  # `[K * S]` uint8, the states of the simulations of an open loop


class Steps(NamedTuple):
    """The answer to a request for steps."""

    new_states: NDArray[np.uint8]  # `[B * S]` uint8
    rewards: NDArray[np.float64]  # `[B]` float64
    terminated: NDArray[np.uint8]  # `[B]` uint8
    truncated: NDArray[np.uint8]  # `[B]` uint8
    num_steps: NDArray[np.int64]  # `[B]` int64


class Table(NamedTuple):
    """The hash tables, and what counts as equal."""

    outcomes: NDArray[np.int32]  # `[power of 2 above 2 M]` int32, the entries of outcomes
    # `[power of 2 above 2 N]` int32, the entries of nodes; `[1]` if equal states do not share a node
    nodes: NDArray[np.int32]
    edges: NDArray[np.int64]  # `[M]` int64, the edge of each outcome: node * A + action
    keys: NDArray[np.uint8]  # the bytes of the keys of nodes, or of their states; `[0]` if there are neither
    key_bytes: int  # bytes of a key
    # `[2 n]` int64, the bytes of a key that are compared: from, up to; and so on. `[0]`: none, since the
    # nodes of an open loop have no states.
    parts: NDArray[np.int64]


class Halving(NamedTuple):
    """The state of sequential halving at the root of a search."""

    # `[n]` int64: simulation i takes an action with so many visits; `[0]` without halving
    sequence: NDArray[np.int64]
    scores: NDArray[np.float64]  # `[A]` float64, Gumbel noise plus logits; -inf for illegal actions
    priors: NDArray[np.float64]  # `[A]` float64, the probabilities of the logits
    # `[A]` int64, the visits from before this search, which halving does not count
    base_visits: NDArray[np.int64]
    transform: NDArray[np.float64]  # `[2]` float64, c_visit and c_scale of sigma


class Shared(NamedTuple):
    """The memory of a search."""

    tree: TreeArrays
    paths: Paths  # the paths of the simulations in flight
    # `[N * S]` uint8, the states of nodes; `[0]` for an open loop, or if states are objects
    tree_states: NDArray[np.uint8]
    actions: NDArray[np.uint8]  # the bytes of the actions that all nodes have; `[0]` if each has its own
    root_state: NDArray[np.uint8]  # `[S]` uint8
    rules: Rules  # the settings of the search
    table: Table  # the transposition table
    progress: Progress  # the simulations in flight
    requests: Requests
    halving: Halving  # sequential halving at the root
