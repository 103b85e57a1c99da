"""`codec_for(env)`: which codec saves an environment, or why none can."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium

from planvec.codecs.base import Codec, StateCodec
from planvec.codecs.generic.attributes import ADVICE
from planvec.codecs.generic.copied import Copied, CopiedCodec, CopiedWrapperCodec
from planvec.codecs.generic.replay import ReplayCodec
from planvec.codecs.gymnasium import classic_control, toy_text
from planvec.codecs.stack import StackCodec, layers_of
from planvec.codecs.verify import digest, prove, walk_alone
from planvec.codecs.wrappers import codecs as wrapper_codecs
from planvec.errors import UnsupportedEnvError

__all__ = ["CodecChoice", "check_codec", "codec_for", "register_codec", "registered_codecs"]

CodecMaker = Callable[[Any], Codec]
CodecChoice = str | CodecMaker | None
"""None (pick), "copied", "replay", or what makes a `Codec` from the unwrapped environment."""

_COPY_ADVICE = (
    "The environment keeps something that could not be saved (a generator of its own, a global, memory of a "
    f"C library). {ADVICE}. An info that differs by nature can be left out with info_keys="
)
_REPLAY_ADVICE = "It does not restart from its seed: register a codec for it."
_BUILTIN: dict[type, CodecMaker] = {**classic_control.CODECS, **toy_text.CODECS}
_FAMILIES = {
    "ale_py": "planvec.codecs.atari.codec",
    "gymnasium.envs.box2d": "planvec.codecs.box2d.codec",
    "gymnasium.envs.mujoco": "planvec.codecs.mujoco.codec",
}
"""Package of an environment class or one of its bases -> the module with `codec_maker` for it.

It is imported when such an environment is opened: its simulator may be missing, or slow to import.
"""
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


def check_codec(codec: CodecChoice) -> None:
    """Check a choice before any environment is made.

    Raises:
        UnsupportedEnvError: It is none.
    """
    if codec is not None and codec not in ("copied", "replay") and not callable(codec):
        raise UnsupportedEnvError(
            'codec: expected None, "copied", "replay", a planvec.Codec subclass or planvec.Copied([...]), '
            f"got {codec!r}"
        )


def codec_for(
    env: gymnasium.Env[Any, Any],
    codec: CodecChoice = None,
    *,
    info_keys: Sequence[str] | None = None,
    trust: bool = False,
) -> StateCodec:
    """The codec of an environment; resets it.

    Args:
        env: The environment, wrappers included.
        codec: None picks: one registered for the class, planvec's own, else `copied`. "copied" saves the
            attributes of the environment; "replay" saves the seed and the actions, and steps through
            them again; a `Codec` subclass, or `planvec.Copied([...])`, is used as given. Whatever
            nobody wrote for exactly these classes is proved by replay first.
        info_keys: The info keys that have to be restored exactly; None: all.
        trust: Whether to leave the proof out.

    Raises:
        UnsupportedEnvError: It cannot be saved faithfully; says what to do.
    """
    check_codec(codec)
    layers = layers_of(env)
    for wrapper in layers:
        wrapper_codecs.refuse(wrapper)
    known = [wrapper_codecs.CODECS.get(type(wrapper)) for wrapper in layers]
    base = env.unwrapped
    maker, trusted, advice = _base_codec(base, codec, all(known))
    if maker == "replay":
        pairs = [(w, make(w)) for w, make in zip(layers, known, strict=True) if make is not None]
        replay = ReplayCodec(env, pairs)
        if not trust:
            replay.fingerprint = prove(replay, env, walk_alone(env, info_keys), advice, info_keys)
        return replay
    assert callable(maker)
    base_codec = maker(base)
    if not isinstance(base_codec, Codec):
        raise UnsupportedEnvError(
            f"codec: expected what makes a planvec.Codec, got a {type(base_codec).__name__} from {codec!r}"
        )
    made = [(make or CopiedWrapperCodec)(wrapper) for make, wrapper in zip(known, layers, strict=True)]
    trusted = trusted and not any(isinstance(w, wrapper_codecs.FUNCTIONS) for w in layers)
    alone = None if trusted or trust else walk_alone(env, info_keys)
    observation, _ = env.reset(seed=0)
    stack = StackCodec(env, base_codec, made, observation)
    stack.fingerprint = _digest_of_constants(base_codec, base)
    if alone is not None:
        stack.fingerprint += prove(stack, env, alone, advice, info_keys)
    stack.fresh_results = trusted
    return stack


def _digest_of_constants(codec: Codec, base: Any) -> bytes:
    # Never by vars(base): once its __dict__ was asked for, CPython reads the attributes of an object
    # more slowly for good, which made CartPole's steps 15 % slower.
    missing = [name for name in codec.constants if not hasattr(base, name)]
    if missing:
        raise UnsupportedEnvError(
            f"{type(codec).__name__}.constants: {type(base).__name__} has no attributes {missing}"
        )
    return digest(codec.identity(base))


def _base_codec(base: Any, codec: CodecChoice, knows_wrappers: bool) -> tuple[CodecMaker | str, bool, str]:
    """What makes the codec (or "replay"), whether it needs no proof, and advice if it fails.

    A wrapper that planvec does not know may change any attribute of the environment, so that all of
    them have to be saved.
    """
    if codec == "copied":
        return CopiedCodec, False, _COPY_ADVICE
    if codec == "replay":
        return codec, False, _REPLAY_ADVICE
    given = _registered.get(type(base)) if codec is None else codec
    if given is None:
        builtin = _BUILTIN.get(type(base)) if knows_wrappers else None
        found = _family_codec(base, knows_wrappers) if builtin is None else (builtin, True)
        if found is None:
            return CopiedCodec, False, _COPY_ADVICE
        return (*found, _REPLAY_ADVICE if found[0] == "replay" else _COPY_ADVICE)
    chosen: Any = Copied() if given is Copied else given  # type: ignore[comparison-overlap]
    if isinstance(chosen, Copied):
        return chosen, False, _COPY_ADVICE
    name = getattr(given, "__name__", type(given).__name__)
    return (
        chosen,
        False,
        (
            f"{name} does not restore everything: is a field missing, or does its get() return an "
            "object that step() changes in place (copy it)?"
        ),
    )


def _family_codec(base: Any, knows_wrappers: bool) -> tuple[CodecMaker | str, bool] | None:
    """What makes the codec of an environment of one of the `_FAMILIES`, and whether it needs no proof."""
    for env_class in type(base).__mro__:
        for package, module in _FAMILIES.items():
            if env_class.__module__ == package or env_class.__module__.startswith(f"{package}."):
                found: tuple[CodecMaker | str, bool] | None
                found = importlib.import_module(module).codec_maker(base, knows_wrappers)
                return found
    return None
