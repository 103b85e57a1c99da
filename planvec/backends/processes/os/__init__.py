"""Wraps services of the system: cores, `/proc`, and the end of a worker with its parent."""

from __future__ import annotations

__all__: list[str] = []
