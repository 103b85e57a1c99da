"""Compiled reduction of images. Letters: B images, C colours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.kernels import jit


@jit(cache=True)
def downscale(pixels: NDArray[np.uint8], levels: Any, cells: NDArray[np.uint8]) -> None:
    """Write the mean grey of each part of images, in few levels."""
    # `pixels`: `[B, height, width, C]`, C = 1 or 3. `cells`: `[B, rows, columns]`, written.
    height, width, num_colors = pixels.shape[1], pixels.shape[2], pixels.shape[3]
    num_rows, num_columns = cells.shape[1], cells.shape[2]
    for image in range(len(pixels)):
        for row in range(num_rows):
            top, bottom = row * height // num_rows, (row + 1) * height // num_rows
            for column in range(num_columns):
                left, right = column * width // num_columns, (column + 1) * width // num_columns
                total = np.int64(0)
                for y in range(top, bottom):
                    for x in range(left, right):
                        if num_colors == 3:  # ITU-R 601: the weights of grey, in thousandths
                            total += (
                                299 * np.int64(pixels[image, y, x, 0])
                                + 587 * np.int64(pixels[image, y, x, 1])
                                + 114 * np.int64(pixels[image, y, x, 2])
                            )
                        else:
                            total += 1000 * np.int64(pixels[image, y, x, 0])
                size = np.int64(1000 * 256) * np.int64((bottom - top) * (right - left))
                cells[image, row, column] = np.uint8(total * levels // size)
