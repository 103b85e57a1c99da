"""Decides when actors get one request at a time, so that it is known on which one an actor has died.

Otherwise an actor gets the next request while it works on one. If it dies, the answer to the first may be
lost although it was done.
"""

from __future__ import annotations

_NUM_ANSWERS = 64  # answers without the death of an actor, after which there is no need for caution


class Caution:
    """Counts answers since an actor died on one of several requests. All actors of a backend share it."""

    def __init__(self) -> None:
        self._num_left = 0

    @property
    def is_needed(self) -> bool:
        """Whether an actor may have one request at a time."""
        return self._num_left > 0

    def begin(self) -> None:
        """Note that an actor died, and that it is not known on which request."""
        self._num_left = _NUM_ANSWERS

    def answered(self) -> None:
        """Note an answer."""
        self._num_left = max(0, self._num_left - 1)
