"""From an id, a spec or a factory to a `gymnasium.Env`; which package an id belongs to."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec

from planvec.errors import UnsupportedEnvError

__all__ = ["EnvSource", "find_spec", "make_env"]

EnvSource = str | EnvSpec | Callable[[], Any] | gymnasium.Env[Any, Any]


class _Package(NamedTuple):
    """A package that registers environments when it is imported.

    Attributes:
        module: Its name.
        extra: The extra of planvec that installs it.
        prefixes: What its ids begin with.
    """

    module: str
    extra: str
    prefixes: tuple[str, ...]


_PACKAGES = (
    _Package("ale_py", "atari", ("ALE/",)),
    _Package("minigrid", "minigrid", ("MiniGrid-", "BabyAI-")),
    _Package(
        "highway_env",
        "highway",
        (
            "exit-v",
            "highway-",
            "intersection-",
            "lane-keeping-",
            "merge-",
            "parking-",
            "racetrack-",
            "roundabout-",
            "two-way-",
            "u-turn-",
        ),
    ),
)
_EXTRAS = {
    "ale_py": "atari",
    "gymnasium.envs.box2d": "box2d",
    "gymnasium.envs.classic_control": "classic-control",
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.toy_text": "toy-text",
    "highway_env": "highway",
    "minigrid": "minigrid",
}
"""Package of an environment -> the extra of planvec that installs what it needs."""


def find_spec(env_id: str) -> EnvSpec:
    """The spec behind an id, whether or not its package was imported.

    Args:
        env_id: A Gymnasium id, `ALE/Pong-v5` and `MiniGrid-Empty-5x5-v0` among them, or `module:EnvId`.

    Raises:
        gymnasium.error.Error: No such id.
        ModuleNotFoundError: No such module.
        UnsupportedEnvError: Its package is missing; names the extra.
    """
    module, _, name = env_id.rpartition(":")
    if module:  # importing it registers the environment
        importlib.import_module(module)
        return gymnasium.spec(name)
    try:
        return gymnasium.spec(env_id)
    except gymnasium.error.UnregisteredEnv as error:
        wanted = [package for package in _PACKAGES if env_id.startswith(package.prefixes)]
        for package in wanted or _PACKAGES:
            if importlib.util.find_spec(package.module) is not None:
                importlib.import_module(package.module)
            elif wanted:
                raise UnsupportedEnvError(
                    f"{env_id} needs the package {package.module}, which is not installed: "
                    f'pip install "planvec[{package.extra}]"'
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
        TypeError: `source` is none of these, the factory returned something else, or there are arguments
            that nobody takes.
        UnsupportedEnvError: Something that it needs is not installed; names the extra.
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
    env = _call(source) if callable(source) and not isinstance(source, gymnasium.Env) else source
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            "env: expected a Gymnasium id, an EnvSpec, a gymnasium.Env, or a factory that returns "
            f"one, got {type(env).__name__} from {source!r}"
        )
    return env


def _call(factory: Callable[[], Any]) -> Any:
    """What a factory returns; it may use ids of packages that were only imported in another process."""
    try:
        return factory()
    except gymnasium.error.UnregisteredEnv:
        for package in _PACKAGES:
            if importlib.util.find_spec(package.module) is not None:
                importlib.import_module(package.module)
        return factory()


def _hint(spec: EnvSpec) -> str:
    """The extra of planvec that an environment needs, if it has one."""
    entry_point = spec.entry_point if isinstance(spec.entry_point, str) else ""
    extra = next((name for package, name in _EXTRAS.items() if entry_point.startswith(package)), None)
    return "" if extra is None else f'. With planvec: pip install "planvec[{extra}]"'
