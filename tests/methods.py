"""The start methods of workers, to run the same tests with each."""

from __future__ import annotations

from typing import Any

import pytest

METHODS: list[Any] = [
    "template",
    *(pytest.param(method, marks=pytest.mark.slow) for method in ("fork", "spawn")),
]
"""As parameters. The quick suite has the default alone; many tests of one method use fork."""
