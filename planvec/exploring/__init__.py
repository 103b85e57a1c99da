"""Explores environments from the states that were reached, and archives them (Go-Explore's first phase).

cells       which observations are taken for one cell; `pixels` reduces images
archive     what users read; `contents`: the cells (`store`, `tables`) and the steps that lead there (`steps`)
files       the directory of an archive; `replay` checks its states, or computes them again
explorer    rounds of exploration; `walkers` is half of its explorers
"""

from __future__ import annotations

from planvec.exploring.archive import Archive
from planvec.exploring.cells import CellFunction, Downscaled
from planvec.exploring.explorer import Explorer
from planvec.exploring.files import HEADER, read_header

__all__ = ["HEADER", "Archive", "CellFunction", "Downscaled", "Explorer", "read_header"]
