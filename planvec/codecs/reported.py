"""Keeps what infos report about a state as a part of it: the legal actions, and the player to move.

Letters: B rows, M numbers of a mask.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.codecs.base import Codec, Env, Outcome, Step
from planvec.errors import EnvError
from planvec.rows import (
    ACTION_MASK_FIELD,
    PLAYER_FIELD,
    action_masks,
    draw_legal,
    has_mask_field,
    mask_of_info,
    mask_sizes,
)


class Reported:
    """Remembers what the last reset or step has reported about the state: legal actions, the player to move.

    A part of a state. Its values are bytes: the mask, if there is one, and then the player, if there are two.
    """

    def __init__(self, space: Space[object], has_mask: bool, has_player: bool) -> None:
        self._space = space
        sizes = mask_sizes(space)
        self._size, self._starts = int(sizes.sum()) if has_mask else 0, np.cumsum(sizes) - sizes
        fields: list[Any] = [(ACTION_MASK_FIELD, "?", self._size)] if has_mask else []
        self.dtype: np.dtype | None = np.dtype(fields + ([(PLAYER_FIELD, "i1")] if has_player else []))
        self._has_player = has_player
        self._unknown = b"\1" * self._size + (b"\xff" if has_player else b"")
        self._value = self._unknown

    def note(
        self,
        observation: object,
        info: Mapping[str, object],
        terminated: bool = False,
        truncated: bool = False,
    ) -> None:
        """Remember what a reset or a step has reported. Without a mask, all actions are legal."""
        has_ended = terminated or truncated
        mask = mask_of_info(self._space, info, observation) if self._size else None
        # Each number of an action has a legal value, unless the episode has ended.
        if mask is not None and not has_ended and not np.logical_or.reduceat(mask, self._starts).all():
            raise EnvError(
                f"info[{ACTION_MASK_FIELD!r}]: expected a 1 for each legal action, and at least one where "
                "the episode goes on, got zeros; report ones (0 and -inf, to add to logits, are no mask), or "
                "let the step before it return terminated=True"
            )
        value = self._unknown[: self._size] if mask is None else mask.tobytes()
        if self._has_player:
            # A time limit may lie around the step that is seen here, or within it: a game that is truncated
            # keeps its player, if it reports one.
            player: Any = -1 if terminated else info.get(PLAYER_FIELD)
            is_known = not isinstance(player, bool) and player in (0, 1)
            if not is_known and not has_ended:
                raise EnvError(
                    f"info[{PLAYER_FIELD!r}]: expected the player to move, 0 or 1, since the metadata of the "
                    f"environment say num_players=2, got {player!r}; let each reset and step report it"
                )
            player = player if is_known else -1
            value += int(player).to_bytes(1, "little", signed=True)
        self._value = value

    def noted(self, step: Step) -> Step:
        """Return a step that remembers what it reports."""

        def step_and_note(action: object) -> Outcome:
            outcome = step(action)
            observation, _, terminated, truncated, info = outcome
            self.note(observation, info, bool(terminated), bool(truncated))
            return outcome

        return step_and_note

    def get(self) -> bytes:
        """Return the value of the present state."""
        return self._value

    def set(self, value: bytes) -> None:
        """Restore a value. It lacks the mask if it is older than the first one that was reported."""
        self._value = self._unknown[: len(self._unknown) - len(value)] + value

    def current(self) -> NDArray[np.bool_]:
        """Return the mask, `[M]`."""
        return np.frombuffer(self._value, np.bool_, self._size)

    def pack(self, values: Sequence[Any], records: NDArray[np.void]) -> None:
        """Write values `[B]` into the fields of records."""
        data = np.frombuffer(b"".join(values), np.uint8).reshape(len(values), len(self._unknown))
        if self._size:
            records[ACTION_MASK_FIELD] = data[:, : self._size]
        if self._has_player:
            records[PLAYER_FIELD] = data[:, -1].view(np.int8)

    def unpack(self, records: NDArray[np.void]) -> list[Any]:
        """Read values `[B]` from the fields of records."""
        masks = [b""] * len(records)
        if self._size:
            masks = [mask.tobytes() for mask in records[ACTION_MASK_FIELD]]
        if not self._has_player:
            return masks
        return [mask + player.tobytes() for mask, player in zip(masks, records[PLAYER_FIELD], strict=True)]


def has_two_players(env: Env) -> bool:
    """Return whether an environment declares that two players take turns in it."""
    return bool((env.unwrapped.metadata or {}).get("num_players") == 2)


def split_report(value: bytes, has_player: bool) -> tuple[bytes, int | None]:
    """Return the mask and the player in a value of `Reported`, as a `SavedState` holds them."""
    if not has_player or not value:
        return value, None
    return value[:-1], int.from_bytes(value[-1:], "little", signed=True)


def joined_report(state: Any) -> bytes:
    """Return the value of `Reported` of a `SavedState`."""
    player: int | None = state.player
    return bytes(state.action_mask) + (b"" if player is None else player.to_bytes(1, "little", signed=True))


class LegalActions:
    """Draws the actions of a random walk: among the legal ones, where the environment reports them."""

    def __init__(self, space: Space[object]) -> None:
        self._space: Any = space
        self._mask: NDArray[np.bool_] | None = None
        self.are_reported = False  # whether a reset or a step has reported legal actions

    @classmethod
    def seeded(cls, space: Space[object]) -> LegalActions:
        """Return one that draws from a copy of a space with seed 0."""
        space = copy.deepcopy(space)
        space.seed(0)
        return cls(space)

    def note(self, observation: object, info: object) -> None:
        """Remember what a reset or a step has reported."""
        try:
            self._mask = mask_of_info(self._space, info, observation) if isinstance(info, Mapping) else None
            self.are_reported |= self._mask is not None
        except EnvError:  # `Reported` raises it where masks are used
            self._mask, self.are_reported = None, True

    def noted(self, step: Step) -> Step:
        """Return a step after which the legal actions are remembered."""

        def step_and_note(action: object) -> Outcome:
            outcome = step(action)
            if isinstance(outcome, tuple) and len(outcome) == 5:
                self.note(outcome[0], outcome[4])
            return outcome

        return step_and_note

    def sample(self) -> Any:
        """Draw an action."""
        if self._mask is None:
            return self._space.sample()
        uniforms = self._space.np_random.random((1, *self._space.shape))
        return draw_legal(self._space, self._mask[None], uniforms)[0]


def mask_of_field(codec: Codec, env: Any) -> Callable[[], np.ndarray] | None:
    """Return a function that gives the mask in the field of a codec; None if it has no such field."""
    if codec.dtype is None or not has_mask_field(env.action_space, codec.dtype):
        return None

    def current() -> np.ndarray:
        record = np.zeros(1, codec.dtype)
        codec.pack([codec.get(env.unwrapped)], record)
        masks = action_masks(env.action_space, record)
        assert masks is not None
        return np.asarray(masks[0])

    return current
