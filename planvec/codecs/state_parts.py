"""The parts of a state besides the fields of the environment's own codec.

Each part has a `dtype` (None if its size varies), `pack` and `unpack`, as a `Codec` has. Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.codecs import generator
from planvec.codecs.base import WrapperCodec
from planvec.rows import GENERATOR_FIELD, is_fixed


class StatePart(Protocol):
    """The interface of one part of a state."""

    dtype: np.dtype[Any] | None  # A structured dtype with the fields of the part; None if its size varies

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        """Write values `[B]` into the fields of records `[B]`."""

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        """Read values `[B]` from the fields of records `[B]`."""


class GeneratorPart:
    """Converts the states of `env.np_random`."""

    dtype: np.dtype[Any] | None = np.dtype([(GENERATOR_FIELD, generator.GENERATOR)])

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        generator.pack_generators(values, records[GENERATOR_FIELD])

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        return generator.unpack_generators(records[GENERATOR_FIELD])


class WrapperPart:
    """Converts the values of a wrapper's codec, nested under one field name."""

    dtype: np.dtype[Any] | None

    def __init__(self, name: str, codec: WrapperCodec) -> None:
        self._name = name
        self._codec = codec
        self.dtype = None if codec.dtype is None else np.dtype([(name, codec.dtype)])

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        self._codec.pack(values, records[self._name])

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        return self._codec.unpack(records[self._name])


class ObservationPart:
    """Converts the observations that states were reached with."""

    dtype: np.dtype[Any] | None

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self._discrete = isinstance(space, spaces.Discrete)
        fixed = is_fixed(space) and not isinstance(space, (spaces.Dict, spaces.Tuple))
        self.dtype = np.dtype([("observation", space.dtype, space.shape)]) if fixed else None

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        records["observation"] = np.array(values)

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        column = records["observation"]
        return list(column.tolist() if self._discrete else column)  # views: callers copy what they keep
