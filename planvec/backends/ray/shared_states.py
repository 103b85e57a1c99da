"""Puts a large state that several requests hold into the object store once. Each node fetches it once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import numpy as np
import ray

from planvec.rows import SavedState

LARGE = 100_000  # Bytes of a state from which on it is shared. Ray copies less into the message.
_KEPT_BYTES = 1 << 26  # bytes of states that are remembered


class SharedStates:
    """Remembers the large states that were sent of late. All workers of a backend share it."""

    def __init__(self) -> None:
        self._references: OrderedDict[SavedState, Any] = OrderedDict()
        self._num_bytes = 0

    def reference(self, state: SavedState) -> Any:
        """Return Ray's reference to the bytes of a state that was sent before; None for a new one."""
        # Most states are sent once: a put for each of them would cost more than their place in the message.
        if state not in self._references:
            self._references[state] = None
            self._num_bytes += state.nbytes
            while self._num_bytes > _KEPT_BYTES:
                self._num_bytes -= self._references.popitem(last=False)[0].nbytes
            return None
        self._references.move_to_end(state)
        if self._references[state] is None:
            self._references[state] = ray.put(np.frombuffer(bytes(state), np.uint8))
        return self._references[state]
