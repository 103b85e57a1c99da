"""Saves and restores Gymnasium's own wrappers: one table from their classes to the codecs."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces, wrappers

from planvec.codecs.base import WrapperCodec, WrapperCodecMaker
from planvec.codecs.generic.attributes import ADVICE, hidden_generator
from planvec.errors import UnsupportedEnvError

# -- Codecs of wrappers that remember nothing ----------------------------------------------------------------


class StatelessCodec(WrapperCodec):
    """Handles wrappers that remember nothing and leave observations as they are."""

    dtype: np.dtype | None = np.dtype([])
    draws = False

    def get(self, wrapper: object) -> tuple[object, ...]:
        return ()

    def set(self, wrapper: object, value: object) -> None:
        pass

    def observe(self, wrapper: object, observation: object) -> object:
        return observation


class TransparentCodec(StatelessCodec):
    """Handles wrappers that only check what they pass on; stepping leaves out the outermost ones."""


class RenderNoiseCodec(StatelessCodec):
    """Handles wrappers that draw from `np_random` when they render."""

    draws = True


class TransformObservationCodec(StatelessCodec):
    """Handles wrappers whose observation is a function of the inner one."""

    def observe(self, wrapper: Any, observation: object) -> object:
        return wrapper.observation(observation)


class FunctionCodec(StatelessCodec):
    """Handles wrappers that apply a function of the user's, which may draw from `np_random`."""

    draws = True

    def __init__(self, wrapper: Any) -> None:
        if hidden_generator(wrapper.func):
            raise UnsupportedEnvError(
                f"{type(wrapper).__name__}.func: a random generator is hidden inside this function, where "
                f"it cannot be saved. Draw from env.unwrapped.np_random instead. {ADVICE}"
            )


class ObservationFunctionCodec(FunctionCodec, TransformObservationCodec):
    """Handles functions of the observation. Observing a state calls the function again."""


# -- Codecs of wrappers that count steps or add up rewards ---------------------------------------------------


class _OneAttribute(StatelessCodec):
    """Saves the attribute `attribute` as the only field of `dtype`."""

    attribute: str

    def get(self, wrapper: object) -> tuple[object, ...]:
        return (getattr(wrapper, self.attribute),)

    def set(self, wrapper: Any, value: Any) -> None:
        setattr(wrapper, self.attribute, value[0])


class TimeLimitCodec(_OneAttribute):
    """Saves the steps counted by a `TimeLimit` below other wrappers."""

    # The outermost `TimeLimit` is left out of stepping: the stepping loop counts the steps.

    attribute, dtype = "_elapsed_steps", np.dtype([("elapsed", "<i8")])


class AutoresetCodec(_OneAttribute):
    """Saves whether the next step resets the environment."""

    attribute, dtype = "autoreset", np.dtype([("pending", "?")])


class RecordEpisodeStatisticsCodec(StatelessCodec):
    """Saves the return and the length of the episode so far."""

    # `info["episode"]["t"]`, the seconds since the reset by the wall clock, is no function of the state. It
    # is replaced by NaN.

    dtype = np.dtype([("episode_return", "<f8"), ("is_single", "?"), ("length", "<i8")])

    def after_reset(self, wrapper: Any) -> None:
        wrapper.episode_start_time = np.nan

    def get(self, wrapper: Any) -> tuple[object, ...]:
        # A sum of float32 rewards is continued in that precision.
        is_single = isinstance(wrapper.episode_returns, np.float32)
        return float(wrapper.episode_returns), is_single, wrapper.episode_lengths

    def set(self, wrapper: Any, value: Any) -> None:
        episode_return, is_single, wrapper.episode_lengths = value
        wrapper.episode_returns = np.float32(episode_return) if is_single else episode_return
        self.after_reset(wrapper)


class TimeAwareObservationCodec(_OneAttribute, TransformObservationCodec):
    """Saves the number of steps, which is part of the observation."""

    attribute, dtype = "timesteps", np.dtype([("timesteps", "<i8")])


# -- The elements of simple spaces, as fields of a record ----------------------------------------------------


def element_dtype(space: Space[object]) -> tuple[Any, tuple[int, ...]] | None:
    """Return the dtype and the shape of the elements of a simple space; None for a nested space."""
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        assert space.shape is not None
        return space.dtype, space.shape
    return None


def to_element(space: Space[object], stored: Any) -> Any:
    """Convert a stored element to the type that environments use: an int for Discrete, else an array."""
    return int(stored) if isinstance(space, spaces.Discrete) else stored


# -- Codecs of wrappers that keep earlier observations -------------------------------------------------------


