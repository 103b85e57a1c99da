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
from planvec.kernels.gymnasium.acrobot import ACROBOT
from planvec.kernels.gymnasium.blackjack import BLACKJACK
from planvec.kernels.gymnasium.cart_pole import CART_POLE
from planvec.kernels.gymnasium.grid import GRID, TAXI
from planvec.kernels.gymnasium.mountain_car import CONTINUOUS_MOUNTAIN_CAR, MOUNTAIN_CAR
from planvec.kernels.gymnasium.pendulum import PENDULUM

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
