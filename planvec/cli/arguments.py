"""Defines what the commands share: exit statuses, types of arguments, and the arguments of environments."""

from __future__ import annotations

import argparse
import ast
import importlib
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "USAGE_ERROR",
    "add_backend",
    "add_environment",
    "backend_of",
    "environment",
    "integer",
]

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130
"""Exit statuses."""


def integer(lowest: int, highest: float = math.inf) -> Callable[[str], int]:
    """Return an argparse type that accepts the integers of a range.

    Args:
        lowest: The smallest integer.
        highest: The largest integer; infinite if there is none.
    """

    def integer(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = lowest - 1
        if not lowest <= value <= highest:
            bounds = f"from {lowest} to {highest}" if highest < math.inf else f"of at least {lowest}"
            raise argparse.ArgumentTypeError(f"expected an integer {bounds}, got {text!r}")
        return value

    return integer


def add_environment(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name an environment and its options."""
    parser.add_argument(
        "env_id",
        metavar="ENV_ID",
        help="a Gymnasium id, such as CartPole-v1 or ALE/Pong-v5; or module:EnvId; or module:function, a "
        "function or class of your own that makes an environment",
    )
    group = parser.add_argument_group("environment")
    group.add_argument(
        "--make",
        nargs="+",
        default=[],
        type=_assignment,
        metavar="KEY=VALUE",
        help="arguments of gymnasium.make, such as obs_type=ram frameskip=1",
    )
    group.add_argument(
        "--wrappers",
        nargs="+",
        default=[],
        type=_wrapper,
        metavar="NAME[=ARG,...]",
        help="wrappers of gymnasium.wrappers, innermost first, such as TimeLimit=50 FrameStackObservation=4",
    )
    group.add_argument(
        "--codec", choices=["copied", "replay"], help="how to save states (default: the fastest exact way)"
    )


def add_backend(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where workers run."""
    parser.add_argument(
        "--backend",
        choices=("processes", "ray"),
        default="processes",
        help="where workers run: in processes of this machine (default), or in actors of a Ray cluster",
    )
    parser.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help="address of the Ray cluster (default: the one of RAY_ADDRESS, else Ray is started here)",
    )


def backend_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `planvec.make` that say where workers run."""
    return {"backend": arguments.backend, "ray_address": arguments.ray_address}


def environment(arguments: argparse.Namespace) -> tuple[Any, dict[str, Any]]:
    """Return the environment that the arguments name.

    Returns:
        An id or a factory, and the arguments of `gymnasium.make`.

    Raises:
        gymnasium.error.Error: The id is unknown.
        ModuleNotFoundError: There is no such module.
        ValueError: The module has no such function, or `--make` is given for a function.
    """
    # So that the installed command finds modules in the working directory, as `python -m planvec` does.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    source: Any = arguments.env_id
    make_kwargs = dict(arguments.make)
    module, _, name = source.rpartition(":")
    function = _attribute(module, name) if module else None
    if callable(function):
        if make_kwargs:
            raise ValueError(f"--make: expected an id, got {source}, which is called without arguments")
        source = function
    if arguments.wrappers:
        return _Wrapped(source, make_kwargs, arguments.wrappers), {}
    return source, make_kwargs


def _attribute(module: str, name: str) -> Any:
    """Return the value of a (dotted) name in a module; None if the name is an id that the module registers.

    Raises:
        ValueError: The name is neither.
    """
    value: Any = importlib.import_module(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    if value is None:
        import gymnasium

        try:
            gymnasium.spec(name)
        except gymnasium.error.Error as error:
            raise ValueError(
                f"{module} has no function {name!r} that makes an environment, and registers no id {name!r}"
            ) from error
    return value


class _Wrapped:
    """Makes an environment with wrappers around it.

    Args:
        source: An id or a factory.
        make_kwargs: The arguments of `gymnasium.make`.
        wrappers: Names and positional arguments of Gymnasium's wrappers, innermost first.
    """

    def __init__(
        self, source: Any, make_kwargs: dict[str, Any], wrappers: Sequence[tuple[str, tuple[Any, ...]]]
    ) -> None:
        from planvec.envs import find_spec

        self._source = find_spec(source) if isinstance(source, str) else source
        self._make_kwargs = make_kwargs
        self._wrappers = wrappers

    def __call__(self) -> Any:
        import gymnasium

        from planvec.envs import make_env

        env = make_env(self._source, env_kwargs=self._make_kwargs)
        for name, arguments in self._wrappers:
            env = getattr(gymnasium.wrappers, name)(env, *arguments)
        return env


def _value(text: str) -> Any:
    """Return the value of a Python literal; other text is returned unchanged."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _assignment(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (equals and key.isidentifier()):
        raise argparse.ArgumentTypeError(f"expected KEY=VALUE, got {text!r}")
    return key, _value(value)


def _wrapper(text: str) -> tuple[str, tuple[Any, ...]]:
    import gymnasium

    name, equals, value = text.partition("=")
    wrapper = getattr(gymnasium.wrappers, name, None)
    if not (isinstance(wrapper, type) and issubclass(wrapper, gymnasium.Wrapper)):
        raise argparse.ArgumentTypeError(f"gymnasium.wrappers has no wrapper {name!r}")
    arguments = _value(f"({value},)") if equals else ()
    if not isinstance(arguments, tuple):
        raise argparse.ArgumentTypeError(f"expected {name}=ARG,... with Python literals, got {text!r}")
    return name, arguments
