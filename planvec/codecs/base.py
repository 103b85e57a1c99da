"""The interfaces that save and restore environments.

A codec saves everything that the future of an environment depends on. There are three kinds:

    Codec          saves one class of unwrapped environments as the columns of a record
    WrapperCodec   does the same for one class of stateful wrappers, and computes their observations
    StateCodec     saves a whole environment, wrappers included: `PlanEnv` steps with it

`stack.StackCodec` builds a `StateCodec` from a `Codec` and the `WrapperCodec`s around it.
`generic.replay.ReplayCodec` is a `StateCodec` that needs neither. Letters: B rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.codecs.positions import Positions
from planvec.errors import UnsupportedEnvError
from planvec.rows import StateFormat, own_copy

# -- Converts what codecs save to and from the fields of records. Letters: B rows ----------------------------


class Fields(ABC):
    """Converts batches of values to and from the fields of a structured array.

    A *value* is what `get` returns for one state: a tuple with one entry per field of `dtype`.
    Whole batches are converted at once, since reading records one by one costs several times more.

    Attributes:
        dtype: A structured dtype with the fields to save, or None if the size of a value varies. Such values
            are pickled. They must be plain data that nothing else changes.
        draws: Whether stepping draws from `env.np_random`. If it does, the generator is part of the state.
        stochastic: Whether these random draws can change the outcome of a step. None means the same as
            `draws`.
    """

    dtype: np.dtype | None = None
    draws: bool = True
    stochastic: bool | None = None

    @abstractmethod
    def get(self, saved: Any) -> Any:
        """Return the value of the present state."""

    def digests(self, saved: object) -> dict[str, bytes]:
        """Return digests of what an object holds now, by name. They are equal for equal states.

        Args:
            saved: The environment or the wrapper.
        """
        if self.dtype is None:
            return {}
        record = np.zeros(1, self.dtype)
        self.pack([self.get(saved)], record)
        return {f"{type(saved).__name__}.{name}": record[name].tobytes() for name in self._names()}

    def _names(self) -> tuple[str, ...]:
        return (self.dtype.names or ()) if self.dtype is not None else ()

    def pack(self, values: Sequence[object], records: NDArray[np.void]) -> None:
        """Write values into the fields of records.

        Args:
            values: `[B]`, what `get` returned for each row.
            records: `[B]`, filled. They have the fields of `dtype`, and fields of other layers, which stay
                as they are.
        """
        for name, column in zip(self._names(), zip(*values, strict=True), strict=True):
            records[name] = column

    def unpack(self, records: NDArray[np.void]) -> list[Any]:
        """Read values from the fields of records.

        Args:
            records: `[B]`, with the fields of `dtype` among others.

        Returns:
            `[B]`, what `set` takes for each row. Arrays in it are private copies.
        """
        columns = []
        for name in self._names():
            column = records[name]
            columns.append(column.tolist() if column.ndim == 1 else list(column.copy()))
        return list(zip(*columns, strict=True)) if columns else [()] * len(records)


Env = gymnasium.Env[Any, Any]  # an environment of any spaces

# return value of `gymnasium.Env.step`: observation, reward, terminated, truncated, info
Outcome = tuple[Any, Any, bool, bool, dict[str, Any]]

Step = Callable[[Any], Outcome]  # steps an environment with one action

RollOut = Callable[[Iterable[int], int, float], tuple[float, int, bool, bool]]
"""`roll_out(numbers, max_steps, discount)` takes legal actions at random, up to the end of the episode.

