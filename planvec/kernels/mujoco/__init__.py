"""Kernels of Gymnasium's MuJoCo environments: MuJoCo's C library, called by compiled loops.

`task` declares what an environment computes around its simulation, `locomotion`, `legged` and `others` do so
for Gymnasium's, `loops` step and roll out batches, and `stepper` runs them on threads.
"""

from __future__ import annotations

from planvec.kernels.mujoco.legged import ANT, HUMANOID
from planvec.kernels.mujoco.locomotion import HALF_CHEETAH, HOPPER, SWIMMER, WALKER
from planvec.kernels.mujoco.others import HUMANOID_STANDUP, INVERTED_PENDULUM, PUSHER
from planvec.kernels.mujoco.stepper import MujocoKernel
from planvec.kernels.mujoco.task import Task

__all__ = ["MUJOCO_TASKS", "MujocoKernel"]

# module in `gymnasium.envs.mujoco` and class -> its task
MUJOCO_TASKS: dict[tuple[str, str], Task] = {
    ("ant_v5", "AntEnv"): ANT,
    ("half_cheetah_v5", "HalfCheetahEnv"): HALF_CHEETAH,
    ("hopper_v5", "HopperEnv"): HOPPER,
    ("humanoid_v5", "HumanoidEnv"): HUMANOID,
    ("humanoidstandup_v5", "HumanoidStandupEnv"): HUMANOID_STANDUP,
    ("inverted_pendulum_v5", "InvertedPendulumEnv"): INVERTED_PENDULUM,
    ("pusher_v5", "PusherEnv"): PUSHER,
    ("swimmer_v5", "SwimmerEnv"): SWIMMER,
    ("walker2d_v5", "Walker2dEnv"): WALKER,
}
