"""Saves and restores environments of any class: by a pickle of their attributes, or by replay."""

from __future__ import annotations

from planvec.codecs.generic.attributes import (
    ADVICE,
    Attributes,
    LibraryMemory,
    cell_contents,
    hidden_generator,
    is_simulator_module,
    is_simulator_object,
    reseed_generators,
)
from planvec.codecs.generic.copied import (
    Copied,
    CopiedCodec,
    CopiedWrapperCodec,
    GraphCodec,
    ObjectGraph,
)
from planvec.codecs.generic.replay import ReplayCodec
from planvec.codecs.generic.survey import Entry, entries_of

__all__ = [
    "ADVICE",
    "Attributes",
    "Copied",
    "CopiedCodec",
    "CopiedWrapperCodec",
    "Entry",
    "GraphCodec",
    "LibraryMemory",
    "ObjectGraph",
    "ReplayCodec",
    "cell_contents",
    "entries_of",
    "hidden_generator",
    "is_simulator_module",
    "is_simulator_object",
    "reseed_generators",
]
