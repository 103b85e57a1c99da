"""Where batches are stepped: in this process, or in worker processes."""

from __future__ import annotations

__all__: list[str] = []
