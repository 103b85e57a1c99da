"""The start methods of workers, to run the same tests with each."""

from __future__ import annotations

from typing import Any

import pytest

METHODS: list[Any] = [
    "template",
    "fork",
    pytest.param("forkserver", marks=pytest.mark.slow),
    pytest.param("spawn", marks=pytest.mark.slow),
]
"""As parameters. The quick suite has the default, and the one that shares most with this process."""
