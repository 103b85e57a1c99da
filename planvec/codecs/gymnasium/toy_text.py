"""Codecs of Gymnasium's toy text: a cell or hands of cards, and the generator that steps draw from.

The last action and the dealer's card, which only `render` shows, are part of the state too: a rendered state
looks as it did when it was reached.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.toy_text import BlackjackEnv, CliffWalkingEnv, FrozenLakeEnv, TaxiEnv

from planvec.codecs.base import Codec
from planvec.errors import EnvError

_NONE = -1  # the stored form of `lastaction = None`
_MAX_CARDS = 64  # largest number of cards in a hand that is saved


class GridCodec(Codec):
    """Saves the cell of FrozenLake and CliffWalking."""

    how = "named fields"
    dtype = np.dtype([("cell", "<i8"), ("last_action", "i1")])
    constants = ("P",)

    def __init__(self, env: Any) -> None:
        self.stochastic = _is_stochastic(env)

    def get(self, env: Any) -> Any:
        return env.s, _NONE if env.lastaction is None else env.lastaction

    def set(self, env: Any, value: Any) -> None:
        env.s, last_action = value
        env.lastaction = None if last_action == _NONE else last_action

    def observe(self, env: Any) -> Any:
        return int(env.s)


class TaxiCodec(Codec):
    """Saves the encoded cell, passenger and destination, and whether the passenger may still change it."""

    how = "named fields"
    constants = ("P", "fickle_passenger", "fickle_probability")
    dtype = np.dtype([("cell", "<i8"), ("fickle", "?"), ("last_action", "i1"), ("orientation", "i1")])

    def __init__(self, env: Any) -> None:
        self.stochastic = _is_stochastic(env) or env.fickle_passenger

    def get(self, env: Any) -> Any:
        last_action = _NONE if env.lastaction is None else env.lastaction
        return env.s, env.fickle_step, last_action, env.taxi_orientation

    def set(self, env: Any, value: Any) -> None:
        env.s, env.fickle_step, last_action, env.taxi_orientation = value
        env.lastaction = None if last_action == _NONE else last_action

    def observe(self, env: Any) -> Any:
        return int(env.s)


class BlackjackCodec(Codec):
    """Saves both hands, padded with zeros."""

    # A hand has at most 22 cards, all aces, when its episode ends. Steps after the end may deal more.

    how = "named fields"
    constants = ("natural", "sab")
    dtype = np.dtype(
        [
            ("player", "i1", _MAX_CARDS),
            ("dealer", "i1", _MAX_CARDS),
            ("top_suit", "<U1"),
            ("top_value", "<U2"),
        ]
    )

    def get(self, env: Any) -> Any:
        most = max(len(env.player), len(env.dealer))
        if most > _MAX_CARDS:
            raise EnvError(
                f"states: expected at most {_MAX_CARDS} cards in a hand of Blackjack, got {most}; reset the "
                "environment after the end of an episode"
            )
        return (
            env.player + [0] * (_MAX_CARDS - len(env.player)),
            env.dealer + [0] * (_MAX_CARDS - len(env.dealer)),
            env.dealer_top_card_suit,
            env.dealer_top_card_value_str,
        )

    def set(self, env: Any, value: Any) -> None:
        player, dealer, env.dealer_top_card_suit, env.dealer_top_card_value_str = value
        env.player = [int(card) for card in player if card]
        env.dealer = [int(card) for card in dealer if card]

    def observe(self, env: Any) -> Any:
        return env._get_obs()


def _is_stochastic(env: Any) -> bool:
    """Return whether any action has more than one outcome. A number is drawn in any case."""
    return any(
        sum(probability > 0 for probability, *_ in outcomes) > 1
        for actions in env.P.values()
        for outcomes in actions.values()
    )


# environment class -> codec
TOY_TEXT_CODECS: dict[type, type[Codec]] = {
    BlackjackEnv: BlackjackCodec,
    CliffWalkingEnv: GridCodec,
    FrozenLakeEnv: GridCodec,
    TaxiEnv: TaxiCodec,
}
