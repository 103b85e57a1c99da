"""Explores environments from the states that were reached, and archives them (Go-Explore's first phase).

archive     cells, the steps that lead there, and their file, whose states it checks, or computes again
explorer    rounds of exploration, with explorers in two halves
"""

from __future__ import annotations

from planvec.exploring.archive import ARCHIVE_FILE, Archive, CellFunction, holds_archive, read_manifest
from planvec.exploring.explorer import Explorer
from planvec.planners import Downscaled

__all__ = [
    "ARCHIVE_FILE",
    "Archive",
    "CellFunction",
    "Downscaled",
    "Explorer",
    "holds_archive",
    "read_manifest",
]
