"""Runs in a worker process: makes the hosted object, and answers requests."""

from __future__ import annotations

__all__: list[str] = []
