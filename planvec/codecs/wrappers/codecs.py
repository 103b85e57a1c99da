"""What Gymnasium's wrappers remember, wrapper by wrapper.

Wrappers are matched by their exact type: a subclass may remember more, and goes through `copied`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces, wrappers
from numpy.typing import NDArray

from planvec.codecs.base import WrapperCodec
from planvec.codecs.generic.attributes import ADVICE, hidden_generator
from planvec.errors import UnsupportedEnvError

__all__ = ["CODECS", "FUNCTIONS", "TRANSPARENT", "refuse"]


def _leaf(space: Space[Any]) -> tuple[Any, tuple[int, ...]] | None:
    """dtype and shape of the elements of a simple space; None for one that is nested."""
    if isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        assert space.shape is not None
        return space.dtype, space.shape
    return None


def _element(space: Space[Any], stored: Any) -> Any:
    """A stored element in the type that the environment uses: an int for Discrete, else an array."""
    return int(stored) if isinstance(space, spaces.Discrete) else stored


class StatelessCodec(WrapperCodec):
    """Wrappers that remember nothing and leave observations alone (actions, rewards, checks)."""

    dtype = np.dtype([])
    draws = False

    def get(self, wrapper: Any) -> Any:
        return ()

    def set(self, wrapper: Any, value: Any) -> None:
        pass

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation


class RenderNoiseCodec(StatelessCodec):
    """Wrappers that draw from `np_random` when they render."""

    draws = True


class TransformObservationCodec(StatelessCodec):
    """Wrappers whose observation is a function of the inner one."""

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return wrapper.observation(observation)


class FunctionCodec(StatelessCodec):
    """Wrappers that apply a function of the user's, which may draw from `np_random`.

    Raises:
        UnsupportedEnvError: The function holds a generator of its own.
    """

    draws = True

    def __init__(self, wrapper: Any) -> None:
        if hidden_generator(wrapper.func):
            raise UnsupportedEnvError(
                f"{type(wrapper).__name__}.func: a random generator is hidden inside this function, where "
                f"it cannot be saved; draw from env.unwrapped.np_random. {ADVICE}"
            )


class ObservationFunctionCodec(FunctionCodec, TransformObservationCodec):
    """The same for observations; called again to observe a state, it must give the same."""


class TimeLimitCodec(StatelessCodec):
    """A `TimeLimit` below other wrappers (`stack` counts for an outermost one itself)."""

    dtype = np.dtype([("elapsed", "<i8")])

    def get(self, wrapper: Any) -> Any:
        return (wrapper._elapsed_steps,)

    def set(self, wrapper: Any, value: Any) -> None:
        (wrapper._elapsed_steps,) = value


class AutoresetCodec(StatelessCodec):
    dtype = np.dtype([("pending", "?")])

    def get(self, wrapper: Any) -> Any:
        return (wrapper.autoreset,)

    def set(self, wrapper: Any, value: Any) -> None:
        (wrapper.autoreset,) = value


class RecordEpisodeStatisticsCodec(StatelessCodec):
    """Return and length so far.

    `info["episode"]["t"]`, the seconds since the reset by the wall clock, is no function of the state: it
    is made NaN.
    """

    dtype = np.dtype([("episode_return", "<f8"), ("is_single", "?"), ("length", "<i8")])

    def settle(self, wrapper: Any) -> None:
        wrapper.episode_start_time = np.nan

    def get(self, wrapper: Any) -> Any:
        # A sum of float32 rewards goes on in that precision.
        is_single = isinstance(wrapper.episode_returns, np.float32)
        return float(wrapper.episode_returns), is_single, wrapper.episode_lengths

    def set(self, wrapper: Any, value: Any) -> None:
        episode_return, is_single, wrapper.episode_lengths = value
        wrapper.episode_returns = np.float32(episode_return) if is_single else episode_return
        self.settle(wrapper)


class TimeAwareObservationCodec(TransformObservationCodec):
    dtype = np.dtype([("timesteps", "<i8")])

    def get(self, wrapper: Any) -> Any:
        return (wrapper.timesteps,)

    def set(self, wrapper: Any, value: Any) -> None:
        (wrapper.timesteps,) = value


class DelayObservationCodec(WrapperCodec):
    """The queue. The observation that it gave last has left it, so that has to be saved beside it."""

    draws = False

    def __init__(self, wrapper: Any) -> None:
        self._space = wrapper.env.observation_space
        leaf = _leaf(self._space)
        self._blank: NDArray[Any] | None = None
        if leaf is not None and wrapper.delay:
            dtype, shape = leaf
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
            wrapper.observation_queue.extend(_element(self._space, element) for element in queue[:num_queued])


class FrameStackObservationCodec(WrapperCodec):
    """The frames."""

    draws = False
    remembers_observation = True

    def __init__(self, wrapper: Any) -> None:
        self._space = wrapper.env.observation_space
        leaf = _leaf(self._space)
        if leaf is not None:
            dtype, shape = leaf
            self.dtype = np.dtype([("frames", dtype, (wrapper.stack_size, *shape))])

    def get(self, wrapper: Any) -> Any:
        frames = tuple(wrapper.obs_queue)
        return (frames,) if self.dtype is not None else frames

    def set(self, wrapper: Any, value: Any) -> None:
        frames = value[0] if self.dtype is not None else value
        wrapper.obs_queue.clear()
        wrapper.obs_queue.extend(_element(self._space, frame) for frame in frames)

    def observe(self, wrapper: Any, observation: Any) -> Any:
        inner = wrapper.env.observation_space
        empty: Any = gymnasium.vector.utils.create_empty_array(inner, n=wrapper.stack_size)
        return gymnasium.vector.utils.concatenate(inner, wrapper.obs_queue, empty)


class MaxAndSkipObservationCodec(WrapperCodec):
    """The last two frames: an episode that ends within a skip shows some of the frames before it."""

    draws = False

    def __init__(self, wrapper: Any) -> None:
        buffer = wrapper._obs_buffer
        self.dtype = np.dtype([("frames", buffer.dtype, buffer.shape)])

    def begin(self, wrapper: Any) -> None:
        wrapper._obs_buffer[...] = 0

    def get(self, wrapper: Any) -> Any:
        return (wrapper._obs_buffer.copy(),)

    def set(self, wrapper: Any, value: Any) -> None:
        wrapper._obs_buffer[...] = value[0]


class AtariPreprocessingCodec(WrapperCodec):
    """The last picture: an episode that ends within a skip shows it again.

    Of its two buffers the first holds the larger of both by the time a state is saved, so that the second
    changes nothing any more.
    """

    draws = False
    remembers_observation = True

    def __init__(self, wrapper: Any) -> None:
        buffer = wrapper.obs_buffer[0]
        picture = ("picture", buffer.dtype, buffer.shape)
        self.dtype = np.dtype([picture, ("lives", "<i4"), ("game_over", "?")])

    def begin(self, wrapper: Any) -> None:
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


def _steady_dtype(statistics: Any, sample: NDArray[Any]) -> list[Any]:
    """Fields for a `RunningMeanStd` in the precision that it has after an update with samples."""
    updated = copy.deepcopy(statistics)
    updated.update(sample)
    mean, var = np.asarray(updated.mean), np.asarray(updated.var)
    return [("mean", mean.dtype, mean.shape), ("var", var.dtype, var.shape), ("count", "<f8")]


class NormalizeObservationCodec(WrapperCodec):
    """Mean, variance and count of the observations, which outlive a reset."""

    draws = False

    def __init__(self, wrapper: Any) -> None:
        space = wrapper.env.observation_space
        self._new = copy.deepcopy(wrapper.obs_rms)
        self.dtype = np.dtype(_steady_dtype(self._new, np.zeros((1, *space.shape), space.dtype)))

    def begin(self, wrapper: Any) -> None:
        wrapper.obs_rms = copy.deepcopy(self._new)

    def get(self, wrapper: Any) -> Any:
        return wrapper.obs_rms.mean, wrapper.obs_rms.var, wrapper.obs_rms.count

    def set(self, wrapper: Any, value: Any) -> None:
        mean, var, wrapper.obs_rms.count = value
        if not np.ndim(mean):  # a NumPy scalar, whose type decides the precision of what follows
            assert self.dtype is not None
            mean, var = self.dtype["mean"].type(mean), self.dtype["var"].type(var)
        wrapper.obs_rms.mean, wrapper.obs_rms.var = mean, var

    def observe(self, wrapper: Any, observation: Any) -> Any:
        # As `observation()`, which would count the observation a second time.
        scale = np.sqrt(wrapper.obs_rms.var + wrapper.epsilon)
        return np.float32((observation - wrapper.obs_rms.mean) / scale)


class NormalizeRewardCodec(WrapperCodec):
    """The discounted return, and mean, variance and count of it, which all outlive a reset."""

    draws = False

    def __init__(self, wrapper: Any) -> None:
        self._new = copy.deepcopy((wrapper.discounted_reward, wrapper.return_rms))
        discounted = ("discounted", "<f8", wrapper.discounted_reward.shape)
        self.dtype = np.dtype([discounted, *_steady_dtype(self._new[1], self._new[0])])

    def begin(self, wrapper: Any) -> None:
        wrapper.discounted_reward, wrapper.return_rms = copy.deepcopy(self._new)

    def get(self, wrapper: Any) -> Any:
        statistics = wrapper.return_rms
        return wrapper.discounted_reward, statistics.mean, statistics.var, statistics.count

    def set(self, wrapper: Any, value: Any) -> None:
        discounted, mean, var, count = value
        wrapper.discounted_reward = discounted
        # float64 scalars as after an update, so that rewards stay what Gymnasium makes of them.
        wrapper.return_rms.mean, wrapper.return_rms.var = np.float64(mean), np.float64(var)
        wrapper.return_rms.count = count

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation


class StickyActionCodec(WrapperCodec):
    """The last action and how long it sticks; whether it does is drawn from `np_random`."""

    draws = True

    def __init__(self, wrapper: Any) -> None:
        self._space = wrapper.action_space
        leaf = _leaf(self._space)
        self._blank: NDArray[Any] | None = None
        if leaf is not None:
            self._blank = np.zeros(leaf[1], leaf[0])
            self.dtype = np.dtype(
                [
                    ("has_action", "?"),
                    ("action", *leaf),
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
        wrapper.last_action = _element(self._space, action) if has_action else None
        wrapper.is_sticky_actions = sticks

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation


FUNCTIONS = (wrappers.TransformAction, wrappers.TransformObservation, wrappers.TransformReward)
"""Wrappers that apply a function of the user's: known, but to be proved."""
TRANSPARENT: tuple[type, ...] = (wrappers.OrderEnforcing, wrappers.PassiveEnvChecker)
"""Wrappers that only check what they pass on, and can be left out while stepping."""

