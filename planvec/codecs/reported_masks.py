"""Keeps the legal actions that an environment reports, as a part of its state. Letters: B rows, M numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.codecs.base import Codec, Outcome, Step
from planvec.errors import EnvError
from planvec.rows import ACTION_MASK_FIELD, action_masks, draw_legal, has_mask_field, mask_of_info, mask_sizes


class ReportedMask:
    """Remembers the mask of the last reset or step: a part of a state whose values are the bytes of masks."""

    def __init__(self, space: Space[object]) -> None:
        self._space = space
        sizes = mask_sizes(space)
        self._size, self._starts = int(sizes.sum()), np.cumsum(sizes) - sizes
        self.dtype: np.dtype | None = np.dtype([(ACTION_MASK_FIELD, "?", self._size)])
        self._value = b"\1" * self._size

    def note(self, observation: object, info: Mapping[str, object], has_ended: bool) -> None:
        """Remember the mask that a reset or a step has reported. Without one, all actions are legal."""
        mask = mask_of_info(self._space, info, observation)
        # Each number of an action has a legal value, unless the episode has ended.
        if mask is not None and not has_ended and not np.logical_or.reduceat(mask, self._starts).all():
            raise EnvError(
                f"info[{ACTION_MASK_FIELD!r}]: expected a 1 for each legal action, and at least one where "
                "the episode goes on, got zeros; report ones (0 and -inf, to add to logits, are no mask), or "
                "let the step before it return terminated=True"
            )
        self._value = b"\1" * self._size if mask is None else mask.tobytes()

    def noted(self, step: Step) -> Step:
        """Return a step that remembers the mask."""

        def step_and_note(action: object) -> Outcome:
            outcome = step(action)
            observation, _, terminated, truncated, info = outcome
            self.note(observation, info, bool(terminated) or bool(truncated))
            return outcome

        return step_and_note

    def get(self) -> bytes:
        """Return the bytes of the mask."""
        return self._value

    def set(self, value: bytes) -> None:
        """Restore the mask."""
        self._value = value

    def current(self) -> NDArray[np.bool_]:
        """Return the mask, `[M]`."""
        return np.frombuffer(self._value, np.bool_)

    def pack(self, values: Sequence[Any], records: NDArray[np.void]) -> None:
        """Write the bytes of masks `[B]` into the field of records."""
        records[ACTION_MASK_FIELD] = np.frombuffer(b"".join(values), np.bool_).reshape(-1, self._size)

    def unpack(self, records: NDArray[np.void]) -> list[Any]:
        """Read the bytes of masks `[B]` from the field of records."""
        return [mask.tobytes() for mask in records[ACTION_MASK_FIELD]]


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
        except EnvError:  # `ReportedMask` raises it where masks are used
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
