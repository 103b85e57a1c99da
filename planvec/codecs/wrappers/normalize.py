"""Codecs of wrappers that normalize by running statistics."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import WrapperCodec


def _fields_of(statistics: Any, sample: NDArray[Any]) -> list[Any]:
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

    def get(self, wrapper: Any) -> Any:
        return wrapper.obs_rms.mean, wrapper.obs_rms.var, wrapper.obs_rms.count

    def set(self, wrapper: Any, value: Any) -> None:
        mean, var, wrapper.obs_rms.count = value
        if not np.ndim(mean):  # the type of a NumPy scalar decides the precision of later updates
            assert self.dtype is not None
            mean, var = self.dtype["mean"].type(mean), self.dtype["var"].type(var)
        wrapper.obs_rms.mean, wrapper.obs_rms.var = mean, var

    def observe(self, wrapper: Any, observation: Any) -> Any:
        # The same as `wrapper.observation()`, which would also count the observation a second time.
        scale = np.sqrt(wrapper.obs_rms.var + wrapper.epsilon)
        return np.float32((observation - wrapper.obs_rms.mean) / scale)


class NormalizeRewardCodec(WrapperCodec):
    """Saves the discounted return and its mean, variance and count, which the wrapper keeps across resets."""

    draws = False

    def __init__(self, wrapper: Any) -> None:
        self._new = copy.deepcopy((wrapper.discounted_reward, wrapper.return_rms))
        discounted = ("discounted", "<f8", wrapper.discounted_reward.shape)
        self.dtype = np.dtype([discounted, *_fields_of(self._new[1], self._new[0])])

    def before_reset(self, wrapper: Any) -> None:
        wrapper.discounted_reward, wrapper.return_rms = copy.deepcopy(self._new)

    def get(self, wrapper: Any) -> Any:
        statistics = wrapper.return_rms
        return wrapper.discounted_reward, statistics.mean, statistics.var, statistics.count

    def set(self, wrapper: Any, value: Any) -> None:
        discounted, mean, var, count = value
        wrapper.discounted_reward = discounted
        # An update leaves float64 scalars. Other types would change the rewards.
        wrapper.return_rms.mean, wrapper.return_rms.var = np.float64(mean), np.float64(var)
        wrapper.return_rms.count = count

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation
