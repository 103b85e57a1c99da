"""Steps and resets the environments of a DI-engine manager, each by itself, and collects what is done.

step / reset  ->  one operation per environment at a time, others wait  ->  collect  ->  Task
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import treetensor.numpy as tnp
from ding.envs import BaseEnvTimestep
from ding.utils import make_key_as_identifier
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

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
    # number of worker processes; 0 steps in this process; None takes one per available core
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
        observation_space: Any,
        action_space: Any,
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
        self._waiting: dict[int, deque[Task]] = {row: deque() for row in range(len(env_fns))}
        self._at_work: dict[int, Task] = {}  # environment -> what it performs
        self._chunks: list[Chunk] = []

    def _check_free(self, rows: NDArray[np.intp] | None) -> None:
        busy = sorted(self._at_work if rows is None else set(rows.tolist()) & set(self._at_work))
        if busy:
            raise InvalidBatchError(
                f"environments {busy} are being stepped or reset; wait until they are ready"
            )

    # -- steps and resets ---------------------------------------------------------------------------

    def submit(self, arguments: Iterable[tuple[int, Any]], in_parts: bool = True) -> list[Task]:
        """Begin steps and resets, given environments and their arguments. Each performs one after another."""
        # `in_parts`: results of slow environments arrive one after another, which takes more messages.
        tasks = [Task(env_id, own_copy(argument)) for env_id, argument in arguments]
        for task in tasks:
            self._waiting[task.env_id].append(task)
        self._send(in_parts)
        return tasks

    def _send(self, in_parts: bool = True) -> None:
        """Send the next task of every environment that has nothing to do."""
        by_method: dict[str, list[Task]] = {"step": [], "reset": []}
        for env_id, waiting in self._waiting.items():
            if waiting and env_id not in self._at_work:
                task = self._at_work[env_id] = waiting.popleft()
                by_method[task.method].append(task)
        for method, tasks in by_method.items():
            if not tasks:
                continue
            ids = [task.env_id for task in tasks]
            rows = None if ids == self._all else np.array(ids, np.intp)  # None is faster
            given = [task.argument for task in tasks]
            arguments = (
                (given,) if method == "step" else ([None] * len(ids), [{"reset": how} for how in given])
            )
            try:
                self._chunks += self._engine.begin(method, arguments, rows=rows, in_parts=in_parts).chunks
            except BaseException:  # an action that cannot be sent, for example
                for env_id in ids:
                    del self._at_work[env_id]
                raise

    def collect(self) -> list[Task]:
        """Return the tasks that are done, without waiting."""
        self._engine.poll()
        return self._taken()

    def wait(self, timeout: float | None = None) -> list[Task]:
        """Wait until a task is done, and return all that are."""
        # `timeout`: Seconds to wait at most; None: no limit.
        chunks = self._chunks
        if chunks:
            with contextlib.suppress(WorkerTimeoutError):
                self._engine.wait(lambda: any(chunk.is_done for chunk in chunks), timeout)
        return self._taken()

    @property
    def is_idle(self) -> bool:
        """Whether nothing was asked that was not collected."""
        return not self._chunks

    def _taken(self) -> list[Task]:
        done = [chunk for chunk in self._chunks if chunk.is_done]
        if not done:
            return []
        self._chunks = [chunk for chunk in self._chunks if not chunk.is_done]
        tasks = [task for chunk in done for task in self._finished(chunk)]
        self._send()
        return tasks

    def _finished(self, chunk: Chunk) -> list[Task]:
        """Note the results of the tasks of a chunk that is done, and return these."""
        tasks = [self._at_work.pop(env_id) for env_id in chunk.rows.tolist()]
        out, reply = chunk.out, chunk.reply
        if reply is None or out is None:
            for task in tasks:
                task.error = chunk.error
            return tasks
        errors, infos = chunk.errors(), reply.infos or {}
        for index, task in enumerate(tasks):
            task.error = errors.get(task.env_id)
            if task.error is None and reply.observations is not None:
                task.observation = reply.observations[index]
            elif task.error is None:
                task.observation = self.row_of(out.observations, index)
            task.timestep = infos.get(index, ({}, None))[0].get(TIMESTEP)
        return tasks

    def row_of(self, observations: Any, index: int) -> Any:
        """Return one observation of a batch, in the form that the environment returns."""
        return take_row(self._space_of_one_observation, observations, index)

    # -- environments -------------------------------------------------------------------------------

    def call(self, name: str, *args: Any, env_ids: Sequence[int] | None = None, **kwargs: Any) -> list[Any]:
        """Call a method of environments, and return the results. Without `env_ids`, of all."""
        return self._values("call", (name, args, kwargs), env_ids)

    def get(self, name: str, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Return an attribute of environments."""
        return self._values("get_attribute", (name,), env_ids)

    def ask(self, function: Callable[[DingEnv], Any], env_ids: Sequence[int]) -> list[Any]:
        """Return what a function returns for environments, which it must not change."""
        return self._values("apply", (function,), env_ids)

    def _values(self, name: str, arguments: tuple[Any, ...], env_ids: Sequence[int] | None) -> list[Any]:
        rows = None if env_ids is None else np.array(env_ids, np.intp)
        return self._engine.run(name, (), arguments, rows=rows).values()

    def close(self) -> None:
        """Close the environments and the workers."""
        self._engine.close()


def as_tree(env_id: int, observation: Any, reward: Any, done: Any, info: Any) -> Any:
    """Return a timestep as a tree of arrays, with keys of the info that are identifiers."""
    info = make_key_as_identifier(info)
    return tnp.array({"obs": observation, "reward": reward, "done": done, "info": info, "env_id": env_id})
