"""What a swarm draws at random: actions, for how long they are held, and whom to look at.

Letters: B walkers, K iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.rows.random_actions import uniform_actions

__all__ = ["Draw", "Dt", "DtSampler", "NormalDt", "check_dt", "draw_dt", "draws"]

DtSampler = Callable[[np.random.Generator, int], NDArray[np.integer[Any]]]
"""`sampler(generator, num_draws)` gives `[num_draws]` integers of at least 1."""

Dt = int | tuple[int, int] | DtSampler
"""For how many environment steps an action is held: a number, the lowest and the highest of a uniform
draw, or a sampler."""

_BLOCK = 32
"""Iterations that are drawn at once, which costs little more than drawing one."""


@dataclass(frozen=True)
class NormalDt:
    """The paper's sampler of how long an action is held: `|normal(mean, std)|`, rounded, at least 1.

    Args:
        mean: In environment steps.
        std: In environment steps.

    Raises:
        ValueError: A number out of range.
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name}: expected a number of at least 0, got {getattr(self, name)!r}")

    def __call__(self, generator: np.random.Generator, num_draws: int) -> NDArray[np.int64]:
        """Draw `[num_draws]`."""
        held = np.rint(np.abs(generator.normal(self.mean, self.std, num_draws)))
        return np.maximum(held, 1).astype(np.int64)


def check_dt(dt: Any) -> None:
    """Whether it is a number, `(low, high)` or a sampler.

    Raises:
        ValueError: It is none of them.
    """
    if callable(dt):
        return
    bounds = dt if isinstance(dt, tuple) else (dt, dt)
    are_integers = all(isinstance(each, (int, np.integer)) and not isinstance(each, bool) for each in bounds)
    if len(bounds) != 2 or not are_integers or not 1 <= bounds[0] <= bounds[1]:
        raise ValueError(
            "dt: expected an integer of at least 1, (low, high) with 1 <= low <= high, or a sampler, "
            f"got {dt!r}"
        )


def draw_dt(dt: Dt, generator: np.random.Generator, num_draws: int) -> NDArray[np.int64]:
    """Draw for how many steps actions are held: `[num_draws]`.

    Raises:
        ValueError: A sampler gave something else.
    """
    if isinstance(dt, tuple):
        return generator.integers(dt[0], dt[1], num_draws, endpoint=True)
    if not callable(dt):
        return np.full(num_draws, dt, np.int64)
    drawn = np.asarray(dt(generator, num_draws))
    if drawn.shape != (num_draws,) or drawn.dtype.kind not in "iu" or (drawn < 1).any():
        raise ValueError(f"dt: expected {num_draws} integers of at least 1 from the sampler, got {drawn!r}")
    return drawn.astype(np.int64)


class Draw(NamedTuple):
    """The random choices of one iteration.

    Attributes:
        actions: `[B, *action shape]`.
        dt: `[B]`.
        seeds: `[B]`, the chance of each step; None where a step has one outcome.
        uniforms: `[3, B]`, in [0, 1): companions to compare with, companions to clone, and whether to.
    """

    actions: NDArray[Any]
    dt: NDArray[np.int64]
    seeds: NDArray[np.uint64] | None
    uniforms: NDArray[np.float64]


def draws(
    space: Space[Any], generator: np.random.Generator, dt: Dt, num_walkers: int, has_chance: bool
) -> Iterator[Draw]:
    """The random choices of one iteration after the other, without end.

    Args:
        space: Of the actions.
        generator: What all is drawn from.
        dt: For how many environment steps an action is held.
        num_walkers: B.
        has_chance: Whether a step needs a seed.
    """
    while True:
        count = _BLOCK * num_walkers
        actions = uniform_actions(space, generator, count).reshape(_BLOCK, num_walkers, *(space.shape or ()))
        held = draw_dt(dt, generator, count).reshape(_BLOCK, num_walkers)
        uniforms = generator.random((_BLOCK, 3, num_walkers))
        seeds = None
        if has_chance:
            seeds = generator.integers(0, 2**64, (_BLOCK, num_walkers), dtype=np.uint64)
        for number in range(_BLOCK):
            seed = None if seeds is None else seeds[number]
            yield Draw(actions[number], held[number], seed, uniforms[number])
