"""The settings of swarm planners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space

from planvec.planners.base import Planner
from planvec.planners.novelty import FeatureFunction, check_features
from planvec.planners.options import option
from planvec.planners.root_actions import check_action_space
from planvec.planners.swarm.samplers import Dt, check_dt


@dataclass(frozen=True)
class SwarmConfig(Planner):
    """Declares and checks the fields that `Swarm` and `SwarmWave` share; `Swarm` describes them."""

    num_walkers: int = option(48, "Number of walkers, B.")
    num_iterations: int = option(30, "Moves of each walker.")
    dt: Dt = option(
        (1, 8),
        "Environment steps for which a walker repeats an action: a number, or the lowest and the highest of "
        "a uniform draw, or a sampler such as `NormalDt`: `sampler(generator, num_draws)` returns "
        "`[num_draws]` integers.",
    )
    reward_scale: float = option(
        1.0,
        "Exponent of the return (the paper's alpha). The ratio of the two exponents balances exploitation "
        "and exploration.",
    )
    distance_scale: float = option(1.0, "Exponent of the distance (the paper's beta).")
    num_elites: int = option(1, "Number of walkers with the best returns that never become clones.")
    novelty_scale: float = option(
        0.0,
        "Exponent, in the virtual reward, of the number of features of the observation that no walker has "
        "seen before in the decision. 1 helps where rewards are rare; 0: it does not count.",
    )
    features: FeatureFunction | Any = option(
        None,
        "What novelty means, as in `RolloutIW`. None: what suits the observation space.",
        is_function=True,
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        super().__post_init__()
        self._check_integers(1, "num_walkers", "num_iterations", optional=False)
        self._check_integers(0, "num_elites", optional=False)
        self._check_numbers(0.0, np.inf, "reward_scale", "distance_scale", "novelty_scale")
        check_features(self.features)
        check_dt(self.dt)

    @property
    def num_planned(self) -> int:
        """Moves of all walkers in a decision, at most."""
        return self.num_walkers * self.num_iterations

    def check_space(self, action_space: Space[Any]) -> None:
        """Check that actions can be drawn uniformly.

        Raises:
            UnsupportedEnvError: They cannot.
        """
        check_action_space(action_space)

    def prepare(self) -> None:
        """Compile the iteration of a swarm, or load it from numba's cache."""
        import planvec.planners.swarm.iteration  # noqa: F401 - it compiles what it holds when it is imported
