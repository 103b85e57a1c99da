"""How environments are saved: see `base` for what a codec is, `registry` for which one is picked."""

from __future__ import annotations

from planvec.codecs.base import Codec, Outcome, Rows, StateCodec, WrapperCodec
from planvec.codecs.generic.copied import Copied
from planvec.codecs.registry import CodecChoice, check_codec, codec_for, register_codec, registered_codecs
from planvec.codecs.verify import same

__all__ = [
    "Codec",
    "CodecChoice",
    "Copied",
    "Outcome",
    "Rows",
    "StateCodec",
    "WrapperCodec",
    "check_codec",
    "codec_for",
    "register_codec",
    "registered_codecs",
    "same",
]
