"""Kernels that users declare for environment classes of their own.

`declared` declares and knows them. `compiled` compiles functions of numbers, and `batch` runs NumPy functions
of whole batches.
"""

from __future__ import annotations

__all__: list[str] = []
