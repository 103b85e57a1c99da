"""The codec of OpenSpiel's games: the history of actions, who is to move, and what is legal.

A state of OpenSpiel follows from its history. Replaying that takes longer than anything else, so the states
that were saved last are kept. They are never changed: a step makes a new one.

Letters: A actions, B rows, L actions of a history.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import Codec
from planvec.codecs.families import FamilyCodec, WrapperSupport
from planvec.rows import ACTION_MASK_FIELD, PLAYER_FIELD

__all__ = ["GameCodec", "codec_for_env"]

_GAME = ("planvec.openspiel", "Game")
"""Module and name of the class, which cannot be imported where OpenSpiel is missing."""
_POSITION_BYTES = 16
_MAX_KEPT = 4096
"""Number of states that are kept."""


def codec_for_env(env: Any, wrappers: WrapperSupport) -> FamilyCodec | None:
    """Return how the states of an environment are saved; see `FamilyModule`."""
    kind = type(env)
    if (kind.__module__, kind.__qualname__) != _GAME or wrappers is WrapperSupport.MISSING:
        return None
    return FamilyCodec(GameCodec, is_verified=True)


Value = tuple[bytes, bytes, bytes, int]


class GameCodec(Codec):
    """Saves the history of a game, from which it is restored, and what planners read in a state.

    A value is the history, a digest of the position, the mask of legal actions, all as bytes, and the player.

    Args:
        env: The game.
    """

    how = "history of actions"

    def __init__(self, env: Any) -> None:
        game = env.game
        self.draws = env.has_chance
        self.step_without_info, self.roll_out = env.step_without_info, env.roll_out
        self._num_actions, self._length = int(env.action_space.n), game.max_history_length()
        num_kinds = max(self._num_actions, game.max_chance_outcomes())
        self._code, action = next(
            (code, np.dtype(f"<u{size}"))
            for code, size in (("B", 1), ("H", 2), ("I", 4))
            if num_kinds <= 1 << 8 * size
        )
        self._action_bytes = action.itemsize
        fields: list[Any] = [
            ("history", action, self._length),
            ("num_moves", "<i4"),
            ("position", f"V{_POSITION_BYTES}"),
            (ACTION_MASK_FIELD, "?", self._num_actions),
        ]
        self._has_players = env.num_players == 2
        if self._has_players:
            fields.append((PLAYER_FIELD, "i1"))
        self.dtype = np.dtype(fields)
        self._kept: dict[bytes, Any] = {}

    def identity(self, env: Any) -> list[Any]:
        """Return the game and its parameters."""
        return [str(env.game)]

    def get(self, env: Any) -> Value:
        state = env.state
        history = array(self._code, state.history()).tobytes()
        legal = state.legal_actions()
        mask = bytearray(self._num_actions)
        for action in legal:
            mask[action] = 1
        player = state.current_player() if legal else -1
        position = blake2b(f"{player} {state}".encode(), digest_size=_POSITION_BYTES).digest()
        if not legal:
            return history, position, bytes(mask), player
        kept = self._kept
        if len(kept) >= _MAX_KEPT:
            del kept[next(iter(kept))]
        kept[history] = state
        return history, position, bytes(mask), player

    def set(self, env: Any, value: Value) -> None:
        history = value[0]
        state = self._kept.get(history)
        if state is None:
            state = env.game.new_initial_state()
            for action in array(self._code, history):
                state.apply_action(action)
        env.state = state

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        histories, positions, masks, players = zip(*values, strict=True)
        size = self._length * self._action_bytes
        padded = b"".join([history.ljust(size, b"\0") for history in histories])
        shape = (len(values), -1)
        records["history"] = np.frombuffer(padded, records.dtype["history"].base).reshape(shape)
        records["num_moves"] = [len(history) // self._action_bytes for history in histories]
        records["position"] = np.frombuffer(b"".join(positions), records.dtype["position"])
        records[ACTION_MASK_FIELD] = np.frombuffer(b"".join(masks), np.bool_).reshape(shape)
        if self._has_players:
            records[PLAYER_FIELD] = players

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        size, count = self._length * self._action_bytes, self._num_actions
        data, masks = records["history"].tobytes(), records[ACTION_MASK_FIELD].tobytes()
        positions = records["position"].tobytes()
        players = records[PLAYER_FIELD].tolist() if self._has_players else [0] * len(records)
        return [
            (
                data[row * size : row * size + num_moves * self._action_bytes],
                positions[row * _POSITION_BYTES : (row + 1) * _POSITION_BYTES],
                masks[row * count : (row + 1) * count],
                player,
            )
            for row, (num_moves, player) in enumerate(
                zip(records["num_moves"].tolist(), players, strict=True)
            )
        ]

    def observe(self, env: Any) -> Any:
        return env.observe()
