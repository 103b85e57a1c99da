"""What observations hold: screens, or numbers, which become integers. Letters: B observations, F columns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.planners.root_actions import space_leaves
from planvec.rows import check_integer

# `features(observations) -> [B, F]` integers: a feature says that a column has a value
FeatureFunction = Callable[[Any], Any]

NUM_COLORS = 128  # colours of screens that are told apart
# shape of what codes of screens depend on: a hash table of colours with their numbers; the last row counts
MEMORY_SHAPE = (1024, 2)
_MIN_SCREEN = 32  # height and width from which on an image is a screen
_NUM_BINS, _LARGEST = 32, 10**9


def check_features(features: object) -> None:
    """Check that a setting is a function of observations, `planvec.Screens()`, or None."""
    is_given = features is not None
    if is_given and (
        isinstance(features, type) or not (callable(features) or hasattr(features, "new_table"))
    ):
        raise ValueError(f"features: expected a function of observations, got {features!r}")


def is_screen(space: Space[object]) -> bool:
    """Return whether observations are images, `[height, width]` or `[height, width, 3]`, not small grids."""
    if not isinstance(space, spaces.Box) or space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return False
    return min(space.shape[:2]) >= _MIN_SCREEN and (len(space.shape) == 2 or space.shape[2] in (1, 3))


def images_of(observations: Any, argument: str) -> NDArray[np.uint8]:
    """Return observations as images `[B, height, width, C]` with C = 1 or 3, in one piece of memory."""
    # `observations`: `[B, height, width]` or `[B, height, width, 3]` uint8.
    if isinstance(observations, (dict, tuple)):
        parts = f"a dict with {', '.join(observations)}" if isinstance(observations, dict) else "a tuple"
        raise InvalidBatchError(
            f"{argument}: expected images, got {parts}; write a function that takes them from it"
        )
    pixels = np.asarray(observations)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.ndim != 4 or pixels.dtype != np.uint8 or pixels.shape[3] not in (1, 3):
        raise InvalidBatchError(
            f"{argument}: expected images [B, height, width, 3] or [B, height, width] of uint8, got "
            f"{pixels.dtype} of shape {np.shape(observations)}"
        )
    return np.ascontiguousarray(pixels)


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

    def __call__(self, observations: object) -> NDArray[np.uint8]:
        """Return the cells of images.

        Args:
            observations: `[B, height, width]` or `[B, height, width, 3]` uint8.

        Returns:
            `[B, F]` uint8 with F = width * height of the cells.

        Raises:
            InvalidBatchError: The observations are no images, or smaller than the cells.
        """
        from planvec.planners.novelty.pixels import downscale  # here, since numba takes long to import

        pixels = images_of(observations, "cells")
        if pixels.shape[1] < self.height or pixels.shape[2] < self.width:
            raise InvalidBatchError(
                f"cells: expected images of at least {self.height} x {self.width} pixels, got "
                f"{pixels.shape[1]} x {pixels.shape[2]}"
            )
        cells = np.empty((len(pixels), self.height, self.width), np.uint8)
        downscale(pixels, self.levels, cells)
        return cells.reshape(len(pixels), -1)


def integer_rows(values: object, argument: str) -> np.ndarray:
    """Return what a user's function made of observations as an array of integers `[B, F]`."""
    expected = f"{argument}: expected a function that returns integers [B, F], got"
    try:
        rows = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise InvalidBatchError(f"{expected} {values!r}") from error
    if rows.ndim != 2 or rows.dtype.kind not in "biu" or not rows.shape[1]:
        fix = "; end it with .astype(int)" if rows.dtype.kind == "f" else ""
        raise InvalidBatchError(f"{expected} {rows.dtype} of shape {rows.shape}{fix}")
    return rows


def numbers_of_space(space: Space[object], argument: str) -> Callable[[Any], NDArray[np.int64]]:
    """Return a function that turns observations into integers `[B, F]`."""
    # Integers stay as they are. Of other numbers it gives the index of one of 32 equal intervals where the
    # space is bounded, and elsewhere of intervals whose width grows with the number.
    if not any(_is_numeric(leaf) for _, leaf, _ in space_leaves(space, space)):
        raise UnsupportedEnvError(
            f"{argument}: expected a function of the observations, since those of {space} hold no numbers"
        )
    return functools.partial(_numbers, space)


def _numbers(space: Space[object], observations: object) -> NDArray[np.int64]:
    """Return the numbers of observations as integers."""
    columns = []
    for _, leaf, part in space_leaves(space, observations):
        if _is_numeric(leaf):
            values = np.asarray(part)
            values = values.reshape(len(values), -1)
            columns.append(values.astype(np.int64) if values.dtype.kind in "biu" else _bins(leaf, values))
    return np.concatenate(columns, axis=1)


def _is_numeric(space: Space[object]) -> bool:
    """Return whether elements of a space are arrays of numbers."""
    numeric = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    return isinstance(space, numeric) and 0 not in (space.shape or ())


def _bins(space: Any, values: np.ndarray) -> NDArray[np.int64]:
    """Return the index of the interval of each number `[B, N]`."""
    low, high = (np.asarray(bound, np.float64).reshape(-1) for bound in (space.low, space.high))
    # float32's largest number stands for "no bound" in many environments.
    is_bounded = (low > -1e30) & (high < 1e30)
    span = np.where(is_bounded & (high > low), high - low, 1.0)
    equal = np.floor((values - np.where(is_bounded, low, 0.0)) / span * _NUM_BINS)
    growing = np.floor(np.arcsinh(np.asarray(values, np.float64) * 4) * 4)
    chosen = np.nan_to_num(np.where(is_bounded, equal, growing))
    indices: NDArray[np.int64] = np.clip(chosen, -_LARGEST, _LARGEST).astype(np.int64)
    return indices
