"""Warns about copied states that are large, or slow to save and restore."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs.base import Rows, StateCodec
from planvec.codecs.generic.graph import ObjectGraph

__all__ = ["warning_on_costs"]

_MAX_BYTES = 1 << 20
_MAX_STEPS, _MIN_SECONDS = 10, 1e-3
_REPEATS = 5


def warning_on_costs(codec: StateCodec, env: gymnasium.Env[Any, Any], graph: ObjectGraph) -> str:
    """Return a warning if states are larger than 1 MB, or cost more than 10 steps and 1 ms; else "".

    Args:
        codec: The codec. The state of its environment changes.
        env: The environment.
        graph: Saves the layers that are copied.
    """
    observation, _ = codec.reset(0, None)
    value = codec.get(observation)
    size = _size_of(codec, value)
    get = _time(lambda: codec.get(observation))
    restore = _time(lambda: codec.set(value))
    step = _time_step(codec, env)
    if size > _MAX_BYTES:
        problem = f"a state takes {size / 1e6:,.1f} MB"
    elif get + restore > max(_MAX_STEPS * step, _MIN_SECONDS):
        problem = (
            f"saving and restoring a state takes {1e3 * (get + restore):,.1f} ms, and a step "
            f"{1e3 * step:,.2f} ms"
        )
    else:
        return ""
    owner, name = graph.most_expensive_attribute()
    return (
        f"{env}: {problem}. The most expensive attribute is {owner}.{name}: if it never changes, pass "
        f'codec=planvec.Copied(["{name}"]). Otherwise write a codec for it (planvec.register_codec)'
    )


def _size_of(codec: StateCodec, value: Any) -> int:
    state = np.zeros(1, codec.format.dtype)
    codec.dump(Rows([value], [0], [False], [False]), state)
    return len(bytes(state[0])) if codec.format.dtype.hasobject else int(state.nbytes)


def _time(call: Callable[[], Any]) -> float:
    """Return the seconds of the fastest of some calls."""
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return min(times)


def _time_step(codec: StateCodec, env: gymnasium.Env[Any, Any]) -> float:
    """Return the seconds of a typical step: the median, since the first ones of an episode may be cheap."""
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    times = []
    for _ in range(_REPEATS):
        action = space.sample()
        started = time.perf_counter()
        try:
            outcome = codec.step(action)
        except Exception:  # the action is not legal in this state
            break
        times.append(time.perf_counter() - started)
        if outcome[2] or outcome[3]:
            break
    return float(np.median(times)) if times else float("inf")
