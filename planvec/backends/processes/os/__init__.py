"""What the operating system does for worker processes: start, watch and end them."""

from __future__ import annotations

__all__: list[str] = []
