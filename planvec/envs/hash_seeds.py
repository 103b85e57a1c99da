"""Checks that an environment does not depend on hashes of texts, which differ from process to process.

Workers have the same hash seed, so that they agree with each other. The process of the user has another one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence

from planvec.backends import ExternalProcess
from planvec.errors import PlanvecError, UnsupportedEnvError

OUTCOMES = "the outcome of a step"
# digests along a random walk: of the outcomes of its steps, and of each attribute, by its name
Record = Mapping[str, Sequence[bytes]]

_HASH_SEED = "PYTHONHASHSEED"
# A set of two texts has the same order with every other seed: one such set escapes four seeds once in 8
_SEEDS = ("0", "1", "2", "3")


def check_hash_seeds(name: str, record: Callable[[], Record]) -> None:
    """Take the same random walk in processes with several hash seeds."""
    # Digests that differ between two processes with one seed say nothing: the clock, a map that is drawn
    # anew. An environment that cannot be made beside another one, or elsewhere, is not checked.
    if os.environ.get(_HASH_SEED, "random") != "random":
        return  # hashes are the same in all processes
    try:
        first, *others = _records(record, _SEEDS)
        different = [what for what in first if any(_differ(what, first, other) for other in others)]
        if not different:
            return
        (again,) = _records(record, _SEEDS[:1])
    except PlanvecError:
        return
    if _differ(OUTCOMES, first, again):
        return
    for what in different:
        if not _differ(what, first, again):
            raise UnsupportedEnvError(
                f"{name}: {what} depends on hashes or addresses, which differ from process to process: a set "
                "of texts has another order in each, and so have hash() and id() other values. Use "
                "sorted(...), a dict or a list instead of the set, and zlib.crc32 instead of hash(). Or set "
                f"the environment variable {_HASH_SEED}=0 before Python starts: hashes are then the same "
                "everywhere"
            )


def _differ(what: str, first: Record, other: Record) -> bool:
    """Return whether two walks differ, as far as both went: the faster one is longer."""
    return any(one != two for one, two in zip(first[what], other.get(what, ()), strict=False))


def _records(record: Callable[[], Record], seeds: Sequence[str]) -> list[Record]:
    """Return the records from processes with these hash seeds, which run at the same time."""
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(ExternalProcess(record, environ={_HASH_SEED: seed})) for seed in seeds
        ]
        return [process.call("copy").result() for process in processes]
