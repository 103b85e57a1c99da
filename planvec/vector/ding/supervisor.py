"""Defines DI-engine's `EnvSupervisor` over few workers that survive crashes.

The states of episodes, resets and retries are those of DI-engine. A `Fleet` replaces its children, and the
queue of their answers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import treetensor.numpy as tnp
from ding.envs.env_manager import EnvSupervisor as DingSupervisor
from ding.envs.env_manager.env_supervisor import EnvRetryType
from ding.framework.supervisor import ChildType, RecvPayload, ReserveMethod, SendPayload

from planvec.vector.ding.fleet import Fleet, FleetFace, FleetOptions, Task
from planvec.vector.ding_env import ResetOptions

_log = logging.getLogger("planvec")


class _Child:
    """Stands for one environment, in place of DI-engine's process or thread."""

    def __init__(self, supervisor: EnvSupervisor) -> None:
        self._supervisor = supervisor
        self.is_renewed = False  # whether the next reset makes the environment anew

    def restart(self) -> None:
        self.is_renewed = True

    def send(self, payload: SendPayload) -> None:
        self._supervisor._submit(payload)


class _Answers:
    """Stands for the queue of the answers of children."""

    def __init__(self, wait: Callable[[], Sequence[RecvPayload]]) -> None:
        self._wait = wait
        self._arrived: deque[RecvPayload] = deque()

    def get(self, block: bool = True, timeout: float | None = None) -> RecvPayload:
        """Return the next answer. The limits of time are those of the environments, in the workers."""
        while not self._arrived:
            self._arrived += self._wait()
        return self._arrived.popleft()

    def put(self, payload: RecvPayload) -> None:
        self._arrived.append(payload)


