"""Defines `SubprocVecEnv`, the vector interface of stable-baselines3 over few workers that survive crashes.

Letters: N environments.
"""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import cloudpickle
import gymnasium
import numpy as np
from gymnasium.error import AlreadyPendingCallError, NoAsyncCallError
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from planvec.codecs import Env
from planvec.errors import ClosedError
from planvec.vector import checks
from planvec.vector.engine import Engine
from planvec.vector.env_row import InfoForm
from planvec.vector.operations import RowsCall
from planvec.vector.resident_envs import EngineOptions, has_attribute, is_wrapped, make_patched
from planvec.vector.states_face import StatesFace

try:
    from stable_baselines3.common.vec_env import VecEnv
except ModuleNotFoundError as error:
    raise ImportError(
        "planvec.vector.SubprocVecEnv needs stable-baselines3: pip install stable-baselines3"
    ) from error

_SLOW_MODULE = "stable_baselines3.common.monitor"  # imports PyTorch, which takes seconds

Indices = int | Iterable[int] | None


class SubprocVecEnv(StatesFace, VecEnv):  # type: ignore[misc]
    """Steps N environments over worker processes, in place of stable-baselines3's `SubprocVecEnv`.

    Each worker has several environments. If a worker exits, its environments go on with the same bits
    wherever their states are exact.

    Args:
        env_fns: N functions that make the environments.
        start_method: How workers are started: "spawn", "fork", or None for planvec's own way, as for
            "forkserver".
        num_workers: Number of worker processes; 0 steps in this process; None takes one per core but one.
        timeout: Seconds that one call may take in a worker before it is killed; None: no limit.
        max_restarts: How often a call is retried after a worker exited on it.
        on_crash: What happens when a worker exits: "restore", "reset" or "raise", as for `EnvPool`.
        max_worker_rss: Bytes of resident memory above which a worker is replaced; None: no limit.

    Attributes:
        waiting: Whether `step_async` was called and `step_wait` was not.
        closed: Whether `close` was called.

    Raises:
        ValueError: An argument is wrong.
        WorkerStartError: An environment could not be made. No worker is left.
    """

    def __init__(
        self,
        env_fns: list[Callable[[], Env]],
        start_method: str | None = None,
        *,
        num_workers: int | None = None,
        timeout: float | None = None,
        max_restarts: int = 3,
        on_crash: str | None = None,
        max_worker_rss: int | None = None,
    ) -> None:
        factories = [partial(make_patched, env_fn) for env_fn in checks.check_env_fns(env_fns)]
        if start_method != "template":
            multiprocessing.get_context(start_method)  # raises an error for an unknown one
        self.closed = False
        self._call: RowsCall | None = None
        self._engine = Engine(
            factories,
            EngineOptions(
                num_workers=checks.check_num_workers(num_workers, len(factories)),
                mode=AutoresetMode.SAME_STEP,
                info_form=InfoForm.ROWS,
                keeps_rewards=True,
                start_method=start_method,
                timeout=timeout,
                max_restarts=max_restarts,
                on_crash=checks.check_on_crash(on_crash),
                max_worker_rss=max_worker_rss,
                preload=_preload(factories),
            ),
        )
        layout = self._engine.layouts[0]
        self._space_of_one_observation = layout.observation_spaces[0]
        try:
            super().__init__(len(factories), layout.observation_spaces[0], layout.action_spaces[0])
        except BaseException:
            self._engine.close()
            raise

    @property
    def waiting(self) -> bool:
        """Whether `step_async` was called and `step_wait` was not."""
        return self._call is not None

    # -- episodes -----------------------------------------------------------------------------------

    def reset(self) -> Any:
        """Begin an episode in every environment, and return the observations. A pending step is cancelled."""
        if self._call is not None:
            self._call.abandon()
            self._call = None
        arguments = list(self._seeds), [options or None for options in self._options]
        call = self._engine.run("reset", arguments)
        result = call.result(InfoForm.ROWS)
        self.reset_infos = [result.infos.get(row, ({}, None))[0] for row in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return result.observations

    def step_async(self, actions: object) -> None:
        """Begin to step all environments. `step_wait` returns the results."""
        self._check_free(None)
        self._call = self._engine.begin_step(actions)

    def step_wait(self) -> tuple[Any, np.ndarray, NDArray[np.bool_], tuple[dict[str, Any], ...]]:
        """Wait for `step_async`, and return observations, rewards, the ends of episodes, and infos."""
        call, self._call = self._call, None
        if call is None:
            raise NoAsyncCallError("step_wait: expected a pending step, got none; call step_async()", "step")
        self._engine.finish(call)
        observations, rewards, terminated, truncated, row_infos = call.result(InfoForm.ROWS)
        infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        if not row_infos:  # no episode has ended
            return observations, rewards, terminated, tuple(infos)
        self.reset_infos = list(self.reset_infos)  # the user may have kept the one before
        for row, (info, ending) in row_infos.items():
            infos[row] = {**info, "TimeLimit.truncated": bool(truncated[row] and not terminated[row])}
            if ending is not None:
                infos[row]["terminal_observation"], self.reset_infos[row] = ending
        return observations, rewards, terminated | truncated, tuple(infos)

    # -- environments -------------------------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return an attribute of environments."""
        return self._values("get_attribute", (attr_name,), indices)

    def has_attr(self, attr_name: str) -> bool:
        """Return whether all environments have an attribute."""
        return all(self._values("apply", (partial(has_attribute, attr_name),), None))

    def set_attr(self, attr_name: str, value: object, indices: Indices = None) -> None:
        """Set an attribute of the outermost wrapper of environments."""
        rows = self._rows(indices)
        values = [value] * len(rows)
        self._engine.run("set_attribute", (values,), (attr_name, True), rows=rows).raise_errors()

    def env_method(
        self, method_name: str, *method_args: object, indices: Indices = None, **method_kwargs: object
    ) -> list[Any]:
        """Call a method of environments, and return the results."""
        return self._values("call", (method_name, method_args, method_kwargs), indices)

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Return for each environment whether it is wrapped by a class."""
        return self._values("apply", (partial(is_wrapped, wrapper_class),), indices)

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """Return the frame of each environment; None where the render mode is not "rgb_array"."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"The render mode is {self.render_mode}, but this method assumes it is `rgb_array` to obtain "
                "images.",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return self._values("call", ("render", (), {}), None)

    def close(self) -> None:
        """Close the environments and the workers. Closing again does nothing."""
        self.closed, self._call = True, None
        self._engine.close()

    # -- helpers ------------------------------------------------------------------------------------

    def _check_free(self, rows: NDArray[np.intp] | None) -> None:
        if self.closed:
            raise ClosedError("the vector environment was closed")
        if self._call is not None:
            raise AlreadyPendingCallError("expected no pending step, got one; call step_wait() first", "step")

    def _rows(self, indices: Indices) -> NDArray[np.intp]:
        if indices is None:
            return np.arange(self.num_envs)
        return np.arange(self.num_envs)[
            [indices] if isinstance(indices, (int, np.integer)) else list(indices)
        ]

    def _values(self, operation: str, arguments: tuple[object, ...], indices: Indices) -> list[Any]:
        """Return one value per index, in the order of the indices."""
        rows = self._rows(indices)
        distinct, inverse = np.unique(rows, return_inverse=True)
        if not len(distinct):
            return []
        values = self._engine.run(operation, (), arguments, rows=distinct).values()
        return [values[index] for index in inverse]


def _preload(factories: Sequence[Callable[[], Any]]) -> tuple[str, ...]:
    """Return the modules to preload: those of stable-baselines3 if a factory uses it."""
    try:
        pickled: bytes = cloudpickle.dumps(factories)
    except Exception:  # starting a worker reports it
        return ()
    return (_SLOW_MODULE,) if _SLOW_MODULE.partition(".")[0].encode() in pickled else ()
