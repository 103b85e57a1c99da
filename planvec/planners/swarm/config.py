"""The settings of swarm planners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planvec.planners.base import Planner
from planvec.planners.options import option
from planvec.planners.swarm.samplers import Dt, check_dt

__all__ = ["SwarmConfig"]


@dataclass(frozen=True)
class SwarmConfig(Planner):
    """Declares and checks the fields that `Swarm` and `SwarmWave` share; `Swarm` describes them."""

    num_walkers: int = option(48, "number of walkers")
    num_iterations: int = option(30, "moves of each walker per decision, at most")
    dt: Dt = option(
        (1, 8),
        "environment steps for which a walker repeats an action: a number, or the lowest and the highest of "
        "a uniform draw",
    )
    reward_scale: float = option(
        1.0, "exponent of the return in the virtual reward (the paper's alpha): larger ones exploit more"
    )
    distance_scale: float = option(
        1.0, "exponent of the distance in the virtual reward (the paper's beta): larger ones explore more"
    )
    num_elites: int = option(1, "walkers with the best returns that never become clones")

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ValueError: A field is out of range. The message names it.
        """
        super().__post_init__()
        self._check_integers(1, "num_walkers", "num_iterations", optional=False)
        self._check_integers(0, "num_elites", optional=False)
        self._check_numbers(0.0, np.inf, "reward_scale", "distance_scale")
        check_dt(self.dt)

    def prepare(self) -> None:
        """Compile the iteration of a swarm, or load it from numba's cache."""
        import planvec.planners.swarm.iteration  # noqa: F401 - it compiles what it holds when it is imported
