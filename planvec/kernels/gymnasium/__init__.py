"""Kernels of Gymnasium's classic control and toy text."""

from __future__ import annotations

from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from gymnasium.envs.toy_text import BlackjackEnv, CliffWalkingEnv, FrozenLakeEnv, TaxiEnv

from planvec.kernels.base import Kernel
from planvec.kernels.gymnasium.classic_control import (
    ACROBOT,
    CART_POLE,
    CONTINUOUS_MOUNTAIN_CAR,
    MOUNTAIN_CAR,
    PENDULUM,
)
from planvec.kernels.gymnasium.toy_text import BLACKJACK, GRID, TAXI

__all__ = ["GYMNASIUM_KERNELS"]

# environment class -> its kernel
GYMNASIUM_KERNELS: dict[type, Kernel] = {
    AcrobotEnv: ACROBOT,
    BlackjackEnv: BLACKJACK,
    CartPoleEnv: CART_POLE,
    CliffWalkingEnv: GRID,
    Continuous_MountainCarEnv: CONTINUOUS_MOUNTAIN_CAR,
    FrozenLakeEnv: GRID,
    MountainCarEnv: MOUNTAIN_CAR,
    PendulumEnv: PENDULUM,
    TaxiEnv: TAXI,
}
