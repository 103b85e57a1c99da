"""Tells from the class of an environment, before it is made, whether it has a kernel and is harmless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from planvec.codecs import registered_codecs
from planvec.kernels import has_kernel, has_own_kernel, is_harmless, may_have_kernel

Makeable = str | EnvSpec | Callable[[], gymnasium.Env[Any, Any]]


def _class_of(env: Makeable) -> Any:
    """Return the class of an environment that may have a kernel; None if it has none, or is a factory."""
    # Other classes are not imported here, where workers step.
    if isinstance(env, type):
        return env
    if not isinstance(env, EnvSpec) or env.entry_point is None or env.additional_wrappers:
        return None
    entry = env.entry_point
    if not isinstance(entry, str):
        return entry
    return load_env_creator(entry) if may_have_kernel(entry) else None


def is_harmless_env(env: Makeable) -> bool:
    """Return whether the process of the user may step an environment, too, and its codec is planvec's."""
    entry = env.entry_point if isinstance(env, EnvSpec) and not env.additional_wrappers else None
    if isinstance(entry, str):
        module, _, name = entry.partition(":")
    else:
        module, name = getattr(entry, "__module__", None) or "", getattr(entry, "__name__", "")
    return is_harmless(module, name) and _class_of(env) not in registered_codecs().envs


def env_has_kernel(env: Makeable) -> bool:
    """Return whether the class of an environment has a kernel. It is not known of a factory."""
    env_class = _class_of(env)
    is_own = has_own_kernel(env_class)
    return is_own or (has_kernel(env_class) and env_class not in registered_codecs().envs)
