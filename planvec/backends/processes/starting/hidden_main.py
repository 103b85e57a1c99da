"""Hides the user's script from multiprocessing."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

_lock = threading.Lock()
_hidden: dict[str, Any] | None = None


@contextlib.contextmanager
def hidden_main() -> Iterator[None]:
    """Hide the user's script from multiprocessing while a process is started."""
    # Otherwise the child would run the script again, which is why other libraries require a `__main__` guard.
    # The functions and classes of the script that the factory needs are sent by value.
    global _hidden
    module = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    with _lock:
        _hidden = {name: module.__dict__[name] for name in names if name in module.__dict__}
        try:
            module.__dict__.pop("__file__", None)
            module.__dict__["__spec__"] = None
            yield
        finally:
            _restore()


def _restore() -> None:
    global _hidden
    if _hidden is not None:
        variables = vars(sys.modules["__main__"])
        del variables["__spec__"]
        variables.update(_hidden)
        _hidden = None


def forget_hidden_main() -> None:
    """Show the script again in a forked child, and replace the lock: another thread may have held it."""
    global _lock
    _lock = threading.Lock()
    _restore()
