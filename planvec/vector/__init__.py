"""Vector environments whose rows can be saved, restored and branched, and survive the crash of a worker.

EnvPool          planvec's own interface: subsets of rows, send and recv, states
AsyncVectorEnv   Gymnasium's interface
SubprocVecEnv    stable-baselines3's interface (extra "sb3")
ding             DI-engine's environment managers (extra "ding")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planvec.lazy import lazy_names

if TYPE_CHECKING:
    from planvec.vector.env_pool import EnvPool, PoolStep
    from planvec.vector.gymnasium_env import AsyncVectorEnv
    from planvec.vector.sb3 import SubprocVecEnv

__all__ = ["AsyncVectorEnv", "EnvPool", "PoolStep", "SubprocVecEnv"]

if not TYPE_CHECKING:  # a type checker would accept any name from `__getattr__`
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "AsyncVectorEnv": "planvec.vector.gymnasium_env",
            "EnvPool": "planvec.vector.env_pool",
            "PoolStep": "planvec.vector.env_pool",
            "SubprocVecEnv": "planvec.vector.sb3",
        },
    )
