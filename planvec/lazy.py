"""Imports the public names of a package, and its modules, when they are first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package."""

    def get(name: str) -> Any:
        module = modules.get(name, f"{package}.{name}")
        is_module = name not in modules
        try:
            if name.startswith("_"):
                raise ModuleNotFoundError(name=module)
            imported = importlib.import_module(module)
            value = imported if is_module else getattr(imported, name)
        except ImportError as error:
            if is_module and error.name == module:
                raise AttributeError(f"module {package!r} has no attribute {name!r}") from None
            _check_gymnasium(error)
            raise
        except AttributeError as error:
            _check_gymnasium(error)
            # Else Python would take it for an unknown name of the package, and hide it.
            import traceback  # here: `import planvec` does not need it

            *_, frame = traceback.extract_tb(error.__traceback__)
            raise ImportError(
                f"while importing {module}: {type(error).__name__}: {error} "
                f"({frame.filename}, line {frame.lineno})"
            ) from error
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*modules, *vars(sys.modules[package])})

    return get, names


def _check_gymnasium(error: Exception) -> None:
    """Say that Gymnasium is too old, if that explains an error."""
    import importlib.metadata  # here: `import planvec` does not need it
    import re

    try:
        found = importlib.metadata.version("gymnasium")
    except importlib.metadata.PackageNotFoundError:  # none, or a frozen application
        return
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is not None and tuple(map(int, numbers.groups())) < (1, 1):
        raise ImportError(
            f"planvec needs gymnasium>=1.1, and {found} is installed, perhaps since another package asks for "
            "it. Install both in environments of their own, or look for a newer version of that package"
        ) from error
