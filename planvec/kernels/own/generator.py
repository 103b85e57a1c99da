"""The argument `random` of a user's step in compiled code: it draws what `numpy.random.Generator` draws.

`random` is an object with methods of the same names, so that the same function runs in Python, too.

Source of `normal`: Marsaglia and Tsang 2000, "The Ziggurat Method for Generating Random Variables", with the
tables of NumPy, which numba has as well.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, make_attribute_wrapper, models, overload_method, register_model
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_inv_r, ziggurat_nor_r

from planvec.kernels.random import next_uint64, random, random_index, uniform

__all__ = ["GENERATOR_TYPE", "as_generator", "standard_normal"]

_WORDS = types.Array(types.uint64, 1, "C")
_MAX_SIZE = 2**32 - 1


class GeneratorType(types.Type):
    """The type of `random`: it holds the words of a generator; see `planvec.kernels.random`."""

    def __init__(self) -> None:
        super().__init__(name="planvec.Generator")


GENERATOR_TYPE: Any = GeneratorType()


@register_model(GeneratorType)
class _GeneratorModel(models.StructModel):
    def __init__(self, manager: Any, generator: Any) -> None:
        super().__init__(manager, generator, [("words", _WORDS)])  # type: ignore[no-untyped-call]


make_attribute_wrapper(GeneratorType, "words", "words")


@intrinsic
def as_generator(typing_context: Any, words: Any) -> Any:
    """Return the words of a generator as an object with methods."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        struct = cgutils.create_struct_proxy(GENERATOR_TYPE)(context, builder)
        struct.words = arguments[0]
        context.nrt.incref(builder, words, arguments[0])
        return struct._getvalue()

    return GENERATOR_TYPE(words), generate


@njit
def standard_normal(words: Any) -> float:
    """Draw a normally distributed number, as `numpy.random.Generator.standard_normal()`.

    Args:
        words: `[6]`, a generator.
    """
    while True:
        bits = next_uint64(words)
        layer = int(bits & np.uint64(0xFF))
        is_negative = (bits >> np.uint64(8)) & np.uint64(1)
        distance = (bits >> np.uint64(9)) & np.uint64(0x000FFFFFFFFFFFFF)
        drawn = float(np.int64(distance)) * wi_double[layer]
        if is_negative:
            drawn = -drawn
        if distance < ki_double[layer]:
            return float(drawn)
        if layer > 0:
            if (fi_double[layer - 1] - fi_double[layer]) * random(words) + fi_double[layer] < math.exp(
                -0.5 * drawn * drawn
            ):
                return float(drawn)
            continue
        while True:
            tail = -ziggurat_nor_inv_r * math.log1p(-random(words))
            height = -math.log1p(-random(words))
            if height + height > tail * tail:
                far = ziggurat_nor_r + tail
                return float(-far if (distance >> np.uint64(8)) & np.uint64(1) else far)


@njit
def _integer(words: Any, low: int, high: int) -> int:
    """Draw an integer in [low, high)."""
    if high - low < 1 or high - low > _MAX_SIZE:
        raise ValueError("random.integers: expected a range of 1 to 2**32 - 1 integers")
    return low + random_index(words, high - low)


def _define(name: str, select: Any) -> None:
    """Define a method of `random`.

    Args:
        name: Its name.
        select: A function of the same arguments that returns the function to compile. Neither has
            annotations, which numba compares.
    """
    overload_method(GeneratorType, name)(select)


def _select_integers(generator, low, high=None):  # type: ignore[no-untyped-def]
    """Return the compiled form of `integers(high)` or of `integers(low, high)`."""
    if high is None or isinstance(high, (types.NoneType, types.Omitted)):
        return lambda generator, low, high=None: _integer(generator.words, 0, low)
    return lambda generator, low, high=None: _integer(generator.words, low, high)


_define("random", lambda generator: lambda generator: random(generator.words))
_define("integers", _select_integers)
_define("standard_normal", lambda generator: lambda generator: standard_normal(generator.words))
_define(
    "uniform",
    lambda generator, low=0.0, high=1.0: (
        lambda generator, low=0.0, high=1.0: uniform(generator.words, low, high)
    ),
)
_define(
    "normal",
    lambda generator, loc=0.0, scale=1.0: (
        lambda generator, loc=0.0, scale=1.0: loc + scale * standard_normal(generator.words)
    ),
)