Each number, in [0, 2**32), stands for an action: of L legal ones for that of index `number * L >> 32`. It
returns the discounted return, the number of steps, and whether the episode has terminated or was truncated.
"""


class Codec(Fields):
    """Saves and restores one class of unwrapped environments.

    One codec serves one environment. It is made when the environment is opened, before any reset.

    For an environment of your own, state the fields and how to read and write them::

        class RocketCodec(planvec.Codec):
            dtype = np.dtype([("position", "f8", 2), ("fuel", "i8")])
            draws = False                      # stepping does not use env.np_random

            def get(self, env):
                return env.position.copy(), env.fuel

            def set(self, env, value):
                env.position, env.fuel = value

        planvec.register_codec(Rocket, RocketCodec)

    `set` takes what `get` returned after a conversion to columns and back: lists may come back as arrays. The
    result of `get` must not change when the environment steps on: copy arrays that it changes in place.

    Attributes:
        constants: Names of attributes that never change after the environment was made, but may differ
            between two environments (a map, a mass). Worker processes in which they differ are refused.
        how: How states are saved, for reports. "" stands for the name of the class.
        note: What planvec changes in the environment, for reports. "" if it changes nothing.
        step_without_info: A function that steps the environment and returns an empty info, if making the
            info takes time. None if there is only `env.step`.
        roll_out: A function that makes random rollouts by legal actions alone, or faster than step by step;
            see `RollOut`. None draws their actions from the action space.
    """

    constants: tuple[str, ...] = ()
    how: str = ""
    note: str = ""
    step_without_info: Step | None = None
    roll_out: RollOut | None = None

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Read what is constant in a new environment.

        Raises:
            UnsupportedEnvError: The environment cannot be saved faithfully.
        """

    def after_first_reset(self, env: Any) -> None:
        """Read what only exists after a reset. `dtype` must be defined when this returns."""

    def before_reset(self, env: Any) -> None:
        """Clear what the environment keeps from one episode to the next; called before every reset.

        Every episode then begins as in a new environment. Otherwise a reset would depend on the steps before
        it, and so on the worker that makes it.
        """

    def before_own_reset(self, env: Any, seed: int | None) -> None:
        """Prepare for a reset that the environment makes by itself, perhaps without a seed.

        Called before every reset of a resident environment (`codecs.resident`), instead of `before_reset`.
        """

    def after_own_reset(self, env: Any) -> None:
        """Read what a reset has made that the environment made by itself. See `before_own_reset`."""

    def identity(self, env: Any) -> list[Any]:
        """Return what must be equal in all worker processes: the values of `constants`."""
        return [getattr(env, name) for name in self.constants]

    @abstractmethod
    def get(self, env: Any) -> Any:
        """Return the value of the environment's current state."""

    @abstractmethod
    def set(self, env: Any, value: Any) -> None:
        """Put the environment into the state of a value."""

    def observe(self, env: Any) -> Any:
        """Return the observation of the current state without changing it.

        None means that it cannot be computed. The last observation is then saved with each state.
        """
        return None

    def reseed(self, env: Any, seed: int) -> None:
        """Reseed every generator that stepping draws from, except `env.np_random`."""


class WrapperCodec(Fields):
    """Saves and restores the memory of one class of wrappers, as `Codec` does for environments.

    One codec serves one wrapper. Register it with `planvec.register_wrapper_codec`. `get` and `set` must
    cover everything that the wrapper remembers, and everything that it changes in the environment below it.

    Attributes:
        needs_inner_observation: Whether `observe` uses the observation of the environment below. If it does
            not, planvec does not compute that one.
    """

    needs_inner_observation: bool = True

    def __init__(self, wrapper: gymnasium.Wrapper[Any, Any, Any, Any]) -> None:
        """Read what is constant in a new wrapper, before any reset.

        Raises:
            UnsupportedEnvError: The wrapper cannot be saved faithfully.
        """

    def before_reset(self, wrapper: Any) -> None:
        """Clear what the wrapper keeps from one episode to the next; called before every reset."""

    def after_reset(self, wrapper: Any) -> None:
        """Replace what does not follow from the seed (the time of day); called after every reset."""

    def reseed(self, wrapper: Any, seed: int) -> None:
        """Reseed every generator that the wrapper draws from, except `np_random`."""

    @abstractmethod
    def get(self, wrapper: Any) -> Any:
        """Return the value of the wrapper's memory."""

    @abstractmethod
    def set(self, wrapper: Any, value: Any) -> None:
        """Restore the wrapper's memory from a value."""

    def observe(self, wrapper: Any, observation: Any) -> Any:
        """Return the wrapper's observation of the current state; None if it cannot be computed.

        Args:
            wrapper: The wrapper, in that state.
            observation: The observation of the environment below it.
        """
        return None


