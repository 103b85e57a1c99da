"""Encodes, sends and decodes the messages between a parent and a worker."""

from __future__ import annotations

__all__: list[str] = []
