"""Kernels that users declare for environment classes of their own.

`decorators` declares them, and `registered` knows them. `compiled` compiles functions of numbers, and `batch`
runs NumPy functions of whole batches. `watch` tells when an environment was changed, so that a kernel has to
be compared with it again.
"""

from __future__ import annotations

__all__: list[str] = []
