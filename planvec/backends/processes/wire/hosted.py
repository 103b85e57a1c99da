"""What a user asks of the object that a process hosts, whatever it is: a call, an attribute."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import cloudpickle

from planvec.errors import InvalidBatchError
from planvec.rows import Request, resolve
from planvec.stepping import HasStepper

__all__ = ["CallMethod", "GetAttribute", "HostedRequest", "Operation", "SetAttribute"]


class Operation(ABC):
    """Something to do with the hosted object.

    Attributes:
        name: Of the method or the attribute.
    """

    name: str

    @abstractmethod
    def apply(self, hosted: Any) -> Any:
        """Do it, in the process; returns its value."""


@dataclass(slots=True)
class CallMethod(Operation):
    """Call a method of the hosted object.

    Attributes:
        name: The method.
        args: Positional arguments.
        kwargs: Keyword arguments.
    """

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def apply(self, hosted: Any) -> Any:
        return getattr(hosted, self.name)(*self.args, **self.kwargs)


@dataclass(slots=True)
class GetAttribute(Operation):
    """Read an attribute: of the environment where the object is a `PlanEnv`, else of the object.

    Attributes:
        name: A dotted name.
    """

    name: str

    def apply(self, hosted: Any) -> Any:
        first, *rest = self.name.split(".")
        if isinstance(hosted, HasStepper):
            return resolve(hosted.stepper.env.get_wrapper_attr(first), rest)
        return resolve(hosted, [first, *rest])


@dataclass(slots=True)
class SetAttribute(Operation):
    """Set an attribute: of the environment where the object is a `PlanEnv`, else of the object.

    Attributes:
        name: The attribute.
        value: Its new value.
    """

    name: str
    value: Any

    def apply(self, hosted: Any) -> None:
        if isinstance(hosted, HasStepper):
            hosted.stepper.env.set_wrapper_attr(self.name, self.value)
        else:
            setattr(hosted, self.name, self.value)


@dataclass(slots=True)
class HostedRequest(Request[Any]):
    """An operation, pickled.

    Attributes:
        name: For messages.
        payload: The operation.
    """

    verb: ClassVar[str] = "call"

    name: str
    payload: bytes

    @classmethod
    def of(cls, operation: Operation) -> HostedRequest:
        """Pickle an operation.

        Raises:
            InvalidBatchError: An argument cannot be pickled.
        """
        try:
            return cls(operation.name, cloudpickle.dumps(operation))
        except Exception as error:
            raise InvalidBatchError(
                f"{operation.name}: an argument cannot be pickled ({type(error).__name__}: {error}); "
                "nothing was sent"
            ) from error
