"""Explores environments from the states that were reached, and archives them (Go-Explore's first phase).

cells       which observations are taken for one cell; `pixels` reduces images
archive     the best state of each cell; `steps` leads there, `tables` grow, `files` keeps them on disk
explorer    rounds of exploration; `walkers` is half of its explorers
"""

from __future__ import annotations

from planvec.exploring.archive import Archive
from planvec.exploring.cells import CellFunction, Downscaled
from planvec.exploring.explorer import Explorer

__all__ = ["Archive", "CellFunction", "Downscaled", "Explorer"]
