"""A codec for environments that can neither be copied nor pickled but restart exactly from a seed.

A state is the seed of the reset and every action since. Restoring it costs as many steps as it is deep,
unless the environment is already in an ancestor of the state: then only the missing steps are taken. The
child of the last state costs only its own step.

Letters: B rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from planvec.codecs.base import Env, Outcome, Rows, StateCodec, WrapperCodec, with_own_action
from planvec.codecs.compare import origin_of
from planvec.codecs.generator import reseed_generator
from planvec.codecs.reported_masks import ReportedMask
from planvec.rows import SavedState, StateFormat, mask_of_info, own_copy


class _Reseed(NamedTuple):
    """Records that the generator was reseeded between two steps."""

    seed: int


class _History(NamedTuple):
    """Records how a state was reached."""

    seed: int  # the seed of the reset
    options: bytes  # the options of the reset, pickled
    # actions and `_Reseed`s in order, each pickled: equal histories are equal bytes
    events: tuple[bytes, ...]
    # the bytes of the legal actions at the end, which follow from the rest; b"" if they are unknown
    mask: bytes = b""


class ReplayCodec(StateCodec):
    """Saves the seed and the actions, and replays them to restore a state."""

    how = "replay of the actions"

    def __init__(self, env: Env, wrappers: Sequence[tuple[object, WrapperCodec]] = ()) -> None:
        super().__init__(with_own_action(self._step, env.action_space))
        self._env = env
        self._wrappers = wrappers
        self._current: _History | None = None  # None if unknown: before a reset, or after a failed step
        self._observation: Any = None
        self._mask: ReportedMask | None = None
        self.num_replayed_steps = 0  # steps that were taken to restore states
        self.format = StateFormat(np.dtype(object), f"{origin_of(env)} by replay")
        self.set = self._set
        self.get = self._get

    def reset(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        self._current = None
        packed = pickle.dumps(options)
        for wrapper, codec in self._wrappers:
            codec.before_reset(wrapper)
        observation, info = self._env.reset(seed=seed, options=pickle.loads(packed))
        for wrapper, codec in self._wrappers:
            codec.after_reset(wrapper)
        self._observation = own_copy(observation)
        if mask_of_info(self._env.action_space, info, observation) is not None:
            self.keep_masks()
        self._current = _History(seed, packed, (), self._noted(observation, info, False))
        return observation, info

    def keep_masks(self) -> None:
        """Keep the legal actions that infos report in states."""
        if self._mask is None:
            self._mask = ReportedMask(self._env.action_space)
            self.current_mask = self._mask.current

    def _noted(self, observation: object, info: dict[str, Any], has_ended: bool) -> bytes:
        """Remember the legal actions that a reset or a step has reported, and return their bytes."""
        if self._mask is None:
            return b""
        self._mask.note(observation, info, has_ended)
        return self._mask.get()

    def _step(self, action: object) -> Outcome:
        history, self._current = self._current, None  # stays None if the step fails
        assert history is not None
        event = pickle.dumps(action)
        outcome = self._env.step(action)
        self._observation = own_copy(outcome[0])
        mask = self._noted(outcome[0], outcome[4], bool(outcome[2]) or bool(outcome[3]))
        self._current = history._replace(events=(*history.events, event), mask=mask)
        return outcome

    def reseed(self, seed: int) -> None:
        history, self._current = self._current, None
        assert history is not None
        reseed_generator(self._env.unwrapped, seed)
        self._current = history._replace(events=(*history.events, pickle.dumps(_Reseed(seed))))

    def _set(self, target: _History) -> None:
        if self._current is None or not _is_ancestor(self._current, target):
            self.reset(target.seed, pickle.loads(target.options))
        assert self._current is not None
        for packed in target.events[len(self._current.events) :]:
            event = pickle.loads(packed)
            if isinstance(event, _Reseed):
                self.reseed(event.seed)
            else:
                self._step(event)
                self.num_replayed_steps += 1

    def _get(self, observation: object) -> _History:
        assert self._current is not None
        return self._current

    def observe(self) -> Any:
        return self._observation

    def load(self, states: np.ndarray) -> Rows:
        rows = [pickle.loads(bytes(state)) for state in states]
        masks = [state.action_mask for state in states]
        values = [
            _History(*history)._replace(mask=mask) for (history, _, _), mask in zip(rows, masks, strict=True)
        ]
        terminated, truncated = [row[1] for row in rows], [row[2] for row in rows]
        return Rows(values, [0] * len(rows), terminated, truncated)

    def dump(self, rows: Rows, out: np.ndarray) -> None:
        for row, (history, _, terminated, truncated) in enumerate(zip(*rows, strict=True)):
            data = pickle.dumps((tuple(history[:3]), terminated, truncated), protocol=5)
            out[row] = SavedState(data, self.format.origin, action_mask=history.mask)


def _is_ancestor(history: _History, target: _History) -> bool:
    """Return whether the events of one history begin those of another, after the same reset."""
    return (
        history[:2] == target[:2]
        and len(history.events) <= len(target.events)
        and target.events[: len(history.events)] == history.events
    )
