"""Codecs of Gymnasium's classic control: a few numbers each, restored in their original precision.

The precision matters: Acrobot and the continuous mountain car hold float32 after a reset and float64 after a
step, or the other way round, and the next step rounds accordingly.

Letters: B rows.
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


class _Physics(Codec):
    """Saves environments whose state is `env.state`, always in float64."""

    draws = False
    how = "named fields"
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

    def set(self, env: Any, value: Any) -> None:
        env.state = value
        env.steps_beyond_terminated = None  # planvec never steps beyond the end

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        # The equations only add, multiply and divide: Python floats give the same bits in less time.
        return list(records["physics"].tolist())


class MountainCarCodec(_Physics):
    """Saves the position and the velocity."""

    size = 2
    constants = ("goal_position", "goal_velocity", "force", "gravity", "max_speed")


class PendulumCodec(_Physics):
    """Saves the angle and its velocity, and the torque (`last_u`), which `render` draws."""

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
    """Saves environments whose `env.state` is float32 or float64, depending on the last call."""

    how = "named fields"
    size: int

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.dtype = np.dtype([("physics", "<f8", self.size), ("single", "?")])

    def get(self, env: Any) -> Any:
        return env.state, env.state.dtype == np.float32

    def set(self, env: Any, value: Any) -> None:
        state, single = value
        env.state = state.astype(np.float32) if single else state


class ContinuousMountainCarCodec(_MixedPrecision):
    """Saves the position and the velocity."""

    size = 2
    constants = ("goal_position", "goal_velocity", "power", "max_speed")
    draws = False

    def observe(self, env: Any) -> Any:
        return np.array(env.state, dtype=np.float32)


class AcrobotCodec(_MixedPrecision):
    """Saves the two angles and their velocities."""

    size = 4
    constants = ("dt", "torque_noise_max", "book_or_nips", "AVAIL_TORQUE", "MAX_VEL_1", "MAX_VEL_2")

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.draws = env.torque_noise_max > 0

    def observe(self, env: Any) -> Any:
        return env._get_ob()


# environment class -> codec
CLASSIC_CONTROL_CODECS: dict[type, type[Codec]] = {
    AcrobotEnv: AcrobotCodec,
    CartPoleEnv: CartPoleCodec,
    Continuous_MountainCarEnv: ContinuousMountainCarCodec,
    MountainCarEnv: MountainCarCodec,
    PendulumEnv: PendulumCodec,
}
