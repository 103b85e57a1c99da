"""Defines what all faces of vector environments have beyond the originals: exact states, and counts.

Letters: N environments, B rows of a call.
"""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.backends import Stats
from planvec.codecs import ResidentState
from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.rows import (
    arrays_of_states,
    as_states,
    damage_named,
    finish_rows,
    read_arrays,
    states_of_arrays,
    write_arrays,
)
from planvec.vector import checks
from planvec.vector.engine import Engine
from planvec.vector.env_row import InfoForm, SavedRows
from planvec.vector.operations import RowsCall

# -- The files of vector environments: arrays and JSON, no pickles of objects.
#
# The bytes of a state of variable size are a pickle that the codec of the environment has written. They are
# read with `planvec.codecs.from_file`, which lets them refer to nothing but what such states consist of.
#
#     header              JSON: the version, the number of environments, and per part what is no array
#     states_0, ...       the states of each part; see `planvec.rows.arrays_of_states`

_VERSION = 1


class StatesFace(ABC):
    """Base class of the faces.

    Attributes:
        num_envs: N.
    """

    num_envs: int
    _engine: Engine
    _space_of_one_observation: Space[Any]

    @property
    def num_workers(self) -> int:
        """Number of worker processes; 0 if the environments are in this process."""
        return self._engine.num_workers

    @property
    def stats(self) -> Stats:
        """Counts of worker exits, by reason."""
        return self._engine.stats

    @abstractmethod
    def _check_free(self, rows: NDArray[np.intp] | None) -> None:
        """Check that no operation on these rows (None: all) is pending, and raise an error otherwise."""

    def get_states(self, mask: object = None) -> np.ndarray:
        """Return the exact states of environments, as `planvec.BatchEnv` and the planners take them.

        Args:
            mask: A mask `[N]` or indices `[B]`; None returns all.

        Returns:
            States `[B]`.

        Raises:
            UnsupportedEnvError: The states of an environment are not exact. The message says why.
            InvalidBatchError: An environment was not reset yet.
        """
        indices = None if mask is None else checks.check_rows(mask, self.num_envs, "mask")
        self._check_free(indices)
        if indices is not None and not len(indices):
            return self.get_states([0])[:0]
        call = self._engine.run("get_states", rows=indices)
        call.raise_errors()
        replies = [chunk.reply.value for chunk in call.chunks if chunk.reply is not None]
        formats = {state_format.origin for _, state_format in replies}
        if len({states.dtype for states, _ in replies}) > 1 or len(formats) > 1:
            raise UnsupportedEnvError(
                "get_states: expected environments whose states have the same form, got several; pass a mask"
            )
        states = np.concatenate([states for states, _ in replies])
        return states if call.order is None else states[call.order]

    def set_states(self, states: object, mask: object = None) -> Any:
        """Put environments into states, and return their observations `[B, ...]`.

        What no state contains stays what it is: settings, and the generator from which the next resets draw.

        Args:
            states: `[B]`, or one state for all.
            mask: A mask `[N]` or indices `[B]`; None sets all.

        Raises:
            InvalidBatchError: They are no states of these environments.
            UnsupportedEnvError: The states of an environment are not exact.
        """
        indices = None if mask is None else checks.check_rows(mask, self.num_envs, "mask")
        num_rows = self.num_envs if indices is None else len(indices)
        array = states if isinstance(states, np.ndarray) else as_states(np.dtype(object), states)
        if array.ndim == 0:
            array = np.repeat(array, num_rows)
        if array.shape != (num_rows,):
            raise InvalidBatchError(f"states: expected shape ({num_rows},), got {array.shape}")
        array = array.copy()  # environments in this process may keep parts of it
        self._check_free(indices)
        return self._observations_of(self._engine.run("set_states", (array,), rows=indices))

    def branch(self, row: int, into: object) -> Any:
        """Put environments into the state of one of them, and return their observations `[B, ...]`.

        Args:
            row: Index of the environment whose state is copied.
            into: A mask `[N]` or indices `[B]`.
        """
        return self.set_states(self.get_states([row])[0], into)

    # -- files --------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Save all environments to a file, which `load` of the same environments reads on any day.

        The file holds the states, the generators from which the next resets draw, and which environments the
        next step resets. It holds no attributes that the user has set.

        Args:
            path: The file. An existing one is replaced.

        Raises:
            InvalidBatchError: An environment was not reset yet.
            UnsupportedEnvError: The states of an environment are not exact.
        """
        self._check_free(None)
        call = self._engine.run("save")
        call.raise_errors()
        parts: list[dict[str, Any]] = []
        arrays: dict[str, np.ndarray] = {}
        for chunk in call.chunks:
            for part in [] if chunk.reply is None else chunk.reply.value:
                arrays |= arrays_of_states(f"states_{len(parts)}", part.states)
                described = {
                    "rows": [int(chunk.rows[row]) for row in part.rows],
                    "origin": part.origin,
                    "fingerprints": [fingerprint.hex() for fingerprint in part.fingerprints],
                    "beside": [[state._asdict(), needs_reset] for state, needs_reset in part.beside],
                }
                parts.append(described)
        header = {"version": _VERSION, "num_envs": self.num_envs, "parts": parts}
        text = np.array(json.dumps(header, default=np.generic.item))  # NumPy's scalars are Python's numbers
        write_arrays(Path(path), {"header": text, **arrays}.items())

    def load(self, path: str | Path) -> Any:
        """Put all environments into what `save` has saved, and return their observations `[N, ...]`.

        The number of workers may differ. No code from the file is run.

        Args:
            path: The file.

        Raises:
            InvalidBatchError: The file is damaged, or was saved by other environments.
            OSError: The file cannot be read.
            UnsupportedEnvError: The states of an environment are not exact.
        """
        self._check_free(None)
        parts = []
        damage = f"got {path}, which is damaged or of another kind"
        with damage_named(f"path: expected a file that save() wrote, {damage}"):
            arrays = read_arrays(path)
            header = json.loads(str(arrays["header"]))
            if header["version"] != _VERSION:
                raise ValueError(f"version {header['version']} instead of {_VERSION}")
            for index, described in enumerate(header["parts"]):
                rows, states = described["rows"], states_of_arrays(f"states_{index}", arrays)
                if states.shape != (len(rows),):
                    raise ValueError(f"expected {len(rows)} states, got shape {states.shape}")
                beside = [
                    (ResidentState(**{**state, "spaces": tuple(state["spaces"])}), bool(needs_reset))
                    for state, needs_reset in described["beside"]
                ]
                fingerprints = [bytes.fromhex(text) for text in described["fingerprints"]]
                parts.append(SavedRows(rows, described["origin"], fingerprints, states, beside))
            if sorted(row for part in parts for row in part.rows) != list(range(header["num_envs"])):
                raise ValueError("it does not hold each environment once")
        if header["num_envs"] != self.num_envs:
            raise InvalidBatchError(
                f"path: expected {self.num_envs} environments, got {header['num_envs']} in {path}"
            )
        calls = []
        for start, stop in itertools.pairwise(self._engine.bounds):
            rows = np.arange(start, stop)
            own = [taken for part in parts if len((taken := part.taken(rows)).rows)]
            calls.append(self._engine.begin("load", (), (own,), rows=rows))
        call = RowsCall([chunk for call in calls for chunk in call.chunks])
        self._engine.finish(call)
        return self._observations_of(call)

    def _observations_of(self, call: RowsCall) -> Any:
        observations = call.result(InfoForm.ROWS).observations
        return finish_rows(self._space_of_one_observation, observations)
