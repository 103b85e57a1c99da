"""Defines `EnvStepper`, which answers requests with one environment. Letters: B rows."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from planvec.codecs import (
    Env,
    Positions,
    Rows,
    StateCodec,
    drawn_elsewhere,
    from_file,
    same,
    wrappers_of,
)
from planvec.errors import EnvError, InvalidBatchError, UnsupportedEnvError
from planvec.kernels import class_digest, costs_of, has_kernel, has_own_kernel, is_harmless, open_kernel
from planvec.rows import (
    UNLIMITED,
    Answer,
    BatchKernel,
    CheckBatch,
    EnvDescription,
    FlagBatch,
    ObserveBatch,
    Outputs,
    ReadBatch,
    RenderBatch,
    Request,
    ResetRequest,
    RolloutBatch,
    RowRequest,
    SetBaseStateRequest,
    Start,
    StepBatch,
    clear_row,
    is_installed,
    merge_columns,
    own_copy,
    resolve,
    stack_rows,
    unpicklable_rows,
)
from planvec.stepping.kernel_proof import output_difference, prove
from planvec.stepping.row_loop import RowLoop, as_env_error

_log = logging.getLogger("planvec")

_GROUP_SECONDS = 0.5e-3  # time of a group of rows of a batch with a deadline
_SECONDS_FOR_NUMBA = 0.75  # time to import numba, which planners import anyway
_SECONDS_TO_ANNOUNCE = 1.0
_NUM_RESETS = 10  # how often a reset in which a generator has moved is performed again
# how often a batch in which a generator has moved is performed again: alone, and beside other threads
_NUM_AGAIN, _NUM_AGAIN_BESIDE = 3, 10


class LazyKernel:
    """Loads, proves and uses the kernel of an environment."""

    def __init__(
        self,
        env: Env,
        codec: StateCodec,
        rows: RowLoop,
        compiled: bool | None,
        num_threads: int,
        info_keys: tuple[str, ...] | None,
    ) -> None:
        self._env = env
        self._codec = codec
        self._rows = rows
        self.num_threads = num_threads
        self._info_keys = info_keys
        self._kernel: BatchKernel | None = None
        self.seconds = 0.0  # time that the environment has stepped
        # A window shows the steps of the environment itself.
        is_shown = env.render_mode == "human"
        # planvec's kernels know the fields of planvec's codecs alone.
        has_fields = codec.is_built_in or has_own_kernel(type(env.unwrapped))
        # whether there is a kernel for the environment and its states
        self.exists = codec.steps_base and has_fields and has_kernel(type(env.unwrapped)) and not is_shown
        self._is_pending = compiled is not False and self.exists
        self.is_required = compiled is True  # whether the user has asked for it
        # whether there is a kernel and whether it is used, in words
        if self._is_pending:
            self.status = "not loaded"
        elif compiled is False:
            self.status = "not used: compiled=False"
        elif has_own_kernel(type(env.unwrapped)) and not codec.steps_base:
            self.status = (
                "not used: a wrapper takes part in steps, or the environment is saved in another way"
            )
        elif has_kernel(type(env.unwrapped)):
            what = "a wrapper takes part in steps, another codec saves states, or a window is open"
            self.status = f"not used: {what}"
        else:
            self.status = f"none for {type(env.unwrapped).__name__}"

    @property
    def is_used(self) -> bool:
        """Whether the kernel is loaded and proved."""
        return self._kernel is not None

    def open(self, about: EnvDescription) -> None:
        """Load the kernel now if the user has asked for it."""
        self._about = about
        if not self.is_required:
            return
        self.load()
        if self._kernel is None:
            raise UnsupportedEnvError(
                f"compiled: expected None or False for {self._env}, whose kernel cannot be used, got True "
                f"({self.status})"
            )

    def load(self) -> None:
        """Compile the kernel, or load it from the cache, and prove it, if that was not done before."""
        # `status` tells the result.
        if not self._is_pending:
            return
        self._is_pending = False
        started = time.perf_counter()
        try:
            codec = self._codec
            kernel = open_kernel(self._env, codec.format.dtype, codec.time_limit, self.num_threads)
            difference, num_stepped = prove(kernel, self._rows, codec, self._about, self._info_keys)
        except KeyboardInterrupt:
            self._is_pending = True  # the next batch tries again
            raise
        except Exception as error:
            difference = f"{type(error).__name__}: {error}"
            _log.debug("%s: its kernel cannot be used", self._env, exc_info=True)
        seconds = time.perf_counter() - started
        if difference:
            self.status = f"not used: {difference}"
            _log.warning("%s: its kernel is %s", self._env, self.status)
            return
        self._kernel = kernel
        self.status = f"used: compared in {num_stepped:,} steps and in rollouts, with the same bits"
        if seconds > _SECONDS_TO_ANNOUNCE:
            _log.info("%s: its kernel was compiled or loaded in %.1f s", self._env, seconds)

    def perform(self, request: Request[Any], answer: Answer) -> bool:
        """Perform a request for steps or rollouts. Returns False if the environment has to perform it."""
        if not isinstance(request, (StepBatch, RolloutBatch)):
            return False
        steps = request.steps if self._is_pending else 0
        num_steps = steps * request.num_rows if isinstance(steps, int) else int(steps.sum())
        # With a deadline at once, if at all: not in the middle of a later decision.
        kernel = self.ready(num_steps if request.deadline is None else UNLIMITED)
        if kernel is None:
            return False
        try:
            if isinstance(request, RolloutBatch):
                return kernel.rollout(request, answer.outputs)
            columns = kernel.step(request, answer.outputs, self._info_keys)
        except Exception:  # of the function of a user; the environment tells what is wrong
            _log.debug("%s steps itself", self._env, exc_info=True)
            return False
        answer.columns = {} if columns is None else columns
        return columns is not None

    def ready(self, num_steps: int) -> BatchKernel | None:
        """Return the kernel, which is loaded if so many steps make it time; None if there is none yet."""
        if self._kernel is not None and self._kernel.has_changed():
            self._kernel, self._is_pending = None, True
            self.load()
        if self._is_pending:
            limit, seconds_per_step = costs_of(type(self._env.unwrapped))
            if "numba" not in sys.modules:
                limit += _SECONDS_FOR_NUMBA
            if self.seconds + num_steps * seconds_per_step > limit:
                self.load()
        return self._kernel


# -- Digests of the files that the code of an environment comes from.
#
# A worker that is replaced imports its modules anew. If a file was edited since the environment was opened,
# the new worker would run other code than the remaining ones. Their digests show that.

# packages whose files are not compared: a program that edits these has other problems
_LIBRARIES = ("planvec", "gymnasium", "numpy")


def code_digests(env: Any) -> dict[str, str]:
    """Return the digest of each file from which this process has imported code of an environment."""
    # Returns path -> SHA-256; for environments that may be stepped in the process of the user, one more for
    # their functions and constants.
    # These are the modules of the classes of the environment and of its wrappers, and all imported modules
    # that are not installed as a package, since the environment may use them.
    classes = {base for layer in (env.unwrapped, *wrappers_of(env)) for base in type(layer).__mro__}
    own = {cls.__module__ for cls in classes}
    digests = {}
    for name, module in sorted(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if not path or name.partition(".")[0] in _LIBRARIES or not path.endswith(".py"):
            continue
        if name in own or not is_installed(path):
            with contextlib.suppress(OSError):  # it is gone, or lies in an archive
                digests[path] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    env_class = type(env.unwrapped)
    if is_harmless(env_class.__module__, env_class.__name__):  # it may be stepped in the process of the user
        digests[f"the functions or constants of {env_class.__name__}"] = class_digest(env_class)
    return digests


T = TypeVar("T")


class EnvStepper:
    """Answers requests with one environment, in the process of the user or in a worker."""

    def __init__(
        self,
        env: Env,
        codec: StateCodec,
        info_keys: Sequence[str] | None,
        compiled: bool | None = False,
        num_threads: int = 1,
    ) -> None:
        self.env = env
        self.codec = codec
        self._is_closed = False
        self._watch = codec.watch if codec.forbids_draws else None
        self._info_keys = info_keys
        # steps and rolls out rows one after another
        self.loop = RowLoop(codec, env.action_space, env.observation_space, info_keys)
        keys = None if info_keys is None else tuple(info_keys)
        # steps and rolls out rows with a kernel, if there is one
        self.kernel = LazyKernel(env, codec, self.loop, compiled, num_threads, keys)
        self._lock = threading.RLock()  # several threads may share the one environment
        self._step_seconds = 0.0  # of the last steps of a batch with a deadline
        self._methods: dict[type[Request[Any]], Callable[[Any, Answer], None]] = {
            StepBatch: self._step,
            RolloutBatch: self._rollout,
            FlagBatch: self._flag,
            ObserveBatch: self._observe,
            RenderBatch: self._render,
            ReadBatch: self._read,
            CheckBatch: self._check,
            ResetRequest: self._reset,
            SetBaseStateRequest: self._set_base_state,
        }
        # the state from which rows start when the user gives no states
        self.base_state = self.reset(0, None).state
        # describes the environment
        self.description = EnvDescription(
            env.observation_space,
            env.action_space,
            codec.format,
            env.spec,
            env.render_mode,
            dict(env.metadata),
            self.base_state,
            codec.fingerprint,
            codec.walk,
            codec.uses_hashes,
            codec.stochastic,
            codec.warning,
            code_digests(env),
        )
        self.kernel.open(self.description)

    def perform(
        self, request: Request[Any], outputs: Outputs | None = None, *, by_rows: bool = False
    ) -> Answer:
        """Perform a request."""
        # The arguments have been checked. `by_rows`: the environment itself steps, even if there is a kernel.
        # Raises EnvError, whose row is that of the request.
        started = time.perf_counter()
        if outputs is None:
            outputs = request.new_outputs(self.description)
        answer = Answer(outputs)
        with self._lock:
            deadline = request.deadline if request.num_rows else None
            if deadline is not None and isinstance(request, (StepBatch, RolloutBatch)):
                self._perform_until(deadline, request, answer, by_rows)
            else:
                self._perform(request, answer, by_rows)
        answer.seconds = time.perf_counter() - started
        return answer

    def _perform(self, request: Request[Any], answer: Answer, by_rows: bool) -> None:
        """Perform a request, or a group of its rows."""
        if not by_rows and self.kernel.perform(request, answer):
            return
        started, perform = time.perf_counter(), self._methods[type(request)]
        if self._watch is not None and isinstance(request, (StepBatch, RolloutBatch)):
            self._perform_alone(request, answer, perform, self._watch)
        else:
            perform(request, answer)
        self.kernel.seconds += time.perf_counter() - started

    def _perform_until(
        self, deadline: float, request: StepBatch | RolloutBatch, answer: Answer, by_rows: bool
    ) -> None:
        """Perform a request in groups of rows, up to a deadline. The other rows are marked as not stepped."""
        # In groups, since results are written after the last step of a group; and the last ones are small.
        outputs, num_rows, steps = answer.outputs, request.num_rows, request.steps
        num_steps = steps if isinstance(steps, int) else max(1, int(steps.mean()))
        least = self.kernel.num_threads if self.kernel.is_used else 1
        seconds = self._step_seconds * num_steps  # of a row, as far as known
        done, parts = 0, []
        while done < num_rows and (left := deadline - time.perf_counter()) > 0:
            count = int(min(left, _GROUP_SECONDS) / seconds) if seconds else 1
            rows = slice(done, min(done + max(least, count), num_rows))
            one = Answer(outputs.part(rows))
            started, self.loop.first_row = time.perf_counter(), done
            try:
                self._perform(request.part(rows), one, by_rows)
            except EnvError as error:
                raise error.moved(done) from error.__cause__
            finally:
                self.loop.first_row = 0
            seconds = (time.perf_counter() - started) / (rows.stop - done)
            if isinstance(outputs.observations, list):  # whose part is a copy
                outputs.observations[rows] = one.outputs.observations
            answer.errors |= {done + row: error.moved(done) for row, error in one.errors.items()}
            parts.append((one.columns, rows.stop - done))
            done = rows.stop
        self._step_seconds = seconds / num_steps
        if done < num_rows:
            self.loop.leave(request.states, outputs, slice(done, num_rows))
            parts.append(({}, num_rows - done))
        answer.columns = merge_columns(parts)

    def perform_and_write(
        self, request: Request[Any], outputs: Outputs | None, write: Callable[[Answer], T]
    ) -> T:
        """Perform a request, and return the written answer. Rows whose infos cannot be sent are flagged."""
        # `write` raises EnvError if an info cannot be pickled; it is called again once such rows are flagged.
        answer = self.perform(request, outputs)
        try:
            return write(answer)
        except EnvError:
            if not isinstance(request, RowRequest) or not request.mask_errors:
                raise
            unsent = unpicklable_rows(answer.columns)
            for row in unsent:
                clear_row(answer.columns, row)
            self.loop.flag(request.states, answer.outputs, list(unsent))
            answer.errors |= unsent
            return write(answer)

    def reset(self, seed: int, options: dict[str, Any] | None) -> Start:
        """Start an episode and make its state the base state."""

        def begin() -> tuple[Any, dict[str, Any], object]:
            observation, info = self.codec.reset(seed, copy.deepcopy(options))
            observation = own_copy(observation)
            return observation, own_copy(info), self.codec.get(observation)

        def differs() -> bool:
            again, info_again, value_again = begin()
            keys = info.keys() if self._info_keys is None else self._info_keys
            infos = ({key: one.get(key) for key in keys} for one in (info, info_again))
            return not (same((observation, value), (again, value_again)) and same(*infos))

        try:
            with self._lock:
                watch = self._watch
                before = None if watch is None else watch.now()
                observation, info, value = begin()
                drawn = [] if watch is None or before is None else watch.moved(before)
                # Unlike a step, it may draw what has no influence, such as one of a single start.
                if drawn and any(differs() for _ in range(_NUM_RESETS)):
                    raise drawn_elsewhere(self.env, drawn)
        except BaseException as error:
            raise as_env_error(error) from error
        states = np.zeros(1, self.codec.format.dtype)
        self.codec.dump(Rows([value], [0], [False], [False]), states)
        self.base_state = states[0]
        return Start(states[0], observation, info)

    def close(self) -> None:
        """Close the environment. Closing again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self.env.close()

    # -- one method per request -----------------------------------------------------------------

    def _step(self, request: StepBatch, answer: Answer) -> None:
        answer.columns = self.loop.step(request, answer.outputs, answer.errors)

    def _rollout(self, request: RolloutBatch, answer: Answer) -> None:
        self.loop.rollout(request, answer.outputs, answer.errors)

    def _perform_alone(
        self, request: Request[Any], answer: Answer, perform: Callable[[Any, Answer], None], watch: Positions
    ) -> None:
        """Perform a request; refuse an environment whose results depend on generators that are not saved."""
        before, started = watch.now(), time.perf_counter()
        perform(request, answer)
        drawn = watch.moved(before)
        if not drawn:
            return

        first, expected, infos = request, answer.outputs, answer.columns
        if isinstance(request, (StepBatch, RolloutBatch)) and request.deadline is not None:
            assert expected.num_steps is not None
            num_done = int((expected.num_steps >= 0).sum())  # the first rows
            first, expected = request.part(slice(0, num_done)), expected.part(slice(0, num_done))
            first.deadline = None
            if num_done < request.num_rows:
                infos = {}
            if not num_done:
                return

        def differs() -> bool:
            again = Answer(first.new_outputs(self.description))
            perform(first, again)
            columns = (infos, again.columns) if infos else ({}, {})
            return output_difference(expected, again.outputs, columns) is not None

        self._check_draws(drawn, watch, time.perf_counter() - started, differs)

    def _check_draws(
        self, drawn: Sequence[str], watch: Positions, seconds: float, differs: Callable[[], bool]
    ) -> None:
        """Refuse an environment if generators have moved since its results depend on them."""
        # `differs`: performs the same again, and returns whether the results differ.
        # A thread, a signal handler or a finalizer may have drawn instead, or the generators were seeded
        # first. Then the results are the same again, and sooner or later the generators are where they were:
        # other threads wait longer for the interpreter than performing it takes, unless it is handed to them
        # (on a busy machine about every second time), and a handler is not called each time.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(max(interval, 0.05, 10 * seconds))
        try:
            for _ in range(_NUM_AGAIN if threading.active_count() == 1 else _NUM_AGAIN_BESIDE):
                before = watch.now()
                if differs():
                    break
                if not watch.moved(before):
                    # It may have kept what it has drawn the first time.
                    if self.codec.check_variables is not None:
                        self.codec.check_variables()
                    return
        finally:
            sys.setswitchinterval(interval)
        raise drawn_elsewhere(self.env, drawn)

    def _flag(self, request: FlagBatch, answer: Answer) -> None:
        self.loop.flag(request.states, answer.outputs, range(len(request.states)))

    def _observe(self, request: ObserveBatch, answer: Answer) -> None:
        observations = self._at_each(request.states, lambda: own_copy(self.codec.observe()))
        try:
            stack_rows(self.env.observation_space, observations, answer.outputs.observations)
        except EnvError as error:
            raise as_env_error(error) from error

    def _render(self, request: RenderBatch, answer: Answer) -> None:
        if self.env.render_mode is None:
            raise EnvError(
                'render: the environment was made without a render_mode; pass render_mode="rgb_array"'
            )
        answer.outputs.values = self._look_at_each(request.states, _render)

    def _read(self, request: ReadBatch, answer: Answer) -> None:
        read = partial(_read, request.name, request.arguments)
        answer.outputs.values = self._look_at_each(request.states, read, f"{request.name}: ")

    def _check(self, request: CheckBatch, answer: Answer) -> None:
        try:
            with from_file(self.codec.packages):
                answer.outputs.values = self._at_each(request.states, lambda: None)
        except EnvError as error:
            if isinstance(error.__cause__, InvalidBatchError):  # no fault of the environment
                raise error.__cause__ from None
            raise

    def _reset(self, request: ResetRequest, answer: Answer) -> None:
        answer.value = self.reset(request.seed, request.options)

    def _set_base_state(self, request: SetBaseStateRequest, answer: Answer) -> None:
        self.base_state = request.state

    def _at_each(self, states: np.ndarray, call: Callable[[], T]) -> list[T]:
        """Restore each state, make a call there, and return its results."""

        def restore(value: object, elapsed: int) -> T:
            self.codec.set(value)
            self.codec.set_elapsed(elapsed)
            return call()

        return self._for_each(states, restore, "")

    def _look_at_each(self, states: np.ndarray, look: Callable[[Env], T], where: str = "") -> list[T]:
        """Return what a function returns for the environment in each state."""
        return self._for_each(states, lambda value, elapsed: self.codec.look(value, elapsed, look), where)

    def _for_each(self, states: np.ndarray, call: Callable[[Any, int], T], where: str) -> list[T]:
        results: list[T] = []
        try:
            values, all_elapsed, *_ = self.codec.load(states)
            for value, elapsed in zip(values, all_elapsed, strict=True):
                results.append(call(value, elapsed))
        except BaseException as error:
            raise as_env_error(error, len(results), where=where) from error
        return results


def _render(env: Env) -> Any:
    return env.render()


def _read(path: str, arguments: tuple[Any, dict[str, Any]] | None, env: Env) -> Any:
    """Read an attribute of an environment, or call a method."""
    first, *rest = path.split(".")
    value = resolve(env.get_wrapper_attr(first), rest)
    if arguments is not None:
        positional, named = copy.deepcopy(arguments)
        value = value(*positional, **named)
    return own_copy(value)  # the next row changes the objects of the environment
