"""The layers of an environment: the wrappers, and the unwrapped environment inside them."""

from __future__ import annotations

from typing import Any

import gymnasium


def layers_of(env: Any) -> list[Any]:
    """Return an environment and the layers inside it, the outermost first."""
    layers = [env]
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        layers.append(env)
    return layers


def wrappers_of(env: Any) -> list[Any]:
    """Return the wrappers around an environment, innermost first."""
    return layers_of(env)[-2::-1]


def layer_name(env: Any) -> str:
    """Return the name of an environment or a wrapper in pickles: its number of layers below."""
    return f"layer{len(layers_of(env)) - 1}"


def layers_by_name(env: Any) -> dict[str, Any]:
    """Return an environment and the layers inside it, by the names by which pickles refer to them."""
    return {layer_name(layer): layer for layer in layers_of(env)}
