"""Verifies that the order of the elements of sets has no influence on an environment."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Sequence
from typing import Any

import gymnasium

from planvec.codecs.base import StateCodec
from planvec.codecs.compare import same
from planvec.codecs.generic.graph import ObjectGraph
from planvec.codecs.repeats import NUM_REPEATED, Comparison, InexactStateError, Repeats, save_and_load
from planvec.codecs.walks import random_walk, select_infos
from planvec.errors import UnsupportedEnvError

# Steps of a walk for environments that hold sets, and the time for it. Repeating it takes at least twice as
# long.
_SETS_STEPS, _SETS_SECONDS = 1024, 0.5
_NUM_ORDERS = 8  # orders that are compared with each other where shuffled sets make a difference
SETS_ADVICE = (
    "The order of a set depends on how it was filled, and is not part of a state. If it has an influence, "
    'iterate over sorted(...), use a dict or a list instead of the set, or pass codec="replay"'
)


def check_set_orders(
    codec: StateCodec,
    env: gymnasium.Env[Any, Any],
    info_keys: Sequence[str] | None,
    graph: ObjectGraph,
) -> None:
    """Repeat a longer walk with sets in other orders, which must have no influence."""
    # All else that is copied is restored exactly, so that a shorter walk shows what is not. The order of a
    # set is not, and a difference may be rare and late.
    walk = random_walk(codec, env, info_keys, _SETS_STEPS, _SETS_SECONDS)
    points = list(zip(walk.points, save_and_load(codec, env, walk.points), strict=True))
    repeats = Repeats(codec, walk, info_keys)
    situation = f"{env}: after restoring a saved state with the elements of its sets in another order"
    comparison = Comparison(situation, SETS_ADVICE, has_sets=True)
    repeated = [(*point, NUM_REPEATED) for point in points]
    first = [(*point, len(walk.steps)) for point in points[:1] * 2] + repeated
    started = time.monotonic()
    for number, (point, value, num_steps) in enumerate(itertools.chain(first, itertools.cycle(repeated))):
        if number >= len(first) and time.monotonic() - started > 2 * _SETS_SECONDS:
            return
        try:
            with graph.shuffled_sets(number):
                codec.set(value)
                repeats.compare(point, codec.observe(), comparison, num_steps)
        except Exception as error:
            orders = range(number, number + _NUM_ORDERS)
            if not _differ(codec, info_keys, graph, orders, value, repeats.actions(point, num_steps)):
                return  # it distinguishes shuffled sets from plain ones, whatever their order
            if isinstance(error, UnsupportedEnvError):
                raise
            text = f"{situation}: it raised {type(error).__name__}: {error}. {SETS_ADVICE}"
            raise InexactStateError(text) from error


def _differ(
    codec: StateCodec,
    info_keys: Sequence[str] | None,
    graph: ObjectGraph,
    orders: Sequence[int],
    value: Any,
    actions: Sequence[Any],
) -> bool:
    """Return whether the outcomes of steps from a saved state differ between some orders of sets."""
    results = []
    for order in orders:
        outcomes: list[Any] = []
        with graph.shuffled_sets(order):
            try:
                codec.set(value)
                outcomes += [codec.digests(), copy.deepcopy(codec.observe())]
                for action in actions:
                    outcomes += [copy.deepcopy(select_infos(codec.step(action), info_keys))]
                outcomes += [codec.digests()]
            except Exception as error:
                outcomes += [repr(error)]
        results.append(outcomes)
    return not all(same(results[0], outcomes) for outcomes in results)
