"""The choice of a codec for an environment: `codec_for`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium

from planvec.codecs.base import Codec, CodecMaker, StateCodec, WrapperCodec, WrapperCodecMaker
from planvec.codecs.compare import digest
from planvec.codecs.families import FamilyCodec, WrapperSupport, families_of, load_family
from planvec.codecs.generic.attributes import ADVICE
from planvec.codecs.generic.copied import Copied, CopiedCodec, CopiedWrapperCodec, GraphCodec
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.generic.replay import ReplayCodec
from planvec.codecs.registered import registered_codecs
from planvec.codecs.stack import StackCodec, wrappers_of
from planvec.codecs.verify import verify_codec
from planvec.codecs.walks import check_reset, reference_walk
from planvec.codecs.wrappers import BUILT_IN_CODECS, applies_function, check_supported
from planvec.errors import PlanvecError, UnsupportedEnvError

__all__ = ["CodecChoice", "check_codec", "codec_for"]

CodecChoice = str | CodecMaker | None
"""None (choose automatically), "copied", "replay", or a maker of a `Codec` for the unwrapped environment."""

_COPY_ADVICE = (
    "The environment keeps something that could not be saved (a generator of its own, a global, memory of a "
    f"C library). {ADVICE}. If an info cannot be reproduced, leave it out with info_keys="
)
_REPLAY_ADVICE = "The environment does not restart from its seed: register a codec for it"


class _Layer(NamedTuple):
    """Holds a wrapper and the maker of its codec.

    Attributes:
        wrapper: The wrapper.
        make: Makes its codec; None if there is none for its class.
        is_built_in: Whether planvec ships the codec.
    """

    wrapper: Any
    make: WrapperCodecMaker | None
    is_built_in: bool


class _Selection(NamedTuple):
    """Holds the decision how the unwrapped environment is saved.

    Attributes:
        make: Makes the codec; None replays the actions.
        is_verified: Whether the codec needs no verification.
        advice: How to fix a codec that fails the verification, for its error.
    """

    make: CodecMaker | None
    is_verified: bool
    advice: str


def check_codec(codec: CodecChoice) -> None:
    """Check a choice of a codec before any environment is made.

    Raises:
        UnsupportedEnvError: The choice is none of the possible ones.
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
    """Return a codec that saves and restores an environment. The environment is reset.

    Args:
        env: The environment, wrappers included.
        codec: None takes a codec that was registered for the class, else planvec's own, else "copied".
            "copied" saves the attributes of the environment. "replay" saves the seed and the actions, and
            replays them to restore a state. A `Codec` subclass, or `planvec.Copied([...])`, is used as
            given. Codecs that planvec does not ship for exactly these classes are verified by replay first.
        info_keys: The info keys that must be restored exactly; None: all.
        trust: Whether to skip the verification.

    Raises:
        UnsupportedEnvError: The environment cannot be saved faithfully; the message says what to do.
    """
    check_codec(codec)
    if not isinstance(env.unwrapped, gymnasium.Env):
        raise UnsupportedEnvError(
            f"{env}.unwrapped: expected a gymnasium.Env, got {type(env.unwrapped).__name__}. Let the wrapper "
            "derive from gymnasium.Env instead of gymnasium.Wrapper if there is no such environment inside"
        )
    try:
        return _codec_for(env, codec, info_keys, trust)
    except PlanvecError:
        raise
    except Exception as error:
        raise UnsupportedEnvError(
            f"{env}: it raised {type(error).__name__}: {error} while planvec checked how to save it. It must "
            "allow reset(seed=0) and steps with actions that its action_space samples, several times"
        ) from error


def _codec_for(
    env: gymnasium.Env[Any, Any], codec: CodecChoice, info_keys: Sequence[str] | None, trust: bool
) -> StateCodec:
    layers = _layers_of(env)
    selection = _select(env.unwrapped, codec, layers)
    if selection.make is None:
        return _replay_codec(env, layers, selection.advice, info_keys, trust)
    base_codec = _make_base_codec(selection.make, env.unwrapped, codec)
    wrapper_codecs = [_make_wrapper_codec(layer) for layer in layers]
    graph = _join_graphs([base_codec, *wrapper_codecs])
    is_verified = selection.is_verified and not any(
        not layer.is_built_in or applies_function(layer.wrapper) for layer in layers
    )
    reference = None
    if not (is_verified or trust):
        beside = None if graph is None else graph.beside(env, _caches_of(base_codec))
        reference = reference_walk(env, info_keys, beside)
        if graph is not None:
            graph.check_addresses()
            graph.save_generators_of(reference.drawn_spaces)
    observation, _ = check_reset(env.reset(seed=0))
    stack = StackCodec(env, base_codec, wrapper_codecs, observation)
    stack.fingerprint = _digest_of_constants(base_codec, env.unwrapped)
    if reference is not None:
        stack.fingerprint += verify_codec(stack, env, reference, selection.advice, info_keys, graph)
    if graph is not None:
        graph.settle()
    stack.fresh_results = stack.takes_ints = is_verified
    return stack


