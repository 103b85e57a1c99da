"""Prints what DI-engine requires, but for the versions of PyTorch and setuptools, which are years old."""

from __future__ import annotations

from importlib.metadata import requires

if __name__ == "__main__":
    for requirement in requires("DI-engine") or ():
        if "extra ==" not in requirement and not requirement.startswith(("torch", "setuptools")):
            print(requirement)
