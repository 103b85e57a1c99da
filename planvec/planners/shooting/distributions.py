"""Distributions of action sequences.

A sequence has L actions, each repeated for `dt` environment steps. The planner decides at every environment
step, so that with `dt` above 1 a decision may fall between the repetitions of an action. `num_repeated`
counts the repetitions of the first action before the decision, so that a sequence of the last decision goes
on as planned.

Letters: L actions of a sequence, H environment steps, K elites.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.rows import draw_legal, uniform_actions


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Distribution(ABC):
    """A distribution of action sequences, with the best sequences of the last iteration."""

    space: Space[Any]  # the space of one action
    dt: int  # environment steps for which an action is repeated
    num_repeated: int = 0  # those of the first action that were taken before the decision, below `dt`
    elites: NDArray[Any]  # `[K, L, *action shape]`, the best sequences of the last iteration, best first

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.num_actions} actions, {len(self.elites)} elites>"

    @property
    def num_actions(self) -> int:
        """Return L."""
        return int(self.elites.shape[1])

    def action_index(self, horizon: int) -> NDArray[np.int64]:
        """Return the index of the action at each environment step, `[H]`; the last action is repeated."""
        index = (np.arange(horizon) + self.num_repeated) // self.dt
        return np.minimum(index, self.num_actions - 1)

    def can_continue(self, previous: Any) -> bool:
        """Return whether `shifted` accepts what another decision ended with."""
        return type(previous) is type(self) and previous.dt == self.dt and previous.space == self.space

    def _shift(self, previous: Distribution) -> tuple[int, NDArray[np.int64]]:
        """Return `num_repeated` one step later, and the index `[L]` of each action in `previous`."""
        num_repeated = previous.num_repeated + 1
        is_next = num_repeated == previous.dt
        index = np.minimum(np.arange(self.num_actions) + is_next, previous.num_actions - 1)
        return 0 if is_next else num_repeated, index

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the fields, except the space, as arrays."""
        names = [field.name for field in fields(self) if field.name != "space"]
        return {name: np.asarray(getattr(self, name)) for name in names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], action_space: Space[Any]) -> Self:
        """Return the distribution that `to_arrays` turned into arrays."""
        numbers = {"int": int, "float": float}  # annotations are text
        values: dict[str, Any] = {
            field.name: numbers.get(str(field.type), np.asarray)(arrays[field.name])
            for field in fields(cls)
            if field.name != "space"
        }
        made = cls(space=action_space, **values)
        if not made._fits():
            raise ValueError(f"expected the parameters of a distribution of sequences of {action_space}")
        return made

    def _fits(self) -> bool:
        """Return whether the fields, which may come from a file, are those of sequences of the space."""
        shape = (self.num_actions, *(self.space.shape or ()))
        parts = [getattr(self, name) for name in ("mean", "std", "probabilities") if hasattr(self, name)]
        is_right = self.elites.shape[1:] == shape and self.elites.dtype == self.space.dtype
        is_right = is_right and all(part.shape[: len(shape)] == shape for part in parts)
        return is_right and self.dt >= 1 and 0 <= self.num_repeated < self.dt

    @property
    def saved_states(self) -> NDArray[Any]:
        """No states."""
        return np.empty(0, object)

    @abstractmethod
    def shifted(self, previous: Self) -> Self:
        """Return this distribution with the parameters of another one, shifted by one environment step."""

    @abstractmethod
    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """Draw sequences `[num_sequences, L, *action shape]` of the space's dtype, inside the space."""

    def sample_legal(
        self, generator: np.random.Generator, index: int, masks: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Draw an action of a sequence among the legal ones: `[B, *action shape]`, by default evenly."""
        # `masks`: `[B, M]`; see `planvec.rows.legal_actions`.
        shape = (len(masks), *(self.space.shape or ()))
        return draw_legal(self.space, masks, generator.random(shape))

    def restricted(self, mask: NDArray[np.bool_]) -> Self:
        """Return this distribution with a first action that is legal by a mask `[M]`."""
        return self

    @abstractmethod
    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Return this distribution fitted to the best sequences."""
        # `elites`: `[K, L, *action shape]`.

    @abstractmethod
    def mode(self) -> NDArray[Any]:
        """Return the most likely sequence, `[L, *action shape]`."""


def no_elites(space: Space[Any], num_actions: int) -> NDArray[Any]:
    """Return an empty array of sequences, `[0, L, *action shape]`."""
    return np.empty((0, num_actions, *(space.shape or ())), space.dtype)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Uniform(Distribution):
    """The uniform distribution over a space, which does not change."""

    @classmethod
    def initial(cls, space: Space[Any], num_actions: int, dt: int) -> Uniform:
        """Return the distribution over a space whose actions can be drawn uniformly."""
        return cls(space=space, dt=dt, elites=no_elites(space, num_actions))

    def shifted(self, previous: Self) -> Self:
        """Return this distribution."""
        return self

    def sample(self, generator: np.random.Generator, num_sequences: int) -> NDArray[Any]:
        """Draw uniform sequences, `[num_sequences, L, *action shape]`."""
        drawn = uniform_actions(self.space, generator, num_sequences * self.num_actions)
        return drawn.reshape(num_sequences, self.num_actions, *drawn.shape[1:])

    def refit(self, elites: NDArray[Any], momentum: float) -> Self:
        """Return this distribution with new elites."""
        return replace(self, elites=elites)

    def mode(self) -> NDArray[Any]:
        """Return the best sequence, since all are equally likely."""
        best: NDArray[Any] = self.elites[0]
        return best
