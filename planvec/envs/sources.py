"""Makes a `gymnasium.Env` from a name, a spec or a factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from planvec.codecs import FAMILIES
from planvec.envs.names import find_source, import_registrants
from planvec.errors import UnsupportedEnvError
from planvec.extras import install_command

EnvSource = str | EnvSpec | Callable[[], Any] | gymnasium.Env[Any, Any]


def make_env(
    source: EnvSource, render_mode: str | None = None, env_kwargs: Mapping[str, Any] | None = None
) -> gymnasium.Env[Any, Any]:
    """Make an environment."""
    env_kwargs = dict(env_kwargs or {})
    if render_mode is not None:
        env_kwargs["render_mode"] = render_mode
    if isinstance(source, str):
        source = find_source(source)
    if isinstance(source, EnvSpec):
        try:
            return gymnasium.make(source, **env_kwargs)
        except gymnasium.error.DependencyNotInstalled as error:
            raise UnsupportedEnvError(_missing(source, error)) from error
        except TypeError as error:
            _check_env_kwargs(source, env_kwargs, error)
            raise
    if env_kwargs:
        raise TypeError(
            f"{', '.join(sorted(env_kwargs))}: expected no arguments of gymnasium.make for a factory or an "
            "environment (they are for ids); pass a lambda or functools.partial that contains them"
        )
    env = _call_factory(source) if callable(source) and not isinstance(source, gymnasium.Env) else source
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            "env: expected a Gymnasium id, an EnvSpec, a gymnasium.Env, or a factory that returns "
            f"one, got {type(env).__name__} from {source!r}"
        )
    return env


def _call_factory(factory: Callable[[], Any]) -> Any:
    """Call a factory. If it uses an unknown id, import the packages that register ids and call it again."""
    try:
        return factory()
    except gymnasium.error.UnregisteredEnv:
        import_registrants()
        return factory()


def _check_env_kwargs(spec: EnvSpec, env_kwargs: Mapping[str, Any], error: TypeError) -> None:
    """Say which arguments an environment takes if it was given others."""
    made = spec.entry_point
    creator = load_env_creator(made) if isinstance(made, str) else made
    known = inspect.signature(creator).parameters if creator is not None else {}
    names = [name for name, one in known.items() if one.kind is not one.VAR_KEYWORD]
    unknown = sorted(set(env_kwargs) - set(names))
    if unknown and len(names) == len(known) and any(f"'{name}'" in str(error) for name in unknown):
        raise TypeError(
            f"env_kwargs: expected arguments of {spec.id} ({', '.join(names) or 'it has none'}) or of "
            f"gymnasium.make, got {', '.join(unknown)}"
        ) from error


def _missing(spec: EnvSpec, error: Exception) -> str:
    """Return the message for a package that is not installed, with the command to install it."""
    entry_point = spec.entry_point if isinstance(spec.entry_point, str) else ""
    extra = next((f.extra for f in FAMILIES if entry_point.startswith(f.env_package)), None)
    if extra is None or "pip install" in str(error):
        return f"{spec.id}: {error}"
    return f"{spec.id}: {error}: {install_command(extra)}"
