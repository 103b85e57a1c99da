"""Explores environments from the states that were reached, and archives them (Go-Explore's first phase).

cells       which observations are taken for one cell; `pixels` reduces images
archive     what users read, and its file, whose states it checks, or computes again
tables      the cells and the steps that lead there, which grow
explorer    rounds of exploration, with explorers in two halves
"""

from __future__ import annotations

from planvec.exploring.archive import ARCHIVE_FILE, Archive, holds_archive, read_manifest
from planvec.exploring.cells import CellFunction, Downscaled
from planvec.exploring.explorer import Explorer

__all__ = [
    "ARCHIVE_FILE",
    "Archive",
    "CellFunction",
    "Downscaled",
    "Explorer",
    "holds_archive",
    "read_manifest",
]
