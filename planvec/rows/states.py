"""Describes the states of one environment, and writes them to files.

Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.lib import recfunctions
from numpy.typing import NDArray

GENERATOR_FIELD = "generator"  # name of the field that holds the random generator, in records that have one
# Name of the field that holds the player to move, in the states of games for two players: 0, or 1, whose
# rewards are those of player 0 with the other sign; -1 at the end. An integer of one byte. Also the key of
# infos that report it.
PLAYER_FIELD = "current_player"
# key of the info that reports the legal actions, and name of the field that holds them, `[M]` bool
ACTION_MASK_FIELD = "action_mask"


class SavedState:
    """Holds one saved state of variable size: opaque, immutable and hashable.

    Two states are equal if their bytes and their origins are equal. If the size of states varies, arrays of
    states have dtype object and hold objects of this type. (NumPy would strip trailing zeros from plain
    `bytes`.)

    Args:
        data: The bytes of the state. If the random generator is saved separately, its bytes come last.
        origin: Name of the environment and codec that saved the state. Others refuse to restore it.
        generator_size: Number of bytes of the random generator, or of seeds from which nothing was drawn,
            which a search that samples chance leaves out; 0 if they are not saved separately.
        action_mask: The legal actions, one byte for each number of a mask; b"" if it is not known.
        player: In a game of two players, the player to move, 0 or 1, -1 at the end; None in others.

    Attributes:
        origin: Name of the environment and codec that saved the state.
        action_mask: As given. It follows from the data.
        player: As given. It follows from the data.
    """

    __slots__ = ("_data", "_generator_size", "action_mask", "origin", "player")

    _data: bytes
    _generator_size: int
    origin: str
    action_mask: bytes
    player: int | None

    def __init__(
        self,
        data: bytes,
        origin: str,
        generator_size: int = 0,
        action_mask: bytes = b"",
        player: int | None = None,
    ) -> None:
        object.__setattr__(self, "_data", bytes(data))
        object.__setattr__(self, "_generator_size", generator_size)
        object.__setattr__(self, "origin", origin)
        object.__setattr__(self, "action_mask", bytes(action_mask))
        object.__setattr__(self, "player", player)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a SavedState cannot be changed, so {name!r} cannot be set")

    def __bytes__(self) -> bytes:
        return self._data

    @property
    def without_generator(self) -> bytes:
        """The bytes without those of the random generator: equal for states that differ only in it."""
        return self._data[: len(self._data) - self._generator_size]

    @property
    def generator_size(self) -> int:
        """The number of bytes of the random generator; 0 if it is not saved separately."""
        return self._generator_size

    @property
    def nbytes(self) -> int:
        """The size of the state in bytes."""
        return len(self._data)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SavedState):
            return NotImplemented
        return self._data == other._data and self.origin == other.origin

    def __hash__(self) -> int:
        return hash(self._data)

    def __reduce__(self) -> tuple[type[SavedState], tuple[bytes, str, int, bytes, int | None]]:
        return SavedState, (self._data, self.origin, self._generator_size, self.action_mask, self.player)

    def __repr__(self) -> str:
        return f"<SavedState of {self.origin}, {self.nbytes} bytes>"


def players_to_move(states: np.ndarray) -> NDArray[np.int8] | None:
    """Return the player to move at states, `[B]`; None where they are not of a game of two players."""
    if PLAYER_FIELD in (states.dtype.names or ()):
        players: NDArray[np.int8] = states[PLAYER_FIELD]
        return players
    if not states.dtype.hasobject:
        return None
    held = [getattr(state, "player", None) for state in states]
    if all(player is None for player in held):
        return None
    return np.array([-1 if player is None else player for player in held], np.int8)


def has_players(states: np.ndarray) -> bool:
    """Return whether states tell which of two players is to move."""
    return players_to_move(states) is not None


class StateFormat(NamedTuple):
    """Describes the states of one environment."""

    dtype: np.dtype  # A structured dtype, or object for states of variable size
    origin: str  # Name of the environment and codec that save the states. Every `SavedState` has it too.


# -- Turns states into arrays that can be written to files without pickling, and back. Letters: B states.
#
# The bytes of a `SavedState` are written as they are. Reading them runs no code, but restoring them may
# unpickle them: `BatchEnv.check_states` limits what states from a file may name.


def arrays_of_states(name: str, states: np.ndarray) -> dict[str, np.ndarray]:
    """Return states as arrays of numbers and text."""
    # Returns `name`: the records, or the bytes of all `SavedState`s joined; then also `name.sizes`,
    # `name.generator_sizes` `[B]` int64, `name.origin`, `name.action_masks` `[B, M]` if they tell legal
    # actions, and `name.players` `[B]` int8 in a game of two players.
    # `states`: `[B]`, records or `SavedState`s.
    if not states.dtype.hasobject:
        return {name: states}
    saved = [bytes(state) for state in states]
    masks = [state.action_mask for state in states]
    size = max(map(len, masks), default=0)
    held = b"".join([mask or b"\1" * size for mask in masks])
    players = players_to_move(states)
    return {
        **({} if players is None else {f"{name}.players": players}),
        **({f"{name}.action_masks": np.frombuffer(held, np.bool_).reshape(len(masks), size)} if size else {}),
        name: np.frombuffer(b"".join(saved), np.uint8),
        f"{name}.sizes": np.array([len(data) for data in saved], np.int64),
        f"{name}.generator_sizes": np.array([state.generator_size for state in states], np.int64),
        f"{name}.origin": np.array(states[0].origin if len(states) else ""),
    }


def states_of_arrays(name: str, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the states `[B]` that `arrays_of_states` turned into arrays."""
    # Raises KeyError, TypeError or ValueError if the arrays are damaged; see `damage_named`.
    if f"{name}.sizes" not in arrays:
        return arrays[name]
    data, origin = arrays[name].tobytes(), str(arrays[f"{name}.origin"])
    ends = arrays[f"{name}.sizes"].cumsum()
    if (arrays[f"{name}.sizes"] < 0).any() or (len(ends) and ends[-1] != len(data)):
        raise ValueError(f"{name}: expected {ends[-1]} bytes, got {len(data)}")
    states, start = np.empty(len(ends), object), 0
    masks = np.asarray(arrays.get(f"{name}.action_masks", np.zeros((len(ends), 0))), np.bool_)
    players = arrays.get(f"{name}.players", np.empty(0)).tolist() or [None] * len(ends)
    rows = zip(ends.tolist(), arrays[f"{name}.generator_sizes"].tolist(), masks, players, strict=True)
    for row, (end, generator_size, mask, player) in enumerate(rows):
        if not 0 <= generator_size <= end - start:
            raise ValueError(f"{name}.generator_sizes: expected sizes of parts of the states")
        states[row] = SavedState(data[start:end], origin, generator_size, mask.tobytes(), player)
        start = end
    return states


