"""The simulations in flight of a search, as compiled code: one call before each answer, and one after it.

    begin --request--> take_steps --request--> ... --> take_values
               ^            |
               +------------+  (a sampled outcome that was in the tree already: select on from its node)

Both the search in Python (`planvec.planners.mcts.search`) and the compiled loop (`compiled.advance`) run
simulations with these functions, so that they find the same plan. Letters: K slots, S bytes of a state.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.kernels import (
    CodeType,
    Pointer,
    bytes_of,
    code_digest,
    compile_loop,
    copy_bytes,
    jit,
    load,
    value_at,
)
from planvec.planners.mcts.arrays import (
    EXHAUSTED,
    LEAVES,
    MAX_IDLE,
    MAX_MEMORY,
    NONE,
    NUM_FREE,
    NUM_IDLE,
    NUM_NODES,
    NUM_OUTCOMES,
    NUM_SIMULATIONS,
    NUM_SIMULATIONS_REACHED,
    NUM_STARTED,
    OPEN_LOOP,
    PERFORM,
    SAMPLE,
    SINGLE,
    STEPS,
    STOP,
    Halving,
    Progress,
    Requests,
    Rules,
    Shared,
    Steps,
    Table,
    TreeArrays,
    empty_paths,
)
from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.phases import back_up, init_node, select
from planvec.planners.mcts.tree import Tree
from planvec.rows import GENERATOR_FIELD, Transitions


def _new_progress(num_slots: int) -> Progress:
    """Return the memory of simulations in flight, of which there are none yet."""
    num_halves = min(2, num_slots)
    arrays: dict[str, NDArray[Any]] = {
        name: np.zeros(num_slots, np.int64) for name in ("rows", "statuses", "nodes")
    }
    arrays |= {name: np.zeros(num_slots, np.bool_) for name in ("ends", "is_new", "has_ended")}
    arrays |= {name: np.zeros(2, np.int64) for name in ("free", "queue", "counts", "stages", "num_rows")}
    arrays["free"][:num_halves] = np.arange(num_halves)[::-1]
    totals = np.zeros(10, np.int64)
    totals[NUM_FREE] = num_halves
    return Progress(
        totals=totals,
        slots=np.arange(num_slots),
        bounds=np.array([0, num_slots - num_slots // 2, num_slots]),
        leaf_values=np.zeros(num_slots),
        **arrays,
    )


def new_steps(num_rows: int, state_bytes: int) -> Steps:
    """Return the memory of an answer."""
    return Steps(
        np.zeros(num_rows * state_bytes, np.uint8),
        np.zeros(num_rows),
        np.zeros(num_rows, np.uint8),
        np.zeros(num_rows, np.uint8),
        np.zeros(num_rows, np.int64),
    )


# -- The transposition table: finds the outcomes and nodes that are in the tree already.
#
# It consists of two hash tables with open addressing: an entry is the index of an outcome or of a node, plus
# 1; 0 is a free entry. Two outcomes of an action are the same if they lead to equal states with equal
# rewards. Where nodes are shared, equal states are one node, whatever actions led there.
#
# States are compared by the bytes of their keys: parts of the states themselves, or numbers that the search
# gives to equal keys (`search.TreeSearch`).
#
# Letters: B rows, N nodes, M outcomes, A actions per node.


def _new_table(
    capacity: int, shares_nodes: bool, keys: NDArray[np.uint8], key_bytes: int, parts: list[int]
) -> Table:
    """Return an empty table."""
    num_entries = 1 << (2 * capacity).bit_length()
    return Table(
        np.zeros(num_entries, np.int32),
        np.zeros(num_entries if shares_nodes else 1, np.int32),
        np.zeros(capacity, np.int64),
        keys,
        key_bytes,
        np.array(parts, np.int64),
    )


def is_by_observation(shared: Any) -> bool:
    """Return whether states with equal observations share a node; see `MCTS.transpositions`."""
    return isinstance(shared, (str, tuple)) and shared in ("observation", ("observation",))


def _parts_of_states(shared: Any, dtype: np.dtype[Any], foresees_chance: bool) -> list[int] | None:
    """Return `Table.parts` if states are compared by some of their bytes; None: only keys tell them apart."""
    fields: Mapping[str, tuple[Any, ...]] = dtype.fields or {}
    if isinstance(shared, (str, tuple)):
        names = (shared,) if isinstance(shared, str) else shared
        unknown = [name for name in names if name not in fields]
        if unknown and is_by_observation(shared):
            return None
        if unknown or not names:
            raise InvalidBatchError(
                f"transpositions: expected fields of the states ({', '.join(fields) or 'which have none'}), "
                f"got {', '.join(map(repr, unknown)) or 'none'}"
            )
        return [at for name in names for at in (fields[name][1], fields[name][1] + fields[name][0].itemsize)]
    is_packed = dtype.fields is not None and dtype.itemsize == sum(
        field[0].itemsize for field in fields.values()
    )
    if callable(shared) or not is_packed:  # objects, and unused bytes, differ in equal states
        return None
    if GENERATOR_FIELD not in fields or foresees_chance:
        return [0, dtype.itemsize]
    generator, offset = fields[GENERATOR_FIELD][:2]
    return [0, offset, offset + generator.itemsize, dtype.itemsize]


@jit()
def _mixed(value: Any, word: Any) -> Any:
    """Return a hash of a hash and a further word (a round of SplitMix64)."""
    z = (value ^ word) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit()
def _key_hash(table: Table, keys: NDArray[np.uint8], at: int) -> Any:
    """Return a hash of the compared bytes of the key that begins at `at`."""
    value = np.uint64(0)
    for part in range(0, len(table.parts), 2):
        first, last = at + table.parts[part], at + table.parts[part + 1]
        while first + 8 <= last:
            value = _mixed(value, load(keys, first, np.uint64))
            first += 8
        while first < last:
            value = _mixed(value, np.uint64(keys[first]))
            first += 1
    return value


@jit()
def _is_key_of(table: Table, node: Any, keys: NDArray[np.uint8], at: int) -> bool:
    """Return whether the compared bytes of the key that begins at `at` are those of a node."""
    known, node_at = table.keys, node * table.key_bytes
    for part in range(0, len(table.parts), 2):
        offset, last = table.parts[part], table.parts[part + 1]
        while offset + 8 <= last:
            if load(known, node_at + offset, np.uint64) != load(keys, at + offset, np.uint64):
                return False
            offset += 8
        while offset < last:
            if known[node_at + offset] != keys[at + offset]:
                return False
            offset += 1
    return True


@jit()
def _outcome_place(
    table: Table, tree: TreeArrays, edge: Any, reward: Any, keys: NDArray[np.uint8], at: Any
) -> Any:
    """Return the place in the table of the outcome with an edge, a reward and a key, or a free place."""
    has_key = len(table.parts) > 0
    value = _mixed(np.uint64(edge), np.uint64(0))
    if has_key:
        value = _mixed(value, np.float64(reward + 0.0).view(np.uint64))  # -0.0 is equal to 0.0
        value = _mixed(value, _key_hash(table, keys, at))
    mask = len(table.outcomes) - 1
    place: Any = np.int64(value & np.uint64(mask))
    while table.outcomes[place] > 0:
        outcome = table.outcomes[place] - 1
        if table.edges[outcome] == edge:
            if not has_key:
                return place
            known = tree.outcomes[outcome]
            if known.outcome_rewards == reward and _is_key_of(table, np.int64(known.outcome_nodes), keys, at):
                return place
        place = (place + 1) & mask
    return place


@jit()
def _node_place(table: Table, keys: NDArray[np.uint8], at: int) -> Any:
    """Return the place in the table of the node with a key, or a free place; see `_outcome_place`."""
    mask = len(table.nodes) - 1
    place: Any = np.int64(_key_hash(table, keys, at) & np.uint64(mask))
    while table.nodes[place] > 0 and not _is_key_of(table, np.int64(table.nodes[place] - 1), keys, at):
        place = (place + 1) & mask
    return place


@jit(cache=True)
def enter_tree(code: Any, memory: Pointer[Shared]) -> int:
    """Enter the outcomes and the nodes of the tree into the empty table. Returns the number of nodes."""
    shared: Shared = value_at(memory)
    tree, table = shared.tree, shared.table
    num_nodes: int = tree.counters[NUM_NODES]
    num_actions = tree.edges.shape[1]
    for node in range(num_nodes):
        if len(table.nodes) > 1:
            place = _node_place(table, table.keys, node * table.key_bytes)
            if table.nodes[place] == 0:
                table.nodes[place] = node + 1
        for action in range(num_actions):
            outcome = tree.edges[node, action].first_outcomes
            while outcome >= 0:
                edge, known = node * num_actions + action, tree.outcomes[outcome]
                at = np.int64(known.outcome_nodes) * table.key_bytes
                place = _outcome_place(table, tree, edge, known.outcome_rewards, table.keys, at)
                table.outcomes[place] = outcome + 1
                table.edges[outcome] = edge
                outcome = known.next_outcomes
    return num_nodes


# -- The values of leaves as compiled code: writes the requests for them, and backs them up.
#
# Letters: B rows, K slots.


@jit()
def finish(memory: Pointer[Shared], half: int) -> int:
    """Take the values of leaves and back up the simulations, or write the request for values."""
    # With rollouts, a simulation makes a rollout if its last node is new, at the largest depth, or waiting
    # for the rollout of another simulation. Any other one reached a node that another simulation has
    # evaluated, whose value it takes.
    # Returns `COMPLETED` or `PERFORM`.
    shared: Shared = value_at(memory)
    tree, rules = shared.tree, shared.rules
    progress, requests = shared.progress, shared.requests
    size, first = rules.state_bytes, progress.bounds[half]
    is_open_loop = rules.chance == OPEN_LOOP
    count = 0
    for slot in range(first, first + progress.counts[half]):
        depth = shared.paths.depths[slot]
        index = np.int64(shared.paths.nodes[slot, depth])
        node = tree.nodes[index]
        if not is_open_loop:
            progress.has_ended[slot] = node.ended
        value = node.values if rules.backs_up_values else node.raw_values
        if progress.has_ended[slot]:
            value = 0.0
        elif rules.asks_leaves and (progress.is_new[slot] or node.pending or depth >= rules.max_depth):
            row = first + count
            progress.rows[row] = slot
            count += 1
            if is_open_loop:
                copy_bytes(requests.own_states, slot * size, requests.states, row * size, size)
            else:
                copy_bytes(shared.tree_states, index * size, requests.states, row * size, size)
        progress.leaf_values[slot] = value
    progress.num_rows[half] = count
    if count == 0:
        return back_up(memory, half)
    progress.stages[half] = LEAVES
    return PERFORM


@jit(cache=True)
def take_values(code: Any, memory: Pointer[Shared], values: NDArray[np.float64], half: int) -> int:
    """Take the values `[B]` that were requested for leaves, and back up the simulations."""
    # Those of rollouts are returns of player 0.
    shared: Shared = value_at(memory)
    tree, paths, progress = shared.tree, shared.paths, shared.progress
    first = progress.bounds[half]
    for row in range(progress.num_rows[half]):
        slot = progress.rows[first + row]
        node = tree.nodes[paths.nodes[slot, paths.depths[slot]]]
        value = -values[row] if node.players == 1 else values[row]
        progress.leaf_values[slot] = value
        if shared.rules.rollout_steps > 0 and progress.is_new[slot]:
            node.raw_values = value
            # Other simulations may have passed meanwhile; the value is then a mean without this one.
            node.values += value / (node.visits + 1)
            node.pending = False
    return back_up(memory, half)


# -- The steps of simulations as compiled code: writes their requests, and expands the tree by the answers.
#
# Letters: B rows, K slots, S bytes of a state.


@jit()
def request_steps(memory: Pointer[Shared], half: int) -> int:
    """Write the request to take the last action of each path."""
    shared: Shared = value_at(memory)
    paths, rules = shared.paths, shared.rules
    progress, requests = shared.progress, shared.requests
    size, action_size = rules.state_bytes, rules.action_bytes
    first = progress.bounds[half]
    for row in range(first, first + progress.num_rows[half]):
        slot = progress.rows[row]
        depth = paths.depths[slot]
        if rules.chance == OPEN_LOOP:
            copy_bytes(requests.own_states, slot * size, requests.states, row * size, size)
        else:
            node = np.int64(paths.nodes[slot, depth])
            copy_bytes(shared.tree_states, node * size, requests.states, row * size, size)
        source = paths.actions[slot, depth] * action_size
        copy_bytes(shared.actions, source, requests.actions, row * action_size, action_size)
    progress.stages[half] = STEPS
    return PERFORM


@jit(cache=True)
def add_steps(code: Any, memory: Pointer[Shared], steps: Steps, keys: NDArray[np.uint8], half: int) -> int:
    """Add the transitions of an answer to the tree. Returns how many selections go on from their node."""
    # Their slots are then the first rows of the half. The last nodes of the others are leaves.
    # `keys`: the keys of the new states, or these themselves; see `Table`.
    shared: Shared = value_at(memory)
    tree, table, paths, rules = shared.tree, shared.table, shared.paths, shared.rules
    progress, requests, counters = shared.progress, shared.requests, shared.tree.counters
    first, num_actions, size = progress.bounds[half], tree.edges.shape[1], rules.state_bytes
    num_outcomes = counters[NUM_OUTCOMES]
    is_open_loop, shares_nodes = rules.chance == OPEN_LOOP, len(table.nodes) > 1
    always_new = rules.chance == SINGLE and not shares_nodes
    count = 0
    for row in range(len(steps.rewards)):
        slot, at, key_at = progress.rows[first + row], row * size, row * table.key_bytes
        depth = paths.depths[slot]
        parent, action = np.int64(paths.nodes[slot, depth]), np.int64(paths.actions[slot, depth])
        ended = steps.terminated[row] != 0 or steps.truncated[row] != 0
        reward, num_steps = steps.rewards[row], steps.num_steps[row]
        discount = rules.discount if num_steps == 1 else math.pow(rules.discount, np.float64(num_steps))
        # Rewards are those of player 0, and become those of the player who took the action. With the sign of
        # `outcome_discounts`, everything else is the same for one player and for two.
        if rules.player_at >= 0:
            player = tree.nodes[parent].players
            if player == 1:
                reward = -reward
            if (steps.new_states[at + rules.player_at] == 1) != (player == 1):
                discount = -discount
        # Where a step has one outcome and no nodes are shared, every outcome is new.
        outcome, node = counters[NUM_OUTCOMES], counters[NUM_NODES]
        if not always_new:
            edge = parent * num_actions + action
            place = _outcome_place(table, tree, edge, reward, keys, key_at)
            if table.outcomes[place] > 0:
                outcome = np.int64(table.outcomes[place] - 1)
                node = np.int64(tree.outcomes[outcome].outcome_nodes)
            else:
                table.outcomes[place] = outcome + 1
                table.edges[outcome] = edge
                if shares_nodes:
                    place = _node_place(table, keys, key_at)
                    if table.nodes[place] > 0:
                        node = np.int64(table.nodes[place] - 1)
                    else:
                        table.nodes[place] = node + 1
        is_new = node == counters[NUM_NODES]
        if is_new:
            counters[NUM_NODES] += 1
            init_node(tree, node, rules)
            record = tree.nodes[node]
            record.ended = ended and not is_open_loop
            record.pending = rules.rollout_steps > 0 and not record.ended
            record.parents, record.parent_actions = parent, action
            if rules.player_at >= 0:
                record.players = steps.new_states[at + rules.player_at] == 1
            if rules.mask_at >= 0:
                for other in range(num_actions):
                    tree.legal[node, other] = steps.new_states[at + rules.mask_at + other] != 0
            if len(table.keys) > 0:
                copy_bytes(keys, key_at, table.keys, node * table.key_bytes, table.key_bytes)
        # A new outcome that leads to a known node ends the simulation with the value of that node.
        is_known = is_open_loop or outcome < num_outcomes
        result = tree.outcomes[outcome]
        if outcome == counters[NUM_OUTCOMES]:
            counters[NUM_OUTCOMES] += 1
            result.outcome_nodes = node
            result.outcome_rewards = reward
            result.outcome_discounts = discount
            result.outcome_steps = num_steps
            result.outcome_counts = 0
            result.next_outcomes = tree.edges[parent, action].first_outcomes
            tree.edges[parent, action].first_outcomes = outcome
        result.outcome_counts += 1
        paths.rewards[slot, depth] = reward
        paths.discounts[slot, depth] = discount
        paths.depths[slot] = depth + 1
        paths.nodes[slot, depth + 1] = node
        if is_open_loop:
            copy_bytes(steps.new_states, at, requests.own_states, slot * size, size)
            progress.has_ended[slot] = ended
        progress.nodes[first + row], progress.ends[first + row] = node, ended
        progress.is_new[slot] = is_new
        if not is_new and not ended and is_known:
            progress.rows[first + count] = slot
            count += 1
    return count


@jit(inline=True)
def _num_allowed(tree: TreeArrays, progress: Progress, rules: Rules) -> Any:
    """Return how many simulations may begin; set the reason to stop where it is 0 from now on."""
    totals = progress.totals
    if 0 <= rules.num_simulations <= totals[NUM_STARTED]:
        totals[STOP] = NUM_SIMULATIONS_REACHED
        return 0
    if tree.nodes[0].proven:
        totals[STOP] = EXHAUSTED
        return 0
    free: Any = len(tree.nodes) - max(tree.counters[NUM_NODES], tree.counters[NUM_OUTCOMES])
    free -= totals[NUM_STARTED] - totals[NUM_SIMULATIONS]
    if free <= 0 and totals[NUM_STARTED] == totals[NUM_SIMULATIONS]:
        totals[STOP] = MAX_MEMORY
    if totals[NUM_IDLE] >= MAX_IDLE and rules.num_simulations < 0:
        totals[STOP] = EXHAUSTED
        return 0
    if rules.num_simulations >= 0:
        free = min(free, rules.num_simulations - totals[NUM_STARTED])
    return free


@jit(cache=True)
def begin(code: Any, memory: Pointer[Shared], half: int) -> int:
    """Begin the simulations of a half."""
    # Returns `NONE`, `COMPLETED` or `PERFORM`.
    shared: Shared = value_at(memory)
    tree, paths, rules = shared.tree, shared.paths, shared.rules
    progress, requests = shared.progress, shared.requests
    first, totals = progress.bounds[half], progress.totals
    num_allowed = min(_num_allowed(tree, progress, rules), progress.bounds[half + 1] - first)
    if num_allowed <= 0:
        return NONE
    last = first + num_allowed
    statuses, slots = progress.statuses[first:last], progress.slots[first:last]
    for slot in slots:
        paths.depths[slot] = paths.nodes[slot, 0] = 0  # at the root
    count = select(memory, slots, statuses)
    if count < len(slots):  # one has collided, and is not in flight
        slot = slots[count]
        for depth in range(paths.depths[slot]):
            node, action = paths.nodes[slot, depth], paths.actions[slot, depth]
            tree.nodes[node].unobserved -= 1
            tree.edges[node, action].edge_unobserved -= 1
    if count == 0:
        return NONE  # every action worth a simulation is in flight
    totals[NUM_STARTED] += count
    progress.counts[half] = count
    num_rows = 0
    for index in range(count):
        slot = first + index
        progress.is_new[slot] = progress.has_ended[slot] = False
        if rules.chance == OPEN_LOOP:
            size = rules.state_bytes
            copy_bytes(shared.root_state, 0, requests.own_states, slot * size, size)
        if statuses[index] == SAMPLE:
            progress.rows[first + num_rows] = slot
            num_rows += 1
    progress.num_rows[half] = num_rows
    totals[NUM_IDLE] = 0 if num_rows > 0 else totals[NUM_IDLE] + count
    return request_steps(memory, half) if num_rows > 0 else finish(memory, half)


@jit(cache=True)
def go_on(code: Any, memory: Pointer[Shared], half: int, num_rows: int) -> int:
    """Continue the selections of the first rows of a half, whose steps are in the tree now."""
    # Returns `COMPLETED` or `PERFORM`.
    shared: Shared = value_at(memory)
    progress = shared.progress
    first, kept = progress.bounds[half], 0
    if num_rows > 0:
        slots = progress.rows[first : first + num_rows]
        statuses = progress.statuses[first : first + num_rows]
        select(memory, slots, statuses)
        for index in range(num_rows):
            if statuses[index] == SAMPLE:
                slots[kept] = slots[index]
                kept += 1
    progress.num_rows[half] = kept
    return request_steps(memory, half) if kept > 0 else finish(memory, half)


@jit(cache=True)
def take_steps(code: Any, memory: Pointer[Shared], steps: Steps, half: int) -> int:
    """Add the steps of a half to the tree, and continue its simulations."""
    # Returns `COMPLETED` or `PERFORM`.
    return go_on(code, memory, half, add_steps(code, memory, steps, steps.new_states, half))


# -- Defines the type that stands for the code of tree search in the signatures of its compiled functions ----


@functools.cache
def search_code() -> CodeType:
    """Return the type, which is another one after any change in this package."""
    # All functions of tree search take the same one. Python calls some of them, which also call each other:
    # with types of their own they would be compiled once for each caller.
    folder = Path(__file__).parent
    return CodeType(code_digest(*[path.read_text() for path in sorted(folder.rglob("*.py"))]))


# -- Holds the simulations in flight of a search, and calls the compiled functions that run them -------------

# The functions that a search calls between its requests, with examples of their further arguments
_STEPS = new_steps(1, 1)
ENTRANCES: dict[Any, tuple[Any, ...]] = {
    begin: (0,),
    go_on: (0, 0),
    take_steps: (_STEPS, 0),
    add_steps: (_STEPS, np.zeros(1, np.uint8), 0),
    take_values: (np.zeros(1), 0),
    enter_tree: (),
}
# function -> its compiled form, which is called without looking at the types of its arguments
_entries: dict[Any, Callable[..., int]] = {}


class Simulations:
    """Holds the simulations of a search, of which one half of the slots runs at a time."""

    # States of fixed size are bytes for compiled code. States that are objects stay with the search.

    def __init__(
        self,
        config: MCTSConfig,
        rules: Rules,
        tree: Tree,
        root_state: NDArray[Any],
        halving: Halving,
        foresees_chance: bool = False,
    ) -> None:
        self._state_dtype, num_slots = root_state.dtype, config.batch_size
        self.has_bytes = not root_state.dtype.hasobject  # whether states have a fixed size
        self._action_like = tree.actions[:0]
        nothing, size = np.empty(0, np.uint8), rules.state_bytes
        states = bytes_of(tree.states) if self.has_bytes and tree.states is not None else nothing
        # where nodes have no states, or every outcome is new, none are compared
        parts: list[int] | None = []
        is_open_loop, shares_nodes = rules.chance == OPEN_LOOP, tree.kind.shares_nodes
        always_new = rules.chance == SINGLE and not shares_nodes
        if not (is_open_loop or always_new):
            parts = _parts_of_states(config.transpositions, self._state_dtype, foresees_chance)
        # whether the search has to give numbers to the keys of states
        self.needs_keys = parts is None
        capacity = 1 if always_new else len(tree.arrays.nodes)
        if parts is None:
            table = _new_table(capacity, shares_nodes, np.zeros(8 * capacity, np.uint8), 8, [0, 8])
        else:
            table = _new_table(capacity, shares_nodes, states, size, parts)
        # what all compiled functions work on
        self.shared = Shared(
            tree.arrays,
            empty_paths(num_slots, config.max_depth),
            states,
            nothing if tree.kind.has_own_actions else bytes_of(tree.actions),
            bytes_of(root_state.copy()) if self.has_bytes else nothing,
            rules,
            table,
            _new_progress(num_slots),
            Requests(
                np.zeros(num_slots * size, np.uint8),
                np.zeros(num_slots * rules.action_bytes, np.uint8),
                np.zeros(num_slots * size if is_open_loop else 0, np.uint8),
            ),
            halving,
        )
        self.memory = Pointer(self.shared)  # points to it
        self.progress = self.shared.progress  # the simulations in flight
        self._bounds = [int(bound) for bound in self.progress.bounds]
        self._has_entries = not always_new and (tree.num_nodes > 1 or shares_nodes)

    def enter_tree(self, keys: NDArray[np.uint8] | None) -> None:
        """Enter the tree into the transposition table; `keys`: those of its nodes, if they are needed."""
        if keys is not None:
            self.shared.table.keys[: len(keys)] = keys
        if self._has_entries:
            self.call(enter_tree)

    def call(self, function: Any, *arguments: Any) -> int:
        """Call one of `ENTRANCES` with the shared memory. Returns what it returns."""
        if function not in _entries:
            self.load(function)
        return _entries[function](None, self.memory, *arguments)

    def load(self, function: Any) -> None:
        """Compile one of `ENTRANCES`, or load it from the cache."""
        types = map(numba.typeof, (self.memory, *ENTRANCES[function]))
        _entries[function] = compile_loop(function, search_code(), *types)

    # -- requests and answers -------------------------------------------------------------------------

    def rows(self, half: int) -> slice:
        """Return the rows of the request of a half, among those of all slots."""
        first = self._bounds[half]
        return slice(first, first + int(self.progress.num_rows[half]))

    def slots(self, half: int) -> slice:
        """Return the slots of the simulations of a half."""
        first = self._bounds[half]
        return slice(first, first + int(self.progress.counts[half]))

    def states(self, rows: slice) -> NDArray[Any]:
        """Return the states `[B]` of a request. They are overwritten by the next request of the half."""
        return self.states_in(self.shared.requests.states, rows)

    def actions_of(self, rows: slice) -> NDArray[Any]:
        """Return the actions `[B, ...]` of a request, if all nodes have the same actions; see `states`."""
        size, like = self.shared.rules.action_bytes, self._action_like
        part = self.shared.requests.actions[rows.start * size : rows.stop * size].view(like.dtype)
        return part.reshape(-1, *like.shape[1:])

    def states_in(self, data: NDArray[np.uint8], rows: slice) -> NDArray[Any]:
        """Return some of the states whose bytes are in an array, a view."""
        size = self.shared.rules.state_bytes
        states: NDArray[Any] = data[rows.start * size : rows.stop * size].view(self._state_dtype)
        return states

    def steps_of(self, out: Transitions) -> Steps:
        """Return an answer in the form that compiled functions take. The driver has checked its sizes."""
        return Steps(
            bytes_of(out.new_states) if self.has_bytes else np.empty(0, np.uint8),
            np.ascontiguousarray(out.rewards, np.float64),
            np.ascontiguousarray(out.terminated).view(np.uint8),
            np.ascontiguousarray(out.truncated).view(np.uint8),
            np.ascontiguousarray(out.infos["num_steps"], np.int64),
        )
