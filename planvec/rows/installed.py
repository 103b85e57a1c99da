"""Tells the modules of installed packages from those of a program."""

from __future__ import annotations

import functools
import os
import site


@functools.cache
def _folders() -> tuple[str, ...]:
    """Return the folders of Python's own modules and of installed packages."""
    standard_library = os.path.dirname(os.__file__)
    paths = (standard_library, *site.getsitepackages(), site.getusersitepackages())
    return tuple(path + os.sep for path in paths)


def is_installed(path: str) -> bool:
    """Return whether a file belongs to Python, or to a package that was installed and is not being edited."""
    return path.startswith(_folders())
