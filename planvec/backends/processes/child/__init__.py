"""What runs in a worker process."""

from __future__ import annotations

__all__: list[str] = []
