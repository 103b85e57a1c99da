"""Verification of a codec by replay, before it is used.

    the environment alone      reset, step, step, ...                                "reference"
    the same with the codec    reset, step, save, step, step, save, ...              a random walk
    the codec alone            restore the saved points in reverse order, take the same steps from each

The steps from a restored point must have the same outcomes as on the walk, and the walk must begin as the
reference does. Codecs that planvec ships for exactly the classes at hand are used without this check.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.codecs.base import Outcome, Rows, StateCodec, Step
from planvec.codecs.compare import difference, digest
from planvec.errors import UnsupportedEnvError

__all__ = ["Reference", "reference_walk", "verify_codec"]

_NUM_STEPS = 64
_MIN_STEPS = 12
_NUM_REPEATED = 6
"""Steps that are taken again from each saved point."""
_STEPS_PER_POINT = 4
_MAX_SECONDS = 1.0
"""A walk in a slow environment (up to 0.2 s a step) ends after this time, but not before `_MIN_STEPS`."""
_NAMES = ("observation", "reward", "terminated", "truncated", "info")
_SHARING_ADVICE = (
    "Two attributes share an object in a way that a copy separates (a view of an array, a closure). Register "
    "a codec for the environment (planvec.register_codec), or, if it restarts exactly from a seed, pass "
    'codec="replay"'
)
_RESET_ADVICE = (
    "The seed does not determine a reset: begin reset with super().reset(seed=seed), and draw only from "
    "self.np_random. If an info cannot be reproduced, leave it out with info_keys="
)


class Reference(NamedTuple):
    """Holds the first steps of an environment that no codec has touched.

    Attributes:
        observation: The first observation.
        outcomes: The outcomes of the following steps, until the episode ends.
    """

    observation: Any
    outcomes: list[Outcome]


class _SavedPoint(NamedTuple):
    """Holds a state that was saved on a random walk.

    Attributes:
        value: What the codec saved.
        observation: The observation of the state.
        next_step: Index of the step that was taken next.
    """

    value: Any
    observation: Any
    next_step: int


class _RandomWalk(NamedTuple):
    """Holds random steps and the states that were saved between them.

    Attributes:
        steps: Actions and their outcomes. An outcome is None if the environment raised an error or was reset
            instead.
        points: The saved states.
    """

    steps: list[tuple[Any, Outcome | None]]
    points: list[_SavedPoint]


class _Comparison(NamedTuple):
    """Names a comparison in error messages.

    Attributes:
        situation: What was compared.
        advice: How to fix a difference; it ends the message.
    """

    situation: str
    advice: str

    def check(self, name: str, num_steps: int, expected: Any, actual: Any) -> None:
        """Compare two values of one field.

        Args:
            name: The field of the outcome.
            num_steps: Steps since the situation began.
            expected: The value on the walk.
            actual: The value now.

        Raises:
            UnsupportedEnvError: They differ.
        """
        path = difference(expected, actual)
        if path is not None:
            when = "immediately" if not num_steps else f"{num_steps} step{'s' * (num_steps > 1)} later"
            raise UnsupportedEnvError(
                f"{self.situation}, {when}: expected {name}{path} {expected!r}, got {actual!r}. {self.advice}"
            )


def verify_codec(
    codec: StateCodec,
    env: gymnasium.Env[Any, Any],
    reference: Reference,
    advice: str,
    info_keys: Sequence[str] | None = None,
) -> bytes:
    """Check on a random walk that restored states behave like the original ones.

    Args:
        codec: The codec of `env`. The environment is left in an arbitrary state.
        env: The environment, for its action space and its name.
        reference: What `reference_walk` returned before the codec restored anything.
        advice: How to fix a state that is restored wrongly, for the error message.
        info_keys: The info keys that must be the same; None: all.

    Returns:
        A digest of the first steps of the walk, and so of the behaviour of the environment.

    Raises:
        UnsupportedEnvError: The steps after a restored state, or after a second reset with the same seed,
            had other outcomes than the first time.
    """
    walk = _random_walk(codec, env, info_keys)
    restored = _save_and_load(codec, env, walk.points)
    codec.reset(1, None)
    comparison = _Comparison(f"{env}: after restoring a saved state", advice)
    for point, value in list(zip(walk.points, restored, strict=True))[::-1]:
        codec.set(value)
        _repeat_steps(codec, walk, point, codec.observe(), info_keys, comparison)
    observation, _ = codec.reset(0, None)
    comparison = _Comparison(f"{env}: after a second reset with the same seed", _RESET_ADVICE)
    _repeat_steps(codec, walk, walk.points[0], observation, info_keys, comparison)
    _compare_with_reference(env, walk, reference)
    return b"".join(
        digest((outcome[0], outcome[1], bool(outcome[2]), bool(outcome[3])))
        for _, outcome in walk.steps[:_MIN_STEPS]
        if outcome is not None
    )


def reference_walk(env: gymnasium.Env[Any, Any], info_keys: Sequence[str] | None) -> Reference:
    """Take the first steps of the random walk without any codec, after one reset."""
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    observation, _ = env.reset(seed=0)
    first = copy.deepcopy(observation)
    outcomes: list[Outcome] = []
    for _ in range(_MIN_STEPS):
        outcome = _try_step(env.step, space.sample(), info_keys)
        if outcome is None:
            break
        outcomes.append(outcome)
        if outcome[2] or outcome[3]:
            break
    return Reference(first, outcomes)


def _random_walk(
    codec: StateCodec, env: gymnasium.Env[Any, Any], info_keys: Sequence[str] | None
) -> _RandomWalk:
    """Step at random, save every few steps, and reset whenever an episode ends."""
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    walk = _RandomWalk([], [])
    started = time.monotonic()
    observation, _ = codec.reset(0, None)
    for index in range(_NUM_STEPS):
        if index >= _MIN_STEPS and time.monotonic() - started > _MAX_SECONDS:
            break
        if index % _STEPS_PER_POINT == 0:
            observation = copy.deepcopy(observation)
            walk.points.append(_SavedPoint(codec.get(observation), observation, len(walk.steps)))
        action = space.sample()
        outcome = _try_step(codec.step, action, info_keys)
        walk.steps.append((action, outcome))
        if outcome is None or outcome[2] or outcome[3]:
            walk.steps.append((None, None))
            observation, _ = codec.reset(index, None)
        else:
            observation = outcome[0]
    return walk


def _try_step(step: Step, action: Any, info_keys: Sequence[str] | None) -> Outcome | None:
    """Step and return a copy of the outcome, or None if the environment raised an error.

    An error ends the episode of the walk. Users see it when they take that step in a batch.
    """
    try:
        outcome = step(action)
    except Exception:
        return None
    try:
        return copy.deepcopy(_select_infos(outcome, info_keys))
    except Exception as error:
        raise UnsupportedEnvError(
            f"an observation or info cannot be copied ({type(error).__name__}: {error}). If it is an info, "
            "leave it out with info_keys="
        ) from error


def _select_infos(outcome: Outcome, info_keys: Sequence[str] | None) -> Outcome:
    observation, reward, terminated, truncated, info = outcome
    if info_keys is not None:
        info = {key: value for key, value in info.items() if key in info_keys}
    return observation, reward, terminated, truncated, info


def _save_and_load(
    codec: StateCodec, env: gymnasium.Env[Any, Any], points: Sequence[_SavedPoint]
) -> list[Any]:
    """Convert the values of saved points to states and back."""
    states = np.zeros(len(points), codec.format.dtype)
    flags = [False] * len(points)
    try:
        codec.dump(Rows([point.value for point in points], [0] * len(points), flags, flags), states)
    except (ValueError, TypeError, KeyError) as error:
        raise UnsupportedEnvError(
            f"{env}: expected saved values that fit the codec's dtype {codec.format.dtype}, got another: "
            f"{error}. Change the dtype, or what get() returns"
        ) from error
    return codec.load(states).values


def _repeat_steps(
    codec: StateCodec,
    walk: _RandomWalk,
    point: _SavedPoint,
    observation: Any,
    info_keys: Sequence[str] | None,
    comparison: _Comparison,
) -> None:
    """Take the steps after a saved point again and compare them with the walk.

    Args:
        codec: The codec; its environment is at the point.
        walk: The walk.
        point: One of its points.
        observation: The observation of the environment now.
        info_keys: The info keys that must be the same; None: all.
        comparison: Names the situation in errors.

    Raises:
        UnsupportedEnvError: An outcome differs.
    """
    comparison.check("observation", 0, point.observation, observation)
    steps = walk.steps[point.next_step : point.next_step + _NUM_REPEATED]
    for number, (action, expected) in enumerate(steps, 1):
        if expected is None:  # the walk was reset here
            return
        outcome = _select_infos(codec.step(action), info_keys)
        for name, first, second in zip(_NAMES, expected, outcome, strict=True):
            comparison.check(name, number, first, second)


def _compare_with_reference(env: Any, walk: _RandomWalk, reference: Reference) -> None:
    """Compare the first steps of the walk with those of the environment alone.

    Truncations are not compared, since an outer `TimeLimit` is left out of the walk. Neither are infos, which
    may contain the time of day.

    Raises:
        UnsupportedEnvError: Saving and restoring has changed the behaviour of the environment.
    """
    comparison = _Comparison(f"{env}: stepped by planvec instead of by itself", _SHARING_ADVICE)
    comparison.check("observation", 0, reference.observation, walk.points[0].observation)
    for number, (expected, (_, outcome)) in enumerate(zip(reference.outcomes, walk.steps, strict=False), 1):
        for name, first, second in zip(_NAMES[:3], expected, outcome or (), strict=False):
            comparison.check(name, number, first, second)
