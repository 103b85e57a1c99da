"""Features of observations, by which width-based planners tell what is new.

Letters: B observations, F columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.novelty.numbers import (
    FeatureFunction,
    images_of,
    integer_rows,
    is_screen,
    numbers_of_space,
)
from planvec.planners.novelty.screens import NUM_COLORS, ROWS, encode_screens
from planvec.planners.novelty.tables import NoveltyTable, ScreenTable, ValueTable

MEMORY_SHAPE = (1024, 2)  # shape of what codes depend on: a hash table of colours
# MiniGrid's number of the agent, and a bound of a cell's kind, colour and state in one number
_AGENT, _NUM_CONTENTS = 10, 2**24
_LARGEST_GRID = 31


class Features(ABC):
    """Turns observations into codes, and makes tables that know which features of codes were seen."""

    @abstractmethod
    def encode(self, observations: Any, memory: NDArray[np.int32]) -> NDArray[Any]:
        """Return the codes `[B, ...]` of observations.

        Args:
            observations: `[B, ...]`, stacked by the observation space.
            memory: `[1024, 2]` int32, zeros at first: what the codes of a tree depend on; changed.
        """

    @abstractmethod
    def new_table(self) -> NoveltyTable:
        """Return a table that has seen nothing."""


class Values(Features):
    """Features of a function that returns integers."""

    # `function`: `function(observations) -> [B, F]`.

    def __init__(self, function: FeatureFunction) -> None:
        self._function = function

    def encode(self, observations: Any, memory: NDArray[np.int32]) -> NDArray[Any]:
        """Return `[B, F]` int64; see `Features.encode`."""
        values = integer_rows(self._function(observations), "features")
        return np.ascontiguousarray(values, np.int64)

    def new_table(self) -> NoveltyTable:
        """Return a table that has seen nothing."""
        return ValueTable()


class Screens(Features):
    """B-PROST features of images (Liang et al. 2016): colours of tiles, and distances between colours.

    Images are `[height, width, 3]` or `[height, width]` uint8 of any size, divided into 14 rows of 16 tiles.
    The first 128 colours are told apart.
    """

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def encode(self, observations: Any, memory: NDArray[np.int32]) -> NDArray[Any]:
        """Return `[B, 128 * 14 + 64]` uint16; see `Features.encode`.

        Raises:
            InvalidBatchError: The observations are no images.
        """
        pixels = images_of(observations, "features")
        codes = np.zeros((len(pixels), NUM_COLORS * ROWS + NUM_COLORS // 2), np.uint16)
        tiles = np.zeros((len(pixels), NUM_COLORS, ROWS), np.uint16)
        encode_screens(pixels, memory, tiles, pixels.shape[3] == 3)
        codes[:, : NUM_COLORS * ROWS] = tiles.reshape(len(pixels), -1)
        return codes

    def new_table(self) -> NoveltyTable:
        """Return a table that has seen nothing."""
        return ScreenTable()


def encode(
    features: Features,
    observations: Any,
    memory: NDArray[np.int32],
    num_rows: int,
    like: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Return the codes of observations, after a check of their shape."""
    codes = features.encode(observations, memory)
    num_columns = codes.shape[1] if like is None else like.shape[-1]
    if codes.shape != (num_rows, num_columns):
        expected = f"[{num_rows}, F]" if like is None else f"[{num_rows}, {num_columns}], as before"
        raise InvalidBatchError(f"features: expected integers {expected}, got shape {codes.shape}")
    return codes


class NewFeatures:
    """Counts the features of observations that were not seen before in a decision."""

    def __init__(self, features: Features) -> None:
        self._features = features
        self._table = features.new_table()
        self._memory = np.zeros(MEMORY_SHAPE, np.int32)

    def count(
        self, observations: Any, num_rows: int, parents: NDArray[Any] | None
    ) -> tuple[NDArray[np.float64], NDArray[Any]]:
        """Return how many features of each observation are new, and remember them."""
        codes = encode(self._features, observations, self._memory, num_rows, parents)
        numbers = np.empty(len(codes))
        for row, code in enumerate(codes):
            before = None if parents is None else parents[row]
            numbers[row] = len(self._table.mark(code, before, 0, before is None))
        return numbers, codes


def features_for(space: Space[Any], given: Features | FeatureFunction | None) -> Features:
    """Return the features that were given, or those that suit an observation space."""
    # Images of at least 32 x 32 get `Screens`, those of MiniGrid `grid_features`; bytes (the RAM of Atari)
    # and other integers are features themselves; of numbers in a bounded Box, the index of one of 32 equal
    # intervals, elsewhere of intervals whose width grows with the number.
    if isinstance(given, Features):
        return given
    if given is not None:
        return Values(given)
    if is_screen(space):
        return Screens()
    if _is_grid(space):
        return Values(grid_features)
    return Values(numbers_of_space(space, "features"))


def grid_features(observations: Any) -> NDArray[np.int64]:
    """Return what each cell of a MiniGrid holds, together with the direction of the agent and its cell."""
    # In the agent's own view its cell, the middle of the last row, shows what it carries: a key that is
    # carried makes every other cell new again. `FullyObsWrapper` shows where the agent is; that a key is
    # carried makes only the cell new in which it lay.
    # `observations`: A dict with "image" `[B, width, height, 3]`, and perhaps "direction" `[B]`.
    image = np.asarray(observations["image"]).astype(np.int64)
    num_rows, width, height, _ = image.shape
    cells = (image @ np.array([1, 2**8, 2**16])).reshape(num_rows, -1)
    is_agent = image[..., 0].reshape(num_rows, -1) == _AGENT
    own_place = (width // 2) * height + height - 1
    places = np.where(is_agent.any(axis=1), is_agent.argmax(axis=1), own_place)
    direction = np.asarray(observations.get("direction", 0), np.int64)
    context = (places * _NUM_CONTENTS + cells[np.arange(num_rows), places]) * 4 + direction
    features: NDArray[np.int64] = context[:, None] * _NUM_CONTENTS + cells
    return features


def _is_grid(space: Space[Any]) -> bool:
    """Return whether observations are those of MiniGrid."""
    if not isinstance(space, spaces.Dict) or not space.keys() <= {"image", "direction", "mission"}:
        return False
    image, direction = space.get("image"), space.get("direction", spaces.Discrete(4))
    if not isinstance(direction, spaces.Discrete) or (direction.start, direction.n) != (0, 4):
        return False
    if not isinstance(image, spaces.Box) or image.dtype != np.uint8 or len(image.shape) != 3:
        return False
    return image.shape[2] == 3 and max(image.shape[:2]) <= _LARGEST_GRID
