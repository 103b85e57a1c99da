"""Holds the spaces that pickles refer to by name, and saves their generators if the environment draws."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium

from planvec.codecs.generic.attributes import spaces_in


class NamedSpaces:
    """Holds spaces, with those inside them."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._spaces = {
            path: spaces_in(space) for path, space in named.items() if isinstance(space, gymnasium.Space)
        }
        self._first = {
            path: [copy.deepcopy(space._np_random) for space in spaces]
            for path, spaces in self._spaces.items()
        }
        self.saved: list[gymnasium.Space[Any]] = []  # the spaces whose generators are part of states

    def all(self) -> list[gymnasium.Space[Any]]:
        """Return all spaces. Resets may draw from them, which no state shows."""
        return [space for spaces in self._spaces.values() for space in spaces]

    def save(self, paths: Sequence[str]) -> None:
        """Put the generators of spaces back to the start, and save them from now on."""
        for path in paths:
            spaces = self._spaces[path]
            for space, generator in zip(spaces, self._first[path], strict=True):
                space._np_random = copy.deepcopy(generator)
            self.saved += spaces

    def generators(self) -> list[Any]:
        """Return the generators that are saved."""
        return [space._np_random for space in self.saved]

    def restore(self, generators: Sequence[Any]) -> None:
        """Restore what `generators` returned."""
        for space, generator in zip(self.saved, generators, strict=True):
            space._np_random = generator
