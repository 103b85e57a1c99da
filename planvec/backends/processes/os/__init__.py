"""Starts, watches and ends processes, by the means of the operating system."""

from __future__ import annotations

__all__: list[str] = []
