"""Codecs of wrappers that keep earlier observations."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import WrapperCodec
from planvec.codecs.wrappers.elements import element_dtype, to_element


class DelayObservationCodec(WrapperCodec):
    """Saves the queue of observations."""

    # The observation that was returned last has left the queue, so `observe` cannot compute it.

    draws = False

    def __init__(self, wrapper: Any) -> None:
        self._space = wrapper.env.observation_space
        element = element_dtype(self._space)
        self._blank: NDArray[Any] | None = None
        if element is not None and wrapper.delay:
            dtype, shape = element
            self._blank = np.zeros(shape, dtype)
            queue = ("queue", dtype, (wrapper.delay, *shape))
            self.dtype = np.dtype([("num_queued", "<i8"), queue])

    def get(self, wrapper: Any) -> Any:
        queue = list(wrapper.observation_queue)
        if self._blank is None:
            return tuple(queue)
        return len(queue), queue + [self._blank] * (wrapper.delay - len(queue))

    def set(self, wrapper: Any, value: Any) -> None:
        wrapper.observation_queue.clear()
        if self._blank is None:
            wrapper.observation_queue.extend(value)
        else:
            num_queued, queue = value
            wrapper.observation_queue.extend(to_element(self._space, stored) for stored in queue[:num_queued])


class FrameStackObservationCodec(WrapperCodec):
    """Saves the stacked frames."""

    draws = False
    needs_inner_observation = False

    def __init__(self, wrapper: Any) -> None:
        self._space = wrapper.env.observation_space
        element = element_dtype(self._space)
        if element is not None:
            dtype, shape = element
            self.dtype = np.dtype([("frames", dtype, (wrapper.stack_size, *shape))])

    def get(self, wrapper: Any) -> Any:
        frames = tuple(wrapper.obs_queue)
        return (frames,) if self.dtype is not None else frames

    def set(self, wrapper: Any, value: Any) -> None:
        frames = value[0] if self.dtype is not None else value
        wrapper.obs_queue.clear()
        wrapper.obs_queue.extend(to_element(self._space, frame) for frame in frames)

    def observe(self, wrapper: Any, observation: Any) -> Any:
        inner = wrapper.env.observation_space
        empty: Any = gymnasium.vector.utils.create_empty_array(inner, n=wrapper.stack_size)
        return gymnasium.vector.utils.concatenate(inner, wrapper.obs_queue, empty)


class MaxAndSkipObservationCodec(WrapperCodec):
    """Saves the last two frames: an episode that ends within a skip shows some of the frames before it."""

    draws = False

    def __init__(self, wrapper: Any) -> None:
        buffer = wrapper._obs_buffer
        self.dtype = np.dtype([("frames", buffer.dtype, buffer.shape)])

    def before_reset(self, wrapper: Any) -> None:
        wrapper._obs_buffer[...] = 0

    def get(self, wrapper: Any) -> Any:
        return (wrapper._obs_buffer.copy(),)

    def set(self, wrapper: Any, value: Any) -> None:
        wrapper._obs_buffer[...] = value[0]


class AtariPreprocessingCodec(WrapperCodec):
    """Saves the last picture: an episode that ends within a skip shows it again."""

    # Of the two buffers only the first is saved. When a state is saved it holds the maximum of both, so the
    # second has no influence.

    draws = False
    needs_inner_observation = False

    def __init__(self, wrapper: Any) -> None:
        buffer = wrapper.obs_buffer[0]
        picture = ("picture", buffer.dtype, buffer.shape)
        self.dtype = np.dtype([picture, ("lives", "<i4"), ("game_over", "?")])

    def before_reset(self, wrapper: Any) -> None:
        wrapper.lives, wrapper.game_over = 0, False
        for buffer in wrapper.obs_buffer:
            buffer[...] = 0

    def get(self, wrapper: Any) -> Any:
        return wrapper.obs_buffer[0].copy(), wrapper.lives, wrapper.game_over

    def set(self, wrapper: Any, value: Any) -> None:
        picture, wrapper.lives, wrapper.game_over = value
        wrapper.obs_buffer[0][...] = picture
        wrapper.obs_buffer[1][...] = 0

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return wrapper._get_obs()
