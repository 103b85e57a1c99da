"""The wrappers of an environment: those that need not be stepped, and the fields of the others."""

from __future__ import annotations

from typing import Any

import gymnasium

from planvec.codecs.base import WrapperCodec
from planvec.codecs.layers import wrappers_of
from planvec.codecs.wrappers import TimeLimitCodec, TransparentCodec

Env = gymnasium.Env[Any, Any]


def leave_out_outer_wrappers(
    pairs: list[tuple[Any, WrapperCodec]],
) -> tuple[Any, list[tuple[Any, WrapperCodec]]]:
    """Leave out the outer wrappers that only check or count."""
    # Returns the one `TimeLimit` that was left out, or None; and the remaining pairs.
    limit, num_kept = None, len(pairs)
    for wrapper, codec in reversed(pairs):
        if isinstance(codec, TimeLimitCodec) and limit is None:
            limit = wrapper
        elif not isinstance(codec, TransparentCodec):
            break
        num_kept -= 1
    return limit, pairs[:num_kept]


def outermost(env: Env, num_wrappers: int) -> Env:
    """Return an environment inside its innermost so many wrappers."""
    for _ in range(len(wrappers_of(env)) - num_wrappers):
        assert isinstance(env, gymnasium.Wrapper)
        env = env.env
    return env


def named_wrappers(
    pairs: list[tuple[Any, WrapperCodec]],
) -> list[tuple[str, Any, WrapperCodec]]:
    """Add a field name like `frame_stack_observation` to each wrapper, numbered if a class occurs again."""
    named, counts = [], dict[str, int]()
    for wrapper, codec in pairs:
        class_name = type(wrapper).__name__
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in class_name).lstrip("_")
        counts[name] = counts.get(name, 0) + 1
        named.append((name if counts[name] == 1 else f"{name}_{counts[name]}", wrapper, codec))
    return named
