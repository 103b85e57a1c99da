"""Saves the `Monitor` of stable-baselines3, without importing that library."""

from __future__ import annotations

import math
from typing import Any

from planvec.codecs.base import WrapperCodec

MONITOR = ("stable_baselines3.common.monitor", "Monitor")  # module and name of its class


class MonitorCodec(WrapperCodec):
    """Saves the rewards of the episode so far."""

    # The lists of earlier episodes, and the file that it writes, are no part of a state. Neither is
    # `info["episode"]["t"]`, the time since the wrapper was made.

    draws = False

    def after_reset(self, wrapper: Any) -> None:
        wrapper.t_start = math.nan

    def get(self, wrapper: Any) -> Any:
        return (
            tuple(wrapper.rewards),
            wrapper.needs_reset,
            wrapper.total_steps,
            dict(wrapper.current_reset_info),
        )

    def set(self, wrapper: Any, value: Any) -> None:
        rewards, wrapper.needs_reset, wrapper.total_steps, info = value
        wrapper.rewards, wrapper.current_reset_info = list(rewards), dict(info)

    def observe(self, wrapper: Any, observation: Any) -> Any:
        return observation
