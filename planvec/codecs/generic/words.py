"""What pickles of one environment refer to by number: names of attributes, classes, functions, named objects.

They make up most of a pickle of a few attributes, and looking up classes by name takes most of the time to
read it. All of them are found in the first pickle after a reset, which is the same in every process.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from planvec.codecs.generic.attributes import attributes_of
from planvec.codecs.unpickling import unpickle

# Pickles refer to the first 256 objects by two bytes. Further ones are left to the objects in the state.
_MAX_WORDS = 200
_TAKE_WORD = pickle.NEXT_BUFFER + pickle.MEMOIZE + pickle.POP
_OBJECT = "object "
_DEFINITIONS = (type, types.FunctionType, types.BuiltinFunctionType)
_HAS_NO_NAMES = (str, bytes, bytearray, tuple, list, dict, set, frozenset, np.ndarray)


class Words:
    """Numbers objects that a pickler need not write and an unpickler need not look up."""

    def __init__(self, words: Mapping[str, Any]) -> None:
        self._words = words
        self._texts = sorted(words)[:_MAX_WORDS]
        self._objects = [words[text] for text in self._texts]
        self._pickler = pickle.Pickler(io.BytesIO(), protocol=5)
        self._pickler.memo = {id(obj): (index, obj) for index, obj in enumerate(self._objects)}
        # To the unpickler the words are out-of-band buffers, which it takes one by one as they are.
        self._header = pickle.PROTO + b"\x05" + _TAKE_WORD * len(self._objects)

    def with_objects(self, named: Mapping[str, Any]) -> Words:
        """Return the same words for another environment of the same kind."""
        return Words(
            {
                text: named[text.removeprefix(_OBJECT)] if text.startswith(_OBJECT) else obj
                for text, obj in self._words.items()
            }
        )

    def texts(self) -> list[str]:
        """Return the texts, in the order of the numbers."""
        return self._texts

    def give_to(self, pickler: pickle.Pickler) -> None:
        """Let a pickler know the words, and nothing else."""
        pickler.memo = self._pickler.memo  # a copy

    def loads(self, data: bytes) -> Any:
        """Return what such a pickler wrote."""
        return unpickle(self._header + data, buffers=self._objects)


NO_WORDS = Words({})


def words_of(
    attributes: Iterable[Mapping[str, Any]], pickled: Iterable[Any], named: Mapping[str, Any]
) -> Words:
    """Return the words of a pickle."""
    words: dict[str, Any] = {}
    names = {id(obj): name for name, obj in named.items()}
    for obj in pickled:
        if id(obj) in names:
            words[_OBJECT + names[id(obj)]] = obj
        elif isinstance(obj, _DEFINITIONS):
            if isinstance(getattr(obj, "__self__", None), (types.ModuleType, types.NoneType)):  # no method
                words[f"{obj.__module__}.{obj.__qualname__}"] = obj
        elif isinstance(obj, np.dtype):
            if obj is np.dtype(obj.str):
                words[f"dtype {obj.str}"] = obj
        elif not isinstance(obj, _HAS_NO_NAMES):
            words |= _attribute_names(attributes_of(obj))
    for of_one_object in attributes:
        words |= _attribute_names(of_one_object)
    return Words(words)


def _attribute_names(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {f"attribute {name}": name for name in attributes}
