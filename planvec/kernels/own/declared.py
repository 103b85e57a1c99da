"""Defines `OwnKernel`, what a user has declared about the step of an environment class of his own."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.codecs import Named, names_of, register_codec, registered_codecs, same
from planvec.kernels.base import MAX_SCALARS
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

    def read_constants(self, env: object) -> tuple[Any, ...]:
        """Return the present constants of an environment: numbers, flags and contiguous arrays."""
        if callable(self.constants):
            values = self.constants(env)
            values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
            return tuple(_constant(f"constants[{index}]", value) for index, value in enumerate(values))
        missing = [name for name in self.constants if not hasattr(env, name)]
        if missing:
            raise ValueError(f"constants: expected names of attributes of {self.owner}, got {missing}")
        return tuple(_constant(f"constants: {name}", getattr(env, name)) for name in self.constants)

    def observation(self, env: Any, values: tuple[object, ...]) -> Any:
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
        numbers = list(_numbers(observed))
        targets = list(leaves(rows))
        if len(numbers) != sum(target.size for target in targets):
            return None
        start = 0
        for target in targets:
            target[...] = np.array(numbers[start : start + target.size]).reshape(target.shape)
            start += target.size
        return take_row(space, rows, 0)

    def _argument(self, value: object) -> Any:
        """Return the value of an attribute in the form in which the functions take it."""
        if self.is_batched:
            return np.asarray(value)[None]
        if isinstance(value, np.ndarray):
            return value.reshape(-1) if value.size > MAX_SCALARS else tuple(value.reshape(-1))
        return value

    def columns(
        self, constants: object, extras: NDArray[np.float64], observations: object, stepped: NDArray[np.bool_]
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


def arguments_of(function: object, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
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


def _constant(name: str, value: object) -> Any:
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


def _numbers(observed: object) -> Iterator[Any]:
    """Yield the numbers of what `observe` returned."""
    if isinstance(observed, (tuple, list)):
        for part in observed:
            yield from _numbers(part)
    elif isinstance(observed, np.ndarray):
        yield from observed.reshape(-1)
    else:
        yield observed


# -- The kernels that users have declared in this process ----------------------------------------------------

_kernels: dict[type, OwnKernel] = {}


@dataclass(frozen=True, slots=True)
class RegisteredKernels:
    """Holds the kernels that users have declared, to pass them on to other processes."""

    kernels: Mapping[type, OwnKernel]  # environment class -> its kernel

    def install(self) -> None:
        """Register all of them in this process."""
        _kernels.update(self.kernels)


def own_kernel_of(env_class: Any) -> OwnKernel | None:
    """Return the kernel that a user has declared for exactly this class."""
    return _kernels.get(env_class)


def registered_kernels() -> RegisteredKernels:
    """Return a copy of what users have declared so far."""
    return RegisteredKernels(dict(_kernels))


# -- The decorators with which users declare kernels: `kernel` and `batch_kernel`. They import no numba ------

F = TypeVar("F", bound=Callable[..., Any])
GivenConstants = str | Sequence[str] | Callable[[Any], Any]
Infos = Callable[[np.ndarray], Mapping[str, np.ndarray]]


def kernel(
    env_class: type[gymnasium.Env[Any, Any]],
    *,
    state: str | Sequence[str],
    constants: GivenConstants = (),
    observe: Callable[..., Any] | None = None,
    infos: Infos | None = None,
    ignored: str | Sequence[str] = (),
) -> Callable[[F], F]:
    """Declare a function of numbers that steps environments of a class as their own `step` does.

    planvec compiles it with numba and steps whole batches with it, hundreds of times faster::

        @planvec.kernel(Glider, state=("height", "speed"), constants=("gravity",))
        def step(state, action, constants):
            height, speed = state
            (gravity,) = constants
            speed = speed - 0.1 * gravity
            height = height + 0.1 * speed
            return (height, speed), -1.0, height < 0.0

    When an environment is opened, planvec compares the function with the environment's own `step`, bit for
    bit, in thousands of transitions. If something differs, the environment steps itself, and the log says
    what. The attributes in `state` become the states of this class, unless you have registered a codec for
    it: then these are names of its fields. Decorating the same class again replaces its kernel.

    The function takes `state` and `action`, and `constants` and `random` if it names them. `state` has one
    entry for each attribute: a number, a tuple of the numbers of a small array, or an array `[size]` of more
    than 16 numbers, which the function changes in place. `action` is an int for a Discrete space, else a
    tuple. `constants` are the present values in the order of their names. `random` draws what `np_random`
    draws: `random.random()`, `random.uniform(low, high)`, `random.integers(high)`,
    `random.integers(low, high)`, `random.normal(loc, scale)`. The result is `(state, reward, terminated)`,
    and a number for `infos` if there are any.

    Args:
        env_class: The class. Subclasses have no kernel, since they may step otherwise.
        state: Names of the attributes that change: numbers, and arrays of fixed size. All others, apart from
            `np_random`, must never change.
        constants: Names of attributes that hold numbers, flags or arrays; or a function from the environment
            to a tuple of such values. They may be changed: the comparison is then made again.
        observe: `observe(state)` or `observe(state, constants)` returns the numbers of the observation as a
            tuple. None takes the numbers of the state.
        infos: `infos(extras)` returns the infos of B rows, name -> array `[B]`, from the fourth results of
            the function, an array `[B]` float64. None: there are no infos.
        ignored: Names of attributes that change without an influence on results (a clock, a cache).

    Returns:
        The decorator, which returns the function itself.

    Raises:
        TypeError: An argument is something else, or the function takes other arguments.
    """
    return _declare(env_class, state, constants, observe, infos, ignored, is_batched=False)


def batch_kernel(
    env_class: type[gymnasium.Env[Any, Any]],
    *,
    state: str | Sequence[str],
    constants: GivenConstants = (),
    observe: Callable[..., Any] | None = None,
    infos: Infos | None = None,
    ignored: str | Sequence[str] = (),
) -> Callable[[F], F]:
    """Declare a NumPy function of whole batches that steps environments of a class as their own `step` does.

    It is `planvec.kernel` for functions that exist already or cannot be compiled: learned models of dynamics,
    and vectorised simulators::

        @planvec.batch_kernel(Glider, state=("height", "speed"), constants=("gravity",))
        def step(state, action, constants):
            height, speed = state  # each [B]
            speed = speed - 0.1 * constants[0]
            height = height + 0.1 * speed
            return (height, speed), np.full(len(height), -1.0), height < 0.0

    `state` is a tuple of arrays `[B, ...]`, one for each attribute, and `action` an array `[B, ...]`. The
    function must not draw random numbers, and the results of a row must not depend on the other rows. A
    product of matrices (`@`) often rounds by the number of rows; see docs/kernels.md. planvec calls the
    function with 1, 2, 4, ... or 4096 rows, and compares all these sizes when an environment is opened.

    Args:
        env_class: The class, as for `planvec.kernel`; so are the arguments below.
        state: Names of the attributes that change.
        constants: Names of attributes, or a function of the environment.
        observe: `observe(state)` or `observe(state, constants)` returns the observations: an array
            `[B, ...]`, or a tuple of the arrays of a Dict or Tuple space. None takes the numbers of the
            state.
        infos: `infos(extras)` returns name -> array `[B]`, from the fourth results `[B]`.
        ignored: Names of attributes that change without an influence on results.

    Returns:
        The decorator, which returns the function itself.

    Raises:
        TypeError: An argument is something else, or the function takes other arguments.
    """
    return _declare(env_class, state, constants, observe, infos, ignored, is_batched=True)


def _declare(
    env_class: object,
    state: str | Sequence[str],
    constants: GivenConstants,
    observe: Callable[..., Any] | None,
    infos: Infos | None,
    ignored: str | Sequence[str],
    is_batched: bool,
) -> Callable[[F], F]:
    """Check the arguments, and return a decorator that registers a kernel and a codec."""
    if not (isinstance(env_class, type) and issubclass(env_class, gymnasium.Env)):
        raise TypeError(f"env_class: expected a subclass of gymnasium.Env, got {env_class!r}")
    names = names_of("state", state)
    if not names:
        raise TypeError("state: expected names of attributes, got none")
    constant_names = constants if callable(constants) else names_of("constants", constants)
    ignored_names = names_of("ignored", ignored)
    if observe is not None:
        arguments_of(observe, "observe", OBSERVE_ARGUMENTS)
    allowed = STEP_ARGUMENTS[:3] if is_batched else STEP_ARGUMENTS

    def decorate(step: F) -> F:
        arguments_of(step, "step", allowed)
        own = OwnKernel(
            env_class.__name__, step, names, constant_names, observe, infos, ignored_names, is_batched
        )
        _kernels[env_class] = own
        if isinstance(registered_codecs().envs.get(env_class, own.codec()), Named):  # not one of the user
            register_codec(env_class, own.codec())
        return step

    return decorate


# -- The constants of a kernel -------------------------------------------------------------------------------


class KernelConstants:
    """Remembers the constants of an environment: what the functions of the kernel take beside states."""

    def __init__(self, own: OwnKernel, env: object) -> None:
        self._own, self._env = own, env
        self.constants: tuple[Any, ...] = copy.deepcopy(own.read_constants(env))
        for value in self.constants:
            if isinstance(value, np.ndarray):
                value.flags.writeable = False  # a function that changed it would have a memory

    def has_changed(self) -> bool:
        """Return whether a constant is not what it was. The kernel is compared again then."""
        try:
            constants = self._own.read_constants(self._env)
        except Exception:  # an attribute was deleted, or holds something else
            return True
        return len(constants) != len(self.constants) or not all(
            value is expected or (type(value) is type(expected) and same(expected, value))
            for expected, value in zip(self.constants, constants, strict=True)
        )
