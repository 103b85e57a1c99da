"""Runs loops over rows in which an environment may raise, and writes their observations.

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

import gymnasium
import numpy as np

from planvec.stepping import ignores_interrupts
from planvec.vector.arrays import RowArrays, Rows, write_observations
from planvec.vector.operations import Reply
from planvec.vector.row_failure import RowFailure

T = TypeVar("T")


def run_rows(
    run_from: Callable[[int], None],
    fill: Callable[[int], None],
    num_rows: int,
    reply: Reply,
    next_row: Callable[[], int],
) -> None:
    """Run a loop over rows, and continue after each row whose environment raised."""
    start = 0
    while start < num_rows:
        try:
            run_from(start)
            return
        except BaseException as error:
            index = next_row()
            note_error(error, index, reply)
            fill(index)
            start = index + 1


def note_error(error: BaseException, index: int, reply: Reply) -> None:
    """Note what the environment of a row raised."""
    if isinstance(error, KeyboardInterrupt) and not ignores_interrupts():
        raise error
    reply.errors[index] = RowFailure.of(error)


def for_each(function: Callable[[T], Any], items: Sequence[T], reply: Reply) -> list[Any]:
    """Call a function with one item per row, and return its results; None where it raises."""
    results: list[Any] = []

    def call_from(start: int) -> None:
        for item in islice(items, start, None):
            results.append(function(item))

    run_rows(call_from, lambda _: results.append(None), len(items), reply, lambda: len(results))
    return results


def put_observations(
    space: gymnasium.Space[Any], observations: list[Any], arrays: RowArrays, rows: Rows, reply: Reply
) -> None:
    """Write observations, but those of rows that failed. Wrong ones become errors of their rows."""
    out, valid = arrays.observations, list[int]()
    if reply.errors and not isinstance(out, list):
        valid = [index for index in range(len(observations)) if index not in reply.errors]
        rows = np.arange(len(arrays.rewards))[rows][valid]
        observations = [observations[index] for index in valid]
    wrong = write_observations(space, observations, out, rows)
    for index, error in wrong.items():
        reply.errors[valid[index] if valid else index] = RowFailure.of(error)
    if isinstance(out, list):
        reply.observations = observations
