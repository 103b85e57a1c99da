"""Steps and resets the environments of a DI-engine manager, each by itself, and collects what is done.

step, reset  ->  an operation for those of all environments, one after another for each  ->  collect  ->  Task
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from ding.envs import BaseEnvTimestep
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from planvec.backends import Stats
from planvec.errors import InvalidBatchError, WorkerTimeoutError
from planvec.rows import own_copy, take_row
from planvec.vector import checks
from planvec.vector.ding_env import TIMESTEP, DingEnv, ResetOptions, as_gymnasium
from planvec.vector.engine import Engine
from planvec.vector.env_row import InfoForm
from planvec.vector.operations import Chunk
from planvec.vector.resident_envs import EngineOptions
from planvec.vector.states_face import StatesFace


class FleetOptions(NamedTuple):
    """Holds the options of a fleet. planvec's own are those of `EnvPool`."""

    # how workers are started: "template" (also for "forkserver"), "spawn" or "fork"; None: by default
    context: str | None = None
    step_timeout: float | None = None  # seconds that a step may take before it is interrupted; None: no limit
    reset_inplace: bool = False  # whether the step that ends an episode begins the next one
    # whether observations are sent in shared memory, converted to the dtype of their space
    shared_memory: bool = True
    # number of worker processes; 0 steps in this process; None takes one per available core but one
    num_workers: int | None = None
    # seconds that an operation may take before its worker is killed; None: no limit
    timeout: float | None = None
    max_restarts: int = 3  # how often an operation is retried after a worker exited on it
    # "restore", "reset" or "raise"; None takes "restore" if states are exact, else "reset"
    on_crash: str | None = None
    max_worker_rss: int | None = None  # bytes of memory above which a worker is replaced; None: no limit


@dataclass(slots=True, eq=False)
class Task:
    """Holds a step or a reset of one environment, and its result once it is done."""

    env_id: int
    argument: Any  # an action, or `ResetOptions`
    observation: Any = None  # the observation; None after an error
    # the timestep of a step, without its observation; None if the episode was lost with its worker
    timestep: Any = None
    error: Exception | None = None  # what the environment raised, or the crash of its worker

    @property
    def method(self) -> str:
        """The method of `DingEnv`: "step" or "reset"."""
        return "reset" if isinstance(self.argument, ResetOptions) else "step"

    def full_timestep(self) -> Any:
        """Return the timestep of a step that has not raised."""
        if self.timestep is None:
            return BaseEnvTimestep(None, None, None, {"abnormal": True, "worker_exited": True})
        return self.timestep._replace(obs=self.observation)


