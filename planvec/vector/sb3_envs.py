"""Runs in workers for `SubprocVecEnv`. A file of its own: importing stable-baselines3 takes two seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium


def make_patched(env_fn: Callable[[], Any]) -> Any:
    """Make an environment, wrapped as stable-baselines3 does if it has an older interface."""
    env = env_fn()
    if isinstance(env, gymnasium.Env):
        return env
    from stable_baselines3.common.vec_env.patch_gym import _patch_env

    return _patch_env(env)


def has_attribute(name: str, env: Any) -> bool:
    """Return whether an environment or one of its wrappers has an attribute."""
    try:
        env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True


def is_wrapped(wrapper_class: type, env: Any) -> bool:
    """Return whether an environment is wrapped by a class."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False
