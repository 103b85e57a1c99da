"""Cells: observations that an archive takes for one. Letters: B observations, F columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners import images_of, integer_rows, is_screen, numbers_of_space
from planvec.rows import check_integer

# `cells(observations) -> [B, F]` integers: observations with equal rows are of one cell
CellFunction = Callable[[Any], Any]


@dataclass(frozen=True)
class Downscaled:
    """Cells of images: grey, of few pixels, of few levels (Ecoffet et al. 2021).

    Args:
        width: Pixels of a row.
        height: Number of rows.
        levels: Levels of grey, from 2 to 256.

    Raises:
        ValueError: A number is out of range.
    """

    width: int = 11
    height: int = 8
    levels: int = 8

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, low, high in (("width", 1, 4096), ("height", 1, 4096), ("levels", 2, 256)):
            check_integer(name, getattr(self, name), low, high)

    def __call__(self, observations: Any) -> NDArray[np.uint8]:
        """Return the cells of images.

        Args:
            observations: `[B, height, width]` or `[B, height, width, 3]` uint8.

        Returns:
            `[B, F]` uint8 with F = width * height of the cells.

        Raises:
            InvalidBatchError: The observations are no images, or smaller than the cells.
        """
        from planvec.exploring.pixels import downscale  # here, since numba takes long to import

        pixels = images_of(observations, "cells")
        if pixels.shape[1] < self.height or pixels.shape[2] < self.width:
            raise InvalidBatchError(
                f"cells: expected images of at least {self.height} x {self.width} pixels, got "
                f"{pixels.shape[1]} x {pixels.shape[2]}"
            )
        cells = np.empty((len(pixels), self.height, self.width), np.uint8)
        downscale(pixels, self.levels, cells)
        return cells.reshape(len(pixels), -1)


def cells_for(space: Space[Any], given: CellFunction | None) -> CellFunction:
    """Return the function of cells that was given, or one that suits an observation space."""
    if given is not None:
        return given
    if is_screen(space):
        return Downscaled()
    return numbers_of_space(space, "cells")


def keys_of(
    cells: CellFunction, observations: Any, num_rows: int, like: NDArray[Any] | None = None
) -> NDArray[Any]:
    """Return the cells of observations, after a check."""
    # `like`: `[F]`, any cell of the archive; None: there is none yet.
    keys = integer_rows(cells(observations), "cells")
    if len(keys) != num_rows:
        raise InvalidBatchError(
            f"cells: expected a function that returns integers [{num_rows}, F], got shape {keys.shape}"
        )
    if like is not None and (keys.dtype != like.dtype or keys.shape[1:] != like.shape):
        raise InvalidBatchError(
            f"cells: expected {like.dtype} [{num_rows}, {len(like)}], as at the start, got {keys.dtype} of "
            f"shape {keys.shape}"
        )
    return np.ascontiguousarray(keys)
