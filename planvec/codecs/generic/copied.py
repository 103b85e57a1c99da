"""Codecs for plain Python environments and for unknown wrappers: a pickle of the attributes that may change.

`attributes` describes which attributes are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.utils import EzPickle

from planvec.codecs.base import Codec, WrapperCodec
from planvec.codecs.generic.attributes import ADVICE, Attributes
from planvec.codecs.generic.generators import reseed_generators
from planvec.errors import UnsupportedEnvError

__all__ = ["Copied", "CopiedCodec", "CopiedWrapperCodec"]


def _simulator_parts(base: Any) -> dict[str, Any]:
    """Return MuJoCo's model and data, or Atari's emulator, by name: wrappers often refer to them."""
    attributes = {name: getattr(base, name, None) for name in ("model", "data", "ale")}
    return {f".base.{name}": value for name, value in attributes.items() if _is_simulator(value)}


def _is_simulator(value: Any) -> bool:
    """Return whether the class of a value, or one of its bases, is defined by MuJoCo or ale-py."""
    return any(base.__module__.partition(".")[0] in ("mujoco", "ale_py") for base in type(value).__mro__)


class _AttributeCodec:
    """Defines the methods by which `Attributes` save an object: an environment or a wrapper."""

    _attributes: Attributes

    def before_reset(self, saved: Any) -> None:
        self._attributes.restore_initial()

    def get(self, saved: Any) -> bytes:
        return self._attributes.save()

    def set(self, saved: Any, value: bytes) -> None:
        self._attributes.restore(value)

    def reseed(self, saved: Any, seed: int) -> None:
        """Reseed the generators that the object keeps, apart from the `np_random` of an environment."""
        reseed_generators(self._attributes.generators(), seed)


class CopiedCodec(_AttributeCodec, Codec):
    """Saves the attributes of the unwrapped environment.

    Args:
        env: The environment.
        constants: Names of attributes that never change (large tables, handles).

    Raises:
        UnsupportedEnvError: The environment pickles itself as constructor arguments (`EzPickle`), or an
            attribute cannot be pickled.
    """

    how = "a pickle of the attributes"

    def __init__(self, env: gymnasium.Env[Any, Any], constants: Sequence[str] = ()) -> None:
        if isinstance(env, EzPickle):
            raise UnsupportedEnvError(
                f"{type(env).__name__} is an EzPickle environment: a copy of it is a new environment, made "
                f"from the constructor's arguments, in another state. {ADVICE}"
            )
        vars(env).setdefault("_np_random", None)
        # The generator is saved separately: that takes 1 us, pickling it would take 50.
        self._attributes = Attributes(
            env, [*constants, "_np_random"], lambda: {".env": env, ".np_random": env._np_random}
        )


class CopiedWrapperCodec(_AttributeCodec, WrapperCodec):
    """Saves the attributes of a wrapper that planvec does not know.

    Args:
        wrapper: The wrapper.

    Raises:
        UnsupportedEnvError: An attribute cannot be pickled.
    """

    draws = True

    def __init__(self, wrapper: Any) -> None:
        base = wrapper.unwrapped
        for name, value in vars(wrapper).items():
            if type(value).__name__ == "ALEInterface":  # planvec has replaced it in the environment
                setattr(wrapper, name, base.ale)
        self._attributes = Attributes(
            wrapper,
            ["env"],
            lambda: {
                ".env": wrapper.env,
                ".wrapper": wrapper,
                ".base": base,
                ".np_random": base._np_random,
                **_simulator_parts(base),
            },
        )


class Copied:
    """Makes a codec that copies all attributes except the named ones, which never change.

    `codec=planvec.Copied(["table"])` is `codec="copied"` without the attribute `table`.

    Args:
        constants: Attribute names of the unwrapped environment.
    """

    def __init__(self, constants: Sequence[str] = ()) -> None:
        self.constants = tuple(constants)

    def __call__(self, env: gymnasium.Env[Any, Any]) -> CopiedCodec:
        return CopiedCodec(env, self.constants)
