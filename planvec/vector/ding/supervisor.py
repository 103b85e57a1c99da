"""Defines DI-engine's `EnvSupervisor` over few workers that survive crashes."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from numbers import Integral
from typing import Any

import treetensor.numpy as tnp
from ding.envs.env_manager.env_supervisor import EnvRetryType, EnvState
from ding.framework.supervisor import ChildType, RecvPayload

from planvec.backends import Stats
from planvec.vector.ding.fleet import Answer, Fleet, FleetOptions, as_tree
from planvec.vector.ding_env import ResetOptions

# -- Defines what `EnvSupervisor` knows of its environments, and how it starts and ends ----------------------

_log = logging.getLogger("planvec")


class SupervisorBase:
    """Holds the environments of an `EnvSupervisor`, which describes the arguments."""

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
        self._env_fn = list(env_fn or ())
        self._type = type_
        self._retry_type = EnvRetryType(_value(retry_type))
        self._max_try = max_try or max_retry or 1
        self._auto_reset = auto_reset
        self._reset_timeout = reset_timeout
        self._retry_waiting_time = retry_waiting_time
        self._episode_num = episode_num
        known = {name: value for name, value in options.items() if name in FleetOptions._fields}
        unknown = sorted(set(options) - set(known) - {"cfg_type"})
        if unknown:
            _log.warning("EnvSupervisor: the options %s are unknown, and ignored", unknown)
        self._options = FleetOptions(step_timeout=step_timeout, shared_memory=shared_memory, **known)
        if type_ is ChildType.THREAD:
            self._options = self._options._replace(num_workers=0, shared_memory=False)
        self._env_ref = self._env_fn[0]()
        self._env_ref.reset()
        self.observation_space = self._env_ref.observation_space
        self.action_space = self._env_ref.action_space
        self.reward_space = self._env_ref.reward_space
        self._env_ref.close()
        self._fleet: Fleet | None = None
        self._init_states()

    def _init_states(self) -> None:
        self._env_seed: dict[int, int] = {}
        self._unsent_seed: dict[int, int] = {}
        self._env_dynamic_seed: bool | None = None
        self._env_replay_path: list[str] | None = None
        self._env_states: dict[int, EnvState] = {}
        self._reset_param: dict[int, Any] = {}
        self._ready_obs: dict[int, Any] = {}
        self._env_episode_count = dict.fromkeys(range(self.env_num), 0)
        self._num_attempts = dict.fromkeys(range(self.env_num), 0)
        self._requests: dict[
            int, int
        ] = {}  # number of the fleet's request -> number of ours, which it serves
        self._answers: deque[Answer] = deque()  # for `recv`

    # -- what is known ------------------------------------------------------------------------------

    @property
    def env_num(self) -> int:
        """Number of environments."""
        return len(self._env_fn)

    @property
    def closed(self) -> bool:
        """Whether there are no workers."""
        return self._fleet is None

    @property
    def done(self) -> bool:
        """Whether all episodes have ended."""
        return all(state == EnvState.DONE for state in self.env_states.values())

    @property
    def env_states(self) -> dict[int, EnvState]:
        """The state of each environment."""
        return {env_id: self._env_states.get(env_id, EnvState.VOID) for env_id in range(self.env_num)}

    @property
    def ready_obs(self) -> Any:
        """The observations of the environments that run, stacked."""
        observations = [self._ready_obs[env_id] for env_id in sorted(self.ready_obs_id)]
        return tnp.stack([tnp.array(o) for o in observations]) if observations else tnp.array([])

    @property
    def ready_obs_id(self) -> list[int]:
        """The environments that run."""
        return [env_id for env_id, state in self.env_states.items() if state == EnvState.RUN]

    @property
    def method_name_list(self) -> list[str]:
        """Methods of environments that may be called by name."""
        return ["reset", "step", "seed", "close", "enable_save_replay"]

    @property
    def stats(self) -> Stats:
        """Counts of worker exits since the launch, by reason."""
        return self._open_fleet().stats

    def env_state_done(self, env_id: int) -> bool:
        """Return whether the episodes of an environment have ended."""
        return bool(self.env_states[env_id] == EnvState.DONE)

    # -- life ---------------------------------------------------------------------------------------

    def seed(self, seed: Any, dynamic_seed: bool | None = None) -> None:
        """Set the seeds for the first resets after the next launch.

        Args:
            seed: An int gives `seed + i` to environment i; or a list, or a dict by environment.
            dynamic_seed: The second argument of the environments' `seed`; None leaves it out.
        """
        if isinstance(seed, Integral):
            self._env_seed = {env_id: int(seed) + env_id for env_id in range(self.env_num)}
        elif isinstance(seed, list):
            assert len(seed) == self.env_num, f"len(seed) {len(seed)} != env_num {self.env_num}"
            self._env_seed = dict(enumerate(seed))
        elif isinstance(seed, dict):
            self._env_seed = dict(seed)
        else:
            raise TypeError(f"seed: expected an int, a list or a dict, got {type(seed).__name__}")
        self._env_dynamic_seed = dynamic_seed

    def enable_save_replay(self, replay_path: list[str] | str) -> None:
        """Let environments save videos from the next launch on."""
        self._env_replay_path = [replay_path] * self.env_num if isinstance(replay_path, str) else replay_path

    def close(self, timeout: float | None = None) -> None:
        """Close the environments and the workers. The supervisor can be launched again."""
        if self._fleet is not None:
            self._fleet.close()
            self._fleet = None
            self._init_states()

    shutdown = close

    def _open_fleet(self) -> Fleet:
        assert self._fleet is not None, "Env supervisor has closed."
        return self._fleet

    # -- environments -------------------------------------------------------------------------------

    def __getattr__(self, key: str) -> Any:
        """Return an attribute of all environments, as a list."""
        if key.startswith("__") or "_env_ref" not in vars(self):
            raise AttributeError(key)
        if not hasattr(self._env_ref, key):
            raise AttributeError(f"env `{type(self._env_ref)}` doesn't have the attribute `{key}`")
        return self._open_fleet().get(key)

    def get_child_attr(self, proc_id: int, key: str) -> Any:
        """Return an attribute of one environment."""
        return self._open_fleet().get(key, [int(proc_id)])[0]


def _value(member: Any) -> Any:
    return member.value if isinstance(member, Enum) else member


class EnvSupervisor(SupervisorBase):
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
    """

    def launch(self, reset_param: Any = None, block: bool = True) -> None:
        """Start the workers, and reset all environments.

        Args:
            reset_param: Environment -> arguments of its `reset`.
            block: Whether to wait for the observations. Otherwise `recv` returns them.
        """
        assert self.closed, "Please first close the env supervisor before launch it"
        if reset_param is not None:
            assert len(reset_param) == self.env_num
        self._fleet = Fleet(self._env_fn, self.observation_space, self.action_space, self._options)
        self._unsent_seed = dict(self._env_seed)
        self.reset(reset_param, block)

    def reset(self, reset_param: Any = None, block: bool = True) -> None:
        """Reset environments.

        Args:
            reset_param: Environment -> arguments of its `reset`, which later resets take, too; or a list.
                None resets all.
            block: Whether to wait for the observations. Otherwise `recv` returns them.

        Raises:
            RuntimeError: An environment raised `max_try` times. The supervisor is closed.
        """
        self._open_fleet()
        if not reset_param:
            reset_param = {env_id: {} for env_id in range(self.env_num)}
        elif isinstance(reset_param, list):
            reset_param = dict(enumerate(reset_param))
        numbers = set()
        for env_id, parameters in reset_param.items():
            self._reset_param[env_id] = parameters
            if self._env_replay_path is None or self.env_states[env_id] != EnvState.RUN:
                numbers.add(self._begin_reset(env_id))
        if block:
            self._receive_all(numbers)

    def _begin_reset(self, env_id: int, serves: int | None = None, is_renewed: bool = False) -> int:
        """Begin a reset."""
        # Returns the number of the request that it belongs to.
        seed = self._unsent_seed.pop(env_id, None)
        dynamic = () if self._env_dynamic_seed is None else (self._env_dynamic_seed,)
        seeding = None if seed is None else (seed, *dynamic)
        options = ResetOptions(
            parameters=self._reset_param[env_id],
            seeding=seeding,
            is_renewed=is_renewed,
            timeout=self._reset_timeout,
            replay_path=self._env_replay_path[env_id] if self._env_replay_path else None,
        )
        number = self._open_fleet().submit({env_id: options})[env_id]
        self._requests[number] = number if serves is None else serves
        return self._requests[number]

    def step(self, actions: Mapping[int, Any] | list[Any], block: bool = True) -> list[Any] | None:
        """Step environments.

        Args:
            actions: Environment -> its action, or a list.
            block: Whether to wait. Otherwise `recv` returns the results.

        Returns:
            Per action a `treetensor.numpy.ndarray` with obs, reward, done, info and env_id; that of an
            environment which has raised has `info.abnormal` and `info.err`, and the environment was reset.
            None if `block` is False.
        """
        fleet = self._open_fleet()
        given = dict(enumerate(actions)) if isinstance(actions, list) else dict(actions)
        assert given, "Action is empty!"
        numbers = fleet.submit(given)
        self._requests |= {number: number for number in numbers.values()}
        if not block:
            return None
        payloads = self._receive_all(set(numbers.values()))
        return [payloads[number].data for number in numbers.values()]

    def recv(self, ignore_err: bool = False) -> RecvPayload:
        """Wait for the next result of steps and resets that nobody waits for.

        Args:
            ignore_err: Without effect, as in DI-engine: a step that has raised is followed by the result of a
                reset.

        Raises:
            RuntimeError: A reset raised `max_try` times. The supervisor is closed. Or nothing is at work.
        """
        while True:
            while self._answers:
                payload = self._payload(self._answers.popleft())
                if payload.err is None:
                    return payload
            fleet = self._open_fleet()
            if fleet.is_idle:
                raise RuntimeError(
                    "recv: expected a step or a reset at work, got none; call step(block=False)"
                )
            self._answers += fleet.wait()

    def _receive_all(self, numbers: set[int]) -> dict[int, RecvPayload]:
        """Wait for requests and the resets that follow them. The results of others are kept for `recv`."""
        received: dict[int, RecvPayload] = {}
        while not numbers.isdisjoint(self._requests.values()):
            for answer in self._open_fleet().wait():
                served = self._requests[answer.number]
                if served not in numbers:
                    self._answers.append(answer)
                    continue
                payload = self._payload(answer)
                if served == answer.number:
                    received[served] = payload
        return received

    def _payload(self, answer: Answer) -> RecvPayload:
        """Note a result, begin what follows, and return it in DI-engine's form."""
        served = self._requests.pop(answer.number)
        handle = self._reset_done if answer.method == "reset" else self._step_done
        data = handle(answer, served)
        return RecvPayload(
            proc_id=answer.env_id,
            req_id=str(answer.number),
            method=answer.method,
            data=data,
            err=answer.error,
        )

    def _reset_done(self, answer: Answer, served: int) -> Any:
        env_id = answer.env_id
        if answer.error is None:
            self._num_attempts[env_id] = 0
            self._env_states[env_id] = EnvState.RUN
            self._ready_obs[env_id] = answer.observation
            return answer.observation
        self._env_states[env_id] = EnvState.ERROR
        self._num_attempts[env_id] += 1
        if self._num_attempts[env_id] >= self._max_try:
            self.close()
            raise RuntimeError(
                f"Env {env_id} reset has exceeded max_try({self._max_try}), and the latest exception is: "
                f"{answer.error}"
            ) from answer.error
        time.sleep(self._retry_waiting_time or 0)
        self._begin_reset(env_id, served, is_renewed=self._retry_type is EnvRetryType.RENEW)
        return None

    def _step_done(self, answer: Answer, served: int) -> Any:
        env_id, timestep = answer.env_id, answer.timestep
        if timestep is None:  # it has raised, or its episode was lost with its worker
            self._env_states[env_id] = EnvState.ERROR
            self._begin_reset(env_id, served)
            error = answer.error or RuntimeError("the episode was lost with its worker")
            return as_tree(env_id, None, None, None, {"abnormal": True, "err": error})
        _, reward, done, info = timestep[:4]
        if done:
            self._env_states[env_id] = EnvState.DONE
            self._env_episode_count[env_id] += 1
            if self._env_episode_count[env_id] < self._episode_num and self._auto_reset:
                self._begin_reset(env_id, served)
        self._ready_obs[env_id] = answer.observation
        return as_tree(env_id, answer.observation, reward, done, info)
