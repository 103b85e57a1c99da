"""`codec_for(env)`: which codec saves an environment, or why none can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from planvec.codecs import classic_control, toy_text
from planvec.codecs import wrappers as wrapper_codecs
from planvec.codecs.base import Codec, StateCodec
from planvec.codecs.copied import ADVICE, CopiedCodec, CopiedWrapperCodec
from planvec.codecs.proof import prove
from planvec.codecs.replay import ReplayCodec
from planvec.codecs.stack import StackCodec, layers_of
from planvec.errors import UnsupportedEnvError

__all__ = ["CodecChoice", "codec_for", "register_codec", "registered_codecs"]

CodecMaker = Callable[[Any], Codec]
CodecChoice = str | CodecMaker | None
"""None (pick), "copied", "replay", or what makes a `Codec` from the unwrapped environment."""

_BUILTIN: dict[type, CodecMaker] = {**classic_control.CODECS, **toy_text.CODECS}
_registered: dict[type, CodecMaker] = {}


def register_codec(env_class: type, codec: CodecMaker) -> None:
    """Save environments of this class (exactly: a subclass may hold more) with this codec.

    Worker processes started afterwards know it too. It is proved by replay when an environment is
    opened.

    Args:
        env_class: A subclass of `gymnasium.Env`.
        codec: A `Codec` subclass, or a function from the unwrapped environment to a `Codec`.
    """
    if not (isinstance(env_class, type) and issubclass(env_class, gymnasium.Env)):
        raise TypeError(f"env_class: expected a subclass of gymnasium.Env, got {env_class!r}")
    if not callable(codec):
        raise TypeError(f"codec: expected a Codec subclass, got {codec!r}")
    _registered[env_class] = codec


def registered_codecs() -> dict[type, CodecMaker]:
    """What users registered, by environment class."""
    return dict(_registered)


def codec_for(env: gymnasium.Env[Any, Any], codec: CodecChoice = None) -> StateCodec:
    """The codec of an environment; resets it.

    Args:
        env: The environment, wrappers included.
        codec: None picks: one registered for the class, planvec's own, else `copied`. "copied" and
            "replay" insist; a `Codec` subclass (or `planvec.Copied([...])`) is used as given.
            Whatever nobody wrote for exactly these classes is proved by replay first.

    Raises:
        UnsupportedEnvError: It cannot be saved faithfully; says what to do.
    """
    layers = layers_of(env)
    for wrapper in layers:
        wrapper_codecs.refuse(wrapper)
    if codec == "replay":
        replay = ReplayCodec(env)
        prove(replay, env, "It does not restart from its seed: register a codec for it.")
        return replay
    base = env.unwrapped
    maker, trusted = _base_codec(base, codec)
    base_codec = maker(base)
    made = []
    for wrapper in layers:
        known = wrapper_codecs.CODECS.get(type(wrapper))
        trusted = trusted and known is not None
        made.append((known or CopiedWrapperCodec)(wrapper))
    observation, _ = env.reset(seed=0)
    stack = StackCodec(env, base_codec, made, observation)
    if not trusted:
        prove(stack, env, ADVICE)
    stack.fresh_results = trusted
    return stack


def _base_codec(base: Any, codec: CodecChoice) -> tuple[CodecMaker, bool]:
    """What makes the codec, and whether it was written for this very class by planvec."""
    if codec == "copied":
        return CopiedCodec, False
    if codec is None:
        found = _registered.get(type(base))
        if found is not None:
            return found, False
        builtin = _BUILTIN.get(type(base))
        return (builtin, True) if builtin is not None else (CopiedCodec, False)
    if isinstance(codec, str) or not callable(codec):
        raise UnsupportedEnvError(
            'codec: expected None, "copied", "replay", a planvec.Codec subclass or planvec.Copied, '
            f"got {codec!r}"
        )
    return codec, False
