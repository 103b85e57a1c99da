"""Collects the results of the row loop as columns, and writes them into the outputs of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from operator import add
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs import Rows, StateCodec
from planvec.errors import EnvError
from planvec.rows import Outputs, empty_rows, own_copy, stack_rows


class RowResults:
    """Collects the results of a batch while its rows are stepped one after another."""

    # The columns are Python lists, which become arrays once per batch. Reading and writing single elements of
    # arrays would cost as much as a step of a small environment.

    def __init__(self, before: Rows, want_values: bool) -> None:
        self.before = before
        self.want_values = want_values
        self.values: list[Any] = []
        self.observations: list[Any] = []
        self.rewards: list[Any] = []
        self.terminated: list[bool] = []
        self.truncated: list[bool] = []
        self.num_steps: list[int] = []
        self.infos: list[dict[str, Any] | None] = []

    def add_unchanged(self, row: int, observation: Any) -> None:
        """Add a row whose episode has ended: its state does not change, and its reward is 0."""
        self.values.append(self.before.values[row])
        self.observations.append(own_copy(observation))
        self.rewards.append(0.0)
        self.terminated.append(self.before.terminated[row])
        self.truncated.append(self.before.truncated[row])
        self.num_steps.append(0)
        self.infos.append(None)

    def replace_failed(self, row: int, blank: Any) -> None:
        """Remove the incomplete results of a row that raised, and add it as an unchanged row."""
        columns: tuple[list[Any], ...] = (
            self.values,
            self.observations,
            self.rewards,
            self.terminated,
            self.truncated,
            self.num_steps,
            self.infos,
        )
        for column in columns:
            del column[row:]
        self.add_unchanged(row, blank)

    def invalid_rows(self, space: gymnasium.Space[Any]) -> Iterator[tuple[int, EnvError]]:
        """Yield each row whose observation or reward is invalid, with the error that says why."""
        scratch = empty_rows(space, 1)
        for row, (observation, reward) in enumerate(zip(self.observations, self.rewards, strict=True)):
            try:
                stack_rows(space, [observation], scratch)
                _check_rewards([reward])
            except EnvError as error:
                yield row, EnvError(error.detail, row=row)

    def after(self) -> Rows:
        """Return the states that the rows have reached."""
        elapsed = list(map(add, self.before.elapsed, self.num_steps))
        return Rows(self.values, elapsed, self.terminated, self.truncated)

    def write(self, codec: StateCodec, space: gymnasium.Space[Any], out: Outputs) -> None:
        """Write the columns into the outputs of the batch."""
        assert out.rewards is not None
        assert out.terminated is not None
        assert out.truncated is not None
        assert out.num_steps is not None
        if out.observations is not None:
            stack_rows(space, self.observations, out.observations)
        if out.new_states is not None:
            codec.dump(self.after(), out.new_states)
        if len(self.rewards) == 1:
            if isinstance(self.rewards[0], float):  # assigning elements is faster than converting lists
                out.rewards[0], out.num_steps[0] = self.rewards[0], self.num_steps[0]
                out.terminated[0], out.truncated[0] = self.terminated[0], self.truncated[0]
                return
            if np.ndim(self.rewards[0]):  # NumPy would broadcast it, but not in a batch of several rows
                _check_rewards(self.rewards)
        try:
            out.rewards[:] = self.rewards
        except (TypeError, ValueError):
            _check_rewards(self.rewards)
            raise
        out.terminated[:], out.truncated[:] = self.terminated, self.truncated
        out.num_steps[:] = self.num_steps


def _check_rewards(rewards: list[Any]) -> None:
    for row, reward in enumerate(rewards):
        if np.ndim(reward) or not np.can_cast(np.asarray(reward).dtype, np.float64):
            raise EnvError(f"reward: expected a number, got {reward!r}", row=row)
