"""Defines `OwnKernel`, what a user has declared about the step of an environment class of his own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.codecs import Named
from planvec.kernels.layout import MAX_SCALARS
from planvec.rows import Column, Columns, empty_rows, leaves, take_row

STEP_ARGUMENTS = ("state", "action", "constants", "random")
OBSERVE_ARGUMENTS = ("state", "constants")

Constants = tuple[str, ...] | Callable[[Any], Any]


@dataclass(frozen=True)
class OwnKernel:
    """Holds a kernel that a user has declared."""

    owner: str  # name of the environment class
    step: Callable[..., Any]  # the function: of numbers, or of arrays if `is_batched`
    state: tuple[str, ...]  # names of the attributes that make up the state, in order
    constants: Constants  # names of attributes, or a function of the environment
    observe: Callable[..., Any] | None  # computes observations; None takes the numbers of the state
    # `infos(extras)` returns name -> `[B]`, from the fourth results `[B]`; None: there are none
    infos: Callable[..., Any] | None
    ignored: tuple[str, ...]  # names of attributes that may change, since they have no influence
    is_batched: bool  # whether the functions take whole batches
    token: str = field(default_factory=lambda: uuid4().hex)  # different for every declaration

    @property
    def draws(self) -> bool:
        """Whether steps draw random numbers."""
        return "random" in arguments_of(self.step, "step", STEP_ARGUMENTS)

    def codec(self) -> Named:
        """Return a maker of a codec that saves the attributes of the state."""
        names = () if callable(self.constants) else self.constants
        return Named(self.state, self.ignored, names, self.draws, self.observation)

    def read_constants(self, env: Any) -> tuple[Any, ...]:
        """Return the present constants of an environment: numbers, flags and contiguous arrays."""
        if callable(self.constants):
            values = self.constants(env)
            values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
            return tuple(_constant(f"constants[{index}]", value) for index, value in enumerate(values))
        missing = [name for name in self.constants if not hasattr(env, name)]
        if missing:
            raise ValueError(f"constants: expected names of attributes of {self.owner}, got {missing}")
        return tuple(_constant(f"constants: {name}", getattr(env, name)) for name in self.constants)

    def observation(self, env: Any, values: tuple[Any, ...]) -> Any:
        """Return the observation of a state, computed in Python; None if the numbers do not fit the space."""
        space: gymnasium.Space[Any] = env.observation_space
        rows = empty_rows(space, 1)
        if isinstance(rows, list):
            return None
        state = tuple(self._argument(value) for value in values)
        observed: Any = state
        if self.observe is not None:
            names = arguments_of(self.observe, "observe", OBSERVE_ARGUMENTS)
            given = {"state": state}
            if "constants" in names:
                given["constants"] = self.read_constants(env)
            observed = python_function(self.observe)(*[given[name] for name in names])
        numbers = [number for part in _parts(observed) for number in _numbers(part)]
        targets = list(leaves(rows))
        if len(numbers) != sum(target.size for target in targets):
            return None
        start = 0
        for target in targets:
            target[...] = np.array(numbers[start : start + target.size]).reshape(target.shape)
            start += target.size
        return take_row(space, rows, 0)

    def _argument(self, value: Any) -> Any:
        """Return the value of an attribute in the form in which the functions take it."""
        if self.is_batched:
            return np.asarray(value)[None]
        if isinstance(value, np.ndarray):
            return value.reshape(-1) if value.size > MAX_SCALARS else tuple(value.reshape(-1))
        return value

    def columns(
        self, constants: Any, extras: NDArray[np.float64], observations: Any, stepped: NDArray[np.bool_]
    ) -> Columns:
        """Return the infos of a batch; see `Kernel.columns`."""
        assert self.infos is not None
        columns: Columns = {}
        for name, values in dict(self.infos(extras)).items():
            array = np.asarray(values)
            if array.shape != extras.shape or array.dtype.kind not in "fiub":
                raise ValueError(
                    f"infos: expected numbers of shape {extras.shape} for {name!r}, got {array.dtype} "
                    f"of shape {array.shape}"
                )
            kind: Any = {"f8": float, "i8": int, "b1": bool}.get(array.dtype.str[1:], array.dtype.type)
            columns[name] = Column(kind, np.where(stepped, array, array.dtype.type(0)), stepped.copy())
        return columns if stepped.any() else {}


def python_function(function: Any) -> Callable[..., Any]:
    """Return the Python function of one that numba may have compiled already."""
    inner: Callable[..., Any] = getattr(function, "py_func", function)
    return inner


def arguments_of(function: Any, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the arguments of a function, in order."""
    if not callable(function):
        raise TypeError(f"{name}: expected a function, got {function!r}")
    parameters = tuple(inspect.signature(python_function(function)).parameters)
    needed = allowed[: 1 if allowed == OBSERVE_ARGUMENTS else 2]
    if not set(needed) <= set(parameters) <= set(allowed):
        raise TypeError(
            f"{name}: expected a function of {', '.join(needed)} and perhaps "
            f"{', '.join(allowed[len(needed) :])}, by these names; got one of ({', '.join(parameters)})"
        )
    return parameters


def _constant(name: str, value: Any) -> Any:
    """Return a constant that functions can take."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return np.ascontiguousarray(value)
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, (bool, int, float)) or (isinstance(value, np.generic) and value.dtype.kind in "fiu"):
        return value
    raise ValueError(
        f"{name}: expected a number or an array of numbers, got {value!r:.100} of type {type(value).__name__}"
    )


def _parts(observed: Any) -> Iterator[Any]:
    """Yield the numbers and arrays of what `observe` returned."""
    if isinstance(observed, (tuple, list)):
        for part in observed:
            yield from _parts(part)
    else:
        yield observed


def _numbers(part: Any) -> Iterator[Any]:
    """Yield the numbers of a number or an array."""
    if isinstance(part, np.ndarray):
        yield from part.reshape(-1)
    else:
        yield part
