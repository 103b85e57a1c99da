"""Saves and restores Gymnasium's own wrappers: one table from their classes to the codecs."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import wrappers

from planvec.codecs.base import WrapperCodecMaker
from planvec.codecs.wrappers.counters import (
    AutoresetCodec,
    RecordEpisodeStatisticsCodec,
    TimeAwareObservationCodec,
    TimeLimitCodec,
)
from planvec.codecs.wrappers.frames import (
    AtariPreprocessingCodec,
    DelayObservationCodec,
    FrameStackObservationCodec,
    MaxAndSkipObservationCodec,
)
from planvec.codecs.wrappers.monitor import MONITOR, MonitorCodec
from planvec.codecs.wrappers.normalize import NormalizeObservationCodec, NormalizeRewardCodec
from planvec.codecs.wrappers.stateless import (
    FunctionCodec,
    ObservationFunctionCodec,
    RenderNoiseCodec,
    StatelessCodec,
    TransformObservationCodec,
    TransparentCodec,
)
from planvec.codecs.wrappers.sticky_action import StickyActionCodec
from planvec.errors import UnsupportedEnvError

__all__ = [
    "BUILT_IN_CODECS",
    "TimeLimitCodec",
    "TransparentCodec",
    "applies_function",
    "built_in_codec",
    "check_supported",
]

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

# module and name of a wrapper class of a library that need not be installed -> the maker of its codec
_BY_NAME: dict[tuple[str, str], WrapperCodecMaker] = {MONITOR: MonitorCodec}

# wrappers that collect frames from all branches in one list -> what to do instead
_REFUSED: dict[type, str] = {
    wrappers.RenderCollection: 'make the environment with render_mode="rgb_array" and call render(states)',
    wrappers.RecordVideo: "leave it out and render the states of a branch with render(states)",
    wrappers.HumanRendering: 'make the environment with render_mode="rgb_array" and call render(states)',
}


def built_in_codec(wrapper_class: type) -> WrapperCodecMaker | None:
    """Return the maker of planvec's codec for a wrapper class, or None if there is none."""
    name = wrapper_class.__module__, wrapper_class.__qualname__
    return BUILT_IN_CODECS.get(wrapper_class) or _BY_NAME.get(name)


def applies_function(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> bool:
    """Return whether a wrapper applies a function that users may have written."""
    # Such a function may remember something, so planvec's codec for the wrapper is verified by replay.
    functions = (wrappers.TransformAction, wrappers.TransformObservation, wrappers.TransformReward)
    return isinstance(wrapper, functions)


def check_supported(wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> None:
    """Check that a wrapper can serve a planner."""
    fix = _REFUSED.get(type(wrapper))
    if fix is not None:
        raise UnsupportedEnvError(
            f"{type(wrapper).__name__} collects the frames of every step, and would mix up the steps of many "
            f"branches: {fix}"
        )
