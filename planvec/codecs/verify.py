"""Trust, but prove: a codec that nobody wrote for this environment is replayed before it is used."""

from __future__ import annotations

import copy
import hashlib
import pickle
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.codecs.base import Outcome, Rows, StateCodec
from planvec.errors import UnsupportedEnvError

__all__ = ["difference", "digest", "origin_of", "prove", "same", "walk_alone"]

_NUM_STEPS = 64
_MIN_STEPS = 12
_FOLLOWED = 6
_NAMES = ("observation", "reward", "terminated", "truncated", "info")
_SHARING_ADVICE = (
    "Attributes of it share an object in a way that a copy cuts (a view of an array, a closure over one). "
    "Register a codec for it (planvec.register_codec), or, where it restarts exactly from a seed, pass "
    'codec="replay"'
)
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
    if isinstance(a, numeric) and isinstance(b, numeric):
        return _same_numbers(np.asarray(a), np.asarray(b))
    if type(a) is not type(b):
        return False
    if a is b or isinstance(a, (str, bytes, set, frozenset)):
        return bool(a == b)
    if hasattr(a, "__dict__") and vars(a):
        return same(vars(a), vars(b))
    return bool(pickle.dumps(a) == pickle.dumps(b))


def _same_numbers(x: Any, y: Any) -> bool:
    if x.dtype.hasobject or y.dtype.hasobject:
        return x.shape == y.shape and (bool(x == y) if x.ndim == 0 else same(x.tolist(), y.tolist()))
    if x.shape != y.shape or x.dtype.kind != y.dtype.kind:
        return False
    if x.dtype.kind not in "fc":
        return bool(np.array_equal(x, y))
    # 0.0 is not -0.0 to the bit, but equal; any NaN is as good as another.
    signs = x.dtype.kind == "c" or np.array_equal(np.signbit(x[x == 0]), np.signbit(y[y == 0]))
    return bool(np.array_equal(x, y, equal_nan=True) and signs)


def digest(value: Any) -> bytes:
    """Bytes that are the same for equal values in every process, of what has a value of its own."""
    if isinstance(value, dict):
        parts = sorted(digest(key) + digest(item) for key, item in value.items())
    elif isinstance(value, (list, tuple)):
        parts = [digest(item) for item in value]
    elif isinstance(value, (set, frozenset)):
        parts = sorted(digest(item) for item in value)
    elif isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        parts = [repr((value.dtype.str, value.shape)).encode(), value.tobytes()]
    elif isinstance(value, (bool, int, float, str, bytes, type(None))):
        parts = [repr(value).encode()]
    else:
        parts = []  # an object may show its address, or the order of its making
    return hashlib.sha256(type(value).__name__.encode() + b"".join(parts)).digest()


def origin_of(env: gymnasium.Env[Any, Any]) -> str:
    """A name for the environments that can take each other's states, as far as their spec tells."""
    name, spec = type(env.unwrapped).__name__, env.spec
    if spec is None:
        return name
    kwargs = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
    return f"{name} {digest((spec.id, kwargs)).hex()[:8]}"


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
    codec: StateCodec,
    env: gymnasium.Env[Any, Any],
    alone: tuple[Any, list[Outcome]],
    advice: str,
    info_keys: Sequence[str] | None = None,
) -> bytes:
    """Walk at random, save on the way, walk elsewhere, restore in another order, walk again.

    Args:
        codec: Of `env`, which this leaves in an arbitrary state.
        env: The environment, for its action space and its name.
        alone: What `walk_alone` gave, before anything was restored.
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
    _compare_alone(env, walk, alone)
    return b"".join(
        digest((outcome[0], outcome[1], bool(outcome[2]), bool(outcome[3])))
        for _, outcome in walk.steps[:_MIN_STEPS]
        if outcome is not None
    )


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
        outcome = _try(codec.step, action, info_keys)
        walk.steps.append((action, outcome))
        if outcome is None or outcome[2] or outcome[3]:
            walk.steps.append((None, None))
            observation, _ = codec.reset(index, None)
        else:
            observation = outcome[0]
    return walk


def walk_alone(env: gymnasium.Env[Any, Any], info_keys: Sequence[str] | None) -> tuple[Any, list[Outcome]]:
    """The first steps of the walk by the environment itself, reset once, with no codec at all.

    Returns:
        The first observation, and the outcomes until the episode ends.
    """
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    observation, _ = env.reset(seed=0)
    first = copy.deepcopy(observation)
    outcomes: list[Outcome] = []
    for _ in range(_MIN_STEPS):
        outcome = _try(env.step, space.sample(), info_keys)
        if outcome is None:
            break
        outcomes.append(outcome)
        if outcome[2] or outcome[3]:
            break
    return first, outcomes


def _try(step: Callable[[Any], Any], action: Any, info_keys: Sequence[str] | None) -> Outcome | None:
    """A step and a copy of its outcome; None where the environment raised.

    The user will hear of that when it happens in a batch; here it ends an episode.
    """
    try:
        outcome = step(action)
    except Exception:
        return None
    try:
        return copy.deepcopy(_kept(outcome, info_keys))
    except Exception as error:
        raise UnsupportedEnvError(
            f"an observation or info cannot be copied ({type(error).__name__}: {error}); leave such infos "
            "out with info_keys="
        ) from error


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
        for name, first, second in zip(_NAMES, expected, outcome, strict=True):
            _compare(name, ahead, first, second, when, advice)


def _compare_alone(env: Any, walk: _Walk, alone: tuple[Any, list[Outcome]]) -> None:
    """Hold the walk against that of the environment itself.

    Raises:
        UnsupportedEnvError: Saving and restoring has changed how it behaves.
    """
    observation, outcomes = alone
    # Neither truncations, which an outer TimeLimit is not asked for here, nor infos, which may tell the time.
    when = f"{env}: stepped by planvec instead of by itself"
    _compare("observation", 0, observation, walk.marks[0].observation, when, _SHARING_ADVICE)
    for ahead, (expected, (_, outcome)) in enumerate(zip(outcomes, walk.steps, strict=False), 1):
        for name, first, second in zip(_NAMES[:3], expected, outcome or (), strict=False):
            _compare(name, ahead, first, second, when, _SHARING_ADVICE)


def _compare(name: str, ahead: int, first: Any, second: Any, when: str, advice: str) -> None:
    where = difference(first, second)
    if where is not None:
        steps = "at once" if not ahead else "1 step later" if ahead == 1 else f"{ahead} steps later"
        raise UnsupportedEnvError(
            f"{when}, {steps}, {name}{where} was {second!r} instead of {first!r}. {advice}"
        )
