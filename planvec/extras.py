"""Tells which packages an extra of planvec installs, for messages about what is missing."""

from __future__ import annotations

import importlib.metadata
import re

_OF_EXTRA = re.compile(r"\s*(?P<package>[^;]+?)\s*;.*\bextra\s*==\s*[\"'](?P<extra>[^\"']+)[\"']")
_OWN = re.compile(r"planvec\[(?P<extras>[^\]]+)\]")


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra, such as `pip install "ale-py>=0.12"`."""
    # The packages are named and not the extra: `planvec[atari]` can only be installed where planvec is on an
    # index or where its source is.
    packages = _packages(extra)
    return "pip install " + " ".join(f'"{package}"' for package in packages or [f"planvec[{extra}]"])


def _packages(extra: str) -> list[str]:
    """Return the requirements of an extra; [] if planvec was not installed."""
    try:
        requirements = importlib.metadata.requires("planvec") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    packages: list[str] = []
    for requirement in requirements:
        match = _OF_EXTRA.match(requirement)
        if match is None or match["extra"].replace("_", "-") != extra:
            continue
        own = _OWN.match(match["package"])
        others = own["extras"].split(",") if own else []
        packages += [package for other in others for package in _packages(other.strip())] or [
            match["package"]
        ]
    return list(dict.fromkeys(packages))
