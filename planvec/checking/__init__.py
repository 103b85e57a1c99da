"""The exactness check: whether an environment is saved and restored to the bit."""

from __future__ import annotations

__all__: list[str] = []
