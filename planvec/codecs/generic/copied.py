"""Plain Python environments, and wrappers that planvec does not know: a pickle of what may change.

See `attributes` for what is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
from gymnasium.utils import EzPickle

from planvec.codecs.base import Codec, WrapperCodec
from planvec.codecs.generic.attributes import ADVICE, Attributes, reseed_generators
from planvec.errors import UnsupportedEnvError

__all__ = ["Copied", "CopiedCodec", "CopiedWrapperCodec"]


def _simulation(base: Any) -> dict[str, Any]:
    """MuJoCo's model and data, or Atari's emulator, by name: wrappers often hold them too."""
    named = {f".base.{name}": getattr(base, name, None) for name in ("model", "data", "ale")}
    modules = ("mujoco.", "ale_py", "planvec.")
    return {name: value for name, value in named.items() if type(value).__module__.startswith(modules)}


class CopiedCodec(Codec):
    """Saves the attributes of the unwrapped environment.

    Args:
        env: The environment.
        constants: Names of attributes that never change (large tables, handles).

    Raises:
        UnsupportedEnvError: It pickles itself as constructor arguments (`EzPickle`), or has an
            attribute that cannot be pickled.
    """

    how = "a pickle of what may change"

    def __init__(self, env: gymnasium.Env[Any, Any], constants: Sequence[str] = ()) -> None:
        if isinstance(env, EzPickle):
            raise UnsupportedEnvError(
                f"{type(env).__name__} is an EzPickle environment: a copy of it is a new one, made "
                f"from its constructor's arguments, in another state. {ADVICE}"
            )
        vars(env).setdefault("_np_random", None)
        # The generator is saved beside the pickle: a microsecond instead of fifty.
        self._attributes = Attributes(
            env, [*constants, "_np_random"], lambda: {".env": env, ".np_random": env._np_random}
        )

    def begin(self, env: Any) -> None:
        self._attributes.restore_new()

    def get(self, env: Any) -> bytes:
        return self._attributes.save()

    def set(self, env: Any, value: bytes) -> None:
        self._attributes.restore(value)

    def reseed(self, env: Any, seed: int) -> None:
        """Reseed the generators that the environment keeps besides `np_random`."""
        reseed_generators(self._attributes.generators(), seed)


class CopiedWrapperCodec(WrapperCodec):
    """Saves the attributes of a wrapper that planvec does not know.

    Args:
        wrapper: The wrapper.

    Raises:
        UnsupportedEnvError: It has an attribute that cannot be pickled.
    """

    draws = True

    def __init__(self, wrapper: Any) -> None:
        base = wrapper.unwrapped
        for name, value in vars(wrapper).items():
            if type(value).__name__ == "ALEInterface":  # which planvec has replaced by an emulator of its own
                setattr(wrapper, name, base.ale)
        self._attributes = Attributes(
            wrapper,
            ["env"],
            lambda: {
                ".env": wrapper.env,
                ".wrapper": wrapper,
                ".base": base,
                ".np_random": base._np_random,
                **_simulation(base),
            },
        )

    def begin(self, wrapper: Any) -> None:
        self._attributes.restore_new()

    def get(self, wrapper: Any) -> bytes:
        return self._attributes.save()

    def set(self, wrapper: Any, value: bytes) -> None:
        self._attributes.restore(value)

    def reseed(self, wrapper: Any, seed: int) -> None:
        """Reseed the generators that the wrapper keeps."""
        reseed_generators(self._attributes.generators(), seed)


class Copied:
    """`codec=planvec.Copied(["table"])`: `copied`, with the attributes named that never change.

    Args:
        constants: Attribute names of the unwrapped environment.
    """

    def __init__(self, constants: Sequence[str] = ()) -> None:
        self.constants = tuple(constants)

    def __call__(self, env: gymnasium.Env[Any, Any]) -> CopiedCodec:
        return CopiedCodec(env, self.constants)
