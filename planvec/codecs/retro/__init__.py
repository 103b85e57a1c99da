"""Saves and restores the console games of stable-retro."""

from __future__ import annotations

from planvec.codecs.retro.codec import codec_for_env

__all__ = ["codec_for_env"]
