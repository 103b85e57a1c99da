"""Warns about copied states that are large, or slow to save and restore."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs.base import Rows, StateCodec
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.timing import time_codec

_MAX_BYTES = 1 << 20
_MAX_STEPS, _MIN_MICROSECONDS = 10, 1000
_REPEATS = 5


def warning_on_costs(codec: StateCodec, env: gymnasium.Env[Any, Any], graph: ObjectGraph) -> str:
    """Return a warning if states are larger than 1 MB, or cost more than 10 steps and 1 ms; else ""."""
    observation, _ = codec.reset(0, None)
    states = np.zeros(_REPEATS, codec.format.dtype)
    flags = [False] * _REPEATS
    codec.dump(Rows([codec.get(observation)] * _REPEATS, [0] * _REPEATS, flags, flags), states)
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    size = states[0].nbytes
    try:
        times = time_codec(codec, states, [space.sample() for _ in range(_REPEATS)])
    except Exception:  # an action is not legal: steps cannot be timed
        times = {"get": 0.0, "set": 0.0, "step": 0.0}
    cost, step = times["get"] + times["set"], times["step"]
    if size > _MAX_BYTES:
        problem = f"a state takes {size / 1e6:,.1f} MB"
    elif cost > max(_MAX_STEPS * step, _MIN_MICROSECONDS):
        problem = f"saving and restoring a state takes {cost / 1e3:,.1f} ms, and a step {step / 1e3:,.2f} ms"
    else:
        return ""
    owner, name = graph.most_expensive_attribute()
    return (
        f"{env}: {problem}. The most expensive attribute is {owner}.{name}: if it never changes, pass "
        f'codec=planvec.Copied(["{name}"]). Otherwise write a codec for it (planvec.register_codec)'
    )
