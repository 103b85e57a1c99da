"""Steps and resets the environments of a DI-engine manager, each by itself, and collects what is done.

step / reset  ->  one operation per environment at a time, others wait  ->  collect  ->  Answer
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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
from planvec.vector.engine import Engine, EngineOptions
from planvec.vector.env_row import InfoForm, RowInfo
from planvec.vector.operations import Chunk
from planvec.vector.states_face import StatesFace


class FleetOptions(NamedTuple):
    """Holds the options of a fleet. planvec's own are those of `EnvPool`."""

    context: str | None = (
        None  # how workers are started: "template" (also for "forkserver"), "spawn" or "fork"
    )
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


class Answer(NamedTuple):
    """Holds the result of one step or reset."""

    number: int  # the number of the request
    env_id: int  # the environment
    method: str  # "step" or "reset"
    observation: Any  # the observation; None after an error
    # the timestep of a step, without its observation; None if the episode was lost with its worker
    timestep: Any
    error: Exception | None  # what the environment raised, or the crash of its worker; None if nothing failed


class _Request(NamedTuple):
    number: int
    env_id: int
    argument: Any  # an action, or ResetOptions

    @property
    def method(self) -> str:
        return "reset" if isinstance(self.argument, ResetOptions) else "step"


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
        self._has_fixed_size = space is not None
        self._numbers = itertools.count()
        self._waiting: dict[int, deque[_Request]] = {row: deque() for row in range(len(env_fns))}
        self._at_work: dict[int, _Request] = {}  # environment -> what it performs
        self._chunks: list[Chunk] = []

    def _check_free(self, rows: NDArray[np.intp] | None) -> None:
        busy = sorted(self._at_work if rows is None else set(rows.tolist()) & set(self._at_work))
        if busy:
            raise InvalidBatchError(
                f"environments {busy} are being stepped or reset; wait until they are ready"
            )

    # -- steps and resets ---------------------------------------------------------------------------

    def submit(self, arguments: Mapping[int, Any], in_parts: bool = True) -> dict[int, int]:
        """Begin steps and resets. An environment performs its requests one after another."""
        # `in_parts`: answers of slow environments arrive one after another, which takes more messages.
        # Returns environment -> the number of the request, which its answer has, too.
        copies = {env_id: own_copy(argument) for env_id, argument in arguments.items()}
        numbers = {}
        for env_id, argument in copies.items():
            request = _Request(next(self._numbers), env_id, argument)
            numbers[env_id] = request.number
            self._waiting[env_id].append(request)
        self._send(in_parts)
        return numbers

    def _send(self, in_parts: bool = True) -> None:
        """Send the next request of every environment that has nothing to do."""
        by_method: dict[str, list[_Request]] = {"step": [], "reset": []}
        for env_id, waiting in self._waiting.items():
            if waiting and env_id not in self._at_work:
                request = self._at_work[env_id] = waiting.popleft()
                by_method[request.method].append(request)
        for method, requests in by_method.items():
            if not requests:
                continue
            try:
                self._begin(method, requests, in_parts)
            except BaseException:  # an action that cannot be sent, for example
                for request in requests:
                    del self._at_work[request.env_id]
                raise

    def _begin(self, method: str, requests: list[_Request], in_parts: bool) -> None:
        ids = [request.env_id for request in requests]
        rows = None if ids == self._all else np.array(ids, np.intp)  # None is faster
        given = [request.argument for request in requests]
        arguments = (given,) if method == "step" else ([None] * len(ids), [{"reset": how} for how in given])
        out = self._new_arrays(len(ids))
        self._chunks += self._engine.begin(method, arguments, rows=rows, out=out, in_parts=in_parts).chunks

    def collect(self) -> list[Answer]:
        """Return the answers that have arrived, without waiting."""
        self._engine.poll()
        return self._taken()

    def wait(self, timeout: float | None = None) -> list[Answer]:
        """Wait until an answer has arrived, and return all that have."""
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

    def _taken(self) -> list[Answer]:
        done = [chunk for chunk in self._chunks if chunk.is_done]
        if not done:
            return []
        self._chunks = [chunk for chunk in self._chunks if not chunk.is_done]
        answers = [answer for chunk in done for answer in self._answers(chunk)]
        for answer in answers:
            del self._at_work[answer.env_id]
        self._send()
        return answers

    def _answers(self, chunk: Chunk) -> list[Answer]:
        rows = chunk.rows.tolist()
        reply = chunk.reply
        if reply is None:
            assert chunk.error is not None
            return [self._answer(row, None, ({}, None), chunk.error) for row in rows]
        errors = chunk.errors()
        infos: dict[int, RowInfo] = reply.infos or {}
        if self._has_fixed_size:
            assert chunk.out is not None
            tree = chunk.out.observations
            observations = [self.row_of(tree, index) for index in range(len(rows))]
        else:
            observations = [own_copy(observation) for observation in reply.observations or ()]
        return [
            self._answer(row, observations[index], infos.get(index, ({}, None)), errors.get(row))
            for index, row in enumerate(rows)
        ]

    def _answer(self, env_id: int, observation: Any, info: RowInfo, error: Exception | None) -> Answer:
        request = self._at_work[env_id]
        timestep = info[0].get(TIMESTEP)
        if not self.num_workers:  # environments may write into the same objects again
            timestep = own_copy(timestep)
        observation = None if error is not None else observation
        return Answer(request.number, env_id, request.method, observation, timestep, error)

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


# -- Converts results into the timesteps of DI-engine --------------------------------------------------------


def timestep_of(answer: Answer) -> Any:
    """Return the timestep of a step that has not raised."""
    if answer.timestep is None:  # the episode was lost with its worker
        return BaseEnvTimestep(None, None, None, {"abnormal": True, "worker_exited": True})
    return answer.timestep._replace(obs=answer.observation)


def as_tree(env_id: int, observation: Any, reward: Any, done: Any, info: Any) -> Any:
    """Return a timestep as a tree of arrays, with keys of the info that are identifiers."""
    info = make_key_as_identifier(info)
    return tnp.array({"obs": observation, "reward": reward, "done": done, "info": info, "env_id": env_id})
