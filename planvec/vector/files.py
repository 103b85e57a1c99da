"""Writes and reads the files of vector environments: arrays and JSON, no pickles of objects.

The bytes of a state of variable size are a pickle that the codec of the environment has written. They are
read with `planvec.codecs.from_file`, which lets them refer to nothing but what such states consist of.

    header              JSON: the version, the number of environments, and per part what is no array
    states_0, ...       the states of each part; see `planvec.rows.arrays_of_states`
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.codecs import ResidentState
from planvec.errors import InvalidBatchError
from planvec.rows import DAMAGED, arrays_of_states, read_arrays, states_of_arrays, write_arrays
from planvec.vector.resident_states import SavedRows

_VERSION = 1


def write_rows(path: str | Path, parts: Sequence[SavedRows], num_envs: int) -> None:
    """Write the rows of a vector environment. An existing file is replaced when the new one is complete."""
    header: dict[str, Any] = {"version": _VERSION, "num_envs": num_envs, "parts": []}
    arrays: dict[str, NDArray[Any]] = {}
    for index, part in enumerate(parts):
        described: dict[str, Any] = {
            "rows": [int(row) for row in part.rows],
            "origin": part.origin,
            "fingerprints": [fingerprint.hex() for fingerprint in part.fingerprints],
            "beside": [[state._asdict(), needs_reset] for state, needs_reset in part.beside],
        }
        header["parts"].append(described)
        arrays |= arrays_of_states(f"states_{index}", part.states)
    text = np.array(json.dumps(header, default=_as_number))
    write_arrays(Path(path), {"header": text, **arrays})


def _as_number(value: Any) -> Any:
    """Return a NumPy scalar as Python's number, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written")


def read_rows(path: str | Path, num_envs: int) -> list[SavedRows]:
    """Read what `write_rows` wrote."""
    try:
        arrays = read_arrays(path)
        header = json.loads(str(arrays["header"]))
        if header["version"] != _VERSION:
            raise ValueError(f"version {header['version']} instead of {_VERSION}")
        parts = [
            _read_part(described, states_of_arrays(f"states_{index}", arrays))
            for index, described in enumerate(header["parts"])
        ]
    except (*DAMAGED, AttributeError) as error:
        raise InvalidBatchError(
            f"path: expected a file that save() wrote, got {path}, which is damaged or of another kind "
            f"({type(error).__name__}: {error})"
        ) from error
    if header["num_envs"] != num_envs:
        raise InvalidBatchError(f"path: expected {num_envs} environments, got {header['num_envs']} in {path}")
    return parts


def _read_part(described: dict[str, Any], states: NDArray[Any]) -> SavedRows:
    rows, origin = described["rows"], described["origin"]
    if states.shape != (len(rows),):
        raise ValueError(f"expected {len(rows)} states, got shape {states.shape}")
    beside = [
        (ResidentState(**{**state, "spaces": tuple(state["spaces"])}), bool(needs_reset))
        for state, needs_reset in described["beside"]
    ]
    fingerprints = [bytes.fromhex(text) for text in described["fingerprints"]]
    return SavedRows(rows, origin, fingerprints, states, beside)
