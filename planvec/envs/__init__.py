"""What users open: `PlanEnv`, `BatchEnv`, `make`."""

from __future__ import annotations

__all__: list[str] = []
