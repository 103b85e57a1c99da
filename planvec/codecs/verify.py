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
from typing import Any

import gymnasium

from planvec.codecs.base import StateCodec
from planvec.codecs.compare import digest
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.repeats import NUM_REPEATED, OUTCOME, Comparison, Repeats, save_and_load
from planvec.codecs.set_orders import SETS_ADVICE, check_set_orders
from planvec.codecs.walks import RandomWalk, Reference, random_walk

# number of points that are followed to the ends of their episodes, and the time for it
_NUM_FOLLOWED, _FOLLOW_SECONDS = 6, 0.5
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


def verify_codec(
    codec: StateCodec,
    env: gymnasium.Env[Any, Any],
    reference: Reference,
    advice: str,
    info_keys: Sequence[str] | None = None,
    graph: ObjectGraph | None = None,
) -> tuple[bytes, ...]:
    """Check on a random walk that restored states behave like the original ones."""
    # Returns a digest of the outcome of each step of the walk.
    walk = random_walk(codec, env, info_keys)
    restored = save_and_load(codec, env, walk.points)
    repeats = Repeats(codec, walk, info_keys)
    codec.reset(1, None)
    has_sets = graph is not None and graph.has_sets
    if has_sets:
        advice = f"{SETS_ADVICE}. Otherwise: {advice}"
    comparison = Comparison(f"{env}: after restoring a saved state", advice, has_sets)
    points = list(zip(walk.points, restored, strict=True))
    for point, value in reversed(points):
        codec.set(value)
        repeats.compare(point, codec.observe(), comparison, NUM_REPEATED)
    if graph is not None and has_sets:
        check_set_orders(codec, env, info_keys, graph)
    started = time.monotonic()
    for point, value in points[:: max(1, len(points) // _NUM_FOLLOWED)]:
        if time.monotonic() - started > _FOLLOW_SECONDS:
            break
        codec.set(value)
        repeats.compare(point, codec.observe(), comparison, len(walk.steps))
    observation, _ = codec.reset(0, None)
    comparison = Comparison(f"{env}: after a second reset with the same seed", _RESET_ADVICE)
    repeats.compare(walk.points[0], observation, comparison, len(reference.outcomes))
    _compare_with_reference(env, walk, reference)
    return tuple(
        digest(None if outcome is None else (outcome[0], outcome[1], bool(outcome[2]), bool(outcome[3])))[:8]
        for _, outcome in walk.steps
    )


def _compare_with_reference(env: Any, walk: RandomWalk, reference: Reference) -> None:
    """Compare the first steps of the walk with those of the environment alone."""
    # Truncations are not compared, since an outer `TimeLimit` is left out of the walk. Neither are infos,
    # which may contain the time of day.
    comparison = Comparison(f"{env}: stepped by planvec instead of by itself", _REFERENCE_ADVICE)
    comparison.check("observation", 0, reference.observation, walk.points[0].observation)
    for number, (expected, (_, outcome)) in enumerate(zip(reference.outcomes, walk.steps, strict=False), 1):
        for name, first, second in zip(OUTCOME[:3], expected, outcome or (), strict=False):
            comparison.check(name, number, first, second)
