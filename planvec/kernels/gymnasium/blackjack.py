"""The step of Gymnasium's Blackjack, written for compilation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from planvec.kernels.base import Kernel
from planvec.kernels.random import random_index

_BLACKJACK = 21
_DEALER_STANDS = 17
_NUM_RANKS, _TEN = 13, 10
_ROOM = 24  # cards that one step may add to a hand: a dealer draws at most 17 aces, less those that he has


def _constants(env: Any) -> tuple[bool, ...]:
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


def _step(state: Any, action: Any, constants: Any, random: Any) -> Any:
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


def _observe(state: Any, constants: Any) -> Any:
    player, dealer = state
    total, has_usable_ace = _sum_of(player)
    return total, dealer[0], has_usable_ace


def _refuses(state: Any, ended: bool, constants: Any) -> bool:
    player, dealer = state
    return not (_is_hand(player) and _is_hand(dealer))


BLACKJACK = Kernel(
    fields=("player", "dealer"), step=_step, observe=_observe, constants=_constants, refuses=_refuses
)
