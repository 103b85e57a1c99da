"""The choice how the unwrapped environment and its wrappers are saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium

from planvec.codecs.base import CodecMaker, WrapperCodecMaker
from planvec.codecs.families import FamilyCodec, WrapperSupport, families_of, load_family
from planvec.codecs.generic.attributes import ADVICE
from planvec.codecs.generic.copied import Copied, CopiedCodec
from planvec.codecs.generic.named import Named
from planvec.codecs.layers import wrappers_of
from planvec.codecs.registered import registered_codecs
from planvec.codecs.wrappers import built_in_codec, check_supported

# None (choose automatically), "copied", "replay", or a maker of a `Codec` for the unwrapped environment
CodecChoice = str | CodecMaker | None

_COPY_ADVICE = (
    "The environment keeps something that could not be saved (a generator of its own, a global, memory of a "
    f"C library). {ADVICE}. If an info cannot be reproduced, leave it out with info_keys="
)
_REPLAY_ADVICE = "The environment does not restart from its seed: register a codec for it"


class Layer(NamedTuple):
    """Holds a wrapper and the maker of its codec."""

    wrapper: Any
    make: WrapperCodecMaker | None  # makes its codec; None if there is none for its class
    is_built_in: bool  # whether planvec ships the codec


class Selection(NamedTuple):
    """Holds the decision how the unwrapped environment is saved."""

    make: CodecMaker | None  # makes the codec; None replays the actions
    is_verified: bool  # whether the codec needs no verification
    advice: str  # how to fix a codec that fails the verification, for its error
    # makers to try in turn, if the codec before fails the verification
    alternatives: tuple[CodecMaker, ...] = ()


def wrapper_layers(env: gymnasium.Env[Any, Any]) -> list[Layer]:
    """Return the wrappers of an environment with their codecs, innermost first."""
    registered, layers = registered_codecs().wrappers, []
    for wrapper in wrappers_of(env):
        wrapper_class = type(wrapper)
        if wrapper_class in registered:
            layers.append(Layer(wrapper, registered[wrapper_class], is_built_in=False))
        else:
            check_supported(wrapper)
            make = built_in_codec(wrapper_class)
            layers.append(Layer(wrapper, make, is_built_in=make is not None))
    return layers


def select(base: Any, codec: CodecChoice, layers: Sequence[Layer]) -> Selection:
    """Decide how the unwrapped environment is saved."""
    own_makers: list[Callable[[Any], Any]] = [
        layer.make for layer in layers if layer.make is not None and not layer.is_built_in
    ]
    if codec == "replay":
        return Selection(None, False, _REPLAY_ADVICE)
    given = registered_codecs().envs.get(type(base)) if codec is None else codec
    if isinstance(given, Named):
        if _wrapper_support(layers) is not WrapperSupport.MISSING:
            return Selection(given, False, given.advice)
        given = None  # an unknown wrapper is copied, together with the environment, which it may change
    if given is None:
        family_codec = _family_codec(base, _wrapper_support(layers))
        make, is_verified, alternatives = family_codec or FamilyCodec(CopiedCodec, is_verified=False)
        if make is None:
            return Selection(None, is_verified, _REPLAY_ADVICE)
        advice = _advice_on(own_makers, is_copied=not is_verified)
        return Selection(make, is_verified, advice, alternatives)
    if given == "copied" or given is Copied:  # type: ignore[comparison-overlap]
        return Selection(CopiedCodec, False, _advice_on(own_makers, is_copied=True))
    assert callable(given)
    if isinstance(given, Copied):
        return Selection(given, False, _advice_on(own_makers, is_copied=True))
    return Selection(given, False, _advice_on([given, *own_makers], is_copied=False))


def _wrapper_support(layers: Sequence[Layer]) -> WrapperSupport:
    if any(layer.make is None for layer in layers):
        return WrapperSupport.MISSING
    if any(not layer.is_built_in for layer in layers):
        return WrapperSupport.REGISTERED
    return WrapperSupport.BUILT_IN


def _family_codec(base: Any, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return the codec of the first family that has one for an environment."""
    for family in families_of(base):
        module = load_family(family)
        family_codec = None if module is None else module.codec_for_env(base, wrappers)
        if family_codec is not None:
            return family_codec
    return None


def _advice_on(makers: Sequence[Callable[[Any], Any]], is_copied: bool) -> str:
    """Return how to fix codecs that fail the verification."""
    if not makers:
        return _COPY_ADVICE
    names = " or ".join(getattr(make, "__name__", type(make).__name__) for make in makers)
    advice = (
        f"{names} does not restore everything: is a field missing, or does its get() return an object that "
        "step() changes in place (copy it)?"
    )
    return f"{advice} Or: {_COPY_ADVICE}" if is_copied else advice
