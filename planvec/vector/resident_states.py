"""Saves and restores the environments of one worker, with what they need besides their states.

A replacement of the worker needs the states of all rows, and what no state holds: the generators, which the
next resets continue, and the flags of the autoreset.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.codecs import Proof, ResidentCodec, ResidentCodecs, ResidentState, Rows, from_file
from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.rows import StateFormat, check_states
from planvec.vector.env_row import EnvRow


class SavedRows(NamedTuple):
    """Holds what some rows need in a replacement of the worker, if their states have the same form."""

    rows: list[int]
    origin: str  # the environment and codec that the states belong to
    fingerprints: list[bytes]  # `StateCodec.fingerprint` of each row
    states: NDArray[Any]  # `[B]`
    # what states do not hold: a `ResidentState` without a value, and whether the next step resets
    beside: list[tuple[ResidentState, bool]]

    def taken(self, rows: NDArray[np.intp]) -> SavedRows:
        """Return the part for consecutive rows, which count from the first of them."""
        kept = [index for index, row in enumerate(self.rows) if rows[0] <= row <= rows[-1]]
        return SavedRows(
            [self.rows[index] - int(rows[0]) for index in kept],
            self.origin,
            [self.fingerprints[index] for index in kept],
            self.states[kept],
            [self.beside[index] for index in kept],
        )


class ResidentStates:
    """Saves and restores rows."""

    def __init__(
        self, rows: Sequence[EnvRow], proofs: Sequence[Callable[[], Any] | Proof | str | None]
    ) -> None:
        codecs = ResidentCodecs()
        self._rows = rows
        self._codecs: list[ResidentCodec] = [
            codecs.make(row.env, proof) for row, proof in zip(rows, proofs, strict=True)
        ]
        for row, resident in zip(rows, self._codecs, strict=True):
            if resident.layers.watches_own_resets:
                base, codec = row.env.unwrapped, resident.layers.base_codec
                row.watch_resets(partial(codec.before_own_reset, base), partial(codec.after_own_reset, base))
        self._forms: list[StateFormat] = []
        self._form_numbers: dict[int, int] = {}
        self._has_episode = [False] * len(rows)
        # Whether a row was reset for the first time since `save` was called. Without a seed, its generator
        # was seeded by chance, so that this cannot be repeated.
        self.needs_snapshot = False

    @property
    def proofs(self) -> list[Proof | str | None]:
        """What the proof of the kind of each row has shown; None where planvec knows it."""
        return [codec.proof for codec in self._codecs]

    @property
    def caches(self) -> set[str]:
        """The variables that steps may change; see `Copied`."""
        return {path for codec in self._codecs for path in codec.layers.caches}

    def begin(self, indices: Sequence[int]) -> None:
        """Note that rows were reset: from now on they have states."""
        for index in indices:
            if not self._has_episode[index]:
                self._codecs[index].bind(self._rows[index].observation)
                self._has_episode[index] = self.needs_snapshot = True

    def settings(self, indices: Sequence[int]) -> list[bytes]:
        """Return a digest of what no state contains, of each row."""
        return [self._codecs[index].settings for index in indices]

    # -- states -------------------------------------------------------------------------------------

    def get(self, indices: Sequence[int]) -> tuple[NDArray[Any], StateFormat]:
        """Return the states of rows, `[B]`, and their format."""
        self.check_episodes(indices, "get_states")
        return self._dump(indices, [self._save(index) for index in indices])

    def check_episodes(self, indices: Sequence[int], name: str) -> None:
        """Check that rows have states, for the method with a name."""
        if not all(self._has_episode[index] for index in indices):
            raise InvalidBatchError(f"{name}: expected environments that were reset; call reset() first")

    def _save(self, index: int) -> ResidentState:
        return self._codecs[index].save(self._rows[index].observation)

    def _dump(
        self, indices: Sequence[int], saved: Sequence[ResidentState]
    ) -> tuple[NDArray[Any], StateFormat]:
        codec = self._codecs[indices[0]].made()
        if len({self._form_of(index) for index in indices}) > 1:
            raise UnsupportedEnvError(
                "get_states: expected environments whose states have the same form, got several; ask for "
                "the rows of one form at a time"
            )
        rows = [self._rows[index] for index in indices]
        states = np.zeros(len(rows), codec.format.dtype)
        columns = Rows(
            [state.value for state in saved],
            [state.elapsed for state in saved],
            [bool(row.terminated) for row in rows],
            [bool(row.truncated) for row in rows],
        )
        codec.dump(columns, states)
        return states, codec.format

    def set(self, indices: Sequence[int], states: NDArray[Any]) -> list[Any]:
        """Put rows into states, and return their observations. Their generators stay what they are."""
        observations, loaded = [], []
        for index, state in zip(indices, states, strict=True):  # all are checked before one is set
            codec = self._codecs[index].made()
            loaded.append(codec.load(check_states(codec.format, state)))
        for index, (values, elapsed, terminated, truncated) in zip(indices, loaded, strict=True):
            codec = self._codecs[index].made()
            codec.set(values[0])
            codec.set_elapsed(elapsed[0])
            row = self._rows[index]
            row.observation = codec.observe()
            row.restore_flags(terminated[0], truncated[0])
            if not self._has_episode[index]:  # its generator was seeded by chance
                self._has_episode[index] = self.needs_snapshot = True
            observations.append(row.observation)
        return observations

    # -- all rows -----------------------------------------------------------------------------------

    def save(self) -> list[SavedRows]:
        """Return everything that all rows need in a replacement of the worker."""
        self.needs_snapshot = False
        indices = [index for index, has_episode in enumerate(self._has_episode) if has_episode]
        saved = {index: self._save(index) for index in indices}
        groups: dict[int, list[int]] = {}
        for index in indices:
            groups.setdefault(self._form_of(index), []).append(index)
        return [
            SavedRows(
                members,
                self._codecs[members[0]].made().format.origin,
                [self._codecs[index].made().fingerprint for index in members],
                self._dump(members, [saved[index] for index in members])[0],
                [(saved[index]._replace(value=None), self._rows[index].needs_reset) for index in members],
            )
            for members in groups.values()
        ]

    def _form_of(self, index: int) -> int:
        """Return the number of the format of the states of a row. Comparing formats takes long."""
        number = self._form_numbers.get(index)
        if number is None:
            state_format = self._codecs[index].made().format
            if state_format not in self._forms:
                self._forms.append(state_format)
            number = self._form_numbers[index] = self._forms.index(state_format)
        return number

    def restore(self, parts: Sequence[SavedRows]) -> tuple[list[int], list[Any]]:
        """Put rows into what `save` returned. Returns the rows and their observations."""
        rows, observations = [], []
        for part in parts:  # all are checked before one is set
            for index, fingerprint in zip(part.rows, part.fingerprints, strict=True):
                codec = self._codecs[index].made()
                if (codec.format.origin, codec.fingerprint) != (part.origin, fingerprint):
                    raise InvalidBatchError(
                        f"environment {index}: expected a state of {codec.format.origin} with the same "
                        f"constants, got one of {part.origin}; make the environments as they were made then"
                    )
        for part in parts:
            observations += self.set(part.rows, part.states)
            for index, (state, needs_reset) in zip(part.rows, part.beside, strict=True):
                self._codecs[index].set_generators(state)
                self._rows[index].needs_reset = needs_reset
            rows += part.rows
        return rows, observations

    def restore_from_file(self, parts: Sequence[SavedRows]) -> tuple[list[int], list[Any]]:
        """Do the same with parts from a file, which may have been made by others."""
        packages = {package for resident in self._codecs for package in resident.packages}
        with from_file(packages):
            return self.restore(parts)


class SnapshotClock:
    """Decides when to take a snapshot, so that all of them take 1 % of the time."""

    def __init__(self, num_workers: int) -> None:
        self._fraction = 0.01 / num_workers
        self._cost = 0.0
        self._seconds = 0.0

    def take(self, make: Callable[[], bytes], seconds: float, is_forced: bool) -> bytes | None:
        """Return a snapshot if it is time for one."""
        self._seconds += seconds
        if not is_forced and self._seconds * self._fraction < self._cost:
            return None
        started = time.perf_counter()
        snapshot = make()
        # The latest measurement counts half, since the first snapshot takes longer.
        latest = time.perf_counter() - started
        self._cost = (self._cost + latest) / 2 if self._cost else latest
        self._seconds = 0.0
        return snapshot
