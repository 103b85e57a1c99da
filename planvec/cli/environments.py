"""The arguments that name an environment, and the environment that they name."""

from __future__ import annotations

import argparse
import ast
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from planvec.cli.parser import UsageError, did_you_mean, integer, one_of

if TYPE_CHECKING:
    from planvec.codecs import CodecChoice
    from planvec.envs import Makeable


def add_environment(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """Add the arguments that name an environment and its options."""
    parser.add_argument(
        "env_id",
        metavar="ENV_ID",
        nargs="?" if optional else None,
        help="a Gymnasium id, such as CartPole-v1 or ALE/Pong-v5; module:EnvId; or module:function or "
        "file.py:function, a function or class of your own that makes an environment",
    )
    group = parser.add_argument_group("environment")
    group.add_argument(
        "--make",
        nargs="+",
        type=_assignment,
        metavar="KEY=VALUE",
        help="arguments of gymnasium.make, such as obs_type=ram frameskip=1",
    )
    group.add_argument(
        "--wrappers",
        nargs="+",
        metavar="NAME[=ARG,...]",
        help="wrappers of gymnasium.wrappers, or module:Wrapper, innermost first, such as TimeLimit=50 "
        "minigrid.wrappers:FullyObsWrapper",
    )
    group.add_argument(
        "--codec",
        metavar="CODEC",
        help="how to save states: copied; copied:NAME,... without the attributes of these names, which never "
        "change; replay; or module:Codec, a codec of your own (default: the fastest exact way)",
    )


def add_backend(parser: argparse._ActionsContainer) -> None:
    """Add the arguments that say where workers run."""
    parser.add_argument(
        "--backend",
        type=one_of(["processes", "ray"]),
        metavar="processes|ray",
        default="processes",
        help="where workers run: in processes of this machine (default), or in actors of a Ray cluster",
    )
    parser.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help="address of the Ray cluster (default: the one of RAY_ADDRESS, else Ray is started here)",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the arguments about workers."""
    group = parser.add_argument_group("workers, which do not change the results")
    group.add_argument(
        "--num-workers",
        type=integer(0),
        metavar="N",
        help="number of workers (default: one per core, or 0 if there is a kernel); 0 steps in this process, "
        "which is faster if a step takes microseconds",
    )
    add_backend(group)
    group.add_argument(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="kill and replace a worker that needs longer for its part of a batch (default: no limit)",
    )


def backend_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `planvec.make` that say where workers run."""
    return {"backend": arguments.backend, "ray_address": arguments.ray_address}


def workers_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `planvec.make` about workers."""
    own = {"num_workers": arguments.num_workers, "timeout": arguments.timeout}
    return {**own, **backend_of(arguments)}


def given_env(arguments: argparse.Namespace) -> tuple[Makeable, dict[str, Any]]:
    """Return the environment that the arguments of `add_environment` name, as `env_source` does."""
    return env_source(arguments.env_id, dict(arguments.make or ()), arguments.wrappers or ())


def env_source(
    env_id: str, make: Mapping[str, Any], wrappers: Sequence[str]
) -> tuple[Makeable, dict[str, Any]]:
    """Return the environment that arguments name."""
    from planvec.envs import find_source

    _find_own_modules()
    parsed = [_wrapper(text) for text in wrappers]
    source: Any = find_source(env_id)
    if make and callable(source):
        raise ValueError(
            f"--make: expected an id, got {env_id}, which is called without arguments; set them there"
        )
    if parsed:
        return _Wrapped(source, dict(make), parsed), {}
    return source, dict(make)


def _find_own_modules() -> None:
    """Let the installed command find modules in the working directory, as `python -m planvec` does."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def object_named(option: str, text: str) -> Any:
    """Return the object that `module:name` names; None if the text is of another form."""
    from planvec.envs import import_named

    where, _, name = text.rpartition(":")
    if not where:
        return None
    _find_own_modules()
    module = import_named(where)
    if not hasattr(module, name):
        raise UsageError(f"{option}: {where} has no {name!r}{did_you_mean(name, vars(module))}")
    return getattr(module, name)


def codec_of(text: str | None) -> CodecChoice:
    """Return the codec that `--codec` names."""
    from planvec.codecs import Codec, Copied

    if text in (None, "copied", "replay"):
        return text
    where, _, name = text.rpartition(":")
    if where == "copied":
        return Copied([part.strip() for part in name.split(",")])
    codec = object_named("--codec", text)
    if not (isinstance(codec, type) and issubclass(codec, Codec)):
        raise UsageError(
            "--codec: expected copied, copied:NAME,..., replay, or module:Codec with a planvec.Codec, "
            f"got {text!r}"
        )
    return codec


def render_source(source: Makeable, env_kwargs: dict[str, Any]) -> Makeable:
    """Return a factory of the same environment that renders arrays; a function of the user's own is kept."""
    from planvec.envs import make_env

    if isinstance(source, _Wrapped):
        return partial(source.with_render_mode, "rgb_array")
    if isinstance(source, str) or not callable(source):
        return partial(make_env, source, "rgb_array", env_kwargs)
    return source


class _Wrapped:
    """Makes an environment with wrappers around it."""

    def __init__(
        self, source: Any, make_kwargs: dict[str, Any], wrappers: Sequence[tuple[Any, tuple[Any, ...]]]
    ) -> None:
        self._source = source
        self._make_kwargs = make_kwargs
        self._wrappers = wrappers

    def __call__(self) -> Any:
        return self.with_render_mode(None)

    def with_render_mode(self, render_mode: str | None) -> Any:
        """Make the environment for rendering."""
        from planvec.envs import make_env

        mode = None if callable(self._source) else render_mode  # a function chooses its own
        env = make_env(self._source, mode, self._make_kwargs)
        for wrapper, arguments in self._wrappers:
            env = wrapper(env, *arguments)
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


def _wrapper(text: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a wrapper of Gymnasium's, or one that `module:Wrapper` names, and its arguments."""
    import gymnasium

    name, equals, value = text.partition("=")
    own = object_named("--wrappers", name)
    wrapper = getattr(gymnasium.wrappers, name, None) if own is None else own
    if not (isinstance(wrapper, type) and issubclass(wrapper, gymnasium.Wrapper)):
        if own is not None:
            raise ValueError(f"--wrappers: expected a gymnasium.Wrapper, got {name}, which is {own!r}")
        hint = did_you_mean(name, gymnasium.wrappers.__all__)
        raise ValueError(
            f"--wrappers: gymnasium.wrappers has no wrapper {name!r}{hint}; those of other packages are "
            "module:Wrapper"
        )
    arguments = _value(f"({value},)") if equals else ()
    if not isinstance(arguments, tuple):
        raise ValueError(f"--wrappers: expected {name}=ARG,... with Python literals, got {text!r}")
    return wrapper, arguments
