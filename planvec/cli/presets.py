"""Settings of planners that suit well-known tasks, for `planvec plan ENV_ID --preset`.

That of Acrobot was chosen on seeds from 1000 on, which no table of scores uses. `MCTS` has its defaults where
states repeat. The others are settings of the table of scores. `benchmarks/tasks.py --presets` plays all.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Preset(NamedTuple):
    """A planner with its settings."""

    planner: str  # its name on the command line
    options: dict[str, Any]  # its fields that differ from the defaults


_STATES_REPEAT = Preset("mcts", {"max_env_steps": 1000})
# name of an environment without module and version -> its preset
PRESETS: dict[str, Preset] = {
    "Acrobot": Preset("swarm-wave", {"num_walkers": 100_000, "dt": (3, 6), "reward_scale": 2.0}),
    "CartPole": Preset("mcts", {"max_env_steps": 1000}),
    "CliffWalking": _STATES_REPEAT,
    "HalfCheetah": Preset("icem", {"noise_beta": 0.25}),
    "Hopper": Preset("icem", {"horizon": 80, "dt": 4}),
    "LunarLander": Preset("swarm", {"num_walkers": 32, "num_iterations": 10, "dt": (2, 10)}),
    "MiniGrid-DoorKey-5x5": _STATES_REPEAT,
    "MountainCar": Preset("swarm", {"num_walkers": 128, "num_iterations": 16, "dt": (2, 16)}),
    "MountainCarContinuous": Preset("icem", {"horizon": 100, "dt": 5, "noise_beta": 2.0}),
    "Pendulum": Preset("icem", {}),
    "Taxi": _STATES_REPEAT,
}


def preset_of(env_id: str) -> Preset | None:
    """Return the preset of an environment; None if there is none."""
    return PRESETS.get(re.sub(r"-v\d+$", "", env_id.rpartition(":")[2]))
