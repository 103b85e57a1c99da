"""Compiled choice of the walkers that clone, and of those that they clone.

Letters: B walkers, L living ones.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit

_ROUNDING = 1e-12  # relative spread below which values count as equal
_TINY = float(np.finfo(np.float64).tiny)


@jit(cache=True, allocates=True)
def relativize(
    values: NDArray[np.float64], living: NDArray[np.int64], exponent: float
) -> NDArray[np.float64]:
    """Map the values of the living, of any scale, to positive ones about 1 (the paper's "relativize")."""
    # With `z = (x - mean) / std`: `1 + ln(1 + z)` where `z > 0`, else `exp(z)`. Values that are all equal, up
    # to rounding, become ones. The results are raised to a power.
    # `values`: `[B]`. `living`: `[L]`. The others do not count: the return of a crash would hide the
    # differences among them.
    # Returns `[B]`, 0 for the dead.
    relative = np.zeros(len(values))
    total, squares, deviations = 0.0, 0.0, 0.0
    for walker in living:
        total += values[walker]
        squares += values[walker] * values[walker]
    mean = total / len(living)
    for walker in living:
        centred = values[walker] - mean
        deviations += centred * centred
    are_equal = not deviations > _ROUNDING**2 * squares  # also where a value is infinite
    deviation = math.sqrt(deviations / len(living))
    for walker in living:
        z = 0.0 if are_equal else (values[walker] - mean) / deviation
        positive = 1.0 + math.log1p(z) if z > 0.0 else math.exp(z)
        relative[walker] = positive if exponent == 1.0 else positive**exponent
    return relative


@jit(cache=True, allocates=True)
def pick(among: NDArray[np.int64], uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return random elements of `among`, one for each uniform draw in [0, 1)."""
    picked = np.empty(len(uniforms), np.int64)
    for index in range(len(uniforms)):
        picked[index] = among[int(uniforms[index] * len(among))]
    return picked


@jit(cache=True, allocates=True)
def keep_elites(
    keep: NDArray[np.bool_], values: NDArray[np.float64], living: NDArray[np.int64], num_elites: int
) -> None:
    """Mark the living walkers with the highest values, of equal ones the first."""
    # `keep`: `[B]`, written. `values`: `[B]`. `living`: `[L]`.
    for _ in range(min(num_elites, len(living))):
        best = -1
        for walker in living:
            if not keep[walker] and (best < 0 or values[walker] > values[best]):
                best = walker
        keep[best] = True


@jit(cache=True, allocates=True)
def clone_sources(
    virtual_rewards: NDArray[np.float64],  # `[B]`, 0 for the dead
    companions: NDArray[np.int64],  # `[B]`, a random living walker for each
    uniforms: NDArray[np.float64],  # `[B]` in [0, 1), to decide
    dead: NDArray[np.bool_],  # `[B]`
    keep: NDArray[np.bool_],  # `[B]`, the living walkers that do not clone
) -> NDArray[np.int64]:
    """Choose for each walker whether it goes on as itself or as a clone of its companion."""
    # Walker `i` clones companion `k` with probability `(VR_k - VR_i) / VR_i`, and always if it is dead.
    # Returns `[B]`, for each walker the one to copy; its own index: none.
    sources = np.empty(len(virtual_rewards), np.int64)
    for walker in range(len(virtual_rewards)):
        own = max(virtual_rewards[walker], _TINY)
        stays = virtual_rewards[companions[walker]] - own <= uniforms[walker] * own
        stays = keep[walker] or (stays and not dead[walker])
        sources[walker] = walker if stays else companions[walker]
    return sources
