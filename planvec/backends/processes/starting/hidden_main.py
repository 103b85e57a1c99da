"""Hides the user's script from multiprocessing."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

__all__ = ["forget_hidden_main", "hidden_main"]

_lock = threading.Lock()


@contextlib.contextmanager
def hidden_main() -> Iterator[None]:
    """Hide the user's script from multiprocessing while a process is started.

    Otherwise the child would run the script again, which is why other libraries require a `__main__` guard.
    The functions and classes of the script that the factory needs are sent by value.
    """
    module = sys.modules["__main__"]
    names = ("__file__", "__spec__")
    with _lock:
        hidden = {name: module.__dict__[name] for name in names if name in module.__dict__}
        try:
            module.__dict__.pop("__file__", None)
            module.__dict__["__spec__"] = None
            yield
        finally:
            module.__dict__.update(hidden)
            if "__spec__" not in hidden:
                module.__dict__.pop("__spec__", None)


def forget_hidden_main() -> None:
    """Replace the lock in a forked child, since another thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()
