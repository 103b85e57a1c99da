"""Holds what the messages between a worker and its parent have in common, in processes and in actors."""

from __future__ import annotations

__all__: list[str] = []