CODECS: dict[type, Callable[[Any], WrapperCodec]] = {
    wrappers.OrderEnforcing: StatelessCodec,
    wrappers.PassiveEnvChecker: StatelessCodec,
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
        (
            wrappers.RepeatAction,
            wrappers.ClipAction,
            wrappers.RescaleAction,
            wrappers.DiscretizeAction,
            wrappers.ClipReward,
        ),
        StatelessCodec,
    ),
    **dict.fromkeys((wrappers.AddWhiteNoise, wrappers.ObstructView), RenderNoiseCodec),
    **dict.fromkeys(
        (
            wrappers.FilterObservation,
            wrappers.FlattenObservation,
            wrappers.GrayscaleObservation,
            wrappers.ResizeObservation,
            wrappers.ReshapeObservation,
            wrappers.RescaleObservation,
            wrappers.DtypeObservation,
            wrappers.DiscretizeObservation,
            wrappers.AddRenderObservation,
        ),
        TransformObservationCodec,
    ),
}
"""Wrapper class -> what makes its codec."""

_REFUSED: dict[type, str] = {
    wrappers.RenderCollection: 'make the environment with render_mode="rgb_array" and call render(states)',
    wrappers.RecordVideo: "leave it out and render the states of a branch with render(states)",
    wrappers.HumanRendering: 'make the environment with render_mode="rgb_array" and call render(states)',
}
"""Wrappers that keep a history of what was stepped, which branches would mix up -> the fix."""


def refuse(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> None:
    """Refuse a wrapper that cannot serve a planner.

    Raises:
        UnsupportedEnvError: Naming the wrapper and the fix.
    """
    fix = _REFUSED.get(type(wrapper))
    if fix is not None:
        raise UnsupportedEnvError(
            f"{type(wrapper).__name__} collects the frames of every step, and steps of many "
            f"branches would be mixed up in it: {fix}"
        )
