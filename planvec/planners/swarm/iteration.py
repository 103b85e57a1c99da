"""One compiled iteration of a swarm, from the answer to a step to the next one. Letters: B walkers.

    outcomes ---> walkers ---> values, dead ----> virtual rewards ---> sources ---> walkers
                    |                                   ^
                  moves       observations ---> distances

A plan makes one call per iteration: with as many walkers as usual, a call of NumPy takes longer than its
arithmetic. Sums are in the order of the walkers, so that a plan depends on its seed alone.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces
from numba import from_dtype, types
from numpy.typing import NDArray

from planvec.kernels import CodeType, code_digest, compile_loop, copy_bytes, jit
from planvec.planners.root_actions import space_leaves

# -- The arrays that the compiled functions of a swarm work on, and their types for numba.
#
# Each array that is passed takes longer than its arithmetic, so that those that belong together are one.
#
# Letters: B walkers, C nodes that there is room for, A bytes of an action.

# A walker: its undiscounted return, its age in environment steps, its latest move, the walker whose clone it
# became in the last iteration (its own index: none), and whether it has ended
WALKER_DTYPE = np.dtype(
    [
        ("total", np.float64),
        ("num_steps", np.int64),
        ("node", np.int64),
        ("source", np.int64),
        ("terminated", np.bool_),
        ("truncated", np.bool_),
    ],
    align=True,
)
# A move: the one before (-1 for node 0), its environment steps, and the sum of their rewards
MOVE_DTYPE = np.dtype([("parent", np.int64), ("num_steps", np.int64), ("reward", np.float64)], align=True)


class Outcomes(NamedTuple):
    """The results of the step of every walker."""

    rewards: NDArray[np.float64]  # `[B]` float64
    num_steps: NDArray[np.int64]  # `[B]` int64, environment steps that it took
    terminated: NDArray[np.bool_]  # `[B]` bool
    truncated: NDArray[np.bool_]  # `[B]` bool


class Moves(NamedTuple):
    """The moves of all walkers, a tree; see `Lineage`."""

    nodes: np.ndarray  # `[C]` of `MOVE_DTYPE`
    actions: NDArray[np.uint8]  # `[C, A]` uint8, the bytes of the actions


class Rules(NamedTuple):
    """The settings of `SwarmConfig` that an iteration reads."""

    reward_scale: float
    distance_scale: float
    novelty_scale: float
    num_elites: int


FLOATS = types.Array(types.float64, 1, "C")
INTEGERS = types.Array(types.int64, 1, "C")
STATES = types.Array(types.uint8, 1, "C")
BYTES = types.Array(types.uint8, 2, "C")
SINGLES = types.Array(types.float32, 2, "C")
DOUBLES = types.Array(types.float64, 2, "C")
LABELS = types.Array(types.int64, 2, "C")
WALKERS = types.Array(from_dtype(WALKER_DTYPE), 1, "C")
MOVES = types.NamedTuple([types.Array(from_dtype(MOVE_DTYPE), 1, "C"), BYTES], Moves)
_FLAGS = types.Array(types.boolean, 1, "C")
OUTCOMES = types.NamedTuple([FLOATS, INTEGERS, _FLAGS, _FLAGS], Outcomes)
RULES = types.NamedTuple([types.float64, types.float64, types.float64, types.int64], Rules)


# -- Compiled choice of the walkers that clone, and of those that they clone.
#
# Letters: B walkers, L living ones.

_ROUNDING = 1e-12  # relative spread below which values count as equal
_TINY = float(np.finfo(np.float64).tiny)


@jit(cache=True, allocates=True)
def relativize(
    values: NDArray[np.float64], living: NDArray[np.int64], exponent: float
) -> NDArray[np.float64]:
    """Map the values of the living, of any scale, to positive ones about 1 (the paper's "relativize")."""
    # With `z = (x - mean) / std`: `1 + ln(1 + z)` where `z > 0`, else `exp(z)`. Values that are all equal, up
    # to rounding, become ones. The results are raised to a power.
    # `values`: `[B]`. `living`: `[L]`. The others do not count: the return of a crash would hide the
    # differences among them.
    # Returns `[B]`, 0 for the dead.
    relative = np.zeros(len(values))
    total, squares, deviations = 0.0, 0.0, 0.0
    for walker in living:
        total += values[walker]
        squares += values[walker] * values[walker]
    mean = total / len(living)
    for walker in living:
        centred = values[walker] - mean
        deviations += centred * centred
    are_equal = not deviations > _ROUNDING**2 * squares  # also where a value is infinite
    deviation = math.sqrt(deviations / len(living))
    for walker in living:
        z = 0.0 if are_equal else (values[walker] - mean) / deviation
        positive = 1.0 + math.log1p(z) if z > 0.0 else math.exp(z)
        relative[walker] = positive if exponent == 1.0 else positive**exponent
    return relative


@jit(cache=True, allocates=True)
def pick(among: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return random elements of `among`, one for each uniform draw in [0, 1)."""
    picked = np.empty(len(uniforms), np.int64)
    for index in range(len(uniforms)):
        picked[index] = among[int(uniforms[index] * len(among))]
    return picked


@jit(cache=True, allocates=True)
def keep_elites(
    keep: NDArray[np.bool_], values: NDArray[np.float64], living: NDArray[np.int64], num_elites: int
) -> None:
    """Mark the living walkers with the highest values, of equal ones the first."""
    # `keep`: `[B]`, written. `values`: `[B]`. `living`: `[L]`.
    for _ in range(min(num_elites, len(living))):
        best = -1
        for walker in living:
            if not keep[walker] and (best < 0 or values[walker] > values[best]):
                best = walker
        keep[best] = True


@jit(cache=True, allocates=True)
def clone_sources(
    virtual_rewards: NDArray[np.float64],  # `[B]`, 0 for the dead
    companions: NDArray[np.int64],  # `[B]`, a random living walker for each
    uniforms: NDArray[np.float64],  # `[B]` in [0, 1), to decide
    dead: NDArray[np.bool_],  # `[B]`
    keep: NDArray[np.bool_],  # `[B]`, the living walkers that do not clone
) -> NDArray[np.int64]:
    """Choose for each walker whether it goes on as itself or as a clone of its companion."""
    # Walker `i` clones companion `k` with probability `(VR_k - VR_i) / VR_i`, and always if it is dead.
    # Returns `[B]`, for each walker the one to copy; its own index: none.
    sources = np.empty(len(virtual_rewards), np.int64)
    for walker in range(len(virtual_rewards)):
        own = max(virtual_rewards[walker], _TINY)
        stays = virtual_rewards[companions[walker]] - own <= uniforms[walker] * own
        stays = keep[walker] or (stays and not dead[walker])
        sources[walker] = walker if stays else companions[walker]
    return sources


# -- The numbers of observations that distances are computed from.
#
# Letters: B rows, S single and D double precision numbers, K labels.

# Bytes of an image that are compared. To compare all 100,000 would take longer than a step.
_MAX_BYTES = 2048
_GOLDEN = 0.618  # golden ratio


class Features(NamedTuple):
    """The numbers of a batch of observations."""

    singles: NDArray[np.float32]  # `[B, S]` float32
    doubles: NDArray[np.float64]  # `[B, D]` float64
    # `[B, K]` int64, categories: two of them are equal or different, without an order
    labels: NDArray[np.int64]


def observation_features(space: Space[object], observations: Any, num_rows: int) -> Features:
    """Flatten a batch of observations."""
    # Box and MultiBinary give numbers, Discrete and MultiDiscrete give labels, Dict and Tuple the features of
    # their parts. Parts of any other space (Text, Graph, ...) do not count.
    nothing = _nothing(num_rows)
    if type(space) is spaces.Box:
        return _add_numbers(nothing, space, observations)
    features = [nothing]
    for _, leaf_space, leaf in space_leaves(space, observations):
        if isinstance(leaf_space, (spaces.Discrete, spaces.MultiDiscrete)):
            labels = np.asarray(leaf).reshape(num_rows, -1).astype(np.int64)
            features.append(nothing._replace(labels=labels))
        elif isinstance(leaf_space, (spaces.Box, spaces.MultiBinary)):
            features.append(_add_numbers(nothing, leaf_space, np.asarray(leaf)))
    return Features(*(np.concatenate(parts, axis=1) for parts in zip(*features, strict=True)))


@functools.cache
def _nothing(num_rows: int) -> Features:
    """Return the features of observations without numbers and labels."""
    return Features(
        np.empty((num_rows, 0), np.float32), np.empty((num_rows, 0)), np.empty((num_rows, 0), np.int64)
    )


def _add_numbers(nothing: Features, space: Space[object], batch: np.ndarray) -> Features:
    """Return the features of numbers; of a large image, about `_MAX_BYTES` bytes, evenly spread over it."""
    flat = batch if batch.ndim == 2 else batch.reshape(len(batch), -1)
    if flat.dtype.itemsize == 1:
        if flat.shape[1] > 2 * _MAX_BYTES:
            flat = flat[:, :: _stride(flat.shape[1], math.prod((space.shape or (1,))[1:]))]
    elif flat.dtype != np.float32:
        return Features(nothing.singles, np.ascontiguousarray(flat, np.float64), nothing.labels)
    return Features(np.ascontiguousarray(flat, np.float32), nothing.doubles, nothing.labels)


@functools.cache
def _stride(size: int, line: int) -> int:
    """Return the distance between two bytes of an image that are compared."""
    # From line to line, the compared bytes have to shift by about the golden ratio of the stride, so that
    # they form a lattice without gaps. With straight columns, motion between two columns would not be seen.
    # `size`: Bytes of the image. `line`: Bytes of one line.
    lowest = -(-size // _MAX_BYTES)
    return min(range(lowest, 2 * lowest), key=lambda stride: (abs(line % stride / stride - _GOLDEN), stride))


# -- Compiled distances between observations. Letters: B walkers, L living ones, D numbers -------------------


@jit(cache=True, allocates=True)
def distances(
    features: Features, companions: NDArray[np.int64], living: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the Euclidean distance `[B]` of each observation to that of its companion."""
    # Each number is divided by its standard deviation, so that a velocity of 0.07 counts as much as a
    # position of 1.2; a label that differs adds 1 to the square.
    # `companions`: `[B]`, for each walker the one to compare with. `living`: `[L]`, the walkers from which
    # the standard deviations are computed.
    squares = np.zeros(len(companions))
    _add_squares(squares, features.singles, companions, living)
    _add_squares(squares, features.doubles, companions, living)
    labels = features.labels
    for walker in range(len(companions)):
        for index in range(labels.shape[1]):
            if labels[walker, index] != labels[companions[walker], index]:
                squares[walker] += 1.0
        squares[walker] = math.sqrt(squares[walker])
    return squares


@jit(cache=True, allocates=True)
def _add_squares(
    squares: NDArray[np.float64],  # `[B]`, written
    numbers: NDArray[np.floating],  # `[B, D]`
    companions: NDArray[np.int64],
    living: NDArray[np.int64],
) -> None:
    """Add the squared differences of numbers, in standard deviations of the living."""
    num_numbers = numbers.shape[1]
    means, deviations = np.zeros(num_numbers), np.zeros(num_numbers)
    for walker in living:
        for index in range(num_numbers):
            means[index] += numbers[walker, index]
    for index in range(num_numbers):
        means[index] /= len(living)
    for walker in living:
        for index in range(num_numbers):
            centred = numbers[walker, index] - means[index]
            deviations[index] += centred * centred
    for index in range(num_numbers):
        variance = deviations[index] / len(living)
        deviations[index] = math.sqrt(variance) if variance > 0.0 else 1.0  # else: 0, or NaN
    for walker in range(len(companions)):
        companion, square = companions[walker], 0.0
        for index in range(num_numbers):
            difference = np.float64(numbers[walker, index]) - np.float64(numbers[companion, index])
            difference /= deviations[index]
            square += difference * difference
        squares[walker] += square


# -- Compiled operations on the moves of a swarm, which form a tree.
#
# Node 0 is the start; every other node is one move of one walker, and its parent the move before. Parents
# come before their children.
#
# Letters: C nodes that there is room for, N nodes in use, B walkers, A bytes of an action.


@jit(cache=True, allocates=True)
def append_moves(
    moves: Moves, num_nodes: int, walkers: np.ndarray, actions: NDArray[np.uint8], outcomes: Outcomes
) -> int:
    """Add a move of every walker. One that took no step keeps its node."""
    # `walkers`: `[B]` of `WALKER_DTYPE`. Their latest moves are written. `actions`: `[B, A]`.
    # Returns the new N.
    for walker in range(len(walkers)):
        if outcomes.num_steps[walker] > 0:
            node = moves.nodes[num_nodes]
            node.parent = walkers[walker].node
            node.num_steps = outcomes.num_steps[walker]
            node.reward = outcomes.rewards[walker]
            for index in range(actions.shape[1]):
                moves.actions[num_nodes, index] = actions[walker, index]
            walkers[walker].node = num_nodes
            num_nodes += 1
    return num_nodes


@jit((MOVES, types.int64, WALKERS), cache=True, allocates=True)
def prune_moves(moves: Moves, num_nodes: int, walkers: np.ndarray) -> int:
    """Remove all nodes that lead to no walker, and return the new N."""
    # `walkers`: `[B]` of `WALKER_DTYPE`. The new indices of their latest moves are written.
    is_used = np.zeros(num_nodes, np.bool_)
    is_used[0] = True
    nodes, actions = moves.nodes, moves.actions
    for walker in walkers:
        node = walker.node
        while not is_used[node]:
            is_used[node] = True
            node = nodes[node].parent
    numbers, num_kept = np.zeros(num_nodes, np.int64), 1
    for node in range(1, num_nodes):
        if is_used[node]:
            numbers[node] = num_kept
            nodes[num_kept] = nodes[node]
            nodes[num_kept].parent = numbers[nodes[node].parent]
            for index in range(actions.shape[1]):
                actions[num_kept, index] = actions[node, index]
            num_kept += 1
    for index in range(len(walkers)):
        walkers[index].node = numbers[walkers[index].node]
    return num_kept


@jit((MOVES, types.int64, WALKERS, INTEGERS, INTEGERS), cache=True, allocates=True)
def find_first_moves(
    moves: Moves,
    num_nodes: int,
    walkers: np.ndarray,  # `[B]` of `WALKER_DTYPE`
    firsts: NDArray[np.int64],  # `[B]`, first moves; 0: none. Written.
    num_moves: NDArray[np.int64],  # `[B]`. Written.
) -> None:
    """Write the first move of each walker and the number of its moves."""
    first, depths = np.zeros(num_nodes, np.int64), np.zeros(num_nodes, np.int64)
    for node in range(1, num_nodes):
        parent = moves.nodes[node].parent
        first[node] = first[parent] if parent > 0 else node
        depths[node] = depths[parent] + 1
    for index in range(len(walkers)):
        firsts[index] = first[walkers[index].node]
        num_moves[index] = depths[walkers[index].node]


# -- Compiled comparison of the returns of walkers. Letters: B walkers ---------------------------------------


@jit((WALKERS, FLOATS), cache=True)
def extrapolate_returns(walkers: np.ndarray, values: NDArray[np.float64]) -> None:
    """Write the returns, extrapolated to the age of the oldest walker."""
    # Walkers draw how long they repeat an action, so that they differ in age. Without extrapolation, young
    # walkers would look good where steps cost and bad where steps pay. For each step that a walker is
    # younger, it is credited the mean reward per step of all walkers that have not terminated. A walker that
    # has terminated collects no more rewards, and is credited nothing.
    # `walkers`: `[B]` of `WALKER_DTYPE`. `values`: `[B]`. Written.
    total, total_steps, oldest = 0.0, 0, 0
    for index in range(len(walkers)):
        walker = walkers[index]
        values[index] = walker.total
        oldest = max(oldest, walker.num_steps)
        if not walker.terminated:
            total += walker.total
            total_steps += walker.num_steps
    if total_steps == 0:
        return
    mean_reward = total / total_steps
    for index in range(len(walkers)):
        if not walkers[index].terminated:
            values[index] += mean_reward * (oldest - walkers[index].num_steps)


@jit(cache=True, allocates=True)
def find_dead(walkers: np.ndarray, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which walkers `[B]` have terminated with a loss."""
    # A termination may be a crash or a goal. The flag does not tell them apart, but the returns do: a
    # terminated walker is dead unless its value is above the mean of the walkers that go on, at the same age.
    # In CartPole it loses +1 per step and falls behind; in MountainCar it saves -1 per step and gets ahead;
    # in FrozenLake a hole is no better than walking on, and the goal is. Where all have terminated, those
    # below the mean are dead. Truncation is not death, since the time limit does not depend on the actions.
    # `walkers`: `[B]` of `WALKER_DTYPE`. `values`: `[B]`, those of `extrapolate_returns`.
    dead = np.zeros(len(walkers), np.bool_)
    num_terminated = 0
    for walker in walkers:
        num_terminated += walker.terminated
    if num_terminated == 0:
        return dead
    has_running = num_terminated < len(walkers)
    total, count, lowest, highest = 0.0, 0, math.inf, -math.inf
    for index in range(len(walkers)):
        if not has_running or not walkers[index].terminated:
            total += values[index]
            count += 1
            lowest, highest = min(lowest, values[index]), max(highest, values[index])
    # The mean of equal numbers may be rounded beyond all of them.
    mean = min(max(total / count, lowest), highest)
    for index in range(len(walkers)):
        is_behind = values[index] <= mean if has_running else values[index] < mean
        dead[index] = walkers[index].terminated and is_behind
    return dead


# -- One iteration -------------------------------------------------------------------------------------------

_TYPES = (
    *(WALKERS, MOVES, types.int64, OUTCOMES),
    types.NamedTuple([SINGLES, DOUBLES, LABELS], Features),
    *(BYTES, STATES, STATES, DOUBLES, FLOATS, RULES, types.boolean),
)


@jit(cache=True, allocates=True)
def _iterate(
    code: object,
    walkers: np.ndarray,  # `[B]` of `WALKER_DTYPE`. Written.
    moves: Moves,
    num_nodes: int,
    outcomes: Outcomes,
    features: Features,
    actions: NDArray[np.uint8],  # `[B, A]`, the bytes of the actions
    states: NDArray[np.uint8],  # the bytes of the new states; none if they are objects
    copies: NDArray[np.uint8],  # As many bytes, the states of the walkers. Written.
    uniforms: NDArray[np.float64],
    novelty: NDArray[np.float64],
    rules: Rules,
    is_guided: bool,
) -> tuple[int, int, bool]:
    """Advance all walkers by their outcomes, then replace some by clones of others."""
    # Arrays are written, not returned: numba makes an array that is returned with a function in Python. An
    # interrupt that has come meanwhile would be raised there, and numba would turn it into a `SystemError`.
    # `novelty`: `[B]`, number of features that no walker has seen before; empty: it does not count.
    # Returns the new number of nodes; how many walkers have ended; whether walker 0 was dead.
    num_nodes = append_moves(moves, num_nodes, walkers, actions, outcomes)
    for index in range(len(walkers)):
        walker = walkers[index]
        walker.total += outcomes.rewards[index]
        walker.num_steps += outcomes.num_steps[index]
        walker.terminated = outcomes.terminated[index]
        walker.truncated = outcomes.truncated[index]
    values = np.empty(len(walkers))
    extrapolate_returns(walkers, values)
    dead = find_dead(walkers, values)
    living = np.flatnonzero(~dead)
    apart = distances(features, pick(living, uniforms[0]), living)
    virtual_rewards = relativize(apart, living, rules.distance_scale)
    virtual_rewards *= relativize(values, living, rules.reward_scale)
    if len(novelty):
        virtual_rewards *= relativize(novelty, living, rules.novelty_scale)
    keep = np.zeros(len(walkers), np.bool_)
    keep_elites(keep, values, living, rules.num_elites)
    keep[0] = keep[0] or (is_guided and not dead[0])
    sources = clone_sources(virtual_rewards, pick(living, uniforms[1]), uniforms[2], dead, keep)
    before, size, num_ended = walkers.copy(), len(states) // len(walkers), 0
    for index in range(len(walkers)):
        walker, source = walkers[index], sources[index]
        if source != index:
            walkers[index] = before[source]
        walker.source = source
        num_ended += walker.terminated or walker.truncated
        copy_bytes(states, source * size, copies, index * size, size)
    return num_nodes, num_ended, dead[0]


# `_iterate`, called directly: numba neither finds out nor checks the types of its arguments
iterate: Callable[..., Any] = partial(compile_loop(_iterate, CodeType(code_digest(_iterate)), *_TYPES), None)
