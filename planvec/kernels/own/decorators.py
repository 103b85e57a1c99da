"""The decorators with which users declare kernels: `kernel` and `batch_kernel`. They import no numba."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import gymnasium
from numpy.typing import NDArray

from planvec.codecs import Named, names_of, register_codec, registered_codecs
from planvec.kernels.own.declared import OBSERVE_ARGUMENTS, STEP_ARGUMENTS, OwnKernel, arguments_of
from planvec.kernels.own.registered import register_kernel

F = TypeVar("F", bound=Callable[..., Any])
Constants = str | Sequence[str] | Callable[[Any], Any]
Infos = Callable[[NDArray[Any]], Mapping[str, NDArray[Any]]]


def kernel(
    env_class: type[gymnasium.Env[Any, Any]],
    *,
    state: str | Sequence[str],
    constants: Constants = (),
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
    constants: Constants = (),
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
    env_class: Any,
    state: str | Sequence[str],
    constants: Constants,
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
        register_kernel(env_class, own)
        if isinstance(registered_codecs().envs.get(env_class, own.codec()), Named):  # not one of the user
            register_codec(env_class, own.codec())
        return step

    return decorate
