"""The argument `random` of a user's step in compiled code: it draws what `numpy.random.Generator` draws.

`random` is an object with methods of the same names, so that the same function runs in Python, too.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, make_attribute_wrapper, models, overload_method, register_model

from planvec.kernels.random import integer, random, standard_normal, uniform

_WORDS = types.Array(types.uint64, 1, "C")


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


def _define(name: str, select: Any) -> None:
    """Define a method of `random`."""
    overload_method(GeneratorType, name)(select)


def _select_integers(generator, low, high=None):  # type: ignore[no-untyped-def]
    """Return the compiled form of `integers(high)` or of `integers(low, high)`."""
    if high is None or isinstance(high, (types.NoneType, types.Omitted)):
        return lambda generator, low, high=None: integer(generator.words, 0, low)
    return lambda generator, low, high=None: integer(generator.words, low, high)


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