class EnvSupervisor(FleetFace, DingSupervisor):  # type: ignore[misc]
    """Steps environments one by one or together, in place of DI-engine's `EnvSupervisor`.

    Args:
        type_: `ChildType.PROCESS` steps in worker processes, `ChildType.THREAD` in the calling thread.
        env_fn: One function per environment, which makes it.
        retry_type: Whether a reset that raised is repeated ("reset"), or the environment made anew ("renew").
        max_try: How often a reset is tried.
        max_retry: The same; `max_try` comes first.
        auto_reset: Whether the end of an episode begins the next one.
        reset_timeout: Seconds that a reset may take; None: no limit.
        step_timeout: Seconds that a step may take; None: no limit.
        retry_waiting_time: Seconds before a reset is repeated.
        episode_num: Number of episodes after which an environment is not reset any more.
        shared_memory: Whether observations are sent in shared memory, converted to the dtype of their space.
        copy_on_get: Without effect: observations are always copies.
        options: planvec's own options num_workers, context, timeout, max_restarts, on_crash and
            max_worker_rss; see `AsyncSubprocessEnvManager`. Others are ignored with a warning, as in
            DI-engine.

    Inherited from DI-engine's `EnvSupervisor`: `launch`, `seed`, `close`, `enable_save_replay`,
    `send`, `get_child_attr`, `env_state_done`, and the properties `env_num`, `env_states`, `ready_obs_id`,
    `done`, `closed`, `method_name_list`, `observation_space`, `action_space` and `reward_space`.
    """

    def __init__(
        self,
        type_: ChildType = ChildType.PROCESS,
        env_fn: Sequence[Callable[[], Any]] | None = None,
        retry_type: EnvRetryType | str = EnvRetryType.RESET,
        max_try: int | None = None,
        max_retry: int | None = None,
        auto_reset: bool = True,
        reset_timeout: float | None = None,
        step_timeout: float | None = None,
        retry_waiting_time: float | None = None,
        episode_num: float = float("inf"),
        shared_memory: bool = True,
        copy_on_get: bool = True,
        **options: Any,
    ) -> None:
        self._children: list[_Child] = []
        self._running = False
        self._unsent: list[tuple[SendPayload, Any]] = []  # payloads, and what the fleet is to do
        self._sent: dict[Task, SendPayload] = {}
        self._seeding: dict[int, tuple[Any, ...]] = {}  # environment -> arguments of its next `seed`
        known = {name: value for name, value in options.items() if name in FleetOptions._fields}
        unknown = sorted(set(options) - set(known) - {"cfg_type"})
        if unknown:
            _log.warning("EnvSupervisor: the options %s are unknown, and ignored", unknown)
        self._options = FleetOptions(step_timeout=step_timeout, shared_memory=shared_memory, **known)
        if type_ is ChildType.THREAD:
            self._options = self._options._replace(num_workers=0, shared_memory=False)
        super().__init__(
            type_=type_,
            env_fn=list(env_fn or ()),
            retry_type=EnvRetryType(retry_type),
            max_try=max_try or max_retry,
            auto_reset=auto_reset,
            reset_timeout=reset_timeout,
            step_timeout=step_timeout,
            retry_waiting_time=retry_waiting_time,
            episode_num=episode_num,
            shared_memory=False,
            copy_on_get=False,
        )
        self._children = [_Child(self) for _ in range(self.env_num)]

    # -- what users call ----------------------------------------------------------------------------

    @property
    def ready_obs(self) -> Any:
        """The observations of the environments that run, stacked."""
        observations = [self._ready_obs[env_id] for env_id in sorted(self.ready_obs_id)]
        return tnp.stack([tnp.array(o) for o in observations]) if observations else tnp.array([])

    def reset(self, reset_param: object = None, block: bool = True) -> None:
        """Reset environments.

        Args:
            reset_param: Environment -> arguments of its `reset`, which later resets take, too; or a list.
                None resets all.
            block: Whether to wait for the observations. Otherwise `recv` returns them.

        Raises:
            RuntimeError: An environment raised `max_try` times. The supervisor is closed.
        """
        super().reset(reset_param, block)
        self._send_all()

    def step(self, actions: Mapping[int, object] | list[Any], block: bool = True) -> list[Any] | None:
        """Step environments.

        Args:
            actions: Environment -> its action, or a list.
            block: Whether to wait. Otherwise `recv` returns the results.

        Returns:
            Per action a `treetensor.numpy.ndarray` with obs, reward, done, info and env_id; that of an
            environment which has raised has `info.abnormal` and `info.err`, and the environment was reset.
            None if `block` is False.
        """
        timesteps: list[Any] | None = super().step(actions, block)
        self._send_all()
        return timesteps

    def recv(self, ignore_err: bool = False) -> RecvPayload:
        """Wait for the next result of steps and resets that nobody waits for.

        Args:
            ignore_err: Without effect, as in DI-engine: a step that has raised is followed by the result of a
                reset.

        Raises:
            RuntimeError: A reset raised `max_try` times. The supervisor is closed. Or nothing is at work.
        """
        payload = super().recv(ignore_err)
        self._send_all()
        return payload

    def shutdown(self, timeout: float | None = None) -> None:
        """Close the environments and the workers. The supervisor can be launched again."""
        if self._running:
            fleet = self._open_fleet()
            self._running, self._fleet = False, None
            fleet.close()
            self._init_states()

    # -- what DI-engine calls -----------------------------------------------------------------------

    def start_link(self) -> None:
        """Start the workers."""
        self._fleet = Fleet(self._env_fn, self._observation_space, self._action_space, self._options)
        self._recv_queue = _Answers(self._wait)
        self._unsent, self._sent, self._running = [], {}, True

    def _check_closed(self) -> None:
        assert self._running, "Supervisor is not running, please call start_link first!"

    def recv_all(
        self, send_payloads: list[SendPayload], *args: object, **kwargs: object
    ) -> list[RecvPayload]:
        """Wait for the answers to payloads. There may be none."""
        answers: list[RecvPayload] = super().recv_all(send_payloads, *args, **kwargs) if send_payloads else []
        return answers

    def _submit(self, payload: SendPayload) -> None:
        """Prepare what a child is asked. All of it is sent together, which takes fewer messages."""
        env_id = payload.proc_id
        if payload.method == "step":
            self._unsent.append((payload, payload.args[0]))
        elif payload.method == "reset":
            child = self._children[env_id]
            how = ResetOptions(
                parameters=payload.kwargs,
                seeding=self._seeding.pop(env_id, None),
                is_renewed=child.is_renewed,
                timeout=self._reset_timeout,
                replay_path=self._env_replay_path[env_id] if self._env_replay_path else None,
            )
            child.is_renewed = False
            self._unsent.append((payload, how))
        else:
            self._recv_queue.put(self._answer(payload))

    def _answer(self, payload: SendPayload) -> RecvPayload:
        """Return the value of an attribute, or what another method returns."""
        fleet, is_attribute = self._open_fleet(), payload.method is ReserveMethod.GETATTR
        name = "get_attribute" if is_attribute else "call"
        common = (payload.args[0],) if is_attribute else (payload.method, payload.args, payload.kwargs)
        value = error = None
        try:
            value = fleet.values(name, common, [int(payload.proc_id)])[0]
        except Exception as raised:  # the answer holds it
            error = raised
        return RecvPayload(payload.proc_id, payload.req_id, payload.method, value, error)

    def _send_all(self) -> None:
        unsent, self._unsent = self._unsent, []
        if unsent and self._running:
            tasks = self._open_fleet().submit([(payload.proc_id, argument) for payload, argument in unsent])
            self._sent |= zip(tasks, (payload for payload, _ in unsent), strict=True)

    def _wait(self) -> list[RecvPayload]:
        """Wait for answers of the fleet."""
        self._send_all()
        fleet = self._open_fleet()
        if fleet.is_idle:
            raise RuntimeError("recv: expected a step or a reset at work, got none; call step(block=False)")
        return [self._received(task) for task in fleet.wait()]

    def _received(self, task: Task) -> RecvPayload:
        error, data = task.error, task.observation
        if task.method == "step":
            data = task.timestep and task.timestep._replace(obs=task.observation)
            if data is None and error is None:
                error = RuntimeError("the episode was lost with its worker")
        return RecvPayload(task.env_id, self._sent.pop(task).req_id, task.method, data, error)

    def _recv_reset_callback(self, payload: RecvPayload, remain_payloads: object = None) -> RecvPayload:
        try:
            return super()._recv_reset_callback(payload, remain_payloads)
        except RuntimeError as error:
            raise error from payload.err

    def _send_seed(
        self, env_seed: Mapping[int, object], env_dynamic_seed: object = None, block: bool = True
    ) -> None:
        """Keep the arguments of `seed` for the next resets, which call it."""
        dynamic = () if env_dynamic_seed is None else (env_dynamic_seed,)
        self._seeding = {i: (seed, *dynamic) for i, seed in env_seed.items() if seed is not None}

    def _enable_env_replay(self) -> None:
        """Do nothing: resets tell environments where to save videos."""

    def _detect_timeout(self) -> None:
        """Do nothing: workers interrupt what takes too long."""
