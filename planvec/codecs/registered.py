"""The codecs that users have registered in this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import gymnasium

from planvec.codecs.base import CodecMaker, WrapperCodecMaker


@dataclass(frozen=True, slots=True)
class RegisteredCodecs:
    """Holds the codecs that users have registered, to pass them on to other processes."""

    envs: Mapping[type, CodecMaker]  # environment class -> the maker of its codec
    wrappers: Mapping[type, WrapperCodecMaker]  # wrapper class -> the maker of its codec

    def install(self) -> None:
        """Register all of them in this process."""
        _envs.update(self.envs)
        _wrappers.update(self.wrappers)


_envs: dict[type, CodecMaker] = {}
_wrappers: dict[type, WrapperCodecMaker] = {}


def register_codec(env_class: type, codec: CodecMaker) -> None:
    """Save environments of a class with a codec.

    The class must match exactly, since a subclass may hold more. Worker processes that are started afterwards
    know the codec too. It is verified by replay when an environment is opened.

    Args:
        env_class: A subclass of `gymnasium.Env`.
        codec: A `Codec` subclass, or a function from the unwrapped environment to a `Codec`.

    Raises:
        TypeError: An argument is something else.
    """
    if not (isinstance(env_class, type) and issubclass(env_class, gymnasium.Env)):
        raise TypeError(f"env_class: expected a subclass of gymnasium.Env, got {env_class!r}")
    if not callable(codec):
        raise TypeError(f"codec: expected a Codec subclass, got {codec!r}")
    _envs[env_class] = codec


def register_wrapper_codec(wrapper_class: type, codec: WrapperCodecMaker) -> None:
    """Save wrappers of a class with a codec.

    The class must match exactly, since a subclass may remember more. Worker processes that are started
    afterwards know the codec too. It is verified by replay when an environment is opened.

    Args:
        wrapper_class: A subclass of `gymnasium.Wrapper`.
        codec: A `WrapperCodec` subclass, or a function from the wrapper to a `WrapperCodec`. It must save
            everything that the wrapper remembers, and everything that it changes in the environment below.

    Raises:
        TypeError: An argument is something else.
    """
    if not (isinstance(wrapper_class, type) and issubclass(wrapper_class, gymnasium.Wrapper)):
        raise TypeError(f"wrapper_class: expected a subclass of gymnasium.Wrapper, got {wrapper_class!r}")
    if not callable(codec):
        raise TypeError(f"codec: expected a WrapperCodec subclass, got {codec!r}")
    _wrappers[wrapper_class] = codec


def registered_codecs() -> RegisteredCodecs:
    """Return a copy of what users have registered so far."""
    return RegisteredCodecs(dict(_envs), dict(_wrappers))
