"""Defines DI-engine's `EnvSupervisor` over few workers that survive crashes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ding.envs.env_manager.env_supervisor import EnvRetryType, EnvState
from ding.framework.supervisor import RecvPayload

from planvec.vector.ding.fleet import Answer, Fleet
from planvec.vector.ding.supervisor_base import SupervisorBase
from planvec.vector.ding.timesteps import as_tree
from planvec.vector.ding_env import ResetOptions


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
        """Begin a reset.

        Args:
            env_id: The environment.
            serves: The number of the request that it belongs to; None for one of its own.
            is_renewed: Whether the environment is made anew.

        Returns:
            The number of the request that it belongs to.
        """
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
