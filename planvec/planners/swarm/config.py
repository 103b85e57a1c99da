"""The settings of swarm planners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.base import SearchPlanner, option
from planvec.planners.novelty.numbers import FeatureFunction, check_features
from planvec.planners.root_actions import check_action_space
from planvec.rows import uniform_actions

# -- The random draws of a swarm: actions, their numbers of steps, companions.
#
# Letters: B walkers, A bytes of an action.

# `sampler(generator, num_draws)` gives `[num_draws]` integers of at least 1
DtSampler = Callable[[np.random.Generator, int], NDArray[np.integer[Any]]]

# environment steps for which an action is repeated: a number, the lowest and the highest of a uniform draw,
# or a sampler
Dt = int | tuple[int, int] | DtSampler

_BLOCK = 32  # iterations that are drawn at once, which costs little more than drawing one


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


def check_dt(dt: Any) -> None:
    """Check that `dt` is a number, `(low, high)` or a sampler."""
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


def draw_dt(dt: Dt, generator: np.random.Generator, num_draws: int) -> NDArray[np.int64]:
    """Draw for how many steps actions are repeated: `[num_draws]`."""
    if isinstance(dt, tuple):
        return generator.integers(dt[0], dt[1], num_draws, endpoint=True)
    if not callable(dt):
        return np.full(num_draws, dt, np.int64)
    drawn = np.asarray(dt(generator, num_draws))
    if drawn.shape != (num_draws,) or drawn.dtype.kind not in "iu" or (drawn < 1).any():
        raise ValueError(f"dt: expected {num_draws} integers of at least 1 from the sampler, got {drawn!r}")
    return drawn.astype(np.int64)


class Draw(NamedTuple):
    """The random choices of one iteration."""

    actions: NDArray[Any]  # `[B, *action shape]`
    action_bytes: NDArray[np.uint8]  # `[B, A]` uint8, the same memory
    dt: NDArray[np.int64]  # `[B]` int64, the number of steps of each action
    seeds: NDArray[np.uint64] | None  # `[B]` uint64, the seed of each step; None where a step has one outcome
    # `[3, B]` in [0, 1), to choose companions to compare with, to choose companions to clone, and to decide
    # whether to clone
    uniforms: NDArray[np.float64]


def draws(
    space: Space[Any], generator: np.random.Generator, dt: Dt, num_walkers: int, needs_seeds: bool
) -> Iterator[Draw]:
    """Yield the random choices of one iteration after the other, endlessly."""
    while True:
        count = _BLOCK * num_walkers
        actions = uniform_actions(space, generator, count).reshape(_BLOCK, num_walkers, *(space.shape or ()))
        num_bytes = actions.nbytes // count
        action_bytes = actions.reshape(-1).view(np.uint8).reshape(_BLOCK, num_walkers, num_bytes)
        num_steps = draw_dt(dt, generator, count).reshape(_BLOCK, num_walkers)
        uniforms = generator.random((_BLOCK, 3, num_walkers))
        seeds: Any = [None] * _BLOCK
        if needs_seeds:
            seeds = generator.integers(0, 2**64, (_BLOCK, num_walkers), dtype=np.uint64)
        # A list, since views that are made together take less time than each before its step.
        yield from list(map(Draw, actions, action_bytes, num_steps, seeds, uniforms))


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
