"""A codec of Atari games: the emulator, the frames that drew its picture, and the action that may stick.

Sticky actions (`repeat_action_probability`, 0.25 in the v5 ids) are drawn by planvec, frame by frame, from
`env.np_random` instead of the emulator's own generator. So the generator is saved with the state, and `seeds`
resamples the sticky actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ale_py.env import AtariEnv

from planvec.codecs.atari.emulator import Checkpoint, Emulator, Saved, cartridge, serialize
from planvec.codecs.base import Codec
from planvec.codecs.selection import FamilyCodec, WrapperSupport
from planvec.errors import EnvError


def codec_for_env(env: Any, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    # With `sound_obs` the actions are replayed: the sound depends on what many frames left in its buffer.
    if not isinstance(env, AtariEnv):
        return None
    if env.sound_obs:
        return FamilyCodec(None, is_verified=False)
    is_verified = type(env) is AtariEnv and wrappers is not WrapperSupport.MISSING
    return FamilyCodec(AtariCodec, is_verified)


class AtariCodec(Codec):
    """Saves an `ale_py.AtariEnv`, whose emulator is replaced by an `Emulator`."""

    how = "the emulator, now and a few frames ago"

    def __init__(self, env: Any) -> None:
        state = serialize(env.ale)
        self._size, self._cartridge = len(state), cartridge(state)
        self._emulator = env.ale = Emulator(env)
        self._no_checkpoint = Checkpoint(bytes(self._size), -1, 0)
        self._frame_size = self._emulator.frame_size
        self._has_next = not self._emulator.has_long_steps
        if self._emulator.stickiness:
            self.note = "sticky actions are drawn from np_random instead of the emulator's own generator"
        self.draws = self._emulator.stickiness > 0 or not isinstance(env._frameskip, int)
        blob = f"V{self._size}"
        self.dtype = np.dtype(
            [
                ("emulator", blob),
                ("checkpoint", blob),
                ("num_frames", "<i2"),
                ("frames", f"V{self._emulator.max_frames * self._frame_size}"),
                ("held_action", "u1"),
                ("held_strength", "<f4"),
                ("within_frame", "?"),
                ("num_resets", "<i4"),
                ("since_reset", "?"),
                *(
                    [("next_checkpoint", blob), ("next_offset", "<i2"), ("next_num_whole", "<i2")]
                    if self._has_next
                    else []
                ),
            ]
        )

    def get(self, env: Any) -> Any:
        saved = self._emulator.save()
        size = self._emulator.max_frames * self._frame_size
        if len(saved.frames) > size:  # NumPy would cut them off, and longer states
            raise EnvError(
                f"frames: expected at most {self._emulator.max_frames} since the picture was last complete, "
                f'got {len(saved.frames) // self._frame_size}; pass codec="replay"'
            )
        following = saved.next_checkpoint or self._no_checkpoint
        if {*map(len, (saved.emulator, saved.checkpoint, following.emulator))} != {self._size}:
            raise EnvError(
                f"emulator: expected {self._size} bytes in every state of this game, got "
                f'{len(saved.emulator)}; pass codec="replay"'
            )
        return (
            saved.emulator,
            saved.checkpoint,
            len(saved.frames) // self._frame_size,
            saved.frames.ljust(size, b"\0"),
            *saved.held,
            saved.is_within,
            saved.num_resets,
            saved.since_reset,
            *(following if self._has_next else ()),
        )

    def set(self, env: Any, value: Any) -> None:
        emulator, checkpoint, num_frames, frames, action, strength, *rest = value
        is_within, num_resets, since_reset, *following = rest
        if cartridge(emulator) != self._cartridge:
            raise EnvError(f"states: expected states of {env._game}, got one of another game")
        next_checkpoint = Checkpoint(*following) if following else self._no_checkpoint
        self._emulator.restore(
            Saved(
                emulator,
                checkpoint,
                frames[: num_frames * self._frame_size],
                (action, strength),
                is_within,
                num_resets,
                since_reset,
                None if next_checkpoint.offset < 0 else next_checkpoint,
            )
        )

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return digests of what decides about the future; see `Fields.digests`."""
        # The checkpoint depends on when the state was saved and restored. It only repaints the picture.
        now = self._emulator.save()
        return {"AtariEnv.ale": now.emulator, "the held action": repr(now.held).encode()}

    def observe(self, env: Any) -> Any:
        return env._get_obs()