class DelayObservationCodec(WrapperCodec):
    """Saves the queue of observations."""

    # The observation that was returned last has left the queue, so `observe` cannot compute it.

    draws = False

    def __init__(self, wrapper: Any) -> None:
        self._space = wrapper.env.observation_space
        element = element_dtype(self._space)
        self._blank: np.ndarray | None = None
        if element is not None and wrapper.delay:
            dtype, shape = element
            self._blank = np.zeros(shape, dtype)
            queue = ("queue", dtype, (wrapper.delay, *shape))
            self.dtype = np.dtype([("num_queued", "<i8"), queue])

    def get(self, wrapper: Any) -> tuple[object, ...]:
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

    def get(self, wrapper: Any) -> tuple[object, ...]:
        frames = tuple(wrapper.obs_queue)
        return (frames,) if self.dtype is not None else frames

    def set(self, wrapper: Any, value: Any) -> None:
        frames = value[0] if self.dtype is not None else value
        wrapper.obs_queue.clear()
        wrapper.obs_queue.extend(to_element(self._space, frame) for frame in frames)

    def observe(self, wrapper: Any, observation: object) -> object:
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

    def get(self, wrapper: Any) -> tuple[object, ...]:
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

    def get(self, wrapper: Any) -> tuple[object, ...]:
        return wrapper.obs_buffer[0].copy(), wrapper.lives, wrapper.game_over

    def set(self, wrapper: Any, value: Any) -> None:
        picture, wrapper.lives, wrapper.game_over = value
        wrapper.obs_buffer[0][...] = picture
        wrapper.obs_buffer[1][...] = 0

    def observe(self, wrapper: Any, observation: object) -> object:
        return wrapper._get_obs()


class MonitorCodec(StatelessCodec):
    """Saves the rewards of the episode so far for the `Monitor` of stable-baselines3."""

    # The lists of earlier episodes, and the file that it writes, are no part of a state. Neither is
    # `info["episode"]["t"]`, the time since the wrapper was made.

    dtype = None

    def after_reset(self, wrapper: Any) -> None:
        wrapper.t_start = math.nan

    def get(self, wrapper: Any) -> tuple[object, ...]:
        info = dict(wrapper.current_reset_info)
        return tuple(wrapper.rewards), wrapper.needs_reset, wrapper.total_steps, info

    def set(self, wrapper: Any, value: Any) -> None:
        rewards, wrapper.needs_reset, wrapper.total_steps, info = value
        wrapper.rewards, wrapper.current_reset_info = list(rewards), dict(info)


# -- Codecs of wrappers that normalize by running statistics -------------------------------------------------


def _fields_of(statistics: Any, sample: np.ndarray) -> list[Any]:
    """Return fields for a `RunningMeanStd`, in the precision that it has after an update with samples."""
    updated = copy.deepcopy(statistics)
    updated.update(sample)
    mean, var = np.asarray(updated.mean), np.asarray(updated.var)
    return [("mean", mean.dtype, mean.shape), ("var", var.dtype, var.shape), ("count", "<f8")]


class NormalizeObservationCodec(WrapperCodec):
    """Saves the mean, variance and count of the observations, which the wrapper keeps across resets."""

    draws = False

    def __init__(self, wrapper: Any) -> None:
        space = wrapper.env.observation_space
        self._new = copy.deepcopy(wrapper.obs_rms)
        self.dtype = np.dtype(_fields_of(self._new, np.zeros((1, *space.shape), space.dtype)))

    def before_reset(self, wrapper: Any) -> None:
        wrapper.obs_rms = copy.deepcopy(self._new)

    def get(self, wrapper: Any) -> tuple[object, ...]:
        return wrapper.obs_rms.mean, wrapper.obs_rms.var, wrapper.obs_rms.count

    def set(self, wrapper: Any, value: Any) -> None:
        mean, var, wrapper.obs_rms.count = value
        if not np.ndim(mean):  # the type of a NumPy scalar decides the precision of later updates
            assert self.dtype is not None
            mean, var = self.dtype["mean"].type(mean), self.dtype["var"].type(var)
        wrapper.obs_rms.mean, wrapper.obs_rms.var = mean, var

    def observe(self, wrapper: Any, observation: object) -> object:
        # The same as `wrapper.observation()`, which would also count the observation a second time.
        scale = np.sqrt(wrapper.obs_rms.var + wrapper.epsilon)
        return np.float32((observation - wrapper.obs_rms.mean) / scale)


class NormalizeRewardCodec(StatelessCodec):
    """Saves the discounted return and its mean, variance and count, which the wrapper keeps across resets."""

    def __init__(self, wrapper: Any) -> None:
        self._new = copy.deepcopy((wrapper.discounted_reward, wrapper.return_rms))
        discounted = ("discounted", "<f8", wrapper.discounted_reward.shape)
        self.dtype = np.dtype([discounted, *_fields_of(self._new[1], self._new[0])])

    def before_reset(self, wrapper: Any) -> None:
        wrapper.discounted_reward, wrapper.return_rms = copy.deepcopy(self._new)

    def get(self, wrapper: Any) -> tuple[object, ...]:
        statistics = wrapper.return_rms
        return wrapper.discounted_reward, statistics.mean, statistics.var, statistics.count

    def set(self, wrapper: Any, value: Any) -> None:
        discounted, mean, var, count = value
        wrapper.discounted_reward = discounted
        # An update leaves float64 scalars. Other types would change the rewards.
        wrapper.return_rms.mean, wrapper.return_rms.var = np.float64(mean), np.float64(var)
        wrapper.return_rms.count = count