def state_keys(states: np.ndarray, with_generator: bool = False) -> list[Hashable]:
    """Return a key for each state. Equal states have equal keys, and different states different ones."""
    # `with_generator`: whether states that differ only in their random generator have different keys.
    # A search that samples chance reseeds the random generator before every step, so the generator in the
    # state has no influence. Such a search leaves the generator out of the keys.
    # `states`: `[B]`.
    names = states.dtype.names
    if names is None:
        return list(states) if with_generator else [state.without_generator for state in states]
    if GENERATOR_FIELD in names and not with_generator:
        kept = [name for name in names if name != GENERATOR_FIELD]
        states = np.asarray(recfunctions.repack_fields(states[kept]))
    size = states.dtype.itemsize
    joined = states.tobytes()
    return [joined[start : start + size] for start in range(0, len(joined), size)]


@dataclass(slots=True)
class EnvDescription:
    """Describes one environment: its spaces, the form of its states, its spec."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    state_format: StateFormat  # the dtype of one state, and the environment and codec that it belongs to
    spec: EnvSpec | None  # Gymnasium's spec of the environment, or None
    render_mode: str | None  # the argument of `gymnasium.make`, or None
    metadata: dict[str, Any]  # Gymnasium's metadata (render modes, frames per second)
    base_state: Any  # the state of `reset(seed=0)`
    fingerprint: bytes  # equal for environments with the same constants
    # A digest of the outcome of each step of the random walk on which planvec verified the codec; empty if it
    # did not. The number of steps depends on how fast they were.
    walk: tuple[bytes, ...]
    uses_hashes: bool  # whether its steps may depend on hashes of texts, which differ between processes
    is_stochastic: bool  # False only if every step is known to have one outcome, whatever its seed
    warning: str  # what the user should be told; "" for nothing
    # path of each file that the code of the environment comes from -> digest of its content
    code: dict[str, str]

    @property
    def state_dtype(self) -> np.dtype:
        """The dtype of one state."""
        return self.state_format.dtype
