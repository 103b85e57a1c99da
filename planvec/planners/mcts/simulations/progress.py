"""The memory of the simulations in flight, of their requests, and of the answers.

The slots of the simulations in flight form two halves. Each half has at most one request, whose rows are in
the part of the buffers that belongs to its slots. Letters: B rows, K slots, S bytes of a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "CALLBACK",
    "COMPLETED",
    "DONE",
    "ENDED",
    "EXHAUSTED",
    "FIRST_REQUEST",
    "GOES_ON",
    "LEAVES",
    "MAX_ENV_STEPS",
    "MAX_MEMORY",
    "MAX_SECONDS",
    "NONE",
    "NUM_CHUNKS",
    "NUM_ENV_STEPS",
    "NUM_EVENTS",
    "NUM_FREE",
    "NUM_IDLE",
    "NUM_QUEUED",
    "NUM_ROWS",
    "NUM_SIMULATIONS",
    "NUM_SIMULATIONS_REACHED",
    "NUM_STARTED",
    "PAUSED",
    "PERFORM",
    "REFUSED",
    "STEPS",
    "STOP",
    "STOP_REASONS",
    "Limits",
    "Progress",
    "Requests",
    "Steps",
    "new_progress",
    "new_steps",
]

NUM_STARTED, NUM_SIMULATIONS, NUM_ENV_STEPS, NUM_IDLE, STOP = 0, 1, 2, 3, 4
NUM_FREE, NUM_QUEUED, NUM_ROWS, NUM_CHUNKS, NUM_EVENTS = 5, 6, 7, 8, 9
"""Indices of `Progress.totals`."""
GOES_ON, NUM_SIMULATIONS_REACHED, MAX_MEMORY, EXHAUSTED, MAX_ENV_STEPS, MAX_SECONDS, CALLBACK = range(7)
"""Values of `Progress.totals[STOP]`."""
STOP_REASONS = (
    None,
    "num_simulations",
    "max_memory",
    "exhausted",
    "max_env_steps",
    "max_seconds",
    "callback",
)
"""The same in words; see `Plan.stop_reason`."""
STEPS, LEAVES = 0, 1
"""The kinds of requests: steps; values of leaves, by rollouts or by a function of the user."""
NONE, COMPLETED, PERFORM = 0, 1, 2
"""What a half does: it began no simulations; it has completed them; its request has to be performed."""
DONE, PAUSED, REFUSED, ENDED, FIRST_REQUEST = 0, 1, 2, 3, 4
"""How the loop ends: the search is over; it goes on with the next call; the environment has to perform the
request of the half that was queued last; the root's episode had ended. From `FIRST_REQUEST` on: the request
of a half has to be performed, that of the first or of the second one."""


class Limits(NamedTuple):
    """The numbers that do not change during a search. -1: no limit.

    Attributes:
        num_simulations: Simulations.
        max_env_steps: Environment steps.
        asks_leaves: Whether the values of leaves are requested: with rollouts, and for an open loop with a
            function of the user.
        rollout_steps: Steps of a rollout.
        discount: Factor per environment step.
        state_bytes: S; 0 if states are objects, which compiled code does not see.
        action_bytes: Bytes of one action; 0 if every node has its own.
        player_at: Index of the byte of a state that holds the player to move; -1: there is one player.
        mask_at: Index of the first of the A bytes of a state that hold the legal actions; -1: there are none.
    """

    num_simulations: int
    max_env_steps: int
    asks_leaves: bool
    rollout_steps: int
    discount: float
    state_bytes: int
    action_bytes: int
    player_at: int
    mask_at: int


class Progress(NamedTuple):
    """The simulations in flight.

    Attributes:
        totals: `[10]` int64, counts; the constants above are their indices.
        free: `[2]` int64, the halves without simulations, the next one last.
        queue: `[2]` int64, the halves whose requests were performed, the oldest first.
        bounds: `[3]` int64: the slots of half `h` are those from `bounds[h]` up to `bounds[h + 1]`.
        counts: `[2]` int64, number of simulations of each half.
        stages: `[2]` int64, the kind of its request.
        num_rows: `[2]` int64, the rows of its request.
        rows: `[K]` int64, the slot of each row of a request.
        slots: `[K]` int64: 0, 1, 2, ...
        statuses: `[K]` int64, of selections.
        outcomes: `[K]` int64, the outcome of each row.
        nodes: `[K]` int64, the node of each row.
        discounts: `[K]` float64, the discount of each row.
        ends: `[K]` bool, whether the episode of each row has ended.
        is_new: `[K]` bool, whether the last node of each simulation is new.
        has_ended: `[K]` bool, whether its episode has ended.
        leaf_values: `[K]` float64, the values of the last nodes.
    """

    totals: NDArray[np.int64]
    free: NDArray[np.int64]
    queue: NDArray[np.int64]
    bounds: NDArray[np.int64]
    counts: NDArray[np.int64]
    stages: NDArray[np.int64]
    num_rows: NDArray[np.int64]
    rows: NDArray[np.int64]
    slots: NDArray[np.int64]
    statuses: NDArray[np.int64]
    outcomes: NDArray[np.int64]
    nodes: NDArray[np.int64]
    discounts: NDArray[np.float64]
    ends: NDArray[np.bool_]
    is_new: NDArray[np.bool_]
    has_ended: NDArray[np.bool_]
    leaf_values: NDArray[np.float64]


class Requests(NamedTuple):
    """The rows of requests.

    Attributes:
        states: `[K * S]` uint8.
        actions: The bytes of K actions.
        own_states: `[K * S]` uint8, the states of the simulations of an open loop.
    """

    states: NDArray[np.uint8]
    actions: NDArray[np.uint8]
    own_states: NDArray[np.uint8]


class Steps(NamedTuple):
    """The answer to a request for steps.

    Attributes:
        new_states: `[B * S]` uint8.
        rewards: `[B]` float64.
        terminated: `[B]` uint8.
        truncated: `[B]` uint8.
        num_steps: `[B]` int64.
    """

    new_states: NDArray[np.uint8]
    rewards: NDArray[np.float64]
    terminated: NDArray[np.uint8]
    truncated: NDArray[np.uint8]
    num_steps: NDArray[np.int64]


def new_progress(halves: list[NDArray[np.int64]]) -> Progress:
    """Return the memory of simulations in flight, of which there are none yet.

    Args:
        halves: The slots of one or two halves.
    """
    num_slots = sum(map(len, halves))
    arrays: dict[str, NDArray[Any]] = {
        name: np.zeros(num_slots, np.int64) for name in ("rows", "slots", "statuses", "outcomes", "nodes")
    }
    arrays |= {name: np.zeros(num_slots, np.bool_) for name in ("ends", "is_new", "has_ended")}
    arrays |= {name: np.zeros(2, np.int64) for name in ("free", "queue", "counts", "stages", "num_rows")}
    arrays["slots"][:] = np.arange(num_slots)
    arrays["free"][: len(halves)] = np.arange(len(halves))[::-1]
    totals = np.zeros(10, np.int64)
    totals[NUM_FREE] = len(halves)
    return Progress(
        totals=totals,
        bounds=np.array([0, len(halves[0]), num_slots]),
        discounts=np.zeros(num_slots),
        leaf_values=np.zeros(num_slots),
        **arrays,
    )


def new_steps(num_rows: int, state_bytes: int) -> Steps:
    """Return the memory of an answer.

    Args:
        num_rows: B.
        state_bytes: S.
    """
    return Steps(
        np.zeros(num_rows * state_bytes, np.uint8),
        np.zeros(num_rows),
        np.zeros(num_rows, np.uint8),
        np.zeros(num_rows, np.uint8),
        np.zeros(num_rows, np.int64),
    )
