"""Defines the request for rollouts. Letters: B rows, H horizon."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import EnvError
from planvec.rows.description import EnvDescription
from planvec.rows.legal_actions import are_legal, draw_legal, has_action_masks
from planvec.rows.outputs import Answer, Outputs
from planvec.rows.random_actions import ActionStreams
from planvec.rows.requests.base import RowRequest
from planvec.rows.requests.steps import error_infos
from planvec.rows.results import Rollouts
from planvec.rows.saved_state import ACTION_MASK_FIELD
from planvec.rows.space_arrays import copy_tree, list_rows, take_rows

_NUMBERS = spaces.Discrete(1 << 32)


@dataclass(slots=True)
class RolloutBatch(RowRequest[Rollouts]):
    """Asks for rollouts of B rows, each for H steps or to the end of its episode."""

    verb = "rollout"
    is_counted = True

    states: NDArray[Any]  # `[B]`
    horizon: int  # H
    actions: Any  # the actions of all rows one after another, `[B * H, ...]`; None draws random actions
    action_seed: int  # seed of the random actions
    # Index of the first row in the whole batch. The random actions of a row depend on its index there.
    first_row: int = 0
    seeds: NDArray[np.uint64] | None = None  # `[B]` uint64, reseed the rows; or None
    discount: float = 1.0  # factor per step
    mask_errors: bool = False  # whether rows that fail are flagged

    @property
    def steps(self) -> int | NDArray[np.int64]:
        return self.horizon

    def part(self, rows: slice) -> RolloutBatch:
        steps = slice(rows.start * self.horizon, rows.stop * self.horizon)
        return replace(
            self,
            states=self.states[rows],
            actions=None if self.actions is None else take_rows(self.actions, steps),
            first_row=self.first_row + rows.start,
            seeds=None if self.seeds is None else self.seeds[rows],
        )

    def copy(self) -> RolloutBatch:
        return replace(
            self,
            states=self.states.copy(),
            actions=None if self.actions is None else copy_tree(self.actions),
            seeds=None if self.seeds is None else self.seeds.copy(),
        )

    def sequences(
        self, space: Space[Any], as_ints: bool, current_mask: Callable[[], NDArray[Any]] | None = None
    ) -> Callable[[int], Iterable[Any]]:
        """Return a function that gives the actions of a row."""
        if self.actions is not None:
            listed = list_rows(space, self.actions, as_ints)
            return lambda row: listed[row * self.horizon : (row + 1) * self.horizon]
        if current_mask is None:
            return ActionStreams(space, self.action_seed, self.first_row, len(self.states), as_ints).row
        numbers = spaces.Box(0.0, 1.0, space.shape or (), np.float64)
        streams = ActionStreams(numbers, self.action_seed, self.first_row, len(self.states))

        def legal_actions(row: int) -> Iterator[Any]:
            for drawn in streams.row(row):  # each after the step before it
                mask = current_mask()
                action = draw_legal(space, mask[None], np.asarray(drawn)[None])[0]
                if not are_legal(space, mask, action):
                    raise EnvError(
                        f"{ACTION_MASK_FIELD}: expected at least one legal action where the episode goes on, "
                        "got none"
                    )
                yield action

        return legal_actions

    def numbers(self) -> Callable[[int], Iterable[int]]:
        """Return a function that gives the numbers in [0, 2**32) of a row, which stand for legal actions."""
        return ActionStreams(_NUMBERS, self.action_seed, self.first_row, len(self.states), True).row

    def action(self, row: int, step: int, space: Space[Any]) -> Any:
        if self.actions is None and has_action_masks(self.states):
            return None  # it depends on the states on the way
        return next(islice(self.sequences(space, True)(row), step, None), None)

    def new_outputs(self, about: EnvDescription) -> Outputs:
        return Outputs.of_steps(len(self.states), about.state_dtype, None)

    def result(self, about: EnvDescription, answer: Answer) -> Rollouts:
        outputs = answer.outputs
        assert outputs.new_states is not None
        assert outputs.rewards is not None
        assert outputs.num_steps is not None
        assert outputs.terminated is not None
        assert outputs.truncated is not None
        return Rollouts(
            outputs.new_states,
            outputs.rewards,
            outputs.num_steps,
            outputs.terminated,
            outputs.truncated,
            error_infos(self.num_rows, answer.errors) if self.mask_errors else {},
        )
