"""From an id, a spec or a factory to a `gymnasium.Env`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

__all__ = ["EnvSource", "make_env"]

EnvSource = str | EnvSpec | Callable[[], Any] | gymnasium.Env[Any, Any]


def make_env(source: EnvSource, **make_kwargs: Any) -> gymnasium.Env[Any, Any]:
    """The environment behind an id, a spec or a factory; an environment is handed back as it is.

    Raises:
        TypeError: `source` is none of these, or the factory returned something else.
    """
    if isinstance(source, (str, EnvSpec)):
        return gymnasium.make(source, **make_kwargs)
    if make_kwargs:
        raise TypeError(
            f"{', '.join(sorted(make_kwargs))}: a factory takes no arguments (they are for ids); pass a "
            "lambda or functools.partial that holds them"
        )
    env = source() if callable(source) and not isinstance(source, gymnasium.Env) else source
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            "env: expected a Gymnasium id, an EnvSpec, a gymnasium.Env, or a factory that returns "
            f"one, got {type(env).__name__} from {source!r}"
        )
    return env
