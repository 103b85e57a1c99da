"""Defines operations on the hosted object: calls of methods, reads and writes of attributes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from planvec.backends.messages.pickling import pickle_for_worker
from planvec.errors import InvalidBatchError
from planvec.rows import Request, resolve
from planvec.stepping import HasStepper


class Operation(ABC):
    """Base class of operations on the hosted object."""

    name: str  # name of the method or the attribute

    @abstractmethod
    def apply(self, hosted: Any) -> Any:
        """Execute the operation in the process, and return its value."""


@dataclass(slots=True)
class CallMethod(Operation):
    """Calls a method of the hosted object."""

    name: str
    args: tuple[Any, ...]  # positional arguments
    kwargs: dict[str, Any]  # keyword arguments

    def apply(self, hosted: Any) -> Any:
        return getattr(hosted, self.name)(*self.args, **self.kwargs)


@dataclass(slots=True)
class GetAttribute(Operation):
    """Reads an attribute of the object; if the object is a `PlanEnv`, of its environment."""

    name: str  # A dotted name

    def apply(self, hosted: Any) -> Any:
        first, *rest = self.name.split(".")
        if isinstance(hosted, HasStepper):
            return resolve(hosted.stepper.env.get_wrapper_attr(first), rest)
        return resolve(hosted, [first, *rest])


@dataclass(slots=True)
class SetAttribute(Operation):
    """Sets an attribute of the object; if the object is a `PlanEnv`, of its environment."""

    name: str
    value: Any  # the new value

    def apply(self, hosted: Any) -> None:
        if isinstance(hosted, HasStepper):
            hosted.stepper.env.set_wrapper_attr(self.name, self.value)
        else:
            setattr(hosted, self.name, self.value)


@dataclass(slots=True)
class HostedRequest(Request[Any]):
    """Requests an operation on the hosted object."""

    verb: ClassVar[str] = "call"

    name: str  # name of the method or the attribute, for messages
    payload: bytes  # the pickled operation

    @classmethod
    def of(cls, operation: Operation) -> HostedRequest:
        """Return the request for an operation."""
        try:
            return cls(operation.name, pickle_for_worker(operation))
        except Exception as error:
            raise InvalidBatchError(
                f"{operation.name}: an argument cannot be pickled ({type(error).__name__}: {error}); "
                "nothing was sent"
            ) from error
