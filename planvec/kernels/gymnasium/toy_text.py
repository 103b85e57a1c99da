"""The steps of Gymnasium's FrozenLake, CliffWalking, Taxi and Blackjack, written for compilation.

All but Blackjack take the outcome of a step from a table `env.P`.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planvec.kernels.base import Kernel
from planvec.kernels.random import random as draw
from planvec.kernels.random import random_index
from planvec.rows import Column, Columns

# arrays `[cells, actions, outcomes]`: cumulated probabilities, probabilities, new cells, rewards, ends
Table = tuple[
    NDArray[np.float64], NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]
]

# environment -> its `P`, the arrays made of it, and the masks of legal actions `[cells, 6]` of Taxi
_tables: WeakKeyDictionary[Any, tuple[Any, Table, NDArray[np.int8] | None]] = WeakKeyDictionary()


def _known(env: Any) -> tuple[Any, Table, Any]:
    known = _tables.get(env)
    if known is None or known[0] is not env.P:
        masks = None
        if hasattr(env, "action_mask"):
            masks = np.array([env.action_mask(cell) for cell in range(len(env.P))], np.int8)
        known = _tables[env] = (env.P, _make_table(env.P, int(env.action_space.n)), masks)
    return known


def _table(env: object) -> Table:
    """Return the table of an environment as arrays."""
    return _known(env)[1]


def _make_table(outcomes: dict[int, dict[int, list[tuple[Any, ...]]]], num_actions: int) -> Table:
    num_cells = len(outcomes)
    rows = [row for actions in outcomes.values() for row in actions.values()]
    is_whole = set(outcomes) == set(range(num_cells)) and all(
        set(actions) == set(range(num_actions)) for actions in outcomes.values()
    )
    new_cells = {outcome[1] for row in rows for outcome in row}
    if not is_whole or not all(rows) or not new_cells <= set(outcomes):
        raise ValueError("a table without an outcome of a cell and an action")
    shape = (num_cells, num_actions, max(map(len, rows)))
    cumulated = np.full(shape, -1.0)  # an outcome that is missing is never drawn
    probabilities, rewards = np.zeros(shape), np.zeros(shape)
    cells, ends = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    for cell, actions in outcomes.items():
        for action, row in actions.items():
            if not all(isinstance(outcome[0], float) for outcome in row):
                raise ValueError("probabilities that are not floats")
            cumulated[cell, action, : len(row)] = np.cumsum([outcome[0] for outcome in row])
            for index, (probability, new_cell, reward, ends_there) in enumerate(row):
                probabilities[cell, action, index] = probability
                cells[cell, action, index] = new_cell
                rewards[cell, action, index] = reward
                ends[cell, action, index] = ends_there
    return cumulated, probabilities, cells, rewards, ends


@njit(cache=True)
def _draw_outcome(cumulated: NDArray[np.float64], random: Any) -> int:
    """Draw an outcome, as `gymnasium.envs.toy_text.utils.categorical_sample`."""
    drawn = draw(random)
    for index in range(len(cumulated)):
        if cumulated[index] > drawn:
            return index
    return 0


def _columns(
    constants: object, extras: NDArray[np.float64], observations: object, stepped: NDArray[np.bool_]
) -> Columns:
    return {"prob": Column(float, extras, stepped)} if stepped.any() else {}


# -- FrozenLake and CliffWalking ----------------------------------------------------------------------


def _step_grid(state: Any, action: object, constants: Any, random: object) -> Any:
    cell, _ = state
    cumulated, probabilities, cells, rewards, ends = constants
    index = _draw_outcome(cumulated[cell, action], random)
    at = (cell, action, index)
    return (cells[at], action), rewards[at], ends[at], probabilities[at]


def _observe_grid(state: Any, constants: object) -> Any:
    return (state[0],)


def _spread(states: np.ndarray, random: np.random.Generator, env: Any) -> None:
    states["cell"] = random.integers(len(env.P), size=len(states))


def _refuses_grid(state: Any, ended: bool, constants: Any) -> bool:
    return bool(state[0] < 0 or state[0] >= len(constants[0]))


GRID = Kernel(
    fields=("cell", "last_action"),
    step=_step_grid,
    observe=_observe_grid,
    constants=_table,
    refuses=_refuses_grid,
    spread=_spread,
    columns=_columns,
)


# -- Taxi ---------------------------------------------------------------------------------------------


def _taxi_constants(env: Any) -> tuple[Any, ...]:
    if len(env.locs) != 4 or env.action_space.n != 6:
        raise ValueError("another map")
    _, table, masks = _known(env)
    return *table, bool(env.fickle_passenger), masks


def _taxi_step(state: Any, action: Any, constants: Any, random: Any) -> Any:
    cell, is_fickle, _ = state
    cumulated, probabilities, cells, rewards, ends, fickle_passenger, _ = constants
    index = _draw_outcome(cumulated[cell, action], random)
    at = (cell, action, index)
    new_cell = cells[at]
    # A cell is ((row * 5 + column) * 5 + passenger) * 4 + destination; 4 is the passenger in the taxi.
    has_moved = new_cell // 20 != cell // 20
    if fickle_passenger and is_fickle and cell // 4 % 5 == 4 and has_moved:
        is_fickle = False
        destination = random_index(random, 3)
        destination += destination >= cell % 4
        new_cell = new_cell // 4 * 4 + destination
    return (new_cell, is_fickle, action), rewards[at], ends[at], probabilities[at]


def _taxi_columns(
    constants: Any, extras: NDArray[np.float64], observations: object, stepped: NDArray[np.bool_]
) -> Columns:
    columns = _columns(constants, extras, observations, stepped)
    if columns:
        masks = constants[-1][observations]
        masks[~stepped] = 0
        columns["action_mask"] = Column((masks.dtype, masks.shape[1:]), masks, stepped.copy())
    return columns


TAXI = Kernel(
    fields=("cell", "fickle", "last_action"),
    step=_taxi_step,
    observe=_observe_grid,
    constants=_taxi_constants,
    refuses=_refuses_grid,
    spread=_spread,
    columns=_taxi_columns,
)


# -- The step of Gymnasium's Blackjack, written for compilation ----------------------------------------------

_BLACKJACK = 21
_DEALER_STANDS = 17
_NUM_RANKS, _TEN = 13, 10
_ROOM = 24  # cards that one step may add to a hand: a dealer draws at most 17 aces, less those that he has


def _constants_blackjack(env: Any) -> tuple[bool, ...]:
    return bool(env.natural), bool(env.sab)


@njit(cache=True)
def _size(hand: NDArray[np.int8]) -> int:
    """Return the number of cards of a hand, which is padded with zeros."""
    size = 0
    while size < len(hand) and hand[size] != 0:
        size += 1
    return size


@njit(cache=True)
def _is_hand(hand: NDArray[np.int8]) -> bool:
    """Return whether a hand is one or more cards, followed by zeros, with room for those of a step."""
    size = _size(hand)
    if size == 0 or size + _ROOM > len(hand):
        return False
    for index in range(len(hand)):
        if (index < size and not 1 <= hand[index] <= _TEN) or (index >= size and hand[index] != 0):
            return False
    return True


@njit(cache=True)
def _sum_of(hand: NDArray[np.int8]) -> tuple[int, bool]:
    """Return the sum of a hand, and whether an ace counts 11 in it."""
    total, has_ace = 0, False
    for index in range(_size(hand)):
        total += hand[index]
        has_ace = has_ace or hand[index] == 1
    if has_ace and total + 10 <= _BLACKJACK:
        return total + 10, True
    return total, False


@njit(cache=True)
def _score(hand: NDArray[np.int8]) -> int:
    """Return the score of a hand: 0 if it is bust."""
    total = _sum_of(hand)[0]
    return 0 if total > _BLACKJACK else total


@njit(cache=True)
def _is_natural(hand: NDArray[np.int8]) -> bool:
    """Return whether a hand is an ace and a ten."""
    return _size(hand) == 2 and min(hand[0], hand[1]) == 1 and max(hand[0], hand[1]) == _TEN


@njit(cache=True)
def _add_card(hand: NDArray[np.int8], random: Any) -> None:
    """Draw a card and add it to a hand."""
    hand[_size(hand)] = min(random_index(random, _NUM_RANKS) + 1, _TEN)


def _step_blackjack(state: Any, action: object, constants: Any, random: object) -> Any:
    player, dealer = state
    natural, sab = constants
    if action == 1:
        _add_card(player, random)
        is_bust = _sum_of(player)[0] > _BLACKJACK
        return state, -1.0 if is_bust else 0.0, is_bust, 0.0
    while _sum_of(dealer)[0] < _DEALER_STANDS:
        _add_card(dealer, random)
    player_score, dealer_score = _score(player), _score(dealer)
    reward = 0.0
    if player_score != dealer_score:
        reward = 1.0 if player_score > dealer_score else -1.0
    if sab and _is_natural(player) and not _is_natural(dealer):
        reward = 1.0
    elif not sab and natural and _is_natural(player) and reward == 1.0:
        reward = 1.5
    return state, reward, True, 0.0


def _observe_blackjack(state: Any, constants: object) -> Any:
    player, dealer = state
    total, has_usable_ace = _sum_of(player)
    return total, dealer[0], has_usable_ace


def _refuses_blackjack(state: Any, ended: bool, constants: Any) -> bool:
    player, dealer = state
    return not (_is_hand(player) and _is_hand(dealer))


BLACKJACK = Kernel(
    fields=("player", "dealer"),
    step=_step_blackjack,
    observe=_observe_blackjack,
    constants=_constants_blackjack,
    refuses=_refuses_blackjack,
)
