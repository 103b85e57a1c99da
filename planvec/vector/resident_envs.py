"""Defines `ResidentEnvs`, the environments of one worker, which are stepped on from where they stand.

A worker process hosts one (`RowsServer`), and a vector environment without workers has one in this process.
One environment that raises does not keep the others from being stepped: errors are part of the reply.

Letters: N environments, B rows of an operation.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from planvec.codecs import (
    Env,
    EnvFunctions,
    Outcome,
    Proof,
    Sharing,
    Watch,
    find_shared,
    from_file,
    same_layers,
)
from planvec.errors import EnvError, UnsupportedEnvError
from planvec.rows import blank, list_rows, own_copy
from planvec.stepping import ROW, ignores_interrupts, new_progress
from planvec.vector.env_row import (
    Ending,
    EnvRow,
    InfoForm,
    ResidentStates,
    SavedRows,
    pack_infos,
)
from planvec.vector.operations import OnCrash, Operation, Reply, RowArrays, RowFailure, Rows

T = TypeVar("T")

_ALL = slice(None)
_FLOAT64 = np.dtype(np.float64)
_LARGE = 4096  # bytes of an observation above which observations are copied one by one
_WRONG = (EnvError, KeyError, IndexError, TypeError, ValueError)  # what observations of another form raise
_NO_OUTCOME: Outcome = (None, 0.0, False, False, {})
_NO_START: tuple[Any, dict[str, Any]] = (None, {})

# -- Writes what environments have returned ------------------------------------------------------------------


@dataclass(slots=True)
class Work:
    """Holds an operation that is being performed: its rows, its reply, and where its results go."""

    operation: Operation
    rows: Sequence[EnvRow]  # B
    out: RowArrays
    at: Rows  # the rows of `out` to write
    reply: Reply

    @property
    def indices(self) -> Sequence[int]:
        """The rows, counted from the first one of this process."""
        rows = self.operation.rows
        return range(len(self.rows)) if rows is None else rows.tolist()


def note_error(error: BaseException, index: int, reply: Reply) -> None:
    """Note what the environment of a row raised."""
    if isinstance(error, KeyboardInterrupt) and not ignores_interrupts():
        raise error
    reply.errors[index] = RowFailure.of(error)


def put_observations(space: gymnasium.Space[object], observations: Sequence[object], work: Work) -> None:
    """Write observations into arrays, converted to the dtype of the space as Gymnasium does."""
    # Those of rows that failed are left out. Wrong ones become errors of their rows.
    out, errors, rows = work.out.observations, work.reply.errors, work.at
    if isinstance(out, list):
        for row, observation in zip(np.arange(len(out))[rows].tolist(), observations, strict=True):
            out[row] = observation
        work.reply.observations = list(observations)
        return
    positions: Sequence[int] = range(len(observations))
    if errors:
        positions = [position for position in positions if position not in errors]
        rows = np.arange(len(work.out.rewards))[rows][positions]
        observations = [observations[position] for position in positions]
    try:
        _write(space, observations, out, rows)
        return
    except _WRONG:  # they are written one by one
        targets = np.arange(len(work.out.rewards))[rows]
    for index, (position, observation) in enumerate(zip(positions, observations, strict=True)):
        try:
            _write(space, [observation], out, targets[index : index + 1])
        except EnvError as error:
            errors[position] = RowFailure.of(error)
        except _WRONG as error:
            text = f"observation: expected an element of {space}, got {observation!r} ({error})"
            errors[position] = RowFailure.of(EnvError(text))


def _is_cast_safely(observations: Sequence[Any], space: gymnasium.spaces.Box) -> bool:
    """Return whether NumPy may cast observations to the dtype of a space without a look at the values."""
    dtype = space.dtype
    return dtype.kind == "f" or all(getattr(each, "dtype", None) == dtype for each in observations)


def _check_values(values: np.ndarray, dtype: np.dtype) -> None:
    """Check that values stay what they are in a dtype of integers, into which NumPy casts anything."""
    if dtype.kind not in "iu" or np.can_cast(values.dtype, dtype):
        return
    with np.errstate(invalid="ignore"):
        if (values.astype(dtype) != values).any():
            raise ValueError(f"{dtype} does not hold these {values.dtype} values")


def _write(space: gymnasium.Space[object], observations: Sequence[Any], out: Any, rows: Rows) -> None:
    if isinstance(space, spaces.Dict):
        for key, child in space.spaces.items():
            _write(child, [observation[key] for observation in observations], out[key], rows)
        return
    if isinstance(space, spaces.Tuple):
        for index, child in enumerate(space.spaces):
            _write(child, [observation[index] for observation in observations], out[index], rows)
        return
    if not len(observations):
        return
    shape = out.shape[1:]
    if out[0].nbytes <= _LARGE:
        stacked = np.array(observations)
        if stacked.shape == (len(observations), *shape):
            _check_values(stacked, out.dtype)
            out[rows] = stacked
            return
    for row, observation in zip(np.arange(len(out))[rows].tolist(), observations, strict=True):
        array = np.asarray(observation)
        if array.shape != shape:  # NumPy would broadcast a `(1,)` observation to `(3,)`
            raise EnvError(
                f"observation: expected shape {shape} as in {space}, got {array.shape}; return what "
                "the space declares, or declare the space of what you return"
            )
        _check_values(array, out.dtype)
        out[row] = array


def put_outcomes(
    space: gymnasium.Space[object],
    columns: Sequence[Sequence[Any]],  # observations, None where an environment raised; rewards; the flags
    work: Work,
    keeps_dtype: bool,
) -> None:
    """Write the outcomes of steps, but their infos."""
    # The reply receives the errors, observations of variable size, and rewards that are vectors or must keep
    # a dtype other than float64.
    observations, given_rewards, terminated, truncated = columns
    arrays, reply = work.out, work.reply
    if arrays.observations is None:
        if type(space) is gymnasium.spaces.Box and not reply.errors and _is_cast_safely(observations, space):
            try:
                stacked, rewards = np.array(observations, space.dtype), np.array(given_rewards)
                if stacked.shape[1:] == space.shape and rewards.ndim == 1:
                    arrays.terminated, arrays.truncated = _flags(terminated), _flags(truncated)
                    arrays.rewards = rewards if rewards.dtype is _FLOAT64 else rewards.astype(np.float64)
                    arrays.observations = stacked
                    if keeps_dtype and rewards is not arrays.rewards:
                        reply.rewards = rewards
                    return
            except (TypeError, ValueError):  # some are of another shape: they are written one by one
                arrays.observations = None
        arrays.make(space, len(given_rewards))
    put_observations(space, observations, work)
    rewards = _rewards(given_rewards, reply)
    if rewards.ndim == 1:
        arrays.rewards[work.at] = rewards
    if rewards.ndim != 1 or (keeps_dtype and rewards.dtype != np.float64):
        reply.rewards = rewards
    arrays.terminated[work.at] = _flags(terminated)
    arrays.truncated[work.at] = _flags(truncated)


def _rewards(given: Sequence[Any], reply: Reply) -> np.ndarray:
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


def _flags(flags: Sequence[bool]) -> NDArray[np.bool_]:
    """Return flags as an array. Most often, all are False. An array of one element is a flag."""
    return np.array([bool(flag) for flag in flags], bool) if any(flags) else np.zeros(len(flags), bool)


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


class ResidentEnvs:
    """Steps several environments."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env]],
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
        proofs = options.proofs
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
                self.rows.append(EnvRow(env, options.mode, options.info_form is InfoForm.VECTOR))
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

    def _find_sharing(self, env_fns: Sequence[Callable[[], Env]], used: str, saves_states: bool) -> Sharing:
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
        unproven = [row for row, codec in enumerate(self.states.codecs) if codec.proof is not None]
        caches = {path for codec in self.states.codecs for path in codec.caches}  # steps may change them
        sharing, self.watch = find_shared(
            [envs[row] for row in unproven], [env_fns[row] for row in unproven], caches
        )
        return sharing

    @property
    def proofs(self) -> list[Proof | str | None]:
        """What proofs have shown of each row, for a process of its own."""
        if self.states is None or self.sharing.is_seen:
            return [None] * len(self.rows)
        return [codec.proof for codec in self.states.codecs]

    def _prepare_states(self, proofs: Sequence[Callable[[], Env] | Proof | str | None]) -> None:
        try:
            self.states, self.inexact = ResidentStates(self.rows, proofs), ""
        except UnsupportedEnvError as error:
            self.give_up_states(str(error))

    def give_up_states(self, inexact: str) -> None:
        """Save no states any more."""
        if "codec=" in inexact or "info_keys=" in inexact:
            inexact += " (codec= and info_keys= are arguments of planvec.make)"
        self.states, self.inexact = None, inexact

    def perform(self, operation: Operation, out: RowArrays, at: Rows = _ALL) -> Reply:
        """Perform an operation. Its results are in the reply, and in `out`, whose rows `at` are written."""
        started = time.perf_counter()
        rows = self.rows if operation.rows is None else [self.rows[row] for row in operation.rows]
        reply = Reply()
        work = Work(operation, rows, out, at, reply)
        getattr(self, operation.name)(work, *(operation.per_row or ()), *operation.common)
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

    def step(self, work: Work, actions: object) -> None:
        """Step rows, given actions: a tree of arrays `[B, ...]`, or a list of B actions."""
        rows, progress, listed = work.rows, self.progress, list_rows(self._action_space, actions)
        outcomes: list[Outcome] = []
        positions = None if self.states is None else self.states.positions
        before = None if positions is None else positions.now()
        while True:  # as in `_run`, whose function would take 5 % of a step of two CartPoles
            try:
                for index in range(len(outcomes), len(rows)):
                    progress[ROW] = index
                    outcomes.append(rows[index].step(listed[index]))
                break
            except BaseException as error:
                note_error(error, len(outcomes), work.reply)
                outcomes.append(_NO_OUTCOME)
        *columns, infos = zip(*outcomes, strict=True)
        put_outcomes(self.observation_space, columns, work, self._options.keeps_rewards)
        endings: dict[int, Ending] = {}
        if self._options.mode is AutoresetMode.SAME_STEP:
            for index, row in enumerate(rows):
                if row.ending is not None:
                    endings[index], row.ending = row.ending, None
        work.reply.infos = pack_infos(infos, endings, self._options.info_form, self._as_bytes)
        if positions is not None and before is not None:
            drawn = positions.moved(before)
            # A thread may have drawn instead, which is rare: steps are short beside the time between them.
            if drawn and self.states is not None:
                self.give_up_states(self.states.refusal(drawn, rows[0]))
                work.reply.inexact = self.inexact

    def _run(self, work: Work, function: Callable[[int], T], failed: T) -> list[T]:
        """Call a function with each row, and return its results; `failed` where the environment raises."""
        results: list[T] = []
        while len(results) < len(work.rows):
            try:
                for index in range(len(results), len(work.rows)):
                    self.progress[ROW] = index
                    results.append(function(index))
            except BaseException as error:
                note_error(error, len(results), work.reply)
                results.append(failed)
        return results

    def reset(
        self, work: Work, seeds: Sequence[int | None], all_options: Sequence[Mapping[str, object] | None]
    ) -> None:
        """Reset rows, with seeds and options, or None, which is without."""
        positions = None if self.states is None else self.states.positions
        before = None if positions is None else positions.now()
        begun = self._run(
            work, lambda index: work.rows[index].reset(seeds[index], own_copy(all_options[index])), _NO_START
        )
        observations, infos = zip(*begun, strict=True)
        put_observations(self.observation_space, observations, work)
        work.reply.infos = pack_infos(infos, {}, self._options.info_form, self._as_bytes)
        if self.states is not None:
            if positions is not None and before is not None and positions.moved(before):
                self.states.needs_snapshot = True  # it cannot be repeated
            indices = enumerate(work.indices)
            try:
                self.states.begin([row for position, row in indices if position not in work.reply.errors])
            except UnsupportedEnvError as error:
                self.give_up_states(str(error))
                work.reply.inexact = self.inexact

    def call(self, work: Work, name: str, arguments: tuple[object, ...], keywords: dict[str, Any]) -> None:
        """Call a method of environments, or read an attribute if it cannot be called."""
        states = None if name == "render" else self.states

        def settings() -> list[bytes]:
            return [] if states is None else [states.codecs[index].constants for index in work.indices]

        before = settings()

        def call(env: object) -> Any:
            value = _attribute(env, name)
            return value(*arguments, **keywords) if callable(value) else value

        self.apply(work, call)
        work.reply.changes_settings = before != settings()

    def get_attribute(self, work: Work, name: str) -> None:
        """Read an attribute, looked up through the wrappers. It may be a function."""
        self.apply(work, lambda env: _attribute(env, name))

    def apply(self, work: Work, function: Callable[[Any], Any]) -> None:
        """Call a function with each environment, which it must not change."""
        work.reply.value = self._run(work, lambda index: function(work.rows[index].env), None)

    def set_attribute(self, work: Work, values: Sequence[object], name: str, on_outermost: bool) -> None:
        """Set an attribute, on the outermost wrapper or where it is found."""

        def set_attribute(index: int) -> None:
            env = work.rows[index].env
            if on_outermost or not hasattr(env, "set_wrapper_attr"):
                setattr(env, name, values[index])
            else:
                env.set_wrapper_attr(name, values[index])

        self._run(work, set_attribute, None)

    def observe(self, work: Work) -> None:
        """Show the latest observations of rows."""
        empty = blank(self.observation_space)  # of rows that were not reset yet, as Gymnasium shows them
        self._show(work, [empty if row.observation is None else row.observation for row in work.rows])

    def get_states(self, work: Work) -> None:
        """Return the states of rows: `(states [B], StateFormat)`."""
        work.reply.value = self._exact_states().get(work.indices)

    def set_states(self, work: Work, states: np.ndarray) -> None:
        """Put rows into states `[B]`."""
        self._show(work, self._exact_states().set(work.indices, states))

    def save(self, work: Work) -> None:
        """Return a list of `SavedRows`, which holds all rows."""
        states = self._exact_states()
        states.check_episodes(work.indices, "save")
        work.reply.value = states.save()

    def load(self, work: Work, parts: Sequence[SavedRows]) -> None:
        """Put all rows into what `save` returned and a file has kept, which somebody else may have made."""
        codecs = self._exact_states().codecs
        with from_file({package for codec in codecs for package in codec.packages}):
            self._restore(work, parts)

    def restore(self, work: Work, snapshot: bytes) -> None:
        """Put all rows into `Reply.snapshot`, in a replacement of their worker."""
        self._restore(work, pickle.loads(snapshot))

    def _restore(self, work: Work, parts: Sequence[SavedRows]) -> None:
        indices, observations = self._exact_states().restore(parts)
        order = np.argsort(indices)  # parts group rows by the form of their states
        work.at = np.array(indices, np.intp)[order]
        work.rows = [self.rows[row] for row in work.at]
        self._show(work, [observations[index] for index in order])

    def _show(self, work: Work, observations: list[Any]) -> None:
        """Write the observations of rows that were put into other states, which have just begun."""
        put_observations(self.observation_space, observations, work)
        work.out.rewards[work.at] = 0.0
        work.out.terminated[work.at] = [bool(row.terminated) for row in work.rows]
        work.out.truncated[work.at] = [bool(row.truncated) for row in work.rows]

    def lose(self, work: Work, last_observations: object) -> None:
        """Mark rows whose episodes were lost with their worker. Their next step is a truncation."""
        observations = list_rows(self.observation_space, last_observations)
        for row, observation in zip(work.rows, observations, strict=True):
            row.observation, row.is_lost = observation, True

    def _exact_states(self) -> ResidentStates:
        if self.states is None:
            raise UnsupportedEnvError(f"states: the environments cannot be saved. {self.inexact}")
        return self.states


def _attribute(env: object, name: str) -> Any:
    """Return an attribute of an environment, looked up through its wrappers."""
    lookup = getattr(env, "get_wrapper_attr", None)
    return getattr(env, name) if lookup is None else lookup(name)


# -- Functions of `SubprocVecEnv`, here because importing stable-baselines3 takes seconds --------------------


def make_patched(env_fn: Callable[[], Any]) -> Any:
    """Make an environment, wrapped as stable-baselines3 does if it has an older interface."""
    env = env_fn()
    if isinstance(env, gymnasium.Env):
        return env
    from stable_baselines3.common.vec_env.patch_gym import _patch_env

    return _patch_env(env)


def has_attribute(name: str, env: Any) -> bool:
    """Return whether an environment or one of its wrappers has an attribute."""
    try:
        env.get_wrapper_attr(name)
    except AttributeError:
        return False
    return True


def is_wrapped(wrapper_class: type, env: object) -> bool:
    """Return whether an environment is wrapped by a class."""
    while isinstance(env, gymnasium.Wrapper):
        if isinstance(env, wrapper_class):
            return True
        env = env.env
    return False
