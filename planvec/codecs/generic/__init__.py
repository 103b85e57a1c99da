"""Saves and restores environments of any class: by a pickle of their attributes, or by replay."""

from __future__ import annotations

from planvec.codecs.generic.attributes import ADVICE, Attributes
from planvec.codecs.generic.copied import (
    Copied,
    CopiedCodec,
    CopiedWrapperCodec,
    GraphCodec,
    layer_name,
    references_of,
)
from planvec.codecs.generic.generators import hidden_generator, reseed_generators
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.generic.replay import ReplayCodec

__all__ = [
    "ADVICE",
    "Attributes",
    "Copied",
    "CopiedCodec",
    "CopiedWrapperCodec",
    "GraphCodec",
    "ObjectGraph",
    "ReplayCodec",
    "hidden_generator",
    "layer_name",
    "references_of",
    "reseed_generators",
]
