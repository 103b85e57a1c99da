"""Saves and restores the games of `planvec.openspiel`."""

from __future__ import annotations

from planvec.codecs.openspiel.codec import codec_for_env

__all__ = ["codec_for_env"]
