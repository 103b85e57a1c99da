"""Verification of a codec by replay, before it is used.

    the environment alone      reset, step, step, ...                                "reference"
    the same with the codec    reset, step, save, step, step, save, ...              a random walk
    the codec alone            restore the saved points, take the same steps from each

The steps from a restored point must have the same outcomes as on the walk, and the environment must hold the
same objects and values as on the walk. The walk must begin as the reference does. Codecs that planvec ships
for exactly the classes at hand are used without this check.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.codecs.base import Rows, StateCodec
from planvec.codecs.compare import describe_difference, digest
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.shuffled_sets import NATURAL_ORDER
from planvec.codecs.walks import RandomWalk, Reference, SavedPoint, random_walk, select_infos
from planvec.errors import UnsupportedEnvError

__all__ = ["InexactStateError", "verify_codec"]

_NUM_REPEATED = 6
"""Steps that are taken again from each saved point."""
_NUM_FOLLOWED, _FOLLOW_SECONDS = 6, 0.5
"""Number of points that are followed to the ends of their episodes, and the time for it."""
_SETS_STEPS, _SETS_SECONDS = 1024, 0.5
"""Steps of a walk for environments that hold sets, and the time for it. Repeating it takes twice as long."""
_NAMES = ("observation", "reward", "terminated", "truncated", "info")
_SETS_ADVICE = (
    "The order of a set depends on how it was filled, and is not part of a state. If it has an influence, "
    'iterate over sorted(...), use a dict or a list instead of the set, or pass codec="replay"'
)
_REFERENCE_ADVICE = (
    "Either the seed does not determine a reset: begin reset with super().reset(seed=seed), and draw only "
    "from self.np_random. Or two attributes share an object in a way that a copy separates (a view of an "
    "array, a closure): register a codec for the environment (planvec.register_codec), or, if it restarts "
    'exactly from a seed, pass codec="replay"'
)
_RESET_ADVICE = (
    "The seed does not determine a reset: begin reset with super().reset(seed=seed), and draw only from "
    "self.np_random. If an info cannot be reproduced, leave it out with info_keys="
)


class InexactStateError(UnsupportedEnvError):
    """The verification has shown that a codec does not restore states exactly."""


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
        text = describe_difference(name, expected, actual)
        if text is not None:
            raise InexactStateError(f"{self.situation}, {_when(num_steps)}: {text}. {self.advice}")

    def check_digests(self, num_steps: int, expected: dict[str, bytes], actual: dict[str, bytes]) -> None:
        """Compare what the environment holds with what it held on the walk.

        Args:
            num_steps: Steps since the situation began.
            expected: The digests on the walk.
            actual: The digests now.

        Raises:
            UnsupportedEnvError: They differ. The message names the attribute.
        """
        for name in {**expected, **actual}:
            if expected.get(name) != actual.get(name):
                _, is_attribute, attribute = name.rpartition(".")
                leave_out = (
                    "If it has no influence on results (a clock, a cache), leave it out: "
                    f'codec=planvec.Copied(["{attribute}"]). Otherwise: '
                )
                raise InexactStateError(
                    f"{self.situation}, {_when(num_steps)}: {name} is not what it was on the walk. "
                    f"{leave_out if is_attribute else ''}{self.advice}"
                )


def _when(num_steps: int) -> str:
    return "immediately" if not num_steps else f"{num_steps} step{'s' * (num_steps > 1)} later"


def verify_codec(
    codec: StateCodec,
    env: gymnasium.Env[Any, Any],
    reference: Reference,
    advice: str,
    info_keys: Sequence[str] | None = None,
    graph: ObjectGraph | None = None,
) -> tuple[bytes, ...]:
    """Check on a random walk that restored states behave like the original ones.

    Args:
        codec: The codec of `env`. The environment is left in an arbitrary state.
        env: The environment, for its action space and its name.
        reference: What `reference_walk` returned before the codec restored anything.
        advice: How to fix a state that is restored wrongly, for the error message.
        info_keys: The info keys that must be the same; None: all.
        graph: Saves the layers that are copied; None if none is. States are also restored with sets in
            other orders, which must have no influence.

    Returns:
        A digest of the outcome of each step of the walk.

    Raises:
        UnsupportedEnvError: The steps after a restored state, or after a second reset with the same seed,
            had other outcomes than the first time.
    """
    walk = random_walk(codec, env, info_keys)
    restored = _save_and_load(codec, env, walk.points)
    repeats = _Repeats(codec, walk, info_keys)
    codec.reset(1, None)
    if graph is not None and graph.has_sets:
        advice = f"{_SETS_ADVICE}. Otherwise: {advice}"
    comparison = _Comparison(f"{env}: after restoring a saved state", advice)
    points = list(zip(walk.points, restored, strict=True))
    for point, value in reversed(points):
        codec.set(value)
        repeats.compare(point, codec.observe(), comparison, _NUM_REPEATED)
    if graph is not None and graph.has_sets:
        _shuffle_sets(codec, env, info_keys, graph)
    started = time.monotonic()
    for point, value in points[:: max(1, len(points) // _NUM_FOLLOWED)]:
        if time.monotonic() - started > _FOLLOW_SECONDS:
            break
        codec.set(value)
        repeats.compare(point, codec.observe(), comparison, len(walk.steps))
    observation, _ = codec.reset(0, None)
    comparison = _Comparison(f"{env}: after a second reset with the same seed", _RESET_ADVICE)
    repeats.compare(walk.points[0], observation, comparison, len(reference.outcomes))
    _compare_with_reference(env, walk, reference)
    return tuple(
        digest(None if outcome is None else (outcome[0], outcome[1], bool(outcome[2]), bool(outcome[3])))[:8]
        for _, outcome in walk.steps
    )


def _shuffle_sets(
    codec: StateCodec,
    env: gymnasium.Env[Any, Any],
    info_keys: Sequence[str] | None,
    graph: ObjectGraph,
) -> None:
    """Repeat a longer walk with sets in other orders, which must have no influence.

    A set is the only thing that a copy does not restore exactly. A difference may be rare, and late.

    Raises:
        UnsupportedEnvError: The orders have an influence.
    """
    walk = random_walk(codec, env, info_keys, _SETS_STEPS, _SETS_SECONDS)
    points = list(zip(walk.points, _save_and_load(codec, env, walk.points), strict=True))
    repeats = _Repeats(codec, walk, info_keys)
    situation = f"{env}: after restoring a saved state with the elements of its sets in another order"
    comparison = _Comparison(situation, _SETS_ADVICE)

    def repeat(order: int, point: SavedPoint, value: Any, num_steps: int) -> None:
        graph.order_of_sets = order
        try:
            codec.set(value)
            repeats.compare(point, codec.observe(), comparison, num_steps)
        finally:
            graph.order_of_sets = None

    repeated = [(*point, _NUM_REPEATED) for point in [*points, *points]]
    followed = [(*point, len(walk.steps)) for point in points[:1] * _NUM_FOLLOWED + points]
    started = time.monotonic()
    for number, case in enumerate(repeated + followed):
        if number >= len(points) and time.monotonic() - started > 2 * _SETS_SECONDS:
            return
        try:
            repeat(number, *case)
        except Exception as error:
            try:
                repeat(NATURAL_ORDER, *case)
            except Exception:
                return  # not because of the order: it distinguishes `ShuffledSet` from plain sets
            if isinstance(error, UnsupportedEnvError):
                raise
            text = f"{situation}: it raised {type(error).__name__}: {error}. {_SETS_ADVICE}"
            raise InexactStateError(text) from error


def _save_and_load(
    codec: StateCodec, env: gymnasium.Env[Any, Any], points: Sequence[SavedPoint]
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


class _Repeats:
    """Takes steps of a walk again, and compares them.

    Args:
        codec: The codec.
        walk: The walk.
        info_keys: The info keys that must be the same; None: all.
    """

    def __init__(self, codec: StateCodec, walk: RandomWalk, info_keys: Sequence[str] | None) -> None:
        self._codec = codec
        self._walk = walk
        self._info_keys = info_keys
        self._digests = {point.next_step: point.digests for point in walk.points}

    def compare(self, point: SavedPoint, observation: Any, comparison: _Comparison, num_steps: int) -> None:
        """Take the steps after a saved point again, until the episode ends.

        Args:
            point: The point, at which the environment is now.
            observation: The observation of the environment now.
            comparison: Names the situation in errors.
            num_steps: Largest number of steps.

        Raises:
            UnsupportedEnvError: An outcome differs, or what the environment holds.
        """
        comparison.check("observation", 0, point.observation, observation)
        comparison.check_digests(0, point.digests, self._codec.digests())
        first = point.next_step
        for number, (action, expected) in enumerate(self._walk.steps[first : first + num_steps], 1):
            if expected is None:  # the walk was reset here
                return
            outcome = select_infos(self._codec.step(action), self._info_keys)
            for name, on_walk, now in zip(_NAMES, expected, outcome, strict=True):
                comparison.check(name, number, on_walk, now)
            digests = self._digests.get(first + number)
            if digests is not None and not (expected[2] or expected[3]):
                comparison.check_digests(number, digests, self._codec.digests())


def _compare_with_reference(env: Any, walk: RandomWalk, reference: Reference) -> None:
    """Compare the first steps of the walk with those of the environment alone.

    Truncations are not compared, since an outer `TimeLimit` is left out of the walk. Neither are infos, which
    may contain the time of day.

    Raises:
        UnsupportedEnvError: Saving and restoring has changed the behaviour of the environment.
    """
    comparison = _Comparison(f"{env}: stepped by planvec instead of by itself", _REFERENCE_ADVICE)
    comparison.check("observation", 0, reference.observation, walk.points[0].observation)
    for number, (expected, (_, outcome)) in enumerate(zip(reference.outcomes, walk.steps, strict=False), 1):
        for name, first, second in zip(_NAMES[:3], expected, outcome or (), strict=False):
            comparison.check(name, number, first, second)
