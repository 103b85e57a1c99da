"""Atari: the emulator's state, the frames that drew its picture, and the action that may stick.

Stickiness (`repeat_action_probability`, 0.25 in the v5 ids) is drawn by planvec, frame by frame, from
`env.np_random` and not from the emulator's own generator: so it is saved with the state, and `seeds`
resamples it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ale_py.env import AtariEnv
from numpy.typing import NDArray

from planvec.codecs.atari.emulator import Emulator
from planvec.codecs.atari.state import Mark, Saved, cartridge, serialize
from planvec.codecs.base import Codec
from planvec.errors import EnvError

__all__ = ["AtariCodec", "codec_maker"]

_MAX_FRAMES = 64
"""Room for frames since the earlier state: 32 at most, and one for every frame in a row that is broken off (a
game that thinks; up to 7 were seen)."""


def codec_maker(env: Any, knows_wrappers: bool) -> tuple[Callable[[Any], Codec] | str, bool] | None:
    """The codec of an Atari environment, or "replay", and whether it needs no proof."""
    if not isinstance(env, AtariEnv):
        return None
    if env.sound_obs:
        return "replay", False  # sound is made of what many frames left in its buffer
    return AtariCodec, type(env) is AtariEnv and knows_wrappers


class AtariCodec(Codec):
    """Saves an `ale_py.AtariEnv`; see `atari_emulator`."""

    how = "the emulator, now and a few frames ago"

    def __init__(self, env: Any) -> None:
        state = serialize(env.ale)
        self._size, self._cartridge = len(state), cartridge(state)
        self._emulator = env.ale = Emulator(env)
        self._no_mark = Mark(bytes(self._size), -1, 0)
        self._frame_size = self._emulator.frame_size
        frameskip = env._frameskip if isinstance(env._frameskip, int) else env._frameskip[0]
        self._has_mark = frameskip < 3  # else every step ends with a mark of its own
        if self._emulator.stickiness:
            self.note = "sticky actions are drawn from np_random instead of the emulator's own generator"
        self.draws = self._emulator.stickiness > 0 or not isinstance(env._frameskip, int)
        blob = f"V{self._size}"
        self.dtype = np.dtype(
            [
                ("emulator", blob),
                ("earlier", blob),
                ("num_frames", "<i2"),
                ("frames", f"V{_MAX_FRAMES * self._frame_size}"),
                ("held_action", "u1"),
                ("held_strength", "<f4"),
                ("within_frame", "?"),
                *([("mark", blob), ("mark_place", "<i2"), ("mark_whole", "<i2")] if self._has_mark else []),
            ]
        )

    def get(self, env: Any) -> Saved:
        return self._emulator.save()

    def set(self, env: Any, value: Saved) -> None:
        if cartridge(value.emulator) != self._cartridge:
            raise EnvError(f"states: expected states of {env._game}, got one of another game")
        self._emulator.restore(value)

    def observe(self, env: Any) -> Any:
        return env._get_obs()

    def pack(self, values: Sequence[Saved], records: NDArray[Any]) -> None:
        emulators, earlier, frames, held, within, marks = zip(*values, strict=True)
        self._write(records, "emulator", emulators)
        self._write(records, "earlier", earlier)
        room = _MAX_FRAMES * self._frame_size
        self._write(records, "frames", [data.ljust(room, b"\0") for data in frames])
        records["num_frames"] = [len(data) // self._frame_size for data in frames]
        records["held_action"], records["held_strength"] = zip(*held, strict=True)
        records["within_frame"] = within
        if self._has_mark:
            blobs, places, num_whole = zip(*[mark or self._no_mark for mark in marks], strict=True)
            self._write(records, "mark", blobs)
            records["mark_place"], records["mark_whole"] = places, num_whole

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
        marks: list[Mark | None] = [None] * len(records)
        if self._has_mark:
            names = "mark", "mark_place", "mark_whole"
            triples = zip(*(records[name].tolist() for name in names), strict=True)
            marks = [None if place < 0 else Mark(blob, place, whole) for blob, place, whole in triples]
        emulators, earlier, within = (
            records[name].tolist() for name in ("emulator", "earlier", "within_frame")
        )
        columns = emulators, earlier, frames, held, within, marks
        return [Saved(*row) for row in zip(*columns, strict=True)]
