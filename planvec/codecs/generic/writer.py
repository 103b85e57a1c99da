"""Writes and reads the pickles of one graph of objects, with the fastest pickler that serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from planvec.codecs.generic.attributes import ADVICE
from planvec.codecs.generic.library_memory import LibraryMemory
from planvec.codecs.generic.pickling import FastPickler, ThoroughPickler, load_graph
from planvec.codecs.generic.short_forms import ShortForms
from planvec.codecs.generic.words import NO_WORDS, words_of
from planvec.errors import UnsupportedEnvError


class GraphWriter:
    """Converts the attributes of objects to bytes and back."""

    # `has_sets`: Whether a set was written so far.

    has_sets = False

    def __init__(self, owners: Sequence[str], memory: LibraryMemory | None) -> None:
        self._owners = owners
        self._short_forms = ShortForms(memory)
        self._fast: FastPickler | None = None  # until `settle`
        self._words = NO_WORDS
        self._needs_callbacks = False
        self._kinds: set[type] = set() if memory is None else {np.ndarray}

    def find_tables(self, attributes: list[dict[str, Any]], names: dict[int, str]) -> None:
        """Look for large arrays, which are referred to by name as long as they do not change."""
        try:
            ThoroughPickler(names, self._short_forms, finds_tables=True).dumps(attributes)
        except Exception:  # the first `dumps` reports it
            return

    def find_words(
        self, attributes: list[dict[str, Any]], names: dict[int, str], objects: dict[str, Any]
    ) -> None:
        """Look for what later pickles refer to by number. To be called after a reset, and before `settle`."""
        pickler = self._fast_pickler(objects.values())
        try:
            pickler.dumps(attributes, names)
            self._words = words_of(attributes, pickler.memorised(), objects)
        except Exception:  # `ThoroughPickler` will do
            return

    def referred(self) -> list[str]:
        """Return the names of what pickles refer to: large arrays, and what has a number."""
        return [*self._short_forms.tables.names(), *self._words.texts()]

    def numbered(self) -> list[str]:
        """Return the names of what has a number, in the order of the numbers."""
        return self._words.texts()

    def dumps(self, attributes: list[dict[str, Any]], names: dict[int, str]) -> tuple[bytes, list[Any]]:
        """Return the pickle of some attributes, and the random generators in them."""
        result = self._dumps(attributes, names)
        if self._short_forms.shares_parts:
            self._short_forms.lengthen_generators()
            result = self._dumps(attributes, names)
        return result

    def _dumps(self, attributes: list[dict[str, Any]], names: dict[int, str]) -> tuple[bytes, list[Any]]:
        if self._fast is not None:
            try:
                return self._fast.dumps(attributes, names), self._fast.generators
            except Exception:  # `ThoroughPickler` handles more types, and its errors are reported below
                self._fast = None
        pickler = ThoroughPickler(names, self._short_forms)
        try:
            data = pickler.dumps(attributes)
        except RecursionError:
            pickler = ThoroughPickler(names, self._short_forms, is_deep=True)
            try:
                data = pickler.dumps(attributes)
            except Exception as error:
                self._raise_unpicklable(attributes, names, error)
        except Exception as error:
            self._raise_unpicklable(attributes, names, error)
        self._needs_callbacks |= pickler.needs_callbacks
        self.has_sets |= pickler.has_sets
        self._kinds |= pickler.kinds
        return data, pickler.generators

    def settle(self, named: Iterable[Any]) -> None:
        """Choose the faster pickler, if it has written nothing else so far. To be called after some steps."""
        if not self._needs_callbacks:
            self._fast = self._fast_pickler(named)

    def settle_as(self, other: GraphWriter, named: Mapping[str, Any], objects: Iterable[Any]) -> None:
        """Write in the same form as the writer of another environment of the same kind, after its proof."""
        self._words = other._words.with_objects(named)
        self._kinds |= other._kinds
        self._needs_callbacks |= other._needs_callbacks
        self.settle(objects)

    def _fast_pickler(self, named: Iterable[Any]) -> FastPickler:
        return FastPickler(filter(_has_own_type, named), self._kinds, self._short_forms, self._words)

    def loads(self, data: bytes, objects: dict[str, Any], order_of_sets: int | None) -> Any:
        """Return the attributes of a pickle."""
        return load_graph(data, objects, self._short_forms, self._words, order_of_sets)

    def _raise_unpicklable(
        self, attributes: list[dict[str, Any]], names: dict[int, str], error: Exception
    ) -> Any:
        """Raise the error of a failed pickle, with the name of the attribute that caused it."""
        for owner, values in zip(self._owners, attributes, strict=False):
            for name, value in values.items():
                try:
                    ThoroughPickler(names, self._short_forms).dumps(value)
                except RecursionError:
                    continue
                except UnsupportedEnvError as cause:
                    raise UnsupportedEnvError(f"{owner}.{name} holds a {cause}") from cause
                except Exception as cause:
                    raise UnsupportedEnvError(
                        f"{owner}.{name}: {type(value).__name__} cannot be "
                        f'pickled ({cause}). If it never changes, pass codec=planvec.Copied(["{name}"]). '
                        f"{ADVICE}"
                    ) from cause
        raise UnsupportedEnvError(
            f"{self._owners[0]}: its attributes cannot be pickled ({error}). {ADVICE}"
        ) from error


def _has_own_type(value: Any) -> bool:
    """Return whether few other objects have the type of a value, so that a callback for it costs little."""
    kind = type(value)
    return kind is object or not (kind.__module__ == "builtins" or isinstance(value, np.ndarray))
