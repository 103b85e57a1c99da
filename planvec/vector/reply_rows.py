"""Runs loops over rows in which an environment may raise, and writes their results.

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.stepping import ignores_interrupts
from planvec.vector.arrays import RowArrays, Rows, write_observations
from planvec.vector.operations import Reply
from planvec.vector.row_failure import RowFailure

__all__ = ["for_each", "put_new", "put_observations", "put_rewards", "run_rows"]

T = TypeVar("T")


def run_rows(
    run_from: Callable[[int], None],
    fill: Callable[[int], None],
    num_rows: int,
    reply: Reply,
    next_row: Callable[[], int],
) -> None:
    """Run a loop over rows, and continue after each row whose environment raised.

    Args:
        run_from: Runs the loop from a row on.
        fill: Fills in results for the row that raised.
        num_rows: B.
        reply: Receives the errors.
        next_row: Returns the row that raised.
    """
    start = 0
    while start < num_rows:
        try:
            run_from(start)
            return
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not ignores_interrupts():
                raise
            index = next_row()
            reply.errors[index] = RowFailure.of(error)
            fill(index)
            start = index + 1


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
    """Write observations, but those of rows that failed. Wrong ones become errors of their rows.

    Args:
        space: The space of one observation.
        observations: B observations.
        arrays: The arrays of all environments.
        rows: The rows of the operation.
        reply: Receives the errors, and observations of variable size.
    """
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


def put_new(
    space: gymnasium.Space[Any],
    observations: list[Any],
    rewards: list[Any],
    terminated: list[bool],
    truncated: list[bool],
    arrays: RowArrays,
    reply: Reply,
    keeps_dtype: bool,
) -> bool:
    """Make arrays of the results of all rows at once, if these are simple. Arguments as for `put_rewards`.

    Returns:
        Whether they were.
    """
    if type(space) is not gymnasium.spaces.Box:
        return False
    try:
        stacked, given = np.array(observations, space.dtype), np.array(rewards)
        numbers = given if given.dtype == np.float64 else given.astype(np.float64)
    except (TypeError, ValueError):
        return False
    if stacked.shape[1:] != space.shape or numbers.ndim != 1:
        return False
    if keeps_dtype and numbers is not given:
        reply.rewards = given
    arrays.observations, arrays.rewards = stacked, numbers
    arrays.terminated, arrays.truncated = np.array(terminated, bool), np.array(truncated, bool)
    return True


def put_rewards(rewards: list[Any], arrays: RowArrays, rows: Rows, reply: Reply, keeps_dtype: bool) -> None:
    """Write rewards.

    Args:
        rewards: B rewards.
        arrays: The arrays of all environments.
        rows: The rows of the operation.
        reply: Receives rewards that are vectors, or that must keep a dtype other than float64.
        keeps_dtype: Whether they must.
    """
    stacked: NDArray[Any] = np.array(rewards)
    if stacked.ndim == 1:
        arrays.rewards[rows] = stacked
    if stacked.ndim != 1 or (keeps_dtype and stacked.dtype != np.float64):
        reply.rewards = stacked
