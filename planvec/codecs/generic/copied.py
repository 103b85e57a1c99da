"""Codecs for plain Python environments and for unknown wrappers: a pickle of the attributes that may change.

`attributes` describes which attributes are left out, and `survey` which objects are referred to by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium

from planvec.codecs.base import Codec, WrapperCodec
from planvec.codecs.generic.attributes import Attributes, attributes_of
from planvec.codecs.generic.functions import names_in_code
from planvec.codecs.generic.generators import reseed_generators
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.layers import layer_name, layers_by_name


class GraphCodec:
    """Defines the methods by which an `ObjectGraph` saves an object: an environment or a wrapper."""

    graph: ObjectGraph  # Saves the attributes of the object. `registry` joins the graphs of all layers.
    caches: Sequence[str] = ()  # variables beside the environment that may change; see `Copied`

    def before_reset(self, saved: Any) -> None:
        self.graph.restore_initial()

    def get(self, saved: Any) -> Any:
        return self.graph.save()

    def set(self, saved: Any, value: Any) -> None:
        self.graph.restore(value)

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return a digest of each attribute that is saved."""
        return self.graph.digests()

    def reseed(self, saved: Any, seed: int) -> None:
        """Reseed the generators that the object keeps, apart from the `np_random` of an environment."""
        reseed_generators(self.graph.generators(), seed)


class CopiedCodec(GraphCodec, Codec):
    """Saves the attributes of the unwrapped environment."""

    how = "a pickle of the attributes"

    def __init__(
        self, env: gymnasium.Env[Any, Any], constants: Sequence[str] = (), caches: Sequence[str] = ()
    ) -> None:
        self.caches = caches
        vars(env).setdefault("_np_random", None)
        # The generator is saved separately: that takes 1 us, pickling it would take 50.
        present = attributes_of(env)
        later = [name for name in constants if name not in present and name in _names_in_methods(type(env))]
        now = [name for name in constants if name not in later]
        attributes = Attributes(env, layer_name(env), [*now, "_np_random"], later)
        self.graph = ObjectGraph([attributes], layers_by_name(env), env)


def _names_in_methods(cls: type) -> set[str]:
    """Return the names of attributes that the methods of a class read or set, and others."""
    # Attributes that `reset` or `step` sets do not exist yet when the environment is opened.
    values = [value for base in cls.__mro__ for value in vars(base).values()]
    return set().union(*(names_in_code(value.__code__) for value in values if hasattr(value, "__code__")))


class CopiedWrapperCodec(GraphCodec, WrapperCodec):
    """Saves the attributes of a wrapper that planvec does not know."""

    draws = True

    def __init__(self, wrapper: Any) -> None:
        base = wrapper.unwrapped
        for name, value in vars(wrapper).items():
            if type(value).__name__ == "ALEInterface":  # planvec has replaced it in the environment
                setattr(wrapper, name, base.ale)
        attributes = Attributes(wrapper, layer_name(wrapper), ["env"])
        self.graph = ObjectGraph([attributes], layers_by_name(wrapper), base)


class Copied:
    """Makes a codec that copies all attributes except the named ones, which never change.

    `codec=planvec.Copied(["table"])` is `codec="copied"` without the attribute `table`.

    Args:
        constants: Attribute names of the unwrapped environment. `__init__`, `reset` or `step` sets them.
        caches: Variables of modules and classes that steps may change because they have no influence on
            results, by their paths ("my_package.rocket.TABLE"). All others must not change.

    Raises:
        TypeError: An argument is one text instead of a list of them.
    """

    def __init__(self, constants: Sequence[str] = (), *, caches: Sequence[str] = ()) -> None:
        for argument, names in (("constants", constants), ("caches", caches)):
            if isinstance(names, str):
                raise TypeError(f"{argument}: expected a list of names, got {names!r}; pass [{names!r}]")
        self.constants = tuple(constants)
        self.caches = tuple(caches)

    def __call__(self, env: gymnasium.Env[Any, Any]) -> CopiedCodec:
        return CopiedCodec(env, self.constants, self.caches)
