"""What every request is: something that a backend is asked to do. Letters: B rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.rows.description import EnvDescription
from planvec.rows.outputs import Answer, Outputs

__all__ = ["FlagBatch", "Request", "RowRequest"]

T = TypeVar("T")


class Request(ABC, Generic[T]):
    """Something that a backend is asked to do; the type argument is what it returns to the user.

    A request without rows is answered in one piece: its part is the request itself.

    Attributes:
        verb: One word for messages.
        has_rows: Whether it is a `RowRequest`.
        is_counted: Whether its rows count in `Stats`: they are stepped.
        mask_errors: Whether a row that fails is flagged, rather than the end of the request.
    """

    verb: ClassVar[str]
    has_rows: ClassVar[bool] = False
    is_counted: ClassVar[bool] = False
    mask_errors: bool = False

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
        """The most environment steps that a row takes, one number or `[B]`: its share of the work."""
        return 1

    def new_outputs(self, about: EnvDescription) -> Outputs:
        """Return uninitialised outputs for all rows."""
        return Outputs()

    def own_outputs(self, about: EnvDescription, borrowed: Outputs) -> Outputs:
        """Return a copy of the outputs of all rows, with the fields that this request asks for."""
        own = self.new_outputs(about)
        own.put(slice(0, self.num_rows), borrowed)
        return own

    def result(self, about: EnvDescription, answer: Answer) -> T:
        """Return the user's form of an answer: the value of one that has no rows."""
        value: T = answer.value
        return value


class RowRequest(Request[T]):
    """A request over rows, each of which starts at a state.

    Attributes:
        states: `[B]`.
    """

    has_rows = True

    states: NDArray[Any]

    @property
    def num_rows(self) -> int:
        return len(self.states)

    @abstractmethod
    def part(self, rows: slice) -> Self: ...

    def copy(self) -> Self:
        return replace(self, states=self.states.copy())  # type: ignore[type-var]

    def flagged(self) -> FlagBatch:
        return FlagBatch(self.states, has_observations=False, return_state=True)


@dataclass(slots=True)
class FlagBatch(RowRequest[None]):
    """Flag rows as failed, without stepping them: their workers crashed or ran out of time.

    Attributes:
        states: `[B]`.
        has_observations: Whether observations are wanted (of zeros), as for steps.
        return_state: Whether states are wanted.
        mask_errors: True.
    """

    verb = "flag"

    states: NDArray[Any]
    has_observations: bool
    return_state: bool
    mask_errors: bool = True

    def part(self, rows: slice) -> FlagBatch:
        return replace(self, states=self.states[rows])

    def new_outputs(self, about: EnvDescription) -> Outputs:
        space = about.observation_space if self.has_observations else None
        return Outputs.of_steps(len(self.states), about.state_dtype, space, self.return_state)
