"""Saves and restores Gymnasium's classic control and toy text environments as named fields."""

from __future__ import annotations

from typing import Any

from planvec.codecs.base import Codec
from planvec.codecs.families import FamilyCodec, WrapperSupport
from planvec.codecs.gymnasium.classic_control import CLASSIC_CONTROL_CODECS
from planvec.codecs.gymnasium.toy_text import TOY_TEXT_CODECS

__all__ = ["codec_for_env"]

_CODECS: dict[type, type[Codec]] = {**CLASSIC_CONTROL_CODECS, **TOY_TEXT_CODECS}


def codec_for_env(env: Any, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    # A subclass may hold more than the fields, and an unknown wrapper may change other attributes. Both are
    # copied instead.
    codec = _CODECS.get(type(env))
    if codec is None or wrappers is WrapperSupport.MISSING:
        return None
    return FamilyCodec(codec, is_verified=True)
