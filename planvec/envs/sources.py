"""Makes a `gymnasium.Env` from an id, a spec or a factory, and imports the package that registers an id."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from planvec.codecs import FAMILIES
from planvec.errors import UnsupportedEnvError

__all__ = ["EnvSource", "find_spec", "make_env"]

EnvSource = str | EnvSpec | Callable[[], Any] | gymnasium.Env[Any, Any]

_REGISTERED_ON_IMPORT = tuple(family for family in FAMILIES if family.id_prefixes)
"""The families whose ids are registered when their module is imported."""


def find_spec(env_id: str) -> EnvSpec:
    """Return the spec of an id. Import the package that registers it if necessary.

    Args:
        env_id: A Gymnasium id, such as `CartPole-v1` or `ALE/Pong-v5`, or `module:EnvId`.

    Raises:
        gymnasium.error.Error: There is no such id.
        ModuleNotFoundError: There is no such module.
        UnsupportedEnvError: The package is not installed. The message names the extra that installs it.
    """
    module, _, name = env_id.rpartition(":")
    if module:  # importing it registers the environment
        importlib.import_module(module)
        return gymnasium.spec(name)
    try:
        return gymnasium.spec(env_id)
    except gymnasium.error.UnregisteredEnv as error:
        wanted = [family for family in _REGISTERED_ON_IMPORT if env_id.startswith(family.id_prefixes)]
        for family in wanted or _REGISTERED_ON_IMPORT:
            if importlib.util.find_spec(family.module) is not None:
                importlib.import_module(family.module)
            elif wanted:
                raise UnsupportedEnvError(
                    f"{env_id} needs the package {family.module}, which is not installed: "
                    f'pip install "planvec[{family.extra}]"'
                ) from error
        return gymnasium.spec(env_id)


def make_env(
    source: EnvSource, render_mode: str | None = None, env_kwargs: Mapping[str, Any] | None = None
) -> gymnasium.Env[Any, Any]:
    """Make an environment.

    Args:
        source: An id, a spec, a factory without arguments, or an environment, which is returned unchanged.
        render_mode: The argument of `gymnasium.make`, if `source` is an id or a spec.
        env_kwargs: Other arguments of `gymnasium.make`, if `source` is an id or a spec.

    Raises:
        TypeError: `source` is none of these, there are arguments for a factory or an environment, or a
            factory returned something else.
        UnsupportedEnvError: A package is not installed. The message names the extra that installs it.
    """
    env_kwargs = dict(env_kwargs or {})
    if render_mode is not None:
        env_kwargs["render_mode"] = render_mode
    if isinstance(source, (str, EnvSpec)):
        spec = find_spec(source) if isinstance(source, str) else source
        try:
            return gymnasium.make(spec, **env_kwargs)
        except gymnasium.error.DependencyNotInstalled as error:
            raise UnsupportedEnvError(f"{spec.id}: {error}{_hint(spec)}") from error
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
        for family in _REGISTERED_ON_IMPORT:
            if importlib.util.find_spec(family.module) is not None:
                importlib.import_module(family.module)
        return factory()


def _hint(spec: EnvSpec) -> str:
    """Return the advice to install the extra of an environment; "" if there is no extra."""
    entry_point = spec.entry_point if isinstance(spec.entry_point, str) else ""
    extra = next((f.extra for f in FAMILIES if entry_point.startswith(f.env_package)), None)
    return "" if extra is None else f'. With planvec: pip install "planvec[{extra}]"'
