"""Defines requests that look at B states without stepping them: observations, frames, attributes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from numpy.typing import NDArray

from planvec.rows.attributes import stack_values
from planvec.rows.description import EnvDescription
from planvec.rows.outputs import Answer, Outputs
from planvec.rows.requests.base import RowRequest
from planvec.rows.space_arrays import empty_rows, finish_rows

T = TypeVar("T")


@dataclass(slots=True)
class ObserveBatch(RowRequest[Any]):
    """Asks for the observations of B states."""

    verb = "observe"

    states: NDArray[Any]  # `[B]`

    def new_outputs(self, about: EnvDescription) -> Outputs:
        return Outputs(observations=empty_rows(about.observation_space, len(self.states)))

    def result(self, about: EnvDescription, answer: Answer) -> Any:
        return finish_rows(about.observation_space, answer.outputs.observations)


class _ListedRequest(RowRequest[T]):
    """Asks for a list of B values of any type. The base class of such requests."""

    def new_outputs(self, about: EnvDescription) -> Outputs:
        return Outputs(values=[None] * len(self.states))


@dataclass(slots=True)
class CheckBatch(_ListedRequest[None]):
    """Asks whether B states, which come from a file, can be restored and name nothing but what states do."""

    verb = "check"

    states: NDArray[Any]  # `[B]`

    def result(self, about: EnvDescription, answer: Answer) -> None:
        return


@dataclass(slots=True)
class RenderBatch(_ListedRequest[list[Any]]):
    """Asks for the frames of B states."""

    verb = "render"

    states: NDArray[Any]  # `[B]`

    def result(self, about: EnvDescription, answer: Answer) -> list[Any]:
        assert answer.outputs.values is not None
        return answer.outputs.values


@dataclass(slots=True)
class ReadBatch(_ListedRequest[NDArray[Any]]):
    """Asks for an attribute of the environment, or for the result of a method, at B states."""

    verb = "read"

    states: NDArray[Any]  # `[B]`
    name: str  # A dotted name. `env.get_wrapper_attr` looks up its first part, `getattr` the others.
    # positional and keyword arguments of the method; None reads an attribute
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def result(self, about: EnvDescription, answer: Answer) -> NDArray[Any]:
        assert answer.outputs.values is not None
        return stack_values(answer.outputs.values)
