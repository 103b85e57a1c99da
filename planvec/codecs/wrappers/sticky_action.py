"""A codec for the wrapper that repeats actions at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import WrapperCodec
from planvec.codecs.wrappers.elements import element_dtype, to_element


class StickyActionCodec(WrapperCodec):
    """Saves the last action and for how long it is repeated, which is drawn from `np_random`."""

    draws = True

    def __init__(self, wrapper: Any) -> None:
        self._space = wrapper.action_space
        element = element_dtype(self._space)
        self._blank: NDArray[Any] | None = None
        if element is not None:
            self._blank = np.zeros(element[1], element[0])
            self.dtype = np.dtype(
                [
                    ("has_action", "?"),
                    ("action", *element),
                    ("sticks", "?"),
                    ("num_repeats", "<i8"),
                    ("repeats_taken", "<i8"),
                ]
            )

    def get(self, wrapper: Any) -> Any:
        action = wrapper.last_action
        has_action = action is not None
        if not has_action:
            action = self._blank
        return (
            has_action,
            action,
            wrapper.is_sticky_actions,
            wrapper.num_repeats,
            wrapper.repeats_taken,
        )

    def set(self, wrapper: Any, value: Any) -> None:
        has_action, action, sticks, wrapper.num_repeats, wrapper.repeats_taken = value
        wrapper.last_action = to_element(self._space, action) if has_action else None
        wrapper.is_sticky_actions = sticks

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation
