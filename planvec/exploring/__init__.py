"""Explores environments from the states that were reached, and archives them (Go-Explore's first phase).

cells       which observations are taken for one cell; `pixels` reduces images
archive     what users read; `contents`: the cells and the steps that lead there, as growing tables
files       the directory of an archive; it checks the states there, or computes them again
explorer    rounds of exploration, with explorers in two halves
"""

from __future__ import annotations

from planvec.exploring.archive import Archive
from planvec.exploring.cells import CellFunction, Downscaled
from planvec.exploring.explorer import Explorer
from planvec.exploring.files import HEADER, read_header

__all__ = ["HEADER", "Archive", "CellFunction", "Downscaled", "Explorer", "read_header"]
