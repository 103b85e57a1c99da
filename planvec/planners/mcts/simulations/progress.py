"""The memory of the simulations in flight, of their requests, and of the answers.

The slots of the simulations in flight form two halves. Each half has at most one request, whose rows are in
the part of the buffers that belongs to its slots. Letters: B rows, K slots, S bytes of a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
# request of the half that was queued last; the root's episode had ended. From `FIRST_REQUEST` on: the request
# of a half has to be performed, that of the first or of the second one.
DONE, PAUSED, REFUSED, ENDED, FIRST_REQUEST = 0, 1, 2, 3, 4


class Limits(NamedTuple):
    """The numbers that do not change during a search. -1: no limit."""

    num_simulations: int
    max_env_steps: int  # environment steps
    # whether the values of leaves are requested: with rollouts, and for an open loop with a function of the
    # user
    asks_leaves: bool
    rollout_steps: int
    discount: float  # factor per environment step
    state_bytes: int  # S; 0 if states are objects, which compiled code does not see
    action_bytes: int  # bytes of one action; 0 if every node has its own
    player_at: int  # index of the byte of a state that holds the player to move; -1: there is one player
    # index of the first of the A bytes of a state that hold the legal actions; -1: there are none
    mask_at: int


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
    outcomes: NDArray[np.int64]  # `[K]` int64, the outcome of each row
    nodes: NDArray[np.int64]  # `[K]` int64, the node of each row
    discounts: NDArray[np.float64]  # `[K]` float64, the discount of each row
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


def new_progress(halves: list[NDArray[np.int64]]) -> Progress:
    """Return the memory of simulations in flight, of which there are none yet."""
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
    """Return the memory of an answer."""
    return Steps(
        np.zeros(num_rows * state_bytes, np.uint8),
        np.zeros(num_rows),
        np.zeros(num_rows, np.uint8),
        np.zeros(num_rows, np.uint8),
        np.zeros(num_rows, np.int64),
    )
