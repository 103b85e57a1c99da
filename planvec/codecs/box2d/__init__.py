"""Saves and restores Box2D environments: the memory of the world, and the attributes beside it."""

from __future__ import annotations

from planvec.codecs.box2d.codec import codec_for_env

__all__ = ["codec_for_env"]
