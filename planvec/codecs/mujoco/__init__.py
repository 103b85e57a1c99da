"""Saves and restores MuJoCo environments as one vector of physics."""

from __future__ import annotations

from planvec.codecs.mujoco.codec import codec_for_env, saved_arrays

__all__ = ["codec_for_env", "saved_arrays"]
