"""How requests and answers travel between this process and a worker."""

from __future__ import annotations

__all__: list[str] = []