# -- A codec for the wrapper that repeats actions at random --------------------------------------------------


class StickyActionCodec(StatelessCodec):
    """Saves the last action and for how long it is repeated, which is drawn from `np_random`."""

    dtype, draws = None, True

    def __init__(self, wrapper: Any) -> None:
        self._space = wrapper.action_space
        element = element_dtype(self._space)
        self._blank: np.ndarray | None = None
        if element is not None:
            self._blank = np.zeros(element[1], element[0])
            counts = ("num_repeats", "<i8"), ("repeats_taken", "<i8")
            self.dtype = np.dtype([("has_action", "?"), ("action", *element), ("sticks", "?"), *counts])

    def get(self, wrapper: Any) -> tuple[object, ...]:
        has_action = wrapper.last_action is not None
        action = wrapper.last_action if has_action else self._blank
        return has_action, action, wrapper.is_sticky_actions, wrapper.num_repeats, wrapper.repeats_taken

    def set(self, wrapper: Any, value: Any) -> None:
        has_action, action, sticks, wrapper.num_repeats, wrapper.repeats_taken = value
        wrapper.last_action = to_element(self._space, action) if has_action else None
        wrapper.is_sticky_actions = sticks


# -- The table: a class of wrappers and its codec ------------------------------------------------------------


def _installed(*names: str) -> list[type]:
    """Return those wrapper classes that this version of Gymnasium has."""
    return [getattr(wrappers, name) for name in names if name in wrappers.__all__]


# Wrapper class -> the maker of its codec. A subclass may remember more, so the class must match exactly.
BUILT_IN_CODECS: dict[type, WrapperCodecMaker] = {
    wrappers.OrderEnforcing: TransparentCodec,
    wrappers.PassiveEnvChecker: TransparentCodec,
    wrappers.TimeLimit: TimeLimitCodec,
    wrappers.Autoreset: AutoresetCodec,
    wrappers.RecordEpisodeStatistics: RecordEpisodeStatisticsCodec,
    wrappers.TimeAwareObservation: TimeAwareObservationCodec,
    wrappers.DelayObservation: DelayObservationCodec,
    wrappers.FrameStackObservation: FrameStackObservationCodec,
    wrappers.AtariPreprocessing: AtariPreprocessingCodec,
    wrappers.MaxAndSkipObservation: MaxAndSkipObservationCodec,
    wrappers.NormalizeObservation: NormalizeObservationCodec,
    wrappers.NormalizeReward: NormalizeRewardCodec,
    wrappers.StickyAction: StickyActionCodec,
    wrappers.TransformAction: FunctionCodec,
    wrappers.TransformReward: FunctionCodec,
    wrappers.TransformObservation: ObservationFunctionCodec,
    **dict.fromkeys(
        _installed("RepeatAction", "ClipAction", "RescaleAction", "DiscretizeAction", "ClipReward"),
        StatelessCodec,
    ),
    **dict.fromkeys(_installed("AddWhiteNoise", "ObstructView"), RenderNoiseCodec),
    **dict.fromkeys(
        _installed(
            *("FilterObservation", "FlattenObservation", "GrayscaleObservation", "ResizeObservation"),
            *("ReshapeObservation", "RescaleObservation", "DtypeObservation", "DiscretizeObservation"),
            "AddRenderObservation",
        ),
        TransformObservationCodec,
    ),
}

# module and name of a wrapper class of a library that need not be installed -> the maker of its codec
_BY_NAME: dict[tuple[str, str], WrapperCodecMaker] = {
    ("stable_baselines3.common.monitor", "Monitor"): MonitorCodec
}

# wrappers that collect frames from all branches in one list -> what to do instead
_REFUSED: dict[type, str] = {
    wrappers.RenderCollection: 'make the environment with render_mode="rgb_array" and call render(states)',
    wrappers.RecordVideo: "leave it out and render the states of a branch with render(states)",
    wrappers.HumanRendering: 'make the environment with render_mode="rgb_array" and call render(states)',
}


def built_in_codec(wrapper_class: type) -> WrapperCodecMaker | None:
    """Return the maker of planvec's codec for a wrapper class, or None if there is none."""
    fix = _REFUSED.get(wrapper_class)
    if fix is not None:
        raise UnsupportedEnvError(
            f"{wrapper_class.__name__} collects the frames of every step, and would mix up the steps of many "
            f"branches: {fix}"
        )
    name = wrapper_class.__module__, wrapper_class.__qualname__
    return BUILT_IN_CODECS.get(wrapper_class) or _BY_NAME.get(name)


def applies_function(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> bool:
    """Return whether a wrapper applies a function that users may have written."""
    # Such a function may remember something, so planvec's codec for the wrapper is verified by replay.
    functions = (wrappers.TransformAction, wrappers.TransformObservation, wrappers.TransformReward)
    return isinstance(wrapper, functions)
