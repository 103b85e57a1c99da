"""Saves and restores Atari games: the state of the emulator, and the frames that drew its picture."""

from __future__ import annotations

from planvec.codecs.atari.codec import codec_for_env

__all__ = ["codec_for_env"]