class Fleet(StatesFace):
    """Holds the environments."""

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        observation_space: object,
        action_space: object,
        options: FleetOptions,
    ) -> None:
        space = as_gymnasium(observation_space) if options.shared_memory else None
        make = partial(
            DingEnv,
            observation_space=space,
            action_space=as_gymnasium(action_space),
            step_timeout=options.step_timeout,
            resets_in_place=options.reset_inplace,
        )
        self._engine = Engine(
            [partial(make, env_fn) for env_fn in checks.check_env_fns(env_fns)],
            EngineOptions(
                num_workers=checks.check_num_workers(options.num_workers, len(env_fns)),
                mode=AutoresetMode.DISABLED,
                info_form=InfoForm.ROWS,
                start_method=options.context,
                timeout=options.timeout,
                max_restarts=options.max_restarts,
                on_crash=checks.check_on_crash(options.on_crash),
                max_worker_rss=options.max_worker_rss,
                preload=("ding.envs",),
            ),
        )
        self.num_envs = len(env_fns)
        self._all = list(range(len(env_fns)))
        self._space_of_one_observation = self._engine.layouts[0].observation_spaces[0]
        self._tasks: dict[Chunk, list[Task]] = {}  # what is at work, and was not collected
        self._waiting: list[Task] = []  # the later tasks of the same environments

    def _check_free(self, rows: NDArray[np.intp] | None) -> None:
        ids = {task.env_id for tasks in (*self._tasks.values(), self._waiting) for task in tasks}
        busy = sorted(ids if rows is None else ids & set(rows.tolist()))
        if busy:
            raise InvalidBatchError(
                f"environments {busy} are being stepped or reset; wait until they are ready"
            )

    # -- steps and resets ---------------------------------------------------------------------------

    def submit(self, arguments: Iterable[tuple[int, object]], in_parts: bool = True) -> list[Task]:
        """Begin a step or a reset of environments, given each with its argument."""
        # An environment performs one after another. `in_parts`: results of slow environments arrive one after
        # another, which takes more messages.
        submitted = [Task(env_id, own_copy(argument)) for env_id, argument in arguments]
        self._waiting += submitted
        self._begin_waiting(in_parts)
        return submitted

    def _begin_waiting(self, in_parts: bool = True) -> None:
        """Begin the tasks that wait, the oldest of each environment that has none at work."""
        # A later one would write over the results of the one at work.
        busy = {task.env_id for tasks in self._tasks.values() for task in tasks}
        free: dict[int, Task] = {}
        for task in self._waiting:
            if task.env_id not in busy:
                free.setdefault(task.env_id, task)
        self._waiting = [task for task in self._waiting if free.get(task.env_id) is not task]
        for method in ("step", "reset"):
            tasks = {env_id: task for env_id, task in free.items() if task.method == method}
            if not tasks:
                continue
            rows = None if list(tasks) == self._all else np.array(list(tasks), np.intp)  # None is faster
            given: list[Any] = [task.argument for task in tasks.values()]
            per_row: tuple[list[Any], ...] = (given,)
            if method == "reset":
                per_row = [None] * len(given), [{"reset": how} for how in given]
            call = self._engine.begin(method, per_row, rows=rows, in_parts=in_parts)
            self._tasks |= {chunk: [tasks[env_id] for env_id in chunk.rows.tolist()] for chunk in call.chunks}

    def collect(self) -> list[Task]:
        """Return the tasks that are done, without waiting."""
        self._engine.poll()
        return self._taken()

    def wait(self, timeout: float | None = None) -> list[Task]:
        """Wait until a task is done, and return all that are."""
        # `timeout`: Seconds to wait at most; None: no limit.
        if self._tasks:
            with contextlib.suppress(WorkerTimeoutError):
                self._engine.wait(lambda: any(chunk.is_done for chunk in self._tasks), timeout)
        return self._taken()

    @property
    def is_idle(self) -> bool:
        """Whether nothing was asked that was not collected."""
        return not self._tasks

    def _taken(self) -> list[Task]:
        """Note the results of the tasks that are done, and return these."""
        taken = []
        for chunk in [chunk for chunk in self._tasks if chunk.is_done]:
            tasks, errors = self._tasks.pop(chunk), chunk.errors()
            taken += tasks
            reply, out = chunk.reply, chunk.out
            infos = {} if reply is None else reply.infos or {}
            for index, task in enumerate(tasks):
                task.error = errors.get(task.env_id, chunk.error)
                task.timestep = infos.get(index, ({}, None))[0].get(TIMESTEP)
                if task.error is None and reply is not None and out is not None:
                    listed = reply.observations
                    task.observation = (
                        self.row_of(out.observations, index) if listed is None else listed[index]
                    )
        if self._waiting:
            self._begin_waiting()
        return taken

    def row_of(self, observations: object, index: int) -> Any:
        """Return one observation of a batch, in the form that the environment returns."""
        return take_row(self._space_of_one_observation, observations, index)

    # -- environments -------------------------------------------------------------------------------

    def values(
        self, name: str, common: tuple[object, ...], env_ids: Sequence[int] | None = None
    ) -> list[Any]:
        """Perform an operation that returns a value for each environment. Without `env_ids`, for all."""
        rows = None if env_ids is None else np.array(env_ids, np.intp)
        return self._engine.run(name, (), common, rows=rows).values()

    def close(self) -> None:
        """Close the environments and the workers."""
        self._engine.close()


class FleetFace:
    """Base class of the faces, which have a fleet between `launch` and `close`."""

    _fleet: Fleet | None = None
    _env_ref: Any  # an environment in this process
    _check_closed: Callable[[], None]  # checks that there is a fleet

    def _open_fleet(self) -> Fleet:
        self._check_closed()
        assert self._fleet is not None
        return self._fleet

    @property
    def stats(self) -> Stats:
        """Counts of worker exits since the launch, by reason."""
        return self._open_fleet().stats

    def __getattr__(self, key: str) -> Any:
        """Return an attribute of all environments, as a list."""
        if key.startswith("__") or "_env_ref" not in vars(self):
            raise AttributeError(key)
        if hasattr(type(self), key):  # a property, whose own error says more
            return object.__getattribute__(self, key)
        if not hasattr(self._env_ref, key):
            raise AttributeError(f"env `{type(self._env_ref)}` doesn't have the attribute `{key}`")
        return self._open_fleet().values("get_attribute", (key,))
