"""One compiled iteration of a swarm, from the answer to a step to the next one. Letters: B walkers.

    outcomes ---> walkers ---> values, dead ----> virtual rewards ---> sources ---> walkers
                    |                                   ^
                  moves       observations ---> distances

A plan makes one call per iteration: with as many walkers as usual, a call of NumPy takes longer than its
arithmetic. Sums are in the order of the walkers, so that a plan depends on its seed alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from planvec.kernels import CodeType, code_digest, compile_loop, copy_bytes, jit
from planvec.planners.swarm.arrays import (
    BYTES,
    DOUBLES,
    FLOATS,
    LABELS,
    MOVES,
    OUTCOMES,
    RULES,
    SINGLES,
    STATES,
    WALKERS,
    Moves,
    Outcomes,
    Rules,
)
from planvec.planners.swarm.cloning import clone_sources, keep_elites, pick, relativize
from planvec.planners.swarm.distances import distances
from planvec.planners.swarm.features import Features
from planvec.planners.swarm.moves import append_moves
from planvec.planners.swarm.values import extrapolate_returns, find_dead

_TYPES = (
    *(WALKERS, MOVES, types.int64, OUTCOMES),
    types.NamedTuple([SINGLES, DOUBLES, LABELS], Features),
    *(BYTES, STATES, STATES, DOUBLES, FLOATS, RULES, types.boolean),
)


@jit(cache=True, allocates=True)
def _advance(walkers: NDArray[Any], outcomes: Outcomes) -> None:
    """Update walkers by the results of their steps."""
    for index in range(len(walkers)):
        walker = walkers[index]
        walker.total += outcomes.rewards[index]
        walker.num_steps += outcomes.num_steps[index]
        walker.terminated = outcomes.terminated[index]
        walker.truncated = outcomes.truncated[index]


@jit(cache=True, allocates=True)
def _clone(walkers: NDArray[Any], sources: NDArray[np.int64]) -> int:
    """Replace walker `i` by a copy of walker `sources[i]`, for all at once. Return how many have ended."""
    before, num_ended = walkers.copy(), 0
    for index in range(len(walkers)):
        walker = walkers[index]
        if sources[index] != index:
            walkers[index] = before[sources[index]]
        walker.source = sources[index]
        num_ended += walker.terminated or walker.truncated
    return num_ended


@jit(cache=True)
def _copy_states(states: NDArray[np.uint8], sources: NDArray[np.int64], copies: NDArray[np.uint8]) -> None:
    """Write the bytes of the states of `sources`."""
    size = len(states) // len(sources)
    for walker, source in enumerate(sources):
        copy_bytes(states, source * size, copies, walker * size, size)


@jit(cache=True, allocates=True)
def _iterate(
    code: Any,
    walkers: NDArray[Any],  # `[B]` of `WALKER_DTYPE`. Written.
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
    _advance(walkers, outcomes)
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
    _copy_states(states, sources, copies)
    return num_nodes, _clone(walkers, sources), dead[0]


# `_iterate`, called directly: numba neither finds out nor checks the types of its arguments
iterate: Callable[..., Any] = partial(compile_loop(_iterate, CodeType(code_digest(_iterate)), *_TYPES), None)
