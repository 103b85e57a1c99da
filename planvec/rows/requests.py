"""Defines the requests that an environment answers: steps, rollouts, starts, views. Letters: B rows, H steps.

Their arguments have been checked. Rows do not depend on each other, so a request over rows can be split
anywhere, and its parts can be performed by different workers. To add a type of request, write a class here
and an entry in `stepping.EnvStepper`. Backends need no change; a `Form` in `backends.processes.requests`
sends its arrays through shared memory instead of a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

from planvec.errors import EnvError
from planvec.rows.infos import vector_infos
from planvec.rows.outputs import Answer, Errors, Outputs
from planvec.rows.random_actions import ActionStreams, are_legal, draw_legal, has_action_masks
from planvec.rows.results import Rollouts, Start, Transitions, own_keys_apart
from planvec.rows.space_arrays import copy_tree, empty_rows, finish_rows, list_rows, take_rows
from planvec.rows.states import ACTION_MASK_FIELD, EnvDescription

T = TypeVar("T")


class Request(Generic[T]):
    """Describes work for a backend. The type argument is the type of the result for the user."""

    # A request without rows is answered in one piece: its part is the request itself.

    verb: ClassVar[str]  # the kind of work in one word, for messages
    has_rows: ClassVar[bool] = False  # whether it is a `RowRequest`
    # whether its rows count in `Stats`: True for requests that step the environment
    is_counted: ClassVar[bool] = False
    mask_errors: bool = False  # whether rows that fail are flagged; otherwise the first one fails the request
    # `time.perf_counter()` after which rows are not stepped; they get -1 as number of steps. None: no limit.
    deadline: float | None = None

    @property
    def num_rows(self) -> int:
        """B; 0 for a request without rows."""
        return 0

    def part(self, rows: slice) -> Self:
        """Return the request for some of the rows, with views of the arrays."""
        return self

    def copy(self) -> Self:
        """Return the same request in arrays of its own, which the caller cannot change."""
        return self

    def flagged(self) -> Request[Any]:
        """Return the request that flags all rows of this one as failed."""
        return self

    def action(self, row: int, step: int, space: Space[object]) -> Any:
        """Return the action that a row takes at a step, for error messages; None where there is none."""
        return None

    @property
    def steps(self) -> int | NDArray[np.int64]:
        """Largest number of environment steps that a row takes: one number, or `[B]`. Estimates its cost."""
        return 1

    def new_outputs(self, about: EnvDescription) -> Outputs:
        """Return uninitialised outputs for all rows."""
        return Outputs()

    def result(self, about: EnvDescription, answer: Answer) -> T:
        """Return the result for the user. By default it is the value of an answer without rows."""
        value: T = answer.value
        return value


class RowRequest(Request[T]):
    """Describes work over B rows, each of which starts at a state."""

    has_rows = True

    states: np.ndarray  # `[B]`
    return_state: bool = True  # whether the outputs have states
    has_observations: bool = True  # whether the outputs have observations
    _arrays: ClassVar[tuple[str, ...]] = ("states",)  # the fields that are arrays, trees or lists, or None

    @property
    def num_rows(self) -> int:
        return len(self.states)

    def part(self, rows: slice) -> Self:
        return replace(self, states=self.states[rows])  # type: ignore[type-var]

    def copy(self) -> Self:
        given = {name: getattr(self, name) for name in self._arrays}
        copies = {name: copy_tree(value) for name, value in given.items() if value is not None}
        return replace(self, **copies)  # type: ignore[type-var]

    def flagged(self) -> FlagBatch:
        return FlagBatch(self.states, self.has_observations, self.return_state)

    def new_outputs(self, about: EnvDescription) -> Outputs:
        num_rows = len(self.states)
        return Outputs(
            new_states=np.empty(num_rows, about.state_dtype) if self.return_state else None,
            observations=empty_rows(about.observation_space, num_rows) if self.has_observations else None,
            rewards=np.empty(num_rows, np.float64),
            terminated=np.empty(num_rows, np.bool_),
            truncated=np.empty(num_rows, np.bool_),
            num_steps=np.empty(num_rows, np.int64),
        )


@dataclass(slots=True)
class FlagBatch(RowRequest[None]):
    """Flags rows as failed without stepping them, after their workers crashed or exceeded the timeout."""

    verb = "flag"
    mask_errors = True

    states: np.ndarray  # `[B]`
    has_observations: bool  # zeros, as for steps
    return_state: bool


@dataclass(slots=True)
class ResetRequest(Request[Start]):
    """Asks for the start of an episode."""

    verb = "reset"

    seed: int  # Seed of the reset. It is never None, so that every worker makes the same start.
    options: dict[str, Any] | None  # the argument `options` of the reset


@dataclass(slots=True)
class SetBaseStateRequest(Request[None]):
    """Asks an environment to make a state its base state."""

    verb = "set_state"

    state: Any


UNLIMITED = 2**62  # number of steps: the time limit of environments that have none


@dataclass(slots=True)
class StepBatch(RowRequest[Transitions]):
    """Asks for steps of B rows."""

    verb = "step"
    is_counted = True
    _arrays = ("states", "actions", "dt", "seeds")

    states: np.ndarray  # `[B]`
    actions: Any  # A tree of arrays `[B, ...]`, or a list of B elements if their size is not fixed
    dt: NDArray[np.int64]  # `[B]` int64, how often each action is repeated
    seeds: NDArray[np.uint64] | None = None  # `[B]` uint64, reseed the rows; or None
    return_state: bool = True  # whether the result contains new states
    mask_errors: bool = False  # whether rows that fail are flagged
    same_dt: int | None = None  # the `dt` of every row if it is known to be the same; otherwise None
    deadline: float | None = None

    @property
    def steps(self) -> int | NDArray[np.int64]:
        return self.dt if self.same_dt is None else self.same_dt

    def part(self, rows: slice) -> StepBatch:
        return StepBatch(
            self.states[rows],
            take_rows(self.actions, rows),
            self.dt[rows],
            None if self.seeds is None else self.seeds[rows],
            self.return_state,
            self.mask_errors,
            self.same_dt,
            self.deadline,
        )

    def action(self, row: int, step: int, space: Space[object]) -> Any:
        one = take_rows(self.actions, slice(row, row + 1))
        return list_rows(space, one, as_ints=True)[0]

    def result(self, about: EnvDescription, answer: Answer) -> Transitions:
        outputs = answer.outputs
        rewards, terminated, truncated, num_steps = outputs.numbers
        infos = vector_infos(own_keys_apart(answer.columns)) if answer.columns else {}
        infos["num_steps"] = num_steps
        if self.mask_errors:
            infos |= error_infos(self.num_rows, answer.errors)
        return Transitions(
            outputs.new_states,  # type: ignore[arg-type] # None if return_state is False
            finish_rows(about.observation_space, outputs.observations),
            rewards,
            terminated,
            truncated,
            infos,
        )


def error_infos(num_rows: int, errors: Errors) -> dict[str, Any]:
    """Return the infos `error` and `_error`, each `[num_rows]`, from the errors of the rows that failed."""
    error, failed = np.full(num_rows, None, object), np.zeros(num_rows, bool)
    for row, row_error in errors.items():
        error[row], failed[row] = row_error, True
    return {"error": error, "_error": failed}


_NUMBERS = spaces.Discrete(1 << 32)


@dataclass(slots=True)
class RolloutBatch(RowRequest[Rollouts]):
    """Asks for rollouts of B rows, each for H steps or to the end of its episode."""

    verb = "rollout"
    is_counted = True
    has_observations = False
    _arrays = ("states", "actions", "seeds")

    states: np.ndarray  # `[B]`
    horizon: int  # H
    actions: Any  # the actions of all rows one after another, `[B * H, ...]`; None draws random actions
    action_seed: int  # seed of the random actions
    # Index of the first row in the whole batch. The random actions of a row depend on its index there.
    first_row: int = 0
    seeds: NDArray[np.uint64] | None = None  # `[B]` uint64, reseed the rows; or None
    discount: float = 1.0  # factor per step
    mask_errors: bool = False  # whether rows that fail are flagged
    deadline: float | None = None

    @property
    def steps(self) -> int | NDArray[np.int64]:
        return self.horizon

    def part(self, rows: slice) -> RolloutBatch:
        steps = slice(rows.start * self.horizon, rows.stop * self.horizon)
        return replace(
            self,
            states=self.states[rows],
            actions=None if self.actions is None else take_rows(self.actions, steps),
            first_row=self.first_row + rows.start,
            seeds=None if self.seeds is None else self.seeds[rows],
        )

    def sequences(
        self, space: Space[object], as_ints: bool, current_mask: Callable[[], np.ndarray] | None = None
    ) -> Callable[[int], Iterable[Any]]:
        """Return a function that gives the actions of a row."""
        if self.actions is not None:
            listed = list_rows(space, self.actions, as_ints)
            return lambda row: listed[row * self.horizon : (row + 1) * self.horizon]
        if current_mask is None:
            return ActionStreams(space, self.action_seed, self.first_row, len(self.states), as_ints).row
        numbers = spaces.Box(0.0, 1.0, space.shape or (), np.float64)
        streams = ActionStreams(numbers, self.action_seed, self.first_row, len(self.states))

        def legal_actions(row: int) -> Iterator[Any]:
            for drawn in streams.row(row):  # each after the step before it
                mask = current_mask()
                action = draw_legal(space, mask[None], np.asarray(drawn)[None])[0]
                if not are_legal(space, mask, action):
                    raise EnvError(
                        f"{ACTION_MASK_FIELD}: expected at least one legal action where the episode goes on, "
                        "got none"
                    )
                yield action

        return legal_actions

    def numbers(self) -> Callable[[int], Iterable[int]]:
        """Return a function that gives the numbers in [0, 2**32) of a row, which stand for legal actions."""
        return ActionStreams(_NUMBERS, self.action_seed, self.first_row, len(self.states), True).row

    def action(self, row: int, step: int, space: Space[object]) -> Any:
        if self.actions is None and has_action_masks(self.states):
            return None  # it depends on the states on the way
        return next(islice(self.sequences(space, True)(row), step, None), None)

    def result(self, about: EnvDescription, answer: Answer) -> Rollouts:
        assert answer.outputs.new_states is not None
        returns, terminated, truncated, num_steps = answer.outputs.numbers
        infos = error_infos(self.num_rows, answer.errors) if self.mask_errors else {}
        return Rollouts(answer.outputs.new_states, returns, num_steps, terminated, truncated, infos)


_NUMERIC = (bool, int, float, list, tuple, np.ndarray, np.generic)


def stack_values(values: Sequence[object]) -> np.ndarray:
    """Stack B values in one array."""
    # Returns `[B, ...]` of the common dtype if all values are numbers, or arrays or lists of numbers of one
    # shape; otherwise `[B]` of dtype object.
    try:
        arrays = [np.asarray(value) for value in values if isinstance(value, _NUMERIC)]
    except ValueError:  # lists of different lengths in a list
        arrays = []
    is_alike = len(arrays) == len(values) > 0 and len({array.shape for array in arrays}) == 1
    if is_alike and all(array.dtype.kind in "biufc" for array in arrays):
        return np.stack(arrays)
    objects = np.empty(len(values), object)
    for row, value in enumerate(values):
        objects[row] = value
    return objects


def resolve(target: object, names: Iterable[str]) -> Any:
    """Follow a chain of attribute names from an object and return the last value."""
    for name in names:
        target = getattr(target, name)
    return target


@dataclass(slots=True)
class ObserveBatch(RowRequest[Any]):
    """Asks for the observations of B states."""

    verb = "observe"
    return_state = False

    states: np.ndarray  # `[B]`

    def new_outputs(self, about: EnvDescription) -> Outputs:
        return Outputs(observations=empty_rows(about.observation_space, len(self.states)))

    def result(self, about: EnvDescription, answer: Answer) -> Any:
        return finish_rows(about.observation_space, answer.outputs.observations)


class _ListedRequest(RowRequest[T]):
    """Asks for a list of B values of any type. The base class of such requests."""

    def new_outputs(self, about: EnvDescription) -> Outputs:
        return Outputs(values=[None] * len(self.states))


@dataclass(slots=True)
class CheckBatch(_ListedRequest[None]):
    """Asks whether B states, which come from a file, can be restored and name nothing but what states do."""

    verb = "check"

    states: np.ndarray  # `[B]`

    def result(self, about: EnvDescription, answer: Answer) -> None:
        return


@dataclass(slots=True)
class RenderBatch(_ListedRequest[list[Any]]):
    """Asks for the frames of B states."""

    verb = "render"

    states: np.ndarray  # `[B]`

    def result(self, about: EnvDescription, answer: Answer) -> list[Any]:
        assert answer.outputs.values is not None
        return answer.outputs.values


@dataclass(slots=True)
class ReadBatch(_ListedRequest[np.ndarray]):
    """Asks for an attribute of the environment, or for the result of a method, at B states."""

    verb = "read"

    states: np.ndarray  # `[B]`
    name: str  # A dotted name. `env.get_wrapper_attr` looks up its first part, `getattr` the others.
    # positional and keyword arguments of the method; None reads an attribute
    arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def result(self, about: EnvDescription, answer: Answer) -> np.ndarray:
        assert answer.outputs.values is not None
        return stack_values(answer.outputs.values)
