"""Marks most of many alike cases as slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from _pytest.mark import ParameterSet

__all__ = ["slow_after"]


def slow_after(number: int, values: Iterable[Any], *, unpack: bool = False) -> list[Any]:
    """Return values as parameters of a test, those behind the first `number` marked as slow.

    Args:
        number: How many are quick.
        values: The values. Those that are `pytest.param` keep their marks and names.
        unpack: Whether each is a tuple of values for several arguments.
    """
    params = []
    for index, value in enumerate(values):
        if isinstance(value, ParameterSet):
            given, marks, name = value
        else:
            given, marks, name = value if unpack else (value,), (), None
        more = [pytest.mark.slow] if index >= number else []
        params.append(pytest.param(*given, marks=[*marks, *more], id=name))
    return params
