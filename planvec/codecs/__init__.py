"""How environments are saved: see `base` for what a codec is, `registry` for which one is picked."""

from __future__ import annotations

from planvec.codecs.base import Codec, StateCodec, WrapperCodec
from planvec.codecs.generic.copied import Copied
from planvec.codecs.registry import codec_for, register_codec, registered_codecs

__all__ = [
    "Codec",
    "Copied",
    "StateCodec",
    "WrapperCodec",
    "codec_for",
    "register_codec",
    "registered_codecs",
]
