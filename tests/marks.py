"""Marks most of many alike cases as slow, and those that need what not every version of Python has."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["needs_box2d", "slow_after"]

needs_box2d = pytest.mark.skipif(
    not importlib.util.find_spec("Box2D"), reason="Box2D is not installed; it has no wheel for Python 3.14"
)


def slow_after(number: int, values: Iterable[Any], *, unpack: bool = False) -> list[Any]:
    """Return values as parameters of a test, those behind the first `number` marked as slow.

    Args:
        number: How many are quick.
        values: The values.
        unpack: Whether each is a tuple of values for several arguments.
    """
    return [
        pytest.param(*(value if unpack else (value,)), marks=[pytest.mark.slow] * (index >= number))
        for index, value in enumerate(values)
    ]
