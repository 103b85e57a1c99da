"""Defines the request for steps. Letters: B rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.rows.description import EnvDescription
from planvec.rows.infos import vector_infos
from planvec.rows.outputs import Answer, Errors, Outputs
from planvec.rows.requests.base import FlagBatch, RowRequest
from planvec.rows.results import Transitions, own_keys_apart
from planvec.rows.space_arrays import copy_tree, finish_rows, list_rows, take_rows


@dataclass(slots=True)
class StepBatch(RowRequest[Transitions]):
    """Asks for steps of B rows."""

    verb = "step"
    is_counted = True

    states: NDArray[Any]  # `[B]`
    actions: Any  # A tree of arrays `[B, ...]`, or a list of B elements if their size is not fixed
    dt: NDArray[np.int64]  # `[B]` int64, how often each action is repeated
    seeds: NDArray[np.uint64] | None = None  # `[B]` uint64, reseed the rows; or None
    return_state: bool = True  # whether the result contains new states
    mask_errors: bool = False  # whether rows that fail are flagged
    same_dt: int | None = None  # the `dt` of every row if it is known to be the same; otherwise None

    @property
    def steps(self) -> int | NDArray[np.int64]:
        return self.dt if self.same_dt is None else self.same_dt

    def part(self, rows: slice) -> StepBatch:
        return StepBatch(
            self.states[rows],
            take_rows(self.actions, rows),
            self.dt[rows],
            None if self.seeds is None else self.seeds[rows],
            self.return_state,
            self.mask_errors,
            self.same_dt,
        )

    def copy(self) -> StepBatch:
        return replace(
            self,
            states=self.states.copy(),
            actions=copy_tree(self.actions),
            dt=self.dt.copy(),
            seeds=None if self.seeds is None else self.seeds.copy(),
        )

    def action(self, row: int, step: int, space: Space[Any]) -> Any:
        one = take_rows(self.actions, slice(row, row + 1))
        return list_rows(space, one, as_ints=True)[0]

    def flagged(self) -> FlagBatch:
        return FlagBatch(self.states, has_observations=True, return_state=self.return_state)

    def new_outputs(self, about: EnvDescription) -> Outputs:
        space = about.observation_space
        return Outputs.of_steps(len(self.states), about.state_dtype, space, self.return_state)

    def result(self, about: EnvDescription, answer: Answer) -> Transitions:
        outputs = answer.outputs
        assert outputs.rewards is not None
        assert outputs.terminated is not None
        assert outputs.truncated is not None
        infos = vector_infos(own_keys_apart(answer.columns)) if answer.columns else {}
        infos["num_steps"] = outputs.num_steps
        if self.mask_errors:
            infos |= error_infos(self.num_rows, answer.errors)
        return Transitions(
            outputs.new_states,  # type: ignore[arg-type] # None if return_state is False
            finish_rows(about.observation_space, outputs.observations),
            outputs.rewards,
            outputs.terminated,
            outputs.truncated,
            infos,
        )


def error_infos(num_rows: int, errors: Errors) -> dict[str, Any]:
    """Return the infos `error` and `_error`, each `[num_rows]`, from the errors of the rows that failed."""
    error, failed = np.full(num_rows, None, object), np.zeros(num_rows, bool)
    for row, row_error in errors.items():
        error[row], failed[row] = row_error, True
    return {"error": error, "_error": failed}
