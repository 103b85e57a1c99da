"""Defines `ResidentEnvs`, the environments of one worker, which are stepped on from where they stand.

A worker process hosts one (`RowsServer`), and a vector environment without workers has one in this process.
One environment that raises does not keep the others from being stepped: errors are part of the reply.

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from planvec.codecs import EnvFunctions, Outcome, Proof, Sharing, Watch, find_shared, same_layers
from planvec.errors import EnvError, UnsupportedEnvError
from planvec.rows import blank, list_rows, own_copy
from planvec.stepping import ROW, ignores_interrupts, new_progress
from planvec.vector.arrays import RowArrays, Rows, write_observations
from planvec.vector.env_row import (
    ROW_CLASSES,
    Ending,
    EnvRow,
    InfoForm,
    ResidentStates,
    SavedRows,
    pack_infos,
)
from planvec.vector.operations import OnCrash, Operation, Reply, RowFailure

# -- Runs loops over rows in which an environment may raise, and writes their observations.
#
# Letters: N environments, B rows of an operation.

T = TypeVar("T")

_ALL = slice(None)


def run_rows(function: Callable[[int], T], num_rows: int, progress: Any, reply: Reply, failed: T) -> list[T]:
    """Call a function with each row, and return its results; `failed` for rows whose environment raises."""
    results: list[T] = []
    while len(results) < num_rows:
        try:
            for row in range(len(results), num_rows):
                progress[ROW] = row
                results.append(function(row))
        except BaseException as error:
            note_error(error, len(results), reply)
            results.append(failed)
    return results


def note_error(error: BaseException, index: int, reply: Reply) -> None:
    """Note what the environment of a row raised."""
    if isinstance(error, KeyboardInterrupt) and not ignores_interrupts():
        raise error
    reply.errors[index] = RowFailure.of(error)


def put_observations(
    space: gymnasium.Space[Any], observations: Sequence[Any], arrays: RowArrays, rows: Rows, reply: Reply
) -> None:
    """Write observations, but those of rows that failed. Wrong ones become errors of their rows."""
    out, valid = arrays.observations, list[int]()
    if reply.errors and not isinstance(out, list):
        valid = [index for index in range(len(observations)) if index not in reply.errors]
        rows = np.arange(len(arrays.rewards))[rows][valid]
        observations = [observations[index] for index in valid]
    wrong = write_observations(space, observations, out, rows)
    for index, error in wrong.items():
        reply.errors[valid[index] if valid else index] = RowFailure.of(error)
    if isinstance(out, list):
        reply.observations = list(observations)


# -- Writes the outcomes of steps.
#
# Letters: N environments, B rows of an operation.

_FLOAT64 = np.dtype(np.float64)


class Outcomes(NamedTuple):
    """Holds what the steps of rows returned."""

    observations: Sequence[Any]  # the observations `[B]`; None where an environment raised
    rewards: Sequence[Any]
    terminated: Sequence[bool]  # whether the episode was terminated
    truncated: Sequence[bool]  # whether the episode was truncated
    infos: Sequence[dict[str, Any]]


_NO_OUTCOME: Outcome = (None, 0.0, False, False, {})


def put_outcomes(
    space: gymnasium.Space[Any],
    outcomes: Outcomes,
    arrays: RowArrays,
    rows: Rows,
    reply: Reply,
    keeps_dtype: bool,
) -> None:
    """Write the outcomes of rows, but their infos."""
    # `reply`: Receives the errors, observations of variable size, and rewards that are vectors or must keep a
    # dtype other than float64.
    if arrays.observations is None:
        if not reply.errors and _put_new(space, outcomes, arrays, reply, keeps_dtype):
            return
        arrays.make(space, len(outcomes.rewards))
    put_observations(space, outcomes.observations, arrays, rows, reply)
    rewards = _rewards(outcomes.rewards, reply)
    if rewards.ndim == 1:
        arrays.rewards[rows] = rewards
    if rewards.ndim != 1 or (keeps_dtype and rewards.dtype != np.float64):
        reply.rewards = rewards
    arrays.terminated[rows] = _flags(outcomes.terminated)
    arrays.truncated[rows] = _flags(outcomes.truncated)


def _rewards(given: Sequence[Any], reply: Reply) -> NDArray[Any]:
    """Return rewards as an array. Those of another shape than the first one become errors of their rows."""
    try:
        return np.array(given)
    except ValueError:
        valid = [np.shape(reward) for row, reward in enumerate(given) if row not in reply.errors]
        shape = next((shape for shape in valid if shape), ())
        rewards = list(given)
        for row, reward in enumerate(given):
            if np.shape(reward) != shape:
                rewards[row] = np.zeros(shape)
                if row not in reply.errors:
                    text = f"reward: expected shape {shape} as in other environments, got {reward!r}"
                    reply.errors[row] = RowFailure.of(EnvError(text))
        return np.array(rewards)


def _put_new(
    space: gymnasium.Space[Any], outcomes: Outcomes, arrays: RowArrays, reply: Reply, keeps_dtype: bool
) -> bool:
    """Make arrays of the outcomes of all rows at once, if these are simple, and return whether they were."""
    if type(space) is not gymnasium.spaces.Box:
        return False
    try:
        observations, given = np.array(outcomes.observations, space.dtype), np.array(outcomes.rewards)
        rewards = given if given.dtype is _FLOAT64 else given.astype(np.float64)
        terminated, truncated = _flags(outcomes.terminated), _flags(outcomes.truncated)
    except (TypeError, ValueError):
        return False
    if observations.shape[1:] != space.shape or rewards.ndim != 1:
        return False
    if keeps_dtype and rewards is not given:
        reply.rewards = given
    arrays.observations, arrays.rewards = observations, rewards
    arrays.terminated, arrays.truncated = terminated, truncated
    return True


def _flags(flags: Sequence[bool]) -> NDArray[np.bool_]:
    """Return flags as an array. Most often, all are False. An array of one element is a flag."""
    return np.array([bool(flag) for flag in flags], bool) if any(flags) else np.zeros(len(flags), bool)


def take_endings(rows: Sequence[EnvRow]) -> dict[int, Ending]:
    """Return the ends of episodes that were followed by a reset within the step, and forget them."""
    endings = {index: row.ending for index, row in enumerate(rows) if row.ending is not None}
    for index in endings:
        rows[index].ending = None
    return endings


# -- The environments of one worker --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Holds the options of a vector environment."""

    num_workers: int  # number of worker processes; 0 steps in this process
    mode: AutoresetMode  # when environments are reset by themselves
    info_form: InfoForm = InfoForm.VECTOR
    keeps_rewards: bool = False  # whether rewards of other dtypes than float64 are returned as they are
    start_method: str | None = None  # how workers are started; None takes the default
    timeout: float | None = None  # seconds that one operation may take in a worker; None: no limit
    max_restarts: int = 3  # how often an operation is retried after a worker exited on it
    # what happens to the rows of a worker that exits; None: restored if states are exact
    on_crash: OnCrash | None = None
    max_worker_rss: int | None = None  # bytes of memory above which a worker is replaced; None: no limit
    # modules that workers need and that take long to import; see `ExternalProcess`
    preload: tuple[str, ...] = ()
    # what proofs have shown of each environment, if each has a process of its own, in which no other one is
    # made; None otherwise
    proofs: Sequence[Proof | str | None] | None = None
    max_concurrency: int | None = None  # largest number of workers that work at the same time; None: all

    def for_rows(self, start: int, stop: int) -> EngineOptions:
        """Return the options of the worker of consecutive environments."""
        return self if self.proofs is None else replace(self, proofs=self.proofs[start:stop])