def _layers_of(env: gymnasium.Env[Any, Any]) -> list[_Layer]:
    """Return the wrappers of an environment with their codecs, innermost first."""
    registered, layers = registered_codecs().wrappers, []
    for wrapper in wrappers_of(env):
        wrapper_class = type(wrapper)
        if wrapper_class in registered:
            layers.append(_Layer(wrapper, registered[wrapper_class], is_built_in=False))
        else:
            check_supported(wrapper)
            layers.append(
                _Layer(wrapper, BUILT_IN_CODECS.get(wrapper_class), wrapper_class in BUILT_IN_CODECS)
            )
    return layers


def _select(base: Any, codec: CodecChoice, layers: Sequence[_Layer]) -> _Selection:
    """Decide how the unwrapped environment is saved."""
    own_makers: list[Callable[[Any], Any]] = [
        layer.make for layer in layers if layer.make is not None and not layer.is_built_in
    ]
    if codec == "replay":
        return _Selection(None, False, _REPLAY_ADVICE)
    given = registered_codecs().envs.get(type(base)) if codec is None else codec
    if given is None:
        family_codec = _family_codec(base, _wrapper_support(layers))
        make, is_verified = FamilyCodec(CopiedCodec, False) if family_codec is None else family_codec
        if make is None:
            return _Selection(None, is_verified, _REPLAY_ADVICE)
        return _Selection(make, is_verified, _advice_on(own_makers, is_copied=not is_verified))
    if given == "copied" or given is Copied:  # type: ignore[comparison-overlap]
        return _Selection(CopiedCodec, False, _advice_on(own_makers, is_copied=True))
    assert callable(given)
    if isinstance(given, Copied):
        return _Selection(given, False, _advice_on(own_makers, is_copied=True))
    return _Selection(given, False, _advice_on([given, *own_makers], is_copied=False))


def _wrapper_support(layers: Sequence[_Layer]) -> WrapperSupport:
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
    """Return how to fix codecs that fail the verification.

    Args:
        makers: The makers of the codecs that the user wrote.
        is_copied: Whether the attributes of the environment are copied.
    """
    if not makers:
        return _COPY_ADVICE
    names = " or ".join(getattr(make, "__name__", type(make).__name__) for make in makers)
    advice = (
        f"{names} does not restore everything: is a field missing, or does its get() return an object that "
        "step() changes in place (copy it)?"
    )
    return f"{advice} Or: {_COPY_ADVICE}" if is_copied else advice


def _make_base_codec(make: CodecMaker, base: Any, choice: CodecChoice) -> Codec:
    codec = make(base)
    if not isinstance(codec, Codec):
        raise UnsupportedEnvError(
            f"codec: expected a maker of a planvec.Codec, got one of a {type(codec).__name__}: {choice!r}. "
            "Pass a planvec.Codec subclass, or a function that returns a planvec.Codec"
        )
    return codec


def _join_graphs(codecs: Sequence[Codec | WrapperCodec]) -> ObjectGraph | None:
    """Let one graph save all layers that are copied, so that objects that layers share stay shared."""
    graphs = [codec.graph for codec in codecs if isinstance(codec, GraphCodec)]
    for graph in graphs[1:]:
        graphs[0].absorb(graph)
    return graphs[0] if graphs else None


def _caches_of(codec: Codec) -> Sequence[str]:
    return codec.caches if isinstance(codec, GraphCodec) else ()


def _make_wrapper_codec(layer: _Layer) -> WrapperCodec:
    codec = (layer.make or CopiedWrapperCodec)(layer.wrapper)
    if not isinstance(codec, WrapperCodec):
        raise UnsupportedEnvError(
            f"{type(layer.wrapper).__name__}: expected a maker of a planvec.WrapperCodec, got one of "
            f"a {type(codec).__name__}: {layer.make!r}"
        )
    return codec


def _replay_codec(
    env: gymnasium.Env[Any, Any],
    layers: Sequence[_Layer],
    advice: str,
    info_keys: Sequence[str] | None,
    trust: bool,
) -> ReplayCodec:
    pairs = [(layer.wrapper, _make_wrapper_codec(layer)) for layer in layers if layer.make is not None]
    replay = ReplayCodec(env, pairs)
    if not trust:
        replay.fingerprint = verify_codec(
            replay, env, reference_walk(env, info_keys, None), advice, info_keys
        )
    return replay


def _digest_of_constants(codec: Codec, base: Any) -> bytes:
    # vars(base) would be shorter, but once the `__dict__` of an object was requested, CPython reads its
    # attributes more slowly, which made CartPole's steps 15 % slower.
    missing = [name for name in codec.constants if not hasattr(base, name)]
    if missing:
        raise UnsupportedEnvError(
            f"{type(codec).__name__}.constants: expected names of attributes, got {missing}, which "
            f"{type(base).__name__} does not have"
        )
    return digest(codec.identity(base))
