"""Starts worker processes by every start method, and ends them."""

from __future__ import annotations

__all__: list[str] = []