# makes the codec of an unwrapped environment: a `Codec` subclass or a function
CodecMaker = Callable[[Any], Codec]

# makes the codec of a wrapper: a `WrapperCodec` subclass or a function
WrapperCodecMaker = Callable[[Any], WrapperCodec]


class Rows(NamedTuple):
    """Holds states as Python objects, column by column. Each list has B entries."""

    values: list[Any]  # what `StateCodec.set` takes and `get` returns
    elapsed: list[int]  # steps since the reset, if the codec counts them (`time_limit`), else zeros
    terminated: list[bool]  # flags
    truncated: list[bool]  # flags


class StateCodec(ABC):
    """Saves, restores and steps a whole environment, wrappers included."""

    _env: Env  # the environment, wrappers included
    format: StateFormat  # the dtype of one state, and the environment and codec that it belongs to
    # steps after which an episode is truncated, if `step` does not count them itself; else None
    time_limit: int | None = None
    stochastic: bool = True  # False only if a step is known to have one outcome, whatever is drawn
    # Whether `step` is the step of the unwrapped environment, and states hold the fields of its codec, and
    # nothing of wrappers. Then a kernel for its class may replace the steps.
    steps_base: bool = False
    # Whether planvec ships the codecs of all layers. Such environments are known to return new observations
    # and infos in every step, as Gymnasium asks; those of others are copied before the next step. And they
    # are known to step alike with a Python int and with the NumPy scalar that `space.sample()` gives for a
    # Discrete space: they get ints, which they handle faster.
    is_built_in: bool = False
    fingerprint: bytes = b""  # bytes that are equal for environments with the same constants
    # A digest of the outcome of each step of the random walk that verified it, as far as it came
    walk: tuple[bytes, ...] = ()
    # whether the environment may depend on hashes of texts, which differ between processes
    uses_hashes: bool = False
    # reads generators that are not saved, so that a draw from them is noticed; None if states may hold them
    watch: Positions | None = None
    forbids_draws: bool = False  # whether such a draw is an error
    # raises an error if a variable of a module or a class has changed since the codec was verified
    check_variables: Callable[[], None] | None = None
    how: str = ""  # how states are saved, for reports
    note: str = ""  # what planvec changes in the environment, for reports
    warning: str = ""  # what users should be told when the environment is opened; "" for nothing
    step: Step
    step_without_info: Step  # the same step for callers that ignore the info, which may be empty
    roll_out: RollOut | None = None  # makes random rollouts, see `RollOut`; None if they are made of steps
    # returns the mask of the actions that are legal now; None if that is not known
    current_mask: Callable[[], np.ndarray] | None = None
    set: Callable[[Any], None]  # puts the environment into the state of a value
    # returns the value of the current state, given the observation that it was reached with
    get: Callable[[Any], Any]

    def __init__(self, step: Step, step_without_info: Step | None = None) -> None:
        self.step = step
        self.step_without_info = step if step_without_info is None else step_without_info

    def look(self, value: Any, elapsed: int, function: Callable[[Any], Any]) -> Any:
        """Return what a function returns for the environment in the state of a value."""
        # Not after `set`, which may leave the environment object where it is.
        self.set(value)
        self.set_elapsed(elapsed)
        return function(self._env)

    @abstractmethod
    def reset(self, seed: int, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Start an episode. Returns `(observation, info)`."""

    def digests(self) -> dict[str, bytes]:
        """Return digests of what the environment holds now, by name. They are equal for equal states."""
        return {}

    @property
    def packages(self) -> Collection[str]:
        """The packages whose classes states may name if they come from a file. See `unpickling.from_file`."""
        return ()

    @abstractmethod
    def observe(self) -> Any:
        """Return the observation of the current state."""

    def set_elapsed(self, elapsed: int) -> None:
        """Set the steps since the reset where `step` does not count them, for whoever reads them."""
        return

    def get_elapsed(self) -> int:
        """Return the steps since the reset that `set_elapsed` sets."""
        return 0

    @abstractmethod
    def reseed(self, seed: int) -> None:
        """Make the randomness of the next steps come from this seed."""

    @abstractmethod
    def load(self, states: np.ndarray) -> Rows:
        """Convert states `[B]` to Python objects."""

    @abstractmethod
    def dump(self, rows: Rows, out: np.ndarray) -> None:
        """Convert Python objects to states, written into `out` `[B]`."""

    def states_of(self, values: Sequence[Any]) -> np.ndarray:
        """Return the states of values `[B]` that `get` returned: of no elapsed steps, and not ended."""
        states = np.zeros(len(values), self.format.dtype)
        flags = [False] * len(values)
        self.dump(Rows([*values], [0] * len(values), flags, flags), states)
        return states


def select_infos(outcome: Outcome, info_keys: Sequence[str] | None) -> Outcome:
    """Return an outcome with the chosen infos."""
    observation, reward, terminated, truncated, info = outcome
    if info_keys is not None:
        info = {key: value for key, value in info.items() if key in info_keys}
    return observation, reward, terminated, truncated, info


# -- Gives an environment a copy of each action, which it may change in place --------------------------------


def with_own_action(step: Step, action_space: Space[object]) -> Step:
    """Return a step that gives the environment a copy of the action, which it may change in place."""
    if isinstance(action_space, spaces.Discrete):
        return step

    def step_with_copy(action: object) -> Outcome:
        return step(own_copy(action))

    return step_with_copy


# -- Finds mistakes in codecs that users have written, and names the codec instead of the environment --------


def is_of_user(codec: Codec | WrapperCodec) -> bool:
    """Return whether a codec is none of planvec's."""
    return not type(codec).__module__.startswith("planvec.")


def check_value(codec: Codec, env: object) -> None:
    """Check that a codec of the user saves values that fit into its dtype."""
    name, dtype = type(codec).__name__, codec.dtype
    if dtype is None or not is_of_user(codec):
        return
    if not isinstance(dtype, np.dtype) or not dtype.names:
        raise UnsupportedEnvError(
            f"{name}.dtype: expected a np.dtype with named fields, or None, got {dtype!r}; write "
            'np.dtype([("position", "f8", 2)])'
        )
    value = codec.get(env)
    if not isinstance(value, (tuple, list)) or len(value) != len(dtype.names):
        got = f"{len(value)} entries" if isinstance(value, (tuple, list)) else type(value).__name__
        raise UnsupportedEnvError(
            f"{name}.get: expected a tuple with an entry for each field of dtype ({', '.join(dtype.names)}), "
            f"got {got}"
        )


# -- The layers of an environment: the wrappers, and the unwrapped environment inside them -------------------


def layers_of(env: object) -> list[Any]:
    """Return an environment and the layers inside it, the outermost first."""
    layers = [env]
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        layers.append(env)
    return layers


def wrappers_of(env: object) -> list[Any]:
    """Return the wrappers around an environment, innermost first."""
    return layers_of(env)[-2::-1]


def layer_name(env: object) -> str:
    """Return the name of an environment or a wrapper in pickles: its number of layers below."""
    return f"layer{len(layers_of(env)) - 1}"


def layers_by_name(env: object) -> dict[str, Any]:
    """Return an environment and the layers inside it, by the names by which pickles refer to them."""
    return {layer_name(layer): layer for layer in layers_of(env)}
