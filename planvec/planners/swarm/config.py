"""The settings of swarm planners. Letters: B walkers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.base import SearchPlanner, option
from planvec.planners.novelty.numbers import FeatureFunction, check_features
from planvec.planners.root_actions import check_action_space

# `sampler(generator, num_draws)` gives `[num_draws]` integers of at least 1
DtSampler = Callable[[np.random.Generator, int], NDArray[np.integer]]

# environment steps for which an action is repeated: a number, the lowest and the highest of a uniform draw,
# or a sampler
Dt = int | tuple[int, int] | DtSampler


@dataclass(frozen=True)
class NormalDt:
    """Draws for how many steps an action is repeated, as in the paper: `|normal(mean, std)|`, at least 1.

    Draws are rounded to integers.

    Args:
        mean: In environment steps.
        std: In environment steps.

    Raises:
        ValueError: A number is out of range.
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name}: expected a number of at least 0, got {getattr(self, name)!r}")

    def __call__(self, generator: np.random.Generator, num_draws: int) -> NDArray[np.int64]:
        """Return `[num_draws]` numbers of steps."""
        rounded = np.rint(np.abs(generator.normal(self.mean, self.std, num_draws)))
        return np.maximum(rounded, 1).astype(np.int64)


@dataclass(frozen=True)
class SwarmConfig(SearchPlanner):
    """Declares and checks the fields that `Swarm` and `SwarmWave` share; `Swarm` describes them."""

    num_walkers: int = option(48, "Number of walkers, B.")
    num_iterations: int = option(30, "Moves of each walker.")
    dt: Dt = option(
        (1, 8),
        "Environment steps for which a walker repeats an action: a number, or the lowest and the highest of "
        "a uniform draw. Or a sampler such as `NormalDt`: `sampler(generator, num_draws)` returns "
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
        dt = self.dt
        if callable(dt):
            return
        bounds = dt if isinstance(dt, tuple) else (dt, dt)
        are_integers = all(
            isinstance(bound, (int, np.integer)) and not isinstance(bound, bool) for bound in bounds
        )
        if len(bounds) != 2 or not are_integers or not 1 <= bounds[0] <= bounds[1]:
            raise ValueError(
                "dt: expected an integer of at least 1, (low, high) with 1 <= low <= high, or a sampler, "
                f"got {dt!r}"
            )

    @property
    def num_planned(self) -> int:
        """Moves of all walkers in a decision, at most."""
        return self.num_walkers * self.num_iterations

    def check_space(self, action_space: Space[object]) -> None:
        """Check that actions can be drawn uniformly.

        Raises:
            UnsupportedEnvError: They cannot.
        """
        check_action_space(action_space)

    def prepare(self) -> None:
        """Compile the iteration of a swarm, or load it from numba's cache."""
        import planvec.planners.swarm.iteration  # noqa: F401 - it compiles what it holds when it is imported
