"""Finds an environment by its name, spec or factory, and makes it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, find_highest_version, load_env_creator, parse_env_id

from planvec.codecs import FAMILIES, Env
from planvec.errors import UnsupportedEnvError
from planvec.extras import install_command

# -- Finds what the name of an environment refers to: a Gymnasium id, or a function in a module or a file ----

# the families whose ids are registered when their module is imported
_REGISTERED_ON_IMPORT = tuple(family for family in FAMILIES if family.id_prefixes)


def find_source(name: str) -> EnvSpec | Callable[[], Any]:
    """Return the spec or the factory that a name refers to."""
    where, _, attribute = name.rpartition(":")
    if where:
        module = value = import_named(where)
        for part in attribute.split("."):
            value = getattr(value, part, None)
        if callable(value):
            factory: Callable[[], Any] = value
            return factory
        try:
            return _spec(attribute)
        except gymnasium.error.Error as error:
            own = [key for key, made in vars(module).items() if callable(made) and not key.startswith("_")]
            raise UnsupportedEnvError(
                f"{name}: expected a function that makes an environment, or an id that the module registers, "
                f"and {module.__name__} has no {attribute!r}; it has "
                f"{', '.join(sorted(own)[:10]) or 'no functions'}"
            ) from error
    try:
        return _spec(name)
    except gymnasium.error.UnregisteredEnv as error:
        wanted = [family for family in _REGISTERED_ON_IMPORT if name.startswith(family.id_prefixes)]
        for family in wanted:
            if importlib.util.find_spec(family.module) is None:
                raise UnsupportedEnvError(
                    f"{name} needs the package {family.module}, which is not installed: "
                    f"{install_command(family.extra)}"
                ) from error
        import_registrants(wanted or _REGISTERED_ON_IMPORT)
        try:
            return _spec(name)
        except gymnasium.error.UnregisteredEnv as unknown:
            # as `ALE/Pong-v5`, with a namespace before it
            ids = sorted(env_id for env_id in gymnasium.registry if env_id.endswith(f"/{name}"))
            unknown.args = (f"{unknown} Did you mean {' or '.join(ids)}?" if ids else str(unknown),)
            raise


def import_registrants(families: Any = _REGISTERED_ON_IMPORT) -> None:
    """Import the installed packages that register ids."""
    for family in families:
        if importlib.util.find_spec(family.module) is not None:
            importlib.import_module(family.registrant or family.module)


def _spec(env_id: str) -> EnvSpec:
    """Return the spec of an id that is registered; without a version, that of the highest one."""
    namespace, name, version = parse_env_id(env_id)
    if version is None and env_id not in gymnasium.registry:
        version = find_highest_version(namespace, name)
        if version is not None:
            env_id = f"{env_id}-v{version}"
    return gymnasium.spec(env_id)


def import_named(where: str) -> Any:
    """Import a module by its name, or a file by its path."""
    module = where
    if where.endswith(".py") or os.sep in where:
        path = Path(where).resolve()
        if not path.is_file():
            raise ModuleNotFoundError(
                f"No file {where}: expected the path of a Python file, as seen from {Path.cwd()}"
            )
        module = path.stem  # the name under which it can be imported, here and in workers
        known = importlib.util.find_spec(module)
        if known is not None and known.origin != str(path):
            raise UnsupportedEnvError(
                f"{where}: expected a file whose name is not that of another module, and {module!r} is "
                f"already {known.origin}; rename the file"
            )
        if known is None:
            sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(module)
    except Exception as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is not None and f"{module}.".startswith(f"{missing}."):
            raise ModuleNotFoundError(
                f"No module named {module!r}: expected an installed module, one in the working directory, or "
                "a path that ends with .py",
                name=missing,
            ) from error
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename
        ]
        at = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        text = f"while importing {module}: {type(error).__name__}: {error}{at}"
        raise UnsupportedEnvError(text) from error


def is_game(value: object) -> bool:
    """Return whether a value is a game of PettingZoo."""
    zoo: Any = sys.modules.get("pettingzoo.utils.env")
    return zoo is not None and isinstance(value, (zoo.AECEnv, zoo.ParallelEnv))


EnvSource = str | EnvSpec | Callable[[], Any] | Env


def make_env(
    source: EnvSource, render_mode: str | None = None, env_kwargs: Mapping[str, Any] | None = None
) -> Env:
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
            entry = source.entry_point if isinstance(source.entry_point, str) else ""
            extra = next((family.extra for family in FAMILIES if entry.startswith(family.env_package)), None)
            is_told = extra is None or "pip install" in str(error)
            how = "" if is_told else f": {install_command(str(extra))}"
            raise UnsupportedEnvError(f"{source.id}: {error}{how}") from error
        except TypeError as error:
            _check_env_kwargs(source, env_kwargs, error)
            raise
    if env_kwargs:
        raise TypeError(
            f"{', '.join(sorted(env_kwargs))}: expected no arguments of gymnasium.make for a factory or an "
            "environment (they are for ids); pass a lambda or functools.partial that contains them"
        )
    env: Any = source
    if callable(source) and not isinstance(source, gymnasium.Env):
        try:
            env = source()
        except gymnasium.error.UnregisteredEnv:  # it may be registered by a package that can be imported
            import_registrants()
            env = source()
    if not isinstance(env, gymnasium.Env):
        if is_game(env):
            from planvec.pettingzoo import as_gymnasium  # here, since it needs an extra

            return as_gymnasium(env)
        raise TypeError(
            "env: expected a Gymnasium id, an EnvSpec, a gymnasium.Env, a game of PettingZoo, or a factory "
            f"that returns one, got {type(env).__name__} from {source!r}"
        )
    return env


def _check_env_kwargs(spec: EnvSpec, env_kwargs: Mapping[str, object], error: TypeError) -> None:
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
