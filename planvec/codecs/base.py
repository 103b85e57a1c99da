"""What a codec is.

A codec saves everything that the future of an environment depends on. Three kinds:

    Codec          one environment class: its values <-> columns of a record
    WrapperCodec   one stateful wrapper class: the same, and what it does to an observation
    StateCodec     a whole environment, wrappers included: what `PlanEnv` steps with

`stack.StackCodec` builds the third out of the first two; `replay.ReplayCodec` is one by itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.rows import StateFormat

__all__ = ["Codec", "Outcome", "Rows", "StateCodec", "WrapperCodec"]

Outcome = tuple[Any, Any, bool, bool, dict[str, Any]]
"""What `gymnasium.Env.step` returns."""


class _Fields:
    """Values of named fields, in batches, to and from the columns of a structured array.

    A *value* is what `get` returns for one state: a tuple with one entry per field of `dtype`.
    Whole batches are converted at once, since reading records one by one costs several times more.

    Attributes:
        dtype: A structured dtype with the fields that are saved, or None where the size of a value
            varies: such values are pickled, and must then be plain data that nothing else changes.
        draws: Whether stepping draws from `env.np_random`; its generator is then part of the state.
        stochastic: Whether what is drawn may change what a step leads to; None: as `draws`.
    """

    dtype: np.dtype[Any] | None = None
    draws: bool = True
    stochastic: bool | None = None

    def _names(self) -> tuple[str, ...]:
        return (self.dtype.names or ()) if self.dtype is not None else ()

    def pack(self, values: Sequence[Any], records: NDArray[Any]) -> None:
        """Write what `get` returned for each row into the fields of the records `[B]`."""
        for name, column in zip(self._names(), zip(*values, strict=True), strict=True):
            records[name] = column

    def unpack(self, records: NDArray[Any]) -> list[Any]:
        """What `set` takes, for each of the records `[B]`. Arrays in it are private copies.

        The records hold the fields of other layers beside those of `dtype`.
        """
        columns = []
        for name in self._names():
            column = records[name]
            columns.append(column.tolist() if column.ndim == 1 else list(column.copy()))
        return list(zip(*columns, strict=True)) if columns else [()] * len(records)


class Codec(_Fields, ABC):
    """Saves and restores one class of environments (the unwrapped one).

    Attributes:
        constants: Names of attributes that never change after the environment was made, but may differ
            from one to another (a map, a mass). Worker processes in which they differ are refused.
        how: How states are saved, for reports.
        note: What is changed in the environment, for reports; "" where it behaves as without planvec.

    For an environment of your own, state the fields and how to read and write them::

        class RocketCodec(planvec.Codec):
            dtype = np.dtype([("position", "f8", 2), ("fuel", "i8")])
            draws = False                      # stepping does not use env.np_random

            def get(self, env):
                return env.position, env.fuel

            def set(self, env, value):
                env.position, env.fuel = value

        planvec.register_codec(Rocket, RocketCodec)

    `set` takes what `get` returned, or the same after a way through the columns: lists may come back as
    arrays. What `get` returns must not change when the environment steps on: copy arrays that it changes in
    place. One codec serves one environment; it is made with that environment, before any reset.
    """

    constants: tuple[str, ...] = ()
    how: str = "named fields"
    note: str = ""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Look at the new environment once, for what is constant in it.

        Raises:
            UnsupportedEnvError: It cannot be saved faithfully.
        """

    def begin(self, env: Any) -> None:
        """Forget what outlives a reset: every episode begins as in a new environment.

        A reset would depend on what was stepped before otherwise, and so on which worker makes it.
        """

    def identity(self, env: Any) -> list[Any]:
        """What has to be equal in all worker processes: the values of `constants`."""
        return [getattr(env, name) for name in self.constants]

    @abstractmethod
    def get(self, env: Any) -> Any:
        """The value of the state that the environment is in."""

    @abstractmethod
    def set(self, env: Any, value: Any) -> None:
        """Put the environment into a state."""

    def observe(self, env: Any) -> Any:
        """The observation of the state that the environment is in, without changing it.

        None means that it cannot be had; planvec then saves the last observation with each state.
        """
        return None

    def reseed(self, env: Any, seed: int) -> None:
        """Reseed every generator that stepping draws from, besides `env.np_random`."""


class WrapperCodec(_Fields, ABC):
    """Saves and restores what one wrapper remembers. The counterpart of `Codec`.

    Attributes:
        remembers_observation: Whether `observe` needs no inner observation.
    """

    remembers_observation = False

    def __init__(self, wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> None:
        """Look at the new wrapper once, before any reset."""

    def begin(self, wrapper: Any) -> None:
        """Forget what outlives a reset; see `Codec.begin`."""

    def settle(self, wrapper: Any) -> None:
        """After a reset, replace what is no function of its seed (the time of day)."""

    def reseed(self, wrapper: Any, seed: int) -> None:
        """Reseed every generator that the wrapper draws from, besides `np_random`."""

    @abstractmethod
    def get(self, wrapper: Any) -> Any:
        """The value of what the wrapper remembers."""

    @abstractmethod
    def set(self, wrapper: Any, value: Any) -> None:
        """Put it back."""

    def observe(self, wrapper: Any, observation: Any) -> Any:
        """What the wrapper makes of the inner observation in this state; None: cannot be had."""
        return None


class Rows(NamedTuple):
    """States as Python objects, column by column; each list has B entries.

    Attributes:
        values: What `StateCodec.set` takes and `get` returns.
        elapsed: Steps since the reset, where the codec counts them (`time_limit`).
        terminated: Flags.
        truncated: Flags.
    """

    values: list[Any]
    elapsed: list[int]
    terminated: list[bool]
    truncated: list[bool]


class StateCodec(ABC):
    """A whole environment, wrappers included, that can be put into a saved state.

    Attributes:
        format: The dtype of one state, and which environment and codec it belongs to.
        time_limit: Steps after which an episode is truncated, where `step` does not count them
            itself; else None.
        stochastic: False only where it is known that a step has one outcome, whatever is drawn.
        fresh_results: Whether every step returns new observations and infos, as Gymnasium asks;
            else they are copied before the next step.
        fingerprint: Equal for environments that behave alike, as far as was looked.
        how: How states are saved, for reports.
        note: What is changed in the environment, for reports.
        step: One step of the environment, as Gymnasium's. Where making the info takes time, its attribute
            `without_info` is the same step with an empty one.
        set: Put the environment into the state of a value.
        get: The value of the present state, given the observation that it was reached with.
    """

    format: StateFormat
    time_limit: int | None = None
    stochastic: bool = True
    fresh_results: bool = False
    fingerprint: bytes = b""
    how: str = ""
    note: str = ""
    step: Callable[[Any], Outcome]

    @property
    def step_without_info(self) -> Callable[[Any], Outcome]:
        return getattr(self.step, "without_info", self.step)

    set: Callable[[Any], None]
    get: Callable[[Any], Any]

    @abstractmethod
    def reset(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Start an episode: `(observation, info)`."""

    @abstractmethod
    def observe(self) -> Any:
        """The observation of the present state."""

    @abstractmethod
    def reseed(self, seed: int) -> None:
        """Let the randomness of the next steps come from this seed."""

    @abstractmethod
    def load(self, states: NDArray[Any]) -> Rows:
        """States `[B]` to Python objects."""

    @abstractmethod
    def dump(self, rows: Rows, out: NDArray[Any]) -> None:
        """Python objects to states, written into `out` `[B]`."""
