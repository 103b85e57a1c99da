"""Atari: how states of ale-py's games are saved and restored."""

from __future__ import annotations

__all__: list[str] = []
