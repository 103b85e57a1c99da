"""Packs requests and answers, so that Ray keeps their arrays in its object store and copies them no more."""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle
import numpy as np
import ray

from planvec.backends.messages.unpickling import load_pickled
from planvec.backends.ray.shared_states import LARGE, SharedStates
from planvec.rows import SavedState

# A pickle without the contents of its arrays, and these: `NDArray[uint8]` or a reference to one
Packed = tuple[bytes, list[Any]]


_SMALL = 1 << 14  # bytes of an array up to which it stays in the pickle: Ray takes 70 us for each array


def pack(value: Any) -> Packed:
    """Pack a value. Classes are pickled by name, so that the bytes are the same in every process."""
    buffers = _Buffers()
    return pickle.dumps(value, protocol=5, buffer_callback=buffers.add), buffers.contents


def pack_by_value(value: Any, shared_states: SharedStates) -> Packed:
    """Pack a value that may contain functions and classes of the user's script."""
    stream, buffers = io.BytesIO(), _Buffers(shared_states)
    _Pickler(stream, buffers).dump(value)
    return stream.getvalue(), buffers.contents


def unpack(data: bytes, buffers: list[Any]) -> Any:
    """Return what was packed. Its arrays are views of the buffers, and cannot be written."""
    arrays = [ray.get(buffer) if isinstance(buffer, ray.ObjectRef) else buffer for buffer in buffers]
    return load_pickled(data, arrays)


class _Buffers:
    """Collects the contents of large arrays and states, in the order in which they are pickled."""

    def __init__(self, shared_states: SharedStates | None = None) -> None:
        self.contents: list[Any] = []
        self._shared_states = shared_states
        self._reference: Any = None

    def reduced(self, state: SavedState) -> Any:
        """Return how to pickle a large state, whose bytes `add` receives next."""
        assert self._shared_states is not None
        restore, (data, *rest) = state.__reduce__()
        self._reference = self._shared_states.reference(state)
        return restore, (pickle.PickleBuffer(data), *rest)

    def add(self, buffer: pickle.PickleBuffer) -> bool:
        """Add the contents of an array or a state. Returns whether they stay in the pickle."""
        contents = np.frombuffer(buffer.raw(), np.uint8)
        if len(contents) < _SMALL:
            return True
        self.contents.append(contents if self._reference is None else self._reference)
        self._reference = None
        return False


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # which has no types
    """Pickles arrays and large states without their contents."""

    def __init__(self, stream: io.BytesIO, buffers: _Buffers) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.add)
        self._buffers = buffers

    def reducer_override(self, value: Any) -> Any:
        if type(value) is SavedState and value.nbytes >= LARGE:
            return self._buffers.reduced(value)
        return super().reducer_override(value)
