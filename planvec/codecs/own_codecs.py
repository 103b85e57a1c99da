"""Finds mistakes in codecs that users have written, and names the codec instead of the environment."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np

from planvec.codecs.base import Codec, WrapperCodec
from planvec.errors import UnsupportedEnvError


def is_of_user(codec: Codec | WrapperCodec) -> bool:
    """Return whether a codec is none of planvec's."""
    return not type(codec).__module__.startswith("planvec.")


def check_value(codec: Codec, env: Any) -> None:
    """Check that a codec of the user saves values that fit into its dtype."""
    name, dtype = type(codec).__name__, codec.dtype
    if dtype is None or not is_of_user(codec):
        return
    if not isinstance(dtype, np.dtype) or not dtype.names:
        raise UnsupportedEnvError(
            f"{name}.dtype: expected a np.dtype with named fields, or None, got {dtype!r}; write "
            'np.dtype([("position", "f8", 2)])'
        )
    value = codec.get(env)
    if not isinstance(value, (tuple, list)) or len(value) != len(dtype.names):
        got = f"{len(value)} entries" if isinstance(value, (tuple, list)) else type(value).__name__
        raise UnsupportedEnvError(
            f"{name}.get: expected a tuple with an entry for each field of dtype ({', '.join(dtype.names)}), "
            f"got {got}"
        )


def raised_in(error: BaseException) -> str:
    """Return the method of a user's codec in which an error was raised, such as "GridCodec.set"; else ""."""
    found = ""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, (Codec, WrapperCodec)) and is_of_user(owner):
            found = f"{type(owner).__name__}.{frame.f_code.co_name}"
    return found
