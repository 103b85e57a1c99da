"""A codec of Atari games: the emulator, the frames that drew its picture, and the action that may stick.

Sticky actions (`repeat_action_probability`, 0.25 in the v5 ids) are drawn by planvec, frame by frame, from
`env.np_random` instead of the emulator's own generator. So the generator is saved with the state, and `seeds`
resamples the sticky actions.

Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ale_py.env import AtariEnv
from numpy.typing import NDArray

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

    def get(self, env: Any) -> Saved:
        return self._emulator.save()

    def set(self, env: Any, value: Saved) -> None:
        if cartridge(value.emulator) != self._cartridge:
            raise EnvError(f"states: expected states of {env._game}, got one of another game")
        self._emulator.restore(value)

    def digests(self, saved: Any) -> dict[str, bytes]:
        """Return digests of what decides about the future; see `Fields.digests`."""
        # The checkpoint depends on when the state was saved and restored. It only repaints the picture.
        now = self._emulator.save()
        return {"AtariEnv.ale": now.emulator, "the held action": repr(now.held).encode()}

    def observe(self, env: Any) -> Any:
        return env._get_obs()

    def pack(self, values: Sequence[Saved], records: NDArray[Any]) -> None:
        emulators, checkpoints, frames, held, within, resets, since_reset, following = zip(
            *values, strict=True
        )
        self._write(records, "emulator", emulators)
        self._write(records, "checkpoint", checkpoints)
        size = self._emulator.max_frames * self._frame_size
        longest = max(map(len, frames), default=0)
        if longest > size:  # NumPy would cut them off
            raise EnvError(
                f"frames: expected at most {self._emulator.max_frames} since the picture was last complete, "
                f'got {longest // self._frame_size}; pass codec="replay"'
            )
        self._write(records, "frames", [data.ljust(size, b"\0") for data in frames])
        records["num_frames"] = [len(data) // self._frame_size for data in frames]
        records["held_action"], records["held_strength"] = zip(*held, strict=True)
        records["within_frame"], records["num_resets"] = within, resets
        records["since_reset"] = since_reset
        if self._has_next:
            columns = zip(*[checkpoint or self._no_checkpoint for checkpoint in following], strict=True)
            blobs, records["next_offset"], records["next_num_whole"] = columns
            self._write(records, "next_checkpoint", blobs)

    def _write(self, records: NDArray[Any], name: str, blobs: Sequence[bytes]) -> None:
        dtype = records.dtype[name]
        if any(len(blob) != dtype.itemsize for blob in blobs):
            raise EnvError(
                f"{name}: expected {dtype.itemsize} bytes in every state of this game, got "
                f'{max(map(len, blobs))}; pass codec="replay"'
            )
        records[name] = np.frombuffer(b"".join(blobs), dtype)

    def unpack(self, records: NDArray[Any]) -> list[Saved]:
        sizes = (records["num_frames"] * self._frame_size).tolist()
        frames = [data[:size] for data, size in zip(records["frames"].tolist(), sizes, strict=True)]
        held = zip(records["held_action"].tolist(), records["held_strength"].tolist(), strict=True)
        following: list[Checkpoint | None] = [None] * len(records)
        if self._has_next:
            names = "next_checkpoint", "next_offset", "next_num_whole"
            triples = zip(*(records[name].tolist() for name in names), strict=True)
            following = [
                None if offset < 0 else Checkpoint(blob, offset, num_whole)
                for blob, offset, num_whole in triples
            ]
        emulators, checkpoints, within, resets, since_reset = (
            records[name].tolist()
            for name in ("emulator", "checkpoint", "within_frame", "num_resets", "since_reset")
        )
        columns = emulators, checkpoints, frames, held, within, resets, since_reset, following
        return [Saved(*row) for row in zip(*columns, strict=True)]
