"""A codec for environments whose state is a few named attributes: numbers and arrays of fixed size.

All other attributes must never change. The verification by replay compares digests of them, too, so that an
attribute that is not named and changes is an error.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs import generator
from planvec.codecs.base import Codec
from planvec.codecs.generic.attributes import Attributes, attributes_of
from planvec.codecs.generic.copied import GraphCodec
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.generic.named_fields import MISSING, NamedField
from planvec.codecs.generic.structure import SHARED_MEMORY
from planvec.codecs.layers import layer_name, layers_by_name
from planvec.errors import UnsupportedEnvError


@dataclass(frozen=True)
class Named:
    """Makes a codec that saves the named attributes of an environment."""

    state: tuple[str, ...]  # names of the attributes that make up the state, in order
    ignored: tuple[str, ...]  # names of attributes that may change, since they have no influence on results
    # names of attributes that may differ between two environments, but not between workers
    constants: tuple[str, ...]
    draws: bool  # whether steps draw from `env.np_random`
    # `observe(env, values)` returns the observation of a state from the values of `state`; None if it cannot
    # be computed
    observe: Callable[[Any, tuple[Any, ...]], Any]

    @property
    def advice(self) -> str:
        """How to fix states that are not restored exactly, for the error."""
        advice = (
            f"The state of this environment was declared as the attributes {list(self.state)}. Name all "
            "attributes that change in state=, except those without influence on results (a clock, a cache), "
            "which belong in ignored="
        )
        return advice if self.draws else f"{advice}. If steps draw from np_random, let step take `random`"

    def __call__(self, env: gymnasium.Env[Any, Any]) -> NamedCodec:
        return NamedCodec(env, self)


class NamedCodec(GraphCodec, Codec):
    """Saves the named attributes of an environment; see `Named`."""

    how = "named attributes"

    def __init__(self, env: gymnasium.Env[Any, Any], choice: Named) -> None:
        self._choice = choice
        self.draws, self.constants = choice.draws, choice.constants
        vars(env).setdefault("_np_random", None)
        left_out = (*choice.state, *choice.ignored, "_np_random_seed")
        attributes = Attributes(env, layer_name(env), ["_np_random"], left_out)
        self.graph = ObjectGraph([attributes], layers_by_name(env), env)
        present = attributes_of(env)
        self._initial = {name: copy.deepcopy(present.get(name, MISSING)) for name in choice.state}
        self._fields: tuple[NamedField, ...] = ()
        self._drawn_from: Any = None

    def after_first_reset(self, env: Any) -> None:
        missing = [name for name in self._choice.state if not hasattr(env, name)]
        if missing:
            present = sorted(name for name in vars(env) if not name.startswith("_"))
            raise UnsupportedEnvError(
                f"state: expected names of attributes of {type(env).__name__}, {present}; got {missing}"
            )
        self._fields = tuple(NamedField.of(env, name) for name in self._choice.state)
        self.dtype = np.dtype([(field.name, field.dtype, field.shape) for field in self._fields])

    def before_reset(self, saved: Any) -> None:
        if not self._fields:  # what the first walk has changed shows in the next one
            self.graph.restore_initial()
        self._drawn_from = None
        for name, value in self._initial.items():
            if value is not MISSING:
                setattr(saved, name, copy.deepcopy(value))
            elif name in attributes_of(saved):
                delattr(saved, name)

    def get(self, saved: Any) -> Any:
        return tuple([field.get(saved) for field in self._fields])

    def set(self, saved: Any, value: Any) -> None:
        for field, number in zip(self._fields, value, strict=True):
            setattr(saved, field.name, field.restored(number))

    def observe(self, env: Any) -> Any:
        return self._choice.observe(env, self.get(env))

    def reseed(self, saved: Any, seed: int) -> None:
        """Do nothing: all generators but `np_random` never change."""

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return a digest of each attribute, and one that tells whether steps have drawn from `np_random`."""
        # Without draws, the generator changes in resets alone.
        others = {name: value for name, value in self.graph.digests().items() if name != SHARED_MEMORY}
        digests = {
            f"the attribute {name.rpartition('.')[2]}": value
            for name, value in [*Codec.digests(self, saved).items(), *others.items()]
        }
        if not self.draws:
            present = generator.get_generator(saved)
            if self._drawn_from is None:
                self._drawn_from = present
            digests["the generator np_random"] = bytes(present != self._drawn_from)
        return digests


def names_of(argument: str, names: Sequence[str] | str) -> tuple[str, ...]:
    """Return the names of attributes that a user has given: one or several."""
    listed = (names,) if isinstance(names, str) else tuple(names)
    if not all(isinstance(name, str) for name in listed) or len(set(listed)) < len(listed):
        raise TypeError(f"{argument}: expected different names of attributes, got {names!r}")
    return listed
