"""Trust, but prove: a codec that nobody wrote for this environment is replayed before it is used."""

from __future__ import annotations

import copy
import hashlib
import pickle
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.codecs.base import Outcome, Rows, StateCodec
from planvec.errors import UnsupportedEnvError

__all__ = ["difference", "prove", "same"]

_NUM_STEPS = 64
_MIN_STEPS = 12
_FOLLOWED = 6
_RESET_ADVICE = (
    "Its reset does not fix everything: begin it with super().reset(seed=seed), and draw from "
    "self.np_random alone. An info that differs by nature can be left out with info_keys="
)
_MAX_SECONDS = 1.0
"""A slow environment (0.2 s a step exist) is walked for this long, but `_MIN_STEPS` at least."""


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, NaN included, through nested dicts, sequences and arrays."""
    return difference(a, b) is None


def difference(a: Any, b: Any, path: str = "") -> str | None:
    """Where two values first differ: a path such as "['left'][0]" ("" at the top); None if nowhere."""
    if isinstance(a, dict) and isinstance(b, dict):
        if a.keys() != b.keys():
            return path
        pairs = [(f"{path}[{key!r}]", a[key], b[key]) for key in a]
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return path
        pairs = [(f"{path}[{index}]", x, y) for index, (x, y) in enumerate(zip(a, b, strict=True))]
    else:
        return None if _same_leaf(a, b) else path
    found = (difference(x, y, inner) for inner, x, y in pairs)
    return next((where for where in found if where is not None), None)


def _same_leaf(a: Any, b: Any) -> bool:
    numeric = (np.ndarray, np.generic, int, float)
    if not (isinstance(a, numeric) and isinstance(b, numeric)):
        return type(a) is type(b) and (a is b or pickle.dumps(a) == pickle.dumps(b))
    x, y = np.asarray(a), np.asarray(b)
    if x.dtype.hasobject or y.dtype.hasobject:
        return x.shape == y.shape and (bool(a == b) if x.ndim == 0 else same(x.tolist(), y.tolist()))
    if x.shape != y.shape or x.dtype.kind != y.dtype.kind:
        return False
    return bool(np.array_equal(x, y, equal_nan=x.dtype.kind in "fc"))


class _Mark(NamedTuple):
    """A state on the walk, and where in the walk it was saved."""

    value: Any
    observation: Any
    step: int


class _Walk(NamedTuple):
    """Steps taken at random. An outcome is None where the environment was reset instead.

    Attributes:
        steps: Actions and their outcomes.
        marks: States on the way.
    """

    steps: list[tuple[Any, Outcome | None]]
    marks: list[_Mark]


def prove(
    codec: StateCodec, env: gymnasium.Env[Any, Any], advice: str, info_keys: Sequence[str] | None = None
) -> bytes:
    """Walk at random, save on the way, walk elsewhere, restore in another order, walk again.

    Args:
        codec: Of `env`, which this leaves in an arbitrary state.
        env: The environment, for its action space and its name.
        advice: What to do instead; ends the error.
        info_keys: The info keys that have to be the same; None: all.

    Returns:
        A digest of the first steps of the walk: of how the environment behaves.

    Raises:
        UnsupportedEnvError: A restored state, or a second reset with the same seed, went another way
            than the first time.
    """
    walk = _walk(codec, env, info_keys)
    states = np.zeros(len(walk.marks), codec.format.dtype)
    flags = [False] * len(walk.marks)
    try:
        values = [mark.value for mark in walk.marks]
        codec.dump(Rows(values, [0] * len(values), flags, flags), states)
    except (ValueError, TypeError, KeyError) as error:
        raise UnsupportedEnvError(
            f"{env}: a saved value does not fit the codec's dtype {codec.format.dtype}: {error}"
        ) from error
    restored = codec.load(states).values
    codec.reset(1, None)
    for mark, value in list(zip(walk.marks, restored, strict=True))[::-1]:
        codec.set(value)
        observation = codec.observe()
        _follow(codec, walk, mark, observation, info_keys, f"{env}: after restoring a saved state", advice)
    again, _ = codec.reset(0, None)
    _follow(
        codec,
        walk,
        walk.marks[0],
        again,
        info_keys,
        f"{env}: after a second reset with the same seed",
        _RESET_ADVICE,
    )
    return _digest(walk)


def _digest(walk: _Walk) -> bytes:
    digest = hashlib.sha256()
    for _, outcome in walk.steps[:_MIN_STEPS]:
        if outcome is not None:
            observation, reward, terminated, truncated, _ = outcome
            digest.update(repr((observation, reward, bool(terminated), bool(truncated))).encode())
    return digest.digest()


def _walk(codec: StateCodec, env: gymnasium.Env[Any, Any], info_keys: Sequence[str] | None) -> _Walk:
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    walk = _Walk([], [])
    started = time.monotonic()
    observation, _ = codec.reset(0, None)
    for index in range(_NUM_STEPS):
        if index >= _MIN_STEPS and time.monotonic() - started > _MAX_SECONDS:
            break
        if index % 4 == 0:
            observation = copy.deepcopy(observation)
            walk.marks.append(_Mark(codec.get(observation), observation, len(walk.steps)))
        action = space.sample()
        try:
            outcome = _kept(copy.deepcopy(codec.step(action)), info_keys)
        except Exception:  # the user will hear of it when it happens in a batch; here it ends an episode
            outcome = None
        walk.steps.append((action, outcome))
        if outcome is None or outcome[2] or outcome[3]:
            walk.steps.append((None, None))
            observation, _ = codec.reset(index, None)
        else:
            observation = outcome[0]
    return walk


def _kept(outcome: Outcome, info_keys: Sequence[str] | None) -> Outcome:
    """An outcome with those infos that count."""
    observation, reward, terminated, truncated, info = outcome
    if info_keys is not None:
        info = {key: value for key, value in info.items() if key in info_keys}
    return observation, reward, terminated, truncated, info


def _follow(
    codec: StateCodec,
    walk: _Walk,
    mark: _Mark,
    observation: Any,
    info_keys: Sequence[str] | None,
    when: str,
    advice: str,
) -> None:
    """Take the steps after a mark once more.

    Raises:
        UnsupportedEnvError: One came out differently.
    """
    _compare("observation", 0, mark.observation, observation, when, advice)
    for ahead, (action, expected) in enumerate(walk.steps[mark.step : mark.step + _FOLLOWED], 1):
        if expected is None:  # the walk was reset here
            return
        outcome = _kept(codec.step(action), info_keys)
        names = ("observation", "reward", "terminated", "truncated", "info")
        for name, first, second in zip(names, expected, outcome, strict=True):
            _compare(name, ahead, first, second, when, advice)


def _compare(name: str, ahead: int, first: Any, second: Any, when: str, advice: str) -> None:
    where = difference(first, second)
    if where is not None:
        steps = "at once" if not ahead else "1 step later" if ahead == 1 else f"{ahead} steps later"
        raise UnsupportedEnvError(
            f"{when}, {steps}, {name}{where} was {second!r} instead of {first!r}. {advice}"
        )
