"""Steps rows one after another, and writes the results.

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.errors import EnvError
from planvec.stepping import ROW
from planvec.vector.arrays import RowArrays, Rows
from planvec.vector.env_row import Ending, EnvRow
from planvec.vector.operations import Reply
from planvec.vector.reply_rows import note_error, put_observations
from planvec.vector.row_failure import RowFailure

_FLOAT64 = np.dtype(np.float64)


class Outcomes:
    """Holds what the steps of rows returned, as lists `[B]`."""

    __slots__ = ("infos", "observations", "rewards", "terminated", "truncated")

    def __init__(self) -> None:
        self.observations: list[Any] = []  # the observations; None where an environment raised
        self.rewards: list[Any] = []
        self.terminated: list[bool] = []  # whether the episode was terminated
        self.truncated: list[bool] = []  # whether the episode was truncated
        self.infos: list[dict[str, Any]] = []

    def fill(self, index: int) -> None:
        """Note that the environment of the next row raised."""
        for column in (self.observations, self.rewards, self.terminated, self.truncated, self.infos):
            del column[index:]
        self.observations.append(None)
        self.rewards.append(0.0)
        self.terminated.append(False)
        self.truncated.append(False)
        self.infos.append({})


def step_rows(rows: Sequence[EnvRow], actions: Sequence[Any], progress: Any, reply: Reply) -> Outcomes:
    """Step rows, and go on after each one whose environment raises, as `run_rows` does."""
    # The loop is not that of `run_rows`, whose functions would take 4 % of a step of two CartPoles.
    outcomes = Outcomes()
    observations, rewards, infos = outcomes.observations, outcomes.rewards, outcomes.infos
    all_terminated, all_truncated = outcomes.terminated, outcomes.truncated
    start = 0
    while True:
        try:
            for index, row in enumerate(islice(rows, start, None), start):
                progress[ROW] = index
                outcome = row.step_lost() if row.is_lost else row.step(actions[index])
                observation, reward, terminated, truncated, info = outcome
                infos.append(info)
                observations.append(observation)
                rewards.append(reward)
                all_terminated.append(terminated)
                all_truncated.append(truncated)
            return outcomes
        except BaseException as error:
            index = progress[ROW]
            note_error(error, index, reply)
            outcomes.fill(index)
            start = index + 1


def put_outcomes(
    space: gymnasium.Space[Any],
    outcomes: Outcomes,
    arrays: RowArrays,
    rows: Rows,
    reply: Reply,
    keeps_dtype: bool,
) -> None:
    """Write the outcomes of rows, but their infos."""
    # `reply`: Receives the errors, observations of variable size, and rewards that are vectors or must keep a
    # dtype other than float64.
    if arrays.observations is None:
        if not reply.errors and _put_new(space, outcomes, arrays, reply, keeps_dtype):
            return
        arrays.make(space, len(outcomes.rewards))
    put_observations(space, outcomes.observations, arrays, rows, reply)
    rewards = _rewards(outcomes, reply)
    if rewards.ndim == 1:
        arrays.rewards[rows] = rewards
    if rewards.ndim != 1 or (keeps_dtype and rewards.dtype != np.float64):
        reply.rewards = rewards
    arrays.terminated[rows] = _flags(outcomes.terminated)
    arrays.truncated[rows] = _flags(outcomes.truncated)


def _rewards(outcomes: Outcomes, reply: Reply) -> NDArray[Any]:
    """Return rewards as an array. Those of another shape than the first one become errors of their rows."""
    try:
        return np.array(outcomes.rewards)
    except ValueError:
        valid = [np.shape(reward) for row, reward in enumerate(outcomes.rewards) if row not in reply.errors]
        shape = next((shape for shape in valid if shape), ())
        for row, reward in enumerate(outcomes.rewards):
            if np.shape(reward) != shape:
                outcomes.rewards[row] = np.zeros(shape)
                if row not in reply.errors:
                    text = f"reward: expected shape {shape} as in other environments, got {reward!r}"
                    reply.errors[row] = RowFailure.of(EnvError(text))
        return np.array(outcomes.rewards)


def _put_new(
    space: gymnasium.Space[Any], outcomes: Outcomes, arrays: RowArrays, reply: Reply, keeps_dtype: bool
) -> bool:
    """Make arrays of the outcomes of all rows at once, if these are simple, and return whether they were."""
    if type(space) is not gymnasium.spaces.Box:
        return False
    try:
        observations, given = np.array(outcomes.observations, space.dtype), np.array(outcomes.rewards)
        rewards = given if given.dtype is _FLOAT64 else given.astype(np.float64)
        terminated, truncated = _flags(outcomes.terminated), _flags(outcomes.truncated)
    except (TypeError, ValueError):
        return False
    if observations.shape[1:] != space.shape or rewards.ndim != 1:
        return False
    if keeps_dtype and rewards is not given:
        reply.rewards = given
    arrays.observations, arrays.rewards = observations, rewards
    arrays.terminated, arrays.truncated = terminated, truncated
    return True


def _flags(flags: list[bool]) -> NDArray[np.bool_]:
    """Return flags as an array. Most often, all are False. An array of one element is a flag."""
    return np.array([bool(flag) for flag in flags], bool) if any(flags) else np.zeros(len(flags), bool)


def take_endings(rows: Sequence[EnvRow]) -> dict[int, Ending]:
    """Return the ends of episodes that were followed by a reset within the step, and forget them."""
    endings = {index: row.ending for index, row in enumerate(rows) if row.ending is not None}
    for index in endings:
        rows[index].ending = None
    return endings
