"""Codecs of wrappers that count steps or add up rewards."""

from __future__ import annotations

from typing import Any

import numpy as np

from planvec.codecs.wrappers.stateless import StatelessCodec, TransformObservationCodec


class TimeLimitCodec(StatelessCodec):
    """Saves the steps counted by a `TimeLimit` below other wrappers."""

    # The outermost `TimeLimit` is left out of stepping: the stepping loop counts the steps.

    dtype = np.dtype([("elapsed", "<i8")])

    def get(self, wrapper: Any) -> Any:
        return (wrapper._elapsed_steps,)

    def set(self, wrapper: Any, value: Any) -> None:
        (wrapper._elapsed_steps,) = value


class AutoresetCodec(StatelessCodec):
    """Saves whether the next step resets the environment."""

    dtype = np.dtype([("pending", "?")])

    def get(self, wrapper: Any) -> Any:
        return (wrapper.autoreset,)

    def set(self, wrapper: Any, value: Any) -> None:
        (wrapper.autoreset,) = value


class RecordEpisodeStatisticsCodec(StatelessCodec):
    """Saves the return and the length of the episode so far."""

    # `info["episode"]["t"]`, the seconds since the reset by the wall clock, is no function of the state. It
    # is replaced by NaN.

    dtype = np.dtype([("episode_return", "<f8"), ("is_single", "?"), ("length", "<i8")])

    def after_reset(self, wrapper: Any) -> None:
        wrapper.episode_start_time = np.nan

    def get(self, wrapper: Any) -> Any:
        # A sum of float32 rewards is continued in that precision.
        is_single = isinstance(wrapper.episode_returns, np.float32)
        return float(wrapper.episode_returns), is_single, wrapper.episode_lengths

    def set(self, wrapper: Any, value: Any) -> None:
        episode_return, is_single, wrapper.episode_lengths = value
        wrapper.episode_returns = np.float32(episode_return) if is_single else episode_return
        self.after_reset(wrapper)


class TimeAwareObservationCodec(TransformObservationCodec):
    """Saves the number of steps, which is part of the observation."""

    dtype = np.dtype([("timesteps", "<i8")])

    def get(self, wrapper: Any) -> Any:
        return (wrapper.timesteps,)

    def set(self, wrapper: Any, value: Any) -> None:
        (wrapper.timesteps,) = value
