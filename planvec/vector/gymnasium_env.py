"""Defines `AsyncVectorEnv`, Gymnasium's vector interface over few workers that survive crashes.

Letters: N environments.
"""

from __future__ import annotations

import inspect
import logging
import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from gymnasium import logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AsyncVectorEnv as OwnAsyncVectorEnv
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_differing_spaces, batch_space, create_shared_memory
from numpy.typing import NDArray

from planvec.codecs import Env
from planvec.errors import InvalidBatchError, WorkerTimeoutError
from planvec.rows import copy_rows, empty_rows, finish_rows
from planvec.vector import checks
from planvec.vector.engine import Engine
from planvec.vector.env_row import InfoForm
from planvec.vector.operations import RowsCall
from planvec.vector.resident_envs import EngineOptions
from planvec.vector.states_face import StatesFace

_log = logging.getLogger("planvec")


def log_and_raise(call: RowsCall) -> None:
    """Log what environments have raised, and raise the last of it, as Gymnasium does."""
    errors = call.errors()
    if not errors:
        return
    for row, error in errors.items():
        logger.error(f"Received the following error from Worker-{row} - Shutting it down")
        logger.error(f"{getattr(error.__cause__, 'text', error)}")
    logger.error("Raising the last exception back to the main process.")
    raise errors[max(errors)]


# -- Batches the spaces of environments, with Gymnasium's rules and errors -----------------------------------

# in place of multiprocessing: Gymnasium checks a space, and allocates nothing
_NO_MEMORY: Any = SimpleNamespace(Array=lambda code, size: None)


def _batched(
    mode: object, spaces: Sequence[gymnasium.Space[object]]
) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any]]:
    """Return the batched space and the space of one observation."""
    batched: gymnasium.Space[Any]
    single: gymnasium.Space[Any]
    if isinstance(mode, tuple) and len(mode) == 2:
        batched, single = mode
        if not (isinstance(batched, gymnasium.Space) and isinstance(single, gymnasium.Space)):
            raise TypeError(
                "Expected both elements of observation_mode to be Spaces, got "
                f"{type(batched)} and {type(single)}"
            )
    elif mode == "same":
        single = spaces[0]
        if any(space != single for space in spaces):
            raise RuntimeError(
                "AsyncVectorEnv(..., observation_mode='same') however some of the sub-environments "
                "observation spaces are not equivalent. If this is intentional, use "
                "`observation_mode='different'` instead."
            )
        return batch_space(single, len(spaces)), single
    elif mode == "different":
        single, batched = spaces[0], batch_differing_spaces(spaces)
    else:
        raise ValueError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and batch "
            f"observation space, actual got {mode}"
        )
    if not all(is_space_dtype_shape_equiv(single, space) for space in spaces):
        raise RuntimeError(
            "AsyncVectorEnv(..., observation_mode='different' or custom space) however the sub-environment's "
            "observation spaces do not share a common shape and dtype."
        )
    return batched, single


# observations, rewards, terminated, truncated and infos
Step = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
_NOT_CALLED = ("reset", "step", "close", "_setattr", "_check_spaces")


# -- The face ------------------------------------------------------------------------------------------------


