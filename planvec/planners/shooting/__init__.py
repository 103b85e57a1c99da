"""Planners that roll out whole action sequences."""

from __future__ import annotations

__all__: list[str] = []
