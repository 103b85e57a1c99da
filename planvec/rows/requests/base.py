"""Defines the base classes of requests. Letters: B rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.rows.description import EnvDescription
from planvec.rows.outputs import Answer, Outputs

T = TypeVar("T")


class Request(Generic[T]):
    """Describes work for a backend. The type argument is the type of the result for the user."""

    # A request without rows is answered in one piece: its part is the request itself.

    verb: ClassVar[str]  # the kind of work in one word, for messages
    has_rows: ClassVar[bool] = False  # whether it is a `RowRequest`
    # whether its rows count in `Stats`: True for requests that step the environment
    is_counted: ClassVar[bool] = False
    mask_errors: bool = False  # whether rows that fail are flagged; otherwise the first one fails the request

    @property
    def num_rows(self) -> int:
        """B; 0 for a request without rows."""
        return 0

    def part(self, rows: slice) -> Self:
        """Return the request for some of the rows, with views of the arrays."""
        return self

    def copy(self) -> Self:
        """Return the same request in arrays of its own, which the caller cannot change."""
        return self

    def flagged(self) -> Request[Any]:
        """Return the request that flags all rows of this one as failed."""
        return self

    def action(self, row: int, step: int, space: Space[Any]) -> Any:
        """Return the action that a row takes at a step, for error messages; None where there is none."""
        return None

    @property
    def steps(self) -> int | NDArray[np.int64]:
        """Largest number of environment steps that a row takes: one number, or `[B]`. Estimates its cost."""
        return 1

    def new_outputs(self, about: EnvDescription) -> Outputs:
        """Return uninitialised outputs for all rows."""
        return Outputs()

    def result(self, about: EnvDescription, answer: Answer) -> T:
        """Return the result for the user. By default it is the value of an answer without rows."""
        value: T = answer.value
        return value


class RowRequest(Request[T]):
    """Describes work over B rows, each of which starts at a state."""

    has_rows = True

    states: NDArray[Any]  # `[B]`

    @property
    def num_rows(self) -> int:
        return len(self.states)

    def part(self, rows: slice) -> Self:
        return replace(self, states=self.states[rows])  # type: ignore[type-var]

    def copy(self) -> Self:
        return replace(self, states=self.states.copy())  # type: ignore[type-var]

    def flagged(self) -> FlagBatch:
        return FlagBatch(self.states, has_observations=False, return_state=True)


@dataclass(slots=True)
class FlagBatch(RowRequest[None]):
    """Flags rows as failed without stepping them, after their workers crashed or exceeded the timeout."""

    verb = "flag"
    mask_errors = True

    states: NDArray[Any]  # `[B]`
    has_observations: bool  # whether the outputs have observations (zeros), as for steps
    return_state: bool  # whether the outputs have states

    def new_outputs(self, about: EnvDescription) -> Outputs:
        space = about.observation_space if self.has_observations else None
        return Outputs.of_steps(len(self.states), about.state_dtype, space, self.return_state)