class AsyncVectorEnv(StatesFace, VectorEnv[Any, Any, Any]):
    """Steps N environments over worker processes, in place of `gymnasium.vector.AsyncVectorEnv`.

    The first arguments are Gymnasium's; those after `*` are planvec's own. Each worker has several
    environments. If a worker exits, its environments go on with the same bits wherever their states are
    exact.

    Args:
        env_fns: N functions that make the environments.
        shared_memory: Whether observations must fit into shared memory, as in Gymnasium. (planvec always puts
            observations of fixed size there.)
        copy: Whether each call returns new arrays of observations, instead of the same ones with new content.
        context: How workers are started: "spawn", "fork", or None for planvec's own way, as for
            "forkserver".
        daemon: Ignored: workers always end with this process, and may start processes of their own.
        worker: A function that Gymnasium runs in a process per environment, with the signature that Gymnasium
            asks for. With it, the constructor returns a `gymnasium.vector.AsyncVectorEnv`.
        observation_mode: "same" or "different" spaces, or a tuple `(batched space, single space)`.
        autoreset_mode: When environments are reset after the end of an episode.
        max_concurrency: Largest number of environments that run at the same time, at most one per worker.
        num_workers: Number of worker processes; 0 steps in this process; None takes one per core but one.
        timeout: Seconds that one call may take in a worker before it is killed; None: no limit.
        max_restarts: How often a call is retried after a worker exited on it.
        on_crash: What happens when a worker exits: "restore", "reset" or "raise", as for `EnvPool`.
        max_worker_rss: Bytes of resident memory above which a worker is replaced; None: no limit.

    Raises:
        ValueError: An argument is wrong.
        RuntimeError: The spaces of the environments differ.
        WorkerStartError: An environment could not be made. No worker is left.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return an object of this class, or Gymnasium's own with `worker`."""
        worker = args[5] if len(args) > 5 else kwargs.get("worker")
        if worker is None or cls is not AsyncVectorEnv:
            return super().__new__(cls)
        unknown = [name for name in kwargs if name not in inspect.signature(OwnAsyncVectorEnv).parameters]
        if unknown:
            raise InvalidBatchError(
                f"worker: expected None with {unknown}, got {worker!r}; Gymnasium runs a custom worker, and "
                "has no such arguments"
            )
        return OwnAsyncVectorEnv(*args, **kwargs)

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: object = None,
        observation_mode: str | gymnasium.Space[object] | tuple[object, object] = "same",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        num_workers: int | None = None,
        timeout: float | None = None,
        max_restarts: int = 3,
        on_crash: str | None = None,
        max_worker_rss: int | None = None,
    ) -> None:
        if worker is not None:
            raise InvalidBatchError(
                f"worker: expected None in {type(self).__name__}, got {worker!r}; Gymnasium runs a custom "
                "worker, so derive from gymnasium.vector.AsyncVectorEnv"
            )
        self.env_fns = checks.check_env_fns(env_fns)
        self.num_envs = len(self.env_fns)
        self.shared_memory, self.copy, self.context, self.daemon = shared_memory, copy, context, daemon
        self.worker, self.observation_mode, self.max_concurrency = worker, observation_mode, max_concurrency
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        count = checks.check_num_workers(num_workers, self.num_envs)
        limit = checks.check_max_concurrency(max_concurrency)
        self._engine = Engine(
            self.env_fns,
            EngineOptions(
                num_workers=count if limit is None else min(count, limit),
                mode=self.autoreset_mode,
                start_method=context,
                timeout=timeout,
                max_restarts=max_restarts,
                on_crash=checks.check_on_crash(on_crash),
                max_worker_rss=max_worker_rss,
                max_concurrency=limit,
            ),
        )
        # the call that was begun and not finished: its kind ("reset", "step" or "call"), and its chunks
        self._pending: tuple[str, RowsCall] | None = None
        try:
            self._set_spaces()
        except BaseException:
            self._engine.close()
            raise

    def _set_spaces(self) -> None:
        layouts = self._engine.layouts
        self.metadata = {**layouts[0].metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = layouts[0].render_mode
        self.observation_space, self.single_observation_space = _batched(
            self.observation_mode, [space for layout in layouts for space in layout.observation_spaces]
        )
        actions = [space for layout in layouts for space in layout.action_spaces]
        if any(space != actions[0] for space in actions):
            raise RuntimeError(
                f"Some environments have an action space different from `{actions[0]}`. "
                "In order to batch actions, the action spaces from all environments must be equal."
            )
        if self.shared_memory:
            try:
                create_shared_memory(self.single_observation_space, n=1, ctx=_NO_MEMORY)
            except gymnasium.error.CustomSpaceError as error:
                raise ValueError(
                    "Using `AsyncVector(..., shared_memory=True)` caused an error, you can disable this "
                    "feature with `shared_memory=False` however this is slower."
                ) from error
        self.action_space, self.single_action_space = batch_space(actions[0], len(actions)), actions[0]
        self._space_of_one_observation = self.single_observation_space
        self.observations = empty_rows(self.single_observation_space, self.num_envs, np.zeros)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds of the generators of the environments."""
        return self.get_attr("np_random_seed")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """Copies of the generators of the environments."""
        return self.get_attr("np_random")

    # -- reset --------------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes. Arguments as in Gymnasium; `options["reset_mask"]` selects environments."""
        self.reset_async(seed=seed, options=options)
        return self.reset_wait()

    def reset_async(
        self, seed: int | Sequence[int | None] | None = None, options: Mapping[str, object] | None = None
    ) -> None:
        """Begin to reset environments. `reset_wait` returns the results."""
        self._check_open()
        seeds = checks.check_seeds(seed, range(self.num_envs))
        self._check_pending("reset_async")
        rows = None
        if options is not None and "reset_mask" in options:
            mask = checks.check_reset_mask(options["reset_mask"], self.num_envs)
            options = {key: value for key, value in options.items() if key != "reset_mask"}
            rows = np.flatnonzero(mask)
            seeds = [seeds[row] for row in rows]
        call = self._engine.begin("reset", (seeds, [options] * len(seeds)), rows=rows)
        if len(seeds) < self.num_envs:  # the other environments keep their observations
            observed = self._engine.begin("observe", rows=np.flatnonzero(~mask))
            chunks = [*call.chunks, *observed.chunks]
            call = RowsCall(chunks, order=np.argsort(np.concatenate([chunk.rows for chunk in chunks])))
        self._pending = "reset", call

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, dict[str, Any]]:
        """Wait for `reset_async`, at most `timeout` seconds, and return the observations and the infos."""
        self._check_open()
        result = self._wait("reset", timeout).result(InfoForm.VECTOR)
        return self._shown(result.observations), result.infos

    # -- step ---------------------------------------------------------------------------------------

    def step(self, actions: object) -> Step:
        """Step all environments. Returns as Gymnasium."""
        self._check_open()
        self._check_pending("step_async")
        call = self._engine.begin_step(actions)
        self._engine.finish(call)
        log_and_raise(call)
        return self._stepped(call)

    def step_async(self, actions: object) -> None:
        """Begin to step all environments. `step_wait` returns the results."""
        self._check_open()
        self._check_pending("step_async")
        self._pending = "step", self._engine.begin_step(actions)

    def step_wait(self, timeout: float | None = None) -> Step:
        """Wait for `step_async`, and return its results.

        Raises:
            multiprocessing.TimeoutError: They were not ready within `timeout` seconds.
        """
        self._check_open()
        return self._stepped(self._wait("step", timeout))

    def _stepped(self, call: RowsCall) -> Step:
        observations, rewards, terminated, truncated, infos = call.result(InfoForm.VECTOR)
        if rewards.dtype != np.float64:
            rewards = rewards.astype(np.float64)
        return self._shown(observations), rewards, terminated, truncated, infos

    # -- environments -------------------------------------------------------------------------------

    def call(self, name: str, *args: object, **kwargs: object) -> tuple[Any, ...]:
        """Call a method of each environment, or read an attribute."""
        self.call_async(name, *args, **kwargs)
        return self.call_wait()

    def call_async(self, name: str, /, *args: object, **kwargs: object) -> None:
        """Begin to call a method of each environment. `call_wait` returns the results."""
        self._check_open()
        if name in _NOT_CALLED:
            raise ValueError(f"Trying to call function `{name}` with `call`, use `{name}` directly instead.")
        self._check_pending("call_async")
        self._pending = "call", self._engine.begin("call", (), (name, args, kwargs))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for `call_async`, at most `timeout` seconds, and return one value per environment."""
        self._check_open()
        return tuple(self._wait("call", timeout).values())

    def render(self) -> tuple[Any, ...] | None:
        """Return the frame of each environment."""
        return self.call("render")

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each environment."""
        return self.call(name)

    def set_attr(self, name: str, values: object) -> None:
        """Set an attribute: a list or tuple has one value per environment, anything else is set in all."""
        self._check_open()
        values = values if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                "Values must be a list or tuple with length equal to the number of environments. "
                f"Got `{len(values)}` values for {self.num_envs} environments."
            )
        self._check_pending("set_attr")
        log_and_raise(self._engine.run("set_attribute", (list(values),), (name, False)))

    # -- the end ------------------------------------------------------------------------------------

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the environments and the workers.

        Args:
            timeout: Seconds to wait for a call that is pending; None waits without a limit.
            terminate: Whether not to wait for it.
        """
        if self._pending is not None:
            kind = self._pending[0]
            logger.warn(f"Calling `close` while waiting for a pending call to `{kind}` to complete.")
            try:
                self._wait(kind, 0 if terminate else timeout)
            except Exception as error:
                _log.info("the pending call to %s has failed: %r", kind, error)
        self._engine.close()

    def __del__(self) -> None:
        if not self.closed and "_engine" in vars(self):
            self._engine.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(
                f"Trying to operate on `{type(self).__name__}`, after a call to `close()`."
            )

    # -- the call that was begun --------------------------------------------------------------------

    def _check_pending(self, name: str) -> None:
        """Check that there is no call."""
        if self._pending is not None:
            kind = self._pending[0]
            text = f"Calling `{name}` while waiting for a pending call to `{kind}` to complete."
            raise AlreadyPendingCallError(text, kind)

    def _wait(self, kind: str, timeout: float | None) -> RowsCall:
        """Wait at most some seconds for the call, and raise what environments have raised."""
        # After a timeout the results are lost, but no later call returns them.
        if self._pending is None or self._pending[0] != kind:
            raise NoAsyncCallError(f"Calling `{kind}_wait` without any prior call to `{kind}_async`.", kind)
        call, self._pending = self._pending[1], None
        try:
            self._engine.finish(call, timeout)
        except WorkerTimeoutError as error:
            text = f"The call to `{kind}_wait` has timed out after {timeout} second(s)."
            raise multiprocessing.TimeoutError(text) from error
        log_and_raise(call)
        return call

    def _shown(self, observations: object) -> Any:
        """Return observations in the form for users."""
        finished = finish_rows(self.single_observation_space, observations)
        if self.copy or isinstance(observations, list):
            return finished
        copy_rows(finished, self.observations)
        return self.observations

    def _check_free(self, rows: NDArray[np.intp] | None) -> None:
        self._check_open()
        self._check_pending("get_states")


_parameters = [*inspect.signature(AsyncVectorEnv.__init__).parameters.values()]
# `help` would show that of `__new__`.
AsyncVectorEnv.__signature__ = inspect.Signature(_parameters[1:])  # type: ignore[attr-defined]
