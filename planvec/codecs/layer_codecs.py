"""Makes the codecs of the layers of one environment, before its first reset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium

from planvec.codecs.base import Codec, CodecMaker, WrapperCodec
from planvec.codecs.compare import digest
from planvec.codecs.generic.copied import CopiedWrapperCodec, GraphCodec
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.selection import CodecChoice, Layer, Selection
from planvec.codecs.unpickling import packages_of
from planvec.codecs.wrappers import applies_function
from planvec.errors import UnsupportedEnvError


class LayerCodecs:
    """Holds the codecs of the unwrapped environment and of its wrappers."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        layers: Sequence[Layer],
        selection: Selection,
        choice: CodecChoice,
    ) -> None:
        assert selection.make is not None
        self.selection = selection  # how the unwrapped environment is saved
        self._env = env
        self._layers = layers
        # the codec of the unwrapped environment
        self.base_codec = _make_base_codec(selection.make, env.unwrapped, choice)
        # one codec per wrapper, innermost first
        self.wrapper_codecs = [make_wrapper_codec(layer) for layer in layers]
        # saves the layers that are copied; None if none is
        self.graph = _join_graphs([self.base_codec, *self.wrapper_codecs])
        # whether planvec ships all codecs for exactly these classes
        self.is_verified = selection.is_verified and not any(
            not layer.is_built_in or applies_function(layer.wrapper) for layer in layers
        )
        self.reports_masks = False  # whether the environment reports legal actions, which states then hold
        # the spaces from which the environment draws, as far as they were saved
        self.drawn_spaces: Sequence[str] = ()

    @property
    def caches(self) -> Sequence[str]:
        """Variables beside the environment that may change; see `Copied`."""
        return self.base_codec.caches if isinstance(self.base_codec, GraphCodec) else ()

    @property
    def constants(self) -> bytes:
        """A digest of what never changes, and may differ between environments."""
        return _digest_of_constants(self.base_codec, self._env.unwrapped)

    @property
    def packages(self) -> set[str]:
        """The packages that define the environment. See `unpickling.from_file`."""
        layers = [self._env.unwrapped, *(layer.wrapper for layer in self._layers)]
        return packages_of([*map(type, layers), *(() if self.graph is None else self.graph.classes)])

    def before_reset(self) -> None:
        """Clear what the layers keep from one episode to the next."""
        self.base_codec.before_reset(self._env.unwrapped)
        for layer, wrapper_codec in zip(self._layers, self.wrapper_codecs, strict=True):
            wrapper_codec.before_reset(layer.wrapper)

    @property
    def watches_own_resets(self) -> bool:
        """Whether `Codec.before_own_reset` and `after_own_reset` must be called."""
        return type(self.base_codec).before_own_reset is not Codec.before_own_reset

    def after_reset(self) -> None:
        """Replace what does not follow from the seed."""
        for layer, wrapper_codec in zip(self._layers, self.wrapper_codecs, strict=True):
            wrapper_codec.after_reset(layer.wrapper)

    def save_generators_of(self, spaces: Sequence[str]) -> None:
        """Save the generators of spaces from which the environment draws. See `ObjectGraph`."""
        assert self.graph is not None
        self.drawn_spaces = spaces
        self.graph.save_generators_of(spaces)


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


def make_wrapper_codec(layer: Layer) -> WrapperCodec:
    """Make the codec of a wrapper."""
    codec = (layer.make or CopiedWrapperCodec)(layer.wrapper)
    if not isinstance(codec, WrapperCodec):
        raise UnsupportedEnvError(
            f"{type(layer.wrapper).__name__}: expected a maker of a planvec.WrapperCodec, got one of "
            f"a {type(codec).__name__}: {layer.make!r}"
        )
    return codec


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
