"""Makes a `gymnasium.Env` from an id, a spec or a factory, and imports the package that an id belongs to."""

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
    """Return the spec of an id, whether or not its package was imported.

    Args:
        env_id: A Gymnasium id, `ALE/Pong-v5` and `MiniGrid-Empty-5x5-v0` among them, or `module:EnvId`.

    Raises:
        gymnasium.error.Error: There is no such id.
        ModuleNotFoundError: There is no such module.
        UnsupportedEnvError: Its package is not installed; the message names the extra.
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
    """Make the environment of an id, a spec or a factory; an environment is returned as it is.

    Args:
        source: Any of these.
        render_mode: For `gymnasium.make`, for an id or a spec.
        env_kwargs: Further arguments for it.

    Raises:
        TypeError: `source` is something else, a factory got arguments, or a factory returned something else.
        UnsupportedEnvError: A package is not installed; the message names the extra.
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
            f"{', '.join(sorted(env_kwargs))}: a factory takes no arguments (they are for ids); pass a "
            "lambda or functools.partial that holds them"
        )
    env = _call_factory(source) if callable(source) and not isinstance(source, gymnasium.Env) else source
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            "env: expected a Gymnasium id, an EnvSpec, a gymnasium.Env, or a factory that returns "
            f"one, got {type(env).__name__} from {source!r}"
        )
    return env


def _call_factory(factory: Callable[[], Any]) -> Any:
    """Call a factory, which may use ids of packages that were only imported in another process."""
    try:
        return factory()
    except gymnasium.error.UnregisteredEnv:
        for family in _REGISTERED_ON_IMPORT:
            if importlib.util.find_spec(family.module) is not None:
                importlib.import_module(family.module)
        return factory()


def _hint(spec: EnvSpec) -> str:
    """Return the advice to install the extra of an environment; "" if it has none."""
    entry_point = spec.entry_point if isinstance(spec.entry_point, str) else ""
    extra = next((f.extra for f in FAMILIES if entry_point.startswith(f.env_package)), None)
    return "" if extra is None else f'. With planvec: pip install "planvec[{extra}]"'
