"""Marks most of many alike cases as slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["slow_after"]


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
