"""How states of this family are saved and restored."""

from __future__ import annotations

__all__: list[str] = []
