"""The codec of stable-retro: what differs in the emulator's memory and on the screen, and the attributes.

An emulator's own state takes 1 MB, of which a few hundred bytes change in the course of a game. Rewards are
computed from how the memory changes in a step. `GameData.update_ram` remembers the memory before the step,
so it is called after every restore.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from planvec.codecs.base import Codec, layer_name, layers_by_name
from planvec.codecs.differences import Differences
from planvec.codecs.generic.attributes import Attributes
from planvec.codecs.generic.copied import GraphCodec, ObjectGraph
from planvec.codecs.selection import FamilyCodec, WrapperSupport
from planvec.errors import UnsupportedEnvError

_LEFT_OUT = ("em", "data", "img", "ram", "initial_state", "viewer", "_np_random")


def codec_for_env(env: object, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    return FamilyCodec(RetroCodec, is_verified=False)


class RetroCodec(GraphCodec, Codec):
    """Saves an environment of stable-retro."""

    how = "what differs in the emulator's memory, and a pickle of the attributes"

    def __init__(self, env: Any) -> None:
        if env.movie_path is not None or env.movie is not None:
            raise UnsupportedEnvError(
                f"{type(env).__name__}: it records a movie, which cannot be restored; leave out record="
            )
        vars(env).setdefault("_np_random", None)
        self.graph = ObjectGraph([Attributes(env, layer_name(env), _LEFT_OUT)], layers_by_name(env), env)
        env.reset(seed=0)
        # The emulator writes a part of its state and leaves the other bytes as they were. The memory for the
        # state is allocated anew by every call. It is the memory that was just freed, if that had the same
        # size. So the bytes that still hold a pattern are not written.
        self._size = size = len(env.em.get_state())
        is_written = np.zeros(size, bool)
        for pattern in (0xAA, 0x55):
            freed = bytes([pattern]) * size
            del freed
            is_written |= np.frombuffer(env.em.get_state(), np.uint8) != pattern
        self._written = int(np.flatnonzero(is_written)[-1]) + 1
        self._gaps = np.flatnonzero(~is_written[: self._written])  # bytes between fields: they hold anything
        self._first = self._read(env)
        self._memory = Differences(self._first)
        self._picture = _picture(env).copy()
        self._pixels = Differences(self._picture.tobytes())

    def identity(self, env: object) -> list[Any]:
        """Return the module of the class, and the memory and the screen after a reset."""
        return [type(env).__module__, self._first, self._picture]

    def _read(self, env: Any) -> bytes:
        memory = np.frombuffer(env.em.get_state(), np.uint8, self._written).copy()
        memory[self._gaps] = 0
        return memory.tobytes()

    def get(self, saved: object) -> tuple[bytes, bytes, bytes]:
        return (
            self._memory.get(self._read(saved)),
            self._pixels.get(_picture(saved).tobytes()),
            self.graph.save(),
        )

    def set(self, saved: Any, value: tuple[bytes, bytes, bytes]) -> None:
        memory, pixels, attributes = value
        self.graph.restore(attributes)
        saved.em.set_state(self._memory.restore(memory) + bytes(self._size - self._written))
        saved.data.update_ram()
        picture = np.frombuffer(self._pixels.restore(pixels), self._picture.dtype)
        picture = picture.reshape(self._picture.shape).copy()
        if saved.ram is None:
            saved.img = picture
        else:
            saved.ram = picture

    def observe(self, env: object) -> Any:
        return _picture(env)

    def digests(self, saved: object) -> dict[str, bytes]:
        """Return a digest of each attribute, and the memory of the emulator."""
        return {**self.graph.digests(), "the memory of the emulator": self._read(saved)}


def _picture(env: Any) -> Any:
    """Return the last observation: the screen or the memory of the game."""
    return env.img if env.ram is None else env.ram
