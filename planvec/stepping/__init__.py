"""Steps B rows through one environment."""

from __future__ import annotations

__all__: list[str] = []