class ResidentEnvs:
    """Steps several environments."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]],
        options: EngineOptions,
        *,
        as_bytes: bool = False,  # whether infos go to another process
    ) -> None:
        self.rows: list[EnvRow] = []  # the environments with their autoreset
        # saves and restores the rows; None if their states are not saved
        self.states: ResidentStates | None = None
        # why states are not saved, "" if they are; why each environment needs a process of its own
        self.inexact, self.sharing = "", Sharing()
        failure: Exception | None = None
        # notices what the environments change that they share, if nothing of that was found
        self.watch: Watch | None = None
        make_row, proofs = ROW_CLASSES[options.mode], options.proofs
        saves_states = options.on_crash in (None, OnCrash.RESTORE)
        functions = EnvFunctions(env_fns) if proofs is None else None
        given = {} if functions is None else functions.digests()
        try:
            for env_fn in env_fns:
                try:
                    env = env_fn()
                except Exception as error:
                    if not self.rows or proofs is not None:
                        raise
                    failure = error  # only one may exist at a time, perhaps
                    break
                self.rows.append(make_row(env, options.info_form is InfoForm.VECTOR))
            if not saves_states:
                self.inexact = 'on_crash: expected "restore" to save states, got another'
            elif proofs is not None:
                self._prepare_states(proofs)
            if failure is not None:
                text = f"{type(failure).__name__}: {failure}"
                self.sharing = Sharing(f"a second one beside the first raises {text}", is_seen=True)
                self.rows += self.rows[:1] * (len(env_fns) - len(self.rows))  # the layout has all rows
            elif functions is not None and given != functions.digests():
                self.sharing = Sharing("making one changes what the functions hand to it", is_seen=True)
            elif functions is not None:
                self.sharing = self._find_sharing(env_fns, functions.uses, saves_states)
        except BaseException:
            self.close()
            raise
        self.observation_space = self.rows[0].env.observation_space
        self._action_space = self.rows[0].env.action_space
        self._options, self._as_bytes = options, as_bytes
        self.progress = new_progress()  # the row at work; see `planvec.stepping.row_loop`
        # where the results of the operation at work go, and which rows of these arrays they are
        self._out = RowArrays.unmade()
        self._at: Rows = _ALL

    def _find_sharing(
        self, env_fns: Sequence[Callable[[], gymnasium.Env[Any, Any]]], used: str, saves_states: bool
    ) -> Sharing:
        """Prepare states, and return why each environment needs a process of its own."""
        envs = [row.env for row in self.rows]
        why = same_layers(envs)
        if why:
            return Sharing(why, is_seen=True)
        if not saves_states:  # the user wants no proof, which steps environments
            if not used:
                sharing, self.watch = find_shared(envs, env_fns, tries=False)
            return Sharing(used) if used else sharing
        self._prepare_states(env_fns)
        if self.states is None:  # what cannot be saved lies somewhere else, where others may find it
            return Sharing(self.inexact, is_seen=True)
        if used:
            return Sharing(used)
        unproven = [row for row, proof in enumerate(self.states.proofs) if proof is not None]
        sharing, self.watch = find_shared(
            [envs[row] for row in unproven], [env_fns[row] for row in unproven], self.states.caches
        )
        return sharing

    @property
    def proofs(self) -> list[Proof | str | None]:
        """What proofs have shown of each row, for a process of its own."""
        if self.states is None or self.sharing.is_seen:
            return [None] * len(self.rows)
        return self.states.proofs

    def _prepare_states(
        self, proofs: Sequence[Callable[[], gymnasium.Env[Any, Any]] | Proof | str | None]
    ) -> None:
        try:
            self.states, self.inexact = ResidentStates(self.rows, proofs), ""
        except UnsupportedEnvError as error:
            self.give_up_states(str(error))

    def give_up_states(self, inexact: str) -> None:
        """Save no states any more."""
        if "codec=" in inexact or "info_keys=" in inexact:
            inexact += " (codec= and info_keys= are arguments of planvec.make)"
        self.states, self.inexact = None, inexact

    def perform(self, operation: Operation, out: RowArrays | None, at: Rows = _ALL) -> Reply:
        """Perform an operation. Its results are in the reply, and in `out`."""
        # `out`: None if the operation has no results that are arrays. `at`: the rows of `out` to write.
        started = time.perf_counter()
        reply = Reply()
        if out is not None:
            self._out, self._at = out, at
        selected = self.rows if operation.rows is None else [self.rows[row] for row in operation.rows]
        perform = getattr(self, operation.name)
        perform(operation, selected, reply, *(operation.per_row or ()), *operation.common)
        self.progress[ROW] = -1
        reply.seconds = time.perf_counter() - started
        return reply

    def close(self) -> None:
        """Close all environments. If some raise, raise the first error at the end."""
        errors = []
        for row in dict.fromkeys(self.rows):
            try:
                row.env.close()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    # -- one method per operation, called with its arguments ----------------------------------------

    def step(self, operation: Operation, selected: list[EnvRow], reply: Reply, actions: Any) -> None:
        """Step rows, given actions: a tree of arrays `[B, ...]`, or a list of B actions."""
        listed = list_rows(self._action_space, actions)

        def step(index: int) -> Outcome:
            row = selected[index]
            return row.step_lost() if row.is_lost else row.step(listed[index])

        steps = run_rows(step, len(selected), self.progress, reply, _NO_OUTCOME)
        outcomes = Outcomes(*zip(*steps, strict=True))
        put_outcomes(
            self.observation_space, outcomes, self._out, self._at, reply, self._options.keeps_rewards
        )
        endings = take_endings(selected) if self._options.mode is AutoresetMode.SAME_STEP else {}
        reply.infos = pack_infos(outcomes.infos, endings, self._options.info_form, self._as_bytes)

    def reset(
        self,
        operation: Operation,
        selected: list[EnvRow],
        reply: Reply,
        seeds: Sequence[int | None],  # None resets without one
        all_options: Sequence[Mapping[str, Any] | None],
    ) -> None:
        """Reset rows."""

        def reset(index: int) -> tuple[Any, dict[str, Any]]:
            return selected[index].reset(seeds[index], own_copy(all_options[index]))

        no_start: tuple[Any, dict[str, Any]] = (None, {})
        begun = run_rows(reset, len(selected), self.progress, reply, no_start)
        observations, infos = [observation for observation, _ in begun], [info for _, info in begun]
        put_observations(self.observation_space, observations, self._out, self._at, reply)
        reply.infos = pack_infos(infos, {}, self._options.info_form, self._as_bytes)
        if self.states is not None:
            positions = enumerate(self._indices(operation))
            try:
                self.states.begin([row for position, row in positions if position not in reply.errors])
            except UnsupportedEnvError as error:
                self.give_up_states(str(error))
                reply.inexact = self.inexact

    def call(
        self,
        operation: Operation,
        selected: list[EnvRow],
        reply: Reply,
        name: str,
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        """Call a method of environments, or read an attribute if it cannot be called."""
        may_change = self.states is not None and name != "render"
        before = self._exact_states().settings(self._indices(operation)) if may_change else []

        def call(env: Any) -> Any:
            value = _attribute(env, name)
            return value(*arguments, **keywords) if callable(value) else value

        self._ask(call, selected, reply)
        if may_change:
            reply.changes_settings = before != self._exact_states().settings(self._indices(operation))

    def get_attribute(self, operation: Operation, selected: list[EnvRow], reply: Reply, name: str) -> None:
        """Read an attribute, looked up through the wrappers. It may be a function."""
        self._ask(lambda env: _attribute(env, name), selected, reply)

    def apply(
        self, operation: Operation, selected: list[EnvRow], reply: Reply, function: Callable[[Any], Any]
    ) -> None:
        """Call a function with each environment, which it must not change."""
        self._ask(function, selected, reply)

    def _ask(self, function: Callable[[Any], Any], selected: list[EnvRow], reply: Reply) -> None:
        """Put what a function returns for each environment into a reply."""
        reply.value = run_rows(
            lambda row: function(selected[row].env), len(selected), self.progress, reply, None
        )

    def set_attribute(
        self,
        operation: Operation,
        selected: list[EnvRow],
        reply: Reply,
        values: Sequence[Any],
        name: str,
        on_outermost: bool,  # whether to set it on the outermost wrapper, instead of where it is found
    ) -> None:
        """Set an attribute."""

        def set_attribute(index: int) -> None:
            env = selected[index].env
            if on_outermost or not hasattr(env, "set_wrapper_attr"):
                setattr(env, name, values[index])
            else:
                env.set_wrapper_attr(name, values[index])

        run_rows(set_attribute, len(selected), self.progress, reply, None)

    def observe(self, operation: Operation, selected: list[EnvRow], reply: Reply) -> None:
        """Show the latest observations of rows."""
        empty = blank(self.observation_space)  # of rows that were not reset yet, as Gymnasium shows them
        observations = [empty if row.observation is None else row.observation for row in selected]
        self._show(selected, observations, self._at, reply)

    def get_states(self, operation: Operation, selected: list[EnvRow], reply: Reply) -> None:
        """Return the states of rows: `(states [B], StateFormat)`."""
        reply.value = self._exact_states().get(self._indices(operation))

    def set_states(
        self, operation: Operation, selected: list[EnvRow], reply: Reply, states: NDArray[Any]
    ) -> None:
        """Put rows into states `[B]`."""
        observations = self._exact_states().set(self._indices(operation), states)
        self._show(selected, observations, self._at, reply)

    def save(self, operation: Operation, selected: list[EnvRow], reply: Reply) -> None:
        """Return a list of `SavedRows`, which holds all rows."""
        states = self._exact_states()
        states.check_episodes(self._indices(operation), "save")
        reply.value = states.save()

    def load(
        self, operation: Operation, selected: list[EnvRow], reply: Reply, parts: Sequence[SavedRows]
    ) -> None:
        """Put all rows into what `save` returned and a file has kept, which somebody else may have made."""
        self._show_restored(self._exact_states().restore_from_file(parts), reply)

    def restore(self, operation: Operation, selected: list[EnvRow], reply: Reply, snapshot: bytes) -> None:
        """Put all rows into `Reply.snapshot`, in a replacement of their worker."""
        self._show_restored(self._exact_states().restore(pickle.loads(snapshot)), reply)

    def _show_restored(self, restored: tuple[list[int], list[Any]], reply: Reply) -> None:
        indices, observations = restored
        self._show([self.rows[row] for row in indices], observations, np.array(indices, np.intp), reply)

    def _show(self, selected: Sequence[EnvRow], observations: list[Any], at: Rows, reply: Reply) -> None:
        """Write the observations of rows that were put into other states, which have just begun."""
        out = self._out
        put_observations(self.observation_space, observations, out, at, reply)
        out.rewards[at] = 0.0
        out.terminated[at] = [bool(row.terminated) for row in selected]
        out.truncated[at] = [bool(row.truncated) for row in selected]

    def lose(
        self, operation: Operation, selected: list[EnvRow], reply: Reply, last_observations: Any
    ) -> None:
        """Mark rows whose episodes were lost with their worker. Their next step is a truncation."""
        observations = list_rows(self.observation_space, last_observations)
        for row, observation in zip(selected, observations, strict=True):
            row.observation, row.is_lost = observation, True

    # -- helpers ------------------------------------------------------------------------------------

    def _indices(self, operation: Operation) -> Sequence[int]:
        return range(len(self.rows)) if operation.rows is None else operation.rows.tolist()

    def _exact_states(self) -> ResidentStates:
        if self.states is None:
            raise UnsupportedEnvError(f"states: the environments cannot be saved. {self.inexact}")
        return self.states


def _attribute(env: Any, name: str) -> Any:
    """Return an attribute of an environment, looked up through its wrappers."""
    lookup = getattr(env, "get_wrapper_attr", None)
    return getattr(env, name) if lookup is None else lookup(name)
