"""What the stepping loop finds, until it is written into the rows of the batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from planvec.codecs.base import Rows, StateCodec
from planvec.errors import EnvError
from planvec.rows import space_arrays
from planvec.rows.outputs import Outputs
from planvec.rows.space_arrays import own_copy

__all__ = ["Found"]


class Found:
    """What stepping a batch has found so far, column by column.

    Columns of Python objects are turned into arrays once per batch: reading and writing array
    elements one by one would cost as much as a step of a small environment.

    Args:
        before: The states that the rows start from.
        want_values: Whether the states that they reach are wanted.
    """

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

    def stay(self, row: int, observation: Any) -> None:
        """An ended row stays where it is."""
        self.values.append(self.before.values[row])
        self.observations.append(own_copy(observation))
        self.rewards.append(0.0)
        self.terminated.append(self.before.terminated[row])
        self.truncated.append(self.before.truncated[row])
        self.num_steps.append(0)
        self.infos.append(None)

    def skip(self, row: int, blank: Any) -> None:
        """Hold the place of a row that raised, perhaps in the midst of its columns."""
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
        self.stay(row, blank)

    def unfit(self, space: gymnasium.Space[Any]) -> Iterator[tuple[int, EnvError]]:
        """The rows that cannot be written, and why."""
        scratch = space_arrays.empty_rows(space, 1)
        for row, (observation, reward) in enumerate(zip(self.observations, self.rewards, strict=True)):
            try:
                space_arrays.stack_rows(space, [observation], scratch)
                _check_rewards([reward])
            except EnvError as error:
                yield row, EnvError(error.detail, row=row)

    def after(self) -> Rows:
        """The states that were reached."""
        elapsed = [before + steps for before, steps in zip(self.before.elapsed, self.num_steps, strict=True)]
        return Rows(self.values, elapsed, self.terminated, self.truncated)

    def write(self, codec: StateCodec, space: gymnasium.Space[Any], out: Outputs) -> None:
        """Fill `out`."""
        if out.observations is not None:
            space_arrays.stack_rows(space, self.observations, out.observations)
        if out.new_states is not None:
            codec.dump(self.after(), out.new_states)
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
