"""Signals, `/proc`, and the kernel's way to end a worker with its parent."""

from __future__ import annotations

__all__: list[str] = []
