"""Saves what an environment changes in its `MjModel`: the gravity, a friction, a height field.

Nearly all environments leave their model alone. So only the bytes that differ from the model at the start are
saved. Comparing them costs about 10 us for a model of 100 KB.
"""

from __future__ import annotations

import ctypes
import pickle
import zlib
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.differences import Differences, is_equal_memory
from planvec.codecs.unpickling import unpickle
from planvec.errors import UnsupportedEnvError

# prefixes of arrays that must not change: shapes, which may take many megabytes
_SHAPES = ("mesh_", "bvh_", "oct_")
# prefixes of arrays that have no influence on the physics: pictures and names
_IGNORED = ("tex_", "skin_", "name", "paths", "text_", "plugin_")
# Number of bytes between two arrays that are compared as one block. MuJoCo aligns arrays to 64 bytes.
_LARGEST_GAP = 64


class ModelFields:
    """Saves and restores the fields of one model, in so far as they have changed."""

    def __init__(self, model: Any) -> None:
        self._model = model  # kept alive, since `_blocks` are its memory
        self._options = model.opt
        self._names = [
            name for name in dir(model.opt) if isinstance(getattr(model.opt, name), (bool, int, float))
        ]
        self._read_options = attrgetter(*self._names)
        self._first_options = self._read_options(model.opt)
        self._shapes = [_memory(*place) for place in sorted(set(_arrays_of(model, _SHAPES)))]
        self._first_checksum = self._checksum()
        self._blocks = [_memory(start, size) for start, size in _blocks_of(model)]
        self._first = [block.copy() for block in self._blocks]
        self._places = [
            (int(block.ctypes.data), int(first.ctypes.data), block.size)
            for block, first in zip(self._blocks, self._first, strict=True)
        ]
        self._differences = [Differences(first.tobytes()) for first in self._first]

    def check_shapes(self) -> None:
        """Check that no mesh has changed. It takes about 1 ms for each MB."""
        if self._checksum() != self._first_checksum:
            raise UnsupportedEnvError(
                "it changes the meshes of its MjModel, which planvec does not save. Make the model anew in a "
                'factory, or pass codec="replay", which is exact if the environment restarts from its seed'
            )

    def _checksum(self) -> int:
        checksum = 0
        for shape in self._shapes:
            checksum = zlib.crc32(shape.data, checksum)
        return checksum

    def get(self) -> bytes:
        """Return what differs from the model at the start; b"" if nothing does."""
        options = self._read_options(self._options)
        changes = [
            (number, self._differences[number].get(self._blocks[number].tobytes()))
            for number, place in enumerate(self._places)
            if not is_equal_memory(*place)
        ]
        if not changes and options == self._first_options:
            return b""
        return pickle.dumps((options, changes), protocol=5)

    def set(self, changes: bytes) -> None:
        """Change the model at the start by what `get` returned."""
        for block, first in zip(self._blocks, self._first, strict=True):
            block[:] = first
        options = self._first_options
        if changes:
            options, blocks = unpickle(changes)
            for number, change in blocks:
                content = self._differences[number].restore(change)
                self._blocks[number][:] = np.frombuffer(content, np.uint8)
        if options != self._read_options(self._options):
            for name, value in zip(self._names, options, strict=True):
                setattr(self._options, name, value)


def _blocks_of(model: Any) -> list[tuple[int, int]]:
    """Return the address and the size of each block of memory that is watched."""
    blocks: list[tuple[int, int]] = []
    # One after the other: which of the two lies first in memory differs between processes.
    for owner in (model.opt, model):
        last_start, last_end = 0, 0
        for start, size in sorted(set(_arrays_of(owner))):
            if last_end and 0 <= start - last_end <= _LARGEST_GAP:
                blocks.pop()
            else:
                last_start = start
            last_end = start + size
            blocks.append((last_start, last_end - last_start))
    return blocks


def _arrays_of(owner: Any, prefixes: tuple[str, ...] = ()) -> list[tuple[int, int]]:
    """Return the address and the size of each array of a model, or of its options."""
    arrays = []
    for name in dir(owner):
        if name.startswith(prefixes) if prefixes else not name.startswith(("_", *_SHAPES, *_IGNORED)):
            array = getattr(owner, name, None)
            if isinstance(array, np.ndarray) and array.size:
                arrays.append((int(array.ctypes.data), int(array.nbytes)))
    return arrays


def _memory(start: int, size: int) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))
