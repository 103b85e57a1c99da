"""Marks most of many alike cases as slow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["slow_after"]


def slow_after(number: int, values: Iterable[Any]) -> list[Any]:
    """Return values as parameters of a test, those behind the first `number` marked as slow."""
    return [
        pytest.param(value, marks=[pytest.mark.slow] * (index >= number))
        for index, value in enumerate(values)
    ]
