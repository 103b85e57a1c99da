"""Saves and restores Gymnasium's classic control and toy text environments as named fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from gymnasium.envs.toy_text import BlackjackEnv, CliffWalkingEnv, FrozenLakeEnv, TaxiEnv
from numpy.typing import NDArray

from planvec.codecs.base import Codec, Env
from planvec.codecs.selection import FamilyCodec, WrapperSupport
from planvec.errors import EnvError

# -- Codecs of Gymnasium's classic control: a few numbers each, restored in their original precision.
#
# The precision matters: Acrobot and the continuous mountain car hold float32 after a reset and float64 after
# a step, or the other way round, and the next step rounds accordingly.
#
# Letters: B rows.


class _Physics(Codec):
    """Saves environments whose state is `env.state`, always in float64."""

    draws = False
    how = "named fields"
    size: int

    def __init__(self, env: Env) -> None:
        self.dtype = np.dtype([("physics", "<f8", self.size)])

    def get(self, env: Any) -> object:
        return env.state

    def set(self, env: Any, value: object) -> None:
        env.state = value

    def pack(self, values: Sequence[object], records: NDArray[np.void]) -> None:
        records["physics"] = np.array(values)

    def unpack(self, records: NDArray[np.void]) -> list[Any]:
        return list(records["physics"].copy())

    def observe(self, env: Any) -> object:
        return np.array(env.state, dtype=np.float32)


class CartPoleCodec(_Physics):
    """Saves the cart and the pole: positions and velocities."""

    size = 4
    constants = (
        "gravity",
        "masscart",
        "masspole",
        "length",
        "force_mag",
        "tau",
        "kinematics_integrator",
        "theta_threshold_radians",
        "x_threshold",
        "_sutton_barto_reward",
    )

    def set(self, env: Any, value: object) -> None:
        env.state = value
        env.steps_beyond_terminated = None  # planvec never steps beyond the end

    def unpack(self, records: NDArray[np.void]) -> list[Any]:
        # The equations only add, multiply and divide: Python floats give the same bits in less time.
        return list(records["physics"].tolist())


class MountainCarCodec(_Physics):
    """Saves the position and the velocity."""

    size = 2
    constants = ("goal_position", "goal_velocity", "force", "gravity", "max_speed")


class PendulumCodec(_Physics):
    """Saves the angle and its velocity, and the torque (`last_u`), which `render` draws."""

    constants = ("g", "m", "l", "dt", "max_speed", "max_torque")

    def __init__(self, env: Env) -> None:
        self.dtype = np.dtype([("physics", "<f8", 2), ("torque", "<f4"), ("has_torque", "?")])

    def get(self, env: Any) -> object:
        return env.state, env.last_u

    def set(self, env: Any, value: Any) -> None:
        env.state, env.last_u = value

    def pack(self, values: Sequence[object], records: NDArray[np.void]) -> None:
        physics, torques = zip(*values, strict=True)
        records["physics"] = np.array(physics)
        records["torque"] = [0.0 if torque is None else torque for torque in torques]
        records["has_torque"] = [torque is not None for torque in torques]

    def unpack(self, records: NDArray[np.void]) -> list[Any]:
        columns = records["physics"].copy(), records["torque"], records["has_torque"].tolist()
        rows = zip(*columns, strict=True)
        return [(physics, torque if has_torque else None) for physics, torque, has_torque in rows]

    def observe(self, env: Any) -> object:
        return env._get_obs()


class _MixedPrecision(Codec):
    """Saves environments whose `env.state` is float32 or float64, depending on the last call."""

    how = "named fields"
    size: int

    def __init__(self, env: Env) -> None:
        self.dtype = np.dtype([("physics", "<f8", self.size), ("single", "?")])

    def get(self, env: Any) -> object:
        return env.state, env.state.dtype == np.float32

    def set(self, env: Any, value: Any) -> None:
        state, single = value
        env.state = state.astype(np.float32) if single else state


class ContinuousMountainCarCodec(_MixedPrecision):
    """Saves the position and the velocity."""

    size = 2
    constants = ("goal_position", "goal_velocity", "power", "max_speed")
    draws = False

    def observe(self, env: Any) -> object:
        return np.array(env.state, dtype=np.float32)


class AcrobotCodec(_MixedPrecision):
    """Saves the two angles and their velocities."""

    size = 4
    constants = ("dt", "torque_noise_max", "book_or_nips", "AVAIL_TORQUE", "MAX_VEL_1", "MAX_VEL_2")

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.draws = env.torque_noise_max > 0

    def observe(self, env: Any) -> object:
        return env._get_ob()


# -- Codecs of Gymnasium's toy text: a cell or hands of cards, and the generator that steps draw from.
#
# The last action and the dealer's card, which only `render` shows, are part of the state too: a rendered
# state looks as it did when it was reached.

_NONE = -1  # the stored form of `lastaction = None`
_MAX_CARDS = 64  # largest number of cards in a hand that is saved


class GridCodec(Codec):
    """Saves the cell of FrozenLake and CliffWalking."""

    how = "named fields"
    dtype = np.dtype([("cell", "<i8"), ("last_action", "i1")])
    constants: tuple[str, ...] = ("P",)

    def __init__(self, env: Any) -> None:
        # whether any action has more than one outcome; a number is drawn in any case
        self.stochastic = any(
            sum(probability > 0 for probability, *_ in outcomes) > 1
            for actions in env.P.values()
            for outcomes in actions.values()
        )

    def get(self, env: Any) -> object:
        return env.s, _NONE if env.lastaction is None else env.lastaction

    def set(self, env: Any, value: Any) -> None:
        env.s, last_action = value
        env.lastaction = None if last_action == _NONE else last_action

    def observe(self, env: Any) -> object:
        return int(env.s)


class TaxiCodec(GridCodec):
    """Saves the encoded cell, passenger and destination, and whether the passenger may still change it."""

    dtype = np.dtype([("cell", "<i8"), ("fickle", "?"), ("last_action", "i1"), ("orientation", "i1")])

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        # Gymnasium 1.1 has none of them, and 1.2 no probability.
        names = ("P", "fickle_passenger", "fickle_probability")
        self.constants = tuple(name for name in names if hasattr(env, name))
        self.stochastic = self.stochastic or getattr(env, "fickle_passenger", False)

    def get(self, env: Any) -> object:
        last_action = _NONE if env.lastaction is None else env.lastaction
        return env.s, getattr(env, "fickle_step", False), last_action, env.taxi_orientation

    def set(self, env: Any, value: Any) -> None:
        env.s, env.fickle_step, last_action, env.taxi_orientation = value
        env.lastaction = None if last_action == _NONE else last_action


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

    def get(self, env: Any) -> object:
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

    def observe(self, env: Any) -> object:
        return env._get_obs()


# environment class -> codec
_CODECS: dict[type, type[Codec]] = {
    AcrobotEnv: AcrobotCodec,
    CartPoleEnv: CartPoleCodec,
    Continuous_MountainCarEnv: ContinuousMountainCarCodec,
    MountainCarEnv: MountainCarCodec,
    PendulumEnv: PendulumCodec,
    BlackjackEnv: BlackjackCodec,
    CliffWalkingEnv: GridCodec,
    FrozenLakeEnv: GridCodec,
    TaxiEnv: TaxiCodec,
}


def codec_for_env(env: object, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    # A subclass may hold more than the fields, and an unknown wrapper may change other attributes. Both are
    # copied instead.
    codec = _CODECS.get(type(env))
    if codec is None or wrappers is WrapperSupport.MISSING:
        return None
    return FamilyCodec(codec, is_verified=True)
