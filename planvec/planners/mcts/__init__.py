"""Monte Carlo tree search."""

from __future__ import annotations

__all__: list[str] = []
