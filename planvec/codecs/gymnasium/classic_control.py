"""Gymnasium's classic control: a few numbers each, restored in the type they were computed in.

The type matters: Acrobot and the continuous mountain car hold float32 after one of reset and step and
float64 after the other, and the next step rounds accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import (
    AcrobotEnv,
    CartPoleEnv,
    Continuous_MountainCarEnv,
    MountainCarEnv,
    PendulumEnv,
)
from numpy.typing import NDArray

from planvec.codecs.base import Codec

__all__ = ["CODECS"]


class _Physics(Codec):
    """Environments whose state is `env.state`, float64 throughout."""

    draws = False
    size: int

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.dtype = np.dtype([("physics", "<f8", self.size)])

    def get(self, env: Any) -> Any:
        return env.state

    def set(self, env: Any, value: Any) -> None:
        env.state = value

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        records["physics"] = np.array(values)

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        return list(records["physics"].copy())

    def observe(self, env: Any) -> Any:
        return np.array(env.state, dtype=np.float32)


class CartPoleCodec(_Physics):
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

    def set(self, env: Any, value: Any) -> None:
        env.state = value
        env.steps_beyond_terminated = None  # planvec never steps beyond the end

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        # Its equations add, multiply and divide: Python floats give the same bits, faster.
        return list(records["physics"].tolist())


class MountainCarCodec(_Physics):
    size = 2
    constants = ("goal_position", "goal_velocity", "force", "gravity", "max_speed")


class PendulumCodec(_Physics):
    """`last_u`, the torque, is what `render` draws."""

    constants = ("g", "m", "l", "dt", "max_speed", "max_torque")

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.dtype = np.dtype([("physics", "<f8", 2), ("torque", "<f4"), ("has_torque", "?")])

    def get(self, env: Any) -> Any:
        return env.state, env.last_u

    def set(self, env: Any, value: Any) -> None:
        env.state, env.last_u = value

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        physics, torques = zip(*values, strict=True)
        records["physics"] = np.array(physics)
        records["torque"] = [0.0 if torque is None else torque for torque in torques]
        records["has_torque"] = [torque is not None for torque in torques]

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        physics = list(records["physics"].copy())
        torques = [
            torque if has else None
            for torque, has in zip(records["torque"], records["has_torque"].tolist(), strict=True)
        ]
        return list(zip(physics, torques, strict=True))

    def observe(self, env: Any) -> Any:
        return env._get_obs()


class _MixedPrecision(Codec):
    """Environments whose `env.state` is float32 or float64, depending on what was done last."""

    size: int

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.dtype = np.dtype([("physics", "<f8", self.size), ("single", "?")])

    def get(self, env: Any) -> Any:
        return env.state, env.state.dtype == np.float32

    def set(self, env: Any, value: Any) -> None:
        state, single = value
        env.state = state.astype(np.float32) if single else state


class ContinuousMountainCarCodec(_MixedPrecision):
    size = 2
    constants = ("goal_position", "goal_velocity", "power", "max_speed")
    draws = False

    def observe(self, env: Any) -> Any:
        return np.array(env.state, dtype=np.float32)


class AcrobotCodec(_MixedPrecision):
    size = 4
    constants = ("dt", "torque_noise_max", "book_or_nips", "AVAIL_TORQUE", "MAX_VEL_1", "MAX_VEL_2")

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.draws = env.torque_noise_max > 0

    def observe(self, env: Any) -> Any:
        return env._get_ob()


CODECS: dict[type, type[Codec]] = {
    AcrobotEnv: AcrobotCodec,
    CartPoleEnv: CartPoleCodec,
    Continuous_MountainCarEnv: ContinuousMountainCarCodec,
    MountainCarEnv: MountainCarCodec,
    PendulumEnv: PendulumCodec,
}
"""Environment class -> codec."""
