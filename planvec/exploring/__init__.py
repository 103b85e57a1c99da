"""Explores environments from the states that were reached, and archives them (Go-Explore's first phase).

cells       which observations are taken for one cell; `pixels` reduces images
archive     what users read; it checks the states of a file, or computes them again
tables      the cells and the steps that lead there, which grow
files       the file of an archive, and the lock of its directory
explorer    rounds of exploration, with explorers in two halves
"""

from __future__ import annotations

from planvec.exploring.archive import Archive
from planvec.exploring.cells import CellFunction, Downscaled
from planvec.exploring.explorer import Explorer
from planvec.exploring.files import ARCHIVE_FILE, holds_archive, read_manifest

__all__ = [
    "ARCHIVE_FILE",
    "Archive",
    "CellFunction",
    "Downscaled",
    "Explorer",
    "holds_archive",
    "read_manifest",
]
