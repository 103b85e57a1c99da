"""The codec of OpenSpiel's games: the history of actions, who is to move, and what is legal.

A state of OpenSpiel follows from its history. Replaying that takes longer than anything else, so the states
that were saved last are kept. They are never changed: a step makes a new one.

Letters: A actions, B rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import Codec
from planvec.codecs.selection import FamilyCodec, WrapperSupport
from planvec.errors import UnsupportedEnvError
from planvec.rows import ACTION_MASK_FIELD, PLAYER_FIELD

# module and name of the class, which cannot be imported where OpenSpiel is missing
_GAME = ("planvec.openspiel", "Game")
_POSITION_BYTES = 16
_SPARE_MOVES = 1  # room for moves that a game does not count, such as the swap of hex
_MAX_KEPT = 4096  # number of states that are kept


def codec_for_env(env: object, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    kind = type(env)
    if (kind.__module__, kind.__qualname__) != _GAME or wrappers is WrapperSupport.MISSING:
        return None
    return FamilyCodec(GameCodec, is_verified=True)


class GameCodec(Codec):
    """Saves the history of a game, from which it is restored, and what planners read in a state."""

    # A value is the bytes of all fields, which lie at the beginning of a record.

    how = "history of actions"

    def __init__(self, env: Any) -> None:
        game = env.game
        self.draws = env.has_chance
        self.step_without_info, self.roll_out = env.step_without_info, env.roll_out
        self._num_actions = int(env.action_space.n)
        length = game.max_history_length() + _SPARE_MOVES
        num_kinds = max(self._num_actions, game.max_chance_outcomes())
        self._code, action = next(
            (code, np.dtype(f"<u{size}"))
            for code, size in (("B", 1), ("H", 2), ("I", 4))
            if num_kinds <= 1 << 8 * size
        )
        fields: list[Any] = [
            ("num_moves", "<i4"),
            ("history", action, length),
            ("position", f"V{_POSITION_BYTES}"),
            (ACTION_MASK_FIELD, "?", self._num_actions),
        ]
        self._has_players = env.num_players == 2
        if self._has_players:
            fields.append((PLAYER_FIELD, "i1"))
        self.dtype = np.dtype(fields)
        self._max_moves = length
        self._action_bytes, self._history_bytes = action.itemsize, length * action.itemsize
        self._size = self.dtype.itemsize
        self._kept: dict[bytes, Any] = {}

    def identity(self, env: Any) -> list[Any]:
        """Return the game and its parameters."""
        return [str(env.game)]

    def get(self, env: Any) -> bytes:
        state = env.state
        moves, legal = state.history(), state.legal_actions()
        if len(moves) > self._max_moves:
            raise UnsupportedEnvError(
                f"{env.game}: expected a history of up to {self._max_moves} moves, as the game declares, got "
                f"{len(moves)}"
            )
        history = len(moves).to_bytes(4, "little") + array(self._code, moves).tobytes()
        player = state.current_player() if legal else -1
        position = blake2b(f"{player} {state}".encode(), digest_size=_POSITION_BYTES).digest()
        mask = bytearray(self._num_actions)
        for action in legal:
            mask[action] = 1
        if legal:
            if len(self._kept) >= _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[history] = state
        ends = player.to_bytes(1, "little", signed=True) if self._has_players else b""
        return b"".join((history.ljust(4 + self._history_bytes, b"\0"), position, mask, ends))

    def set(self, env: Any, value: bytes) -> None:
        history = value[: 4 + int.from_bytes(value[:4], "little") * self._action_bytes]
        state = self._kept.get(history)
        if state is None:
            state = env.game.new_initial_state()
            for action in array(self._code, history[4:]):
                state.apply_action(action)
        env.state = state

    def pack(self, values: Sequence[Any], records: NDArray[np.void]) -> None:
        part = np.ascontiguousarray(records)
        self._bytes_of(part)[:] = np.frombuffer(b"".join(values), np.uint8).reshape(-1, self._size)
        if part is not records:
            records[:] = part

    def unpack(self, records: NDArray[np.void]) -> list[Any]:
        data, size = self._bytes_of(np.ascontiguousarray(records)).tobytes(), self._size
        return [data[first : first + size] for first in range(0, len(data), size)]

    def _bytes_of(self, records: NDArray[np.void]) -> NDArray[np.uint8]:
        """Return the bytes of the fields of contiguous records, `[B, size]`, a view."""
        fields: NDArray[np.uint8] = np.ndarray(
            (len(records), self._size), np.uint8, records, 0, (records.strides[0], 1)
        )
        return fields

    def observe(self, env: Any) -> Any:
        return env.observe()
