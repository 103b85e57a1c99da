"""Trust, but prove: a codec that nobody wrote for this environment is replayed before it is used."""

from __future__ import annotations

import copy
import pickle
import time
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.codecs.base import Outcome, Rows, StateCodec
from planvec.errors import UnsupportedEnvError

__all__ = ["prove", "same"]

_NUM_STEPS = 64
_MIN_STEPS = 12
_FOLLOWED = 6
_MAX_SECONDS = 1.0
"""A slow environment (0.2 s a step exist) is walked for this long, but `_MIN_STEPS` at least."""


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, NaN included, through nested dicts, sequences and arrays."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (np.ndarray, np.generic, int, float)) and isinstance(
        b, (np.ndarray, np.generic, int, float)
    ):
        x, y = np.asarray(a), np.asarray(b)
        if x.dtype.hasobject or y.dtype.hasobject:
            return x.shape == y.shape and same(x.tolist(), y.tolist())
        return x.shape == y.shape and x.dtype.kind == y.dtype.kind and _equal_numbers(x, y)
    return type(a) is type(b) and (a is b or pickle.dumps(a) == pickle.dumps(b))


def _equal_numbers(x: Any, y: Any) -> bool:
    if x.dtype.kind in "fc":
        return bool(np.array_equal(x, y, equal_nan=True))
    return bool(np.array_equal(x, y))


class _Mark(NamedTuple):
    """A state on the walk, and where in the walk it was saved."""

    value: Any
    observation: Any
    step: int


def prove(codec: StateCodec, env: gymnasium.Env[Any, Any], advice: str) -> None:
    """Walk at random, save on the way, walk elsewhere, restore in another order, walk again.

    Args:
        codec: Of `env`, which this leaves in an arbitrary state.
        env: The environment, for its action space and its name.
        advice: What to do instead; ends the error.

    Raises:
        UnsupportedEnvError: A restored state went another way than the first time.
    """
    walk, marks = _walk(codec, env)
    states = np.zeros(len(marks), codec.format.dtype)
    flags = [False] * len(marks)
    try:
        codec.dump(Rows([mark.value for mark in marks], [0] * len(marks), flags, flags), states)
    except (ValueError, TypeError, KeyError) as error:
        raise UnsupportedEnvError(
            f"{env}: a saved value does not fit the codec's dtype {codec.format.dtype}: {error}"
        ) from error
    restored = codec.load(states).values
    again, _ = codec.reset(0, None)
    if not same(again, marks[0].observation):
        raise UnsupportedEnvError(
            f"{env}: two resets with the same seed gave {marks[0].observation!r} and {again!r}. {advice}"
        )
    codec.reset(1, None)
    for mark, value in list(zip(marks, restored, strict=True))[::-1]:
        codec.set(value)
        _compare(env, "observation", 0, mark.observation, codec.observe(), advice)
        for ahead in range(_FOLLOWED):
            if mark.step + ahead >= len(walk):
                break
            action, expected = walk[mark.step + ahead]
            if expected is None:  # the walk was reset here
                break
            outcome = codec.step(action)
            names = ("observation", "reward", "terminated", "truncated", "info")
            for name, first, second in zip(names, expected, outcome, strict=True):
                _compare(env, name, ahead + 1, first, second, advice)


def _walk(
    codec: StateCodec, env: gymnasium.Env[Any, Any]
) -> tuple[list[tuple[Any, Outcome | None]], list[_Mark]]:
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    walk: list[tuple[Any, Outcome | None]] = []
    marks: list[_Mark] = []
    started = time.monotonic()
    observation, _ = codec.reset(0, None)
    for index in range(_NUM_STEPS):
        if index >= _MIN_STEPS and time.monotonic() - started > _MAX_SECONDS:
            break
        if index % 4 == 0:
            observation = copy.deepcopy(observation)
            marks.append(_Mark(codec.get(observation), observation, len(walk)))
        action = space.sample()
        outcome = codec.step(action)
        walk.append((action, copy.deepcopy(outcome)))
        observation = outcome[0]
        if outcome[2] or outcome[3]:
            walk.append((None, None))
            observation, _ = codec.reset(index, None)
    return walk, marks


def _compare(
    env: gymnasium.Env[Any, Any], name: str, ahead: int, first: Any, second: Any, advice: str
) -> None:
    if not same(first, second):
        raise UnsupportedEnvError(
            f"{env}: {ahead} steps after restoring a saved state, {name} was {second!r} instead of "
            f"{first!r}. The environment keeps something that could not be saved (a generator of its "
            f"own, a global, memory of a C library). {advice}"
        )
