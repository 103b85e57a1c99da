"""Defines the type that stands for the code of tree search in the signatures of its compiled functions."""

from __future__ import annotations

import functools
from pathlib import Path

from planvec.kernels import CodeType, code_digest


@functools.cache
def search_code() -> CodeType:
    """Return the type, which is another one after any change in this package."""
    # All functions of tree search take the same one. Python calls some of them, which also call each other:
    # with types of their own they would be compiled once for each caller.
    folder = Path(__file__).parents[1]
    return CodeType(code_digest(*[path.read_text() for path in sorted(folder.rglob("*.py"))]))
