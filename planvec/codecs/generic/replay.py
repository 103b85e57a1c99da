"""Environments that neither copy nor pickle but restart from a seed: the way back is the way there.

A state is the seed of the reset and everything done since. Restoring it costs its depth in steps, except
where the environment already stands on the way to it: a child of the state that was reached last costs
nothing but its own step.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import Outcome, Rows, StateCodec, WrapperCodec
from planvec.codecs.generator import reseed_generator
from planvec.codecs.verify import origin_of
from planvec.rows import SavedState, StateFormat, own_copy

__all__ = ["ReplayCodec"]


class _Reseed(NamedTuple):
    """An event on the way: the generator was seeded."""

    seed: int


class _Way(NamedTuple):
    """How a state was reached.

    Attributes:
        seed: Of the reset.
        options: Of the reset, pickled.
        events: Actions and `_Reseed`s, in order, each pickled: equal ways are equal bytes.
    """

    seed: int
    options: bytes
    events: tuple[bytes, ...]


class ReplayCodec(StateCodec):
    """Saves the seed and the actions; restores by replaying them.

    Args:
        env: The outermost wrapper.
        wrappers: Those that planvec knows, with their codecs, for what outlives a reset in them.
    """

    how = "replay of the actions"

    def __init__(
        self, env: gymnasium.Env[Any, Any], wrappers: Sequence[tuple[Any, WrapperCodec]] = ()
    ) -> None:
        self._env = env
        self._wrappers = wrappers
        self._here: _Way | None = None
        self._observation: Any = None
        self.num_replayed_steps = 0
        self.format = StateFormat(np.dtype(object), f"{origin_of(env)} by replay")
        self.step = self._step
        self.set = self._set
        self.get = self._get

    def reset(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        self._here = None
        packed = pickle.dumps(options)
        for wrapper, codec in self._wrappers:
            codec.begin(wrapper)
        observation, info = self._env.reset(seed=seed, options=pickle.loads(packed))
        for wrapper, codec in self._wrappers:
            codec.settle(wrapper)
        self._observation = own_copy(observation)
        self._here = _Way(seed, packed, ())
        return observation, info

    def _step(self, action: Any) -> Outcome:
        way, self._here = self._here, None  # unknown while, and if, the step fails
        assert way is not None
        event = pickle.dumps(action)
        outcome = self._env.step(action)
        self._observation = own_copy(outcome[0])
        self._here = way._replace(events=(*way.events, event))
        return outcome

    def reseed(self, seed: int) -> None:
        way, self._here = self._here, None
        assert way is not None
        reseed_generator(self._env.unwrapped, seed)
        self._here = way._replace(events=(*way.events, pickle.dumps(_Reseed(seed))))

    def _set(self, value: _Way) -> None:
        if self._here is None or not _leads_to(self._here, value):
            self.reset(value.seed, pickle.loads(value.options))
        assert self._here is not None
        for packed in value.events[len(self._here.events) :]:
            event = pickle.loads(packed)
            if isinstance(event, _Reseed):
                self.reseed(event.seed)
            else:
                self._step(event)
                self.num_replayed_steps += 1

    def _get(self, observation: Any) -> _Way:
        assert self._here is not None
        return self._here

    def observe(self) -> Any:
        return self._observation

    def load(self, states: NDArray[Any]) -> Rows:
        rows = [pickle.loads(bytes(state)) for state in states]
        values = [_Way(*way) for way, _, _ in rows]
        terminated, truncated = [row[1] for row in rows], [row[2] for row in rows]
        return Rows(values, [0] * len(rows), terminated, truncated)

    def dump(self, rows: Rows, out: NDArray[Any]) -> None:
        for row, (way, _, terminated, truncated) in enumerate(zip(*rows, strict=True)):
            data = pickle.dumps((tuple(way), terminated, truncated), protocol=5)
            out[row] = SavedState(data, self.format.origin)


def _leads_to(here: _Way, there: _Way) -> bool:
    return (
        here[:2] == there[:2]
        and len(here.events) <= len(there.events)
        and there.events[: len(here.events)] == here.events
    )
