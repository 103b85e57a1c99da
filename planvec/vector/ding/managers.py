"""Defines the environment managers of DI-engine over few workers that survive crashes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, ClassVar

import treetensor.numpy as tnp
from ding.envs.env_manager.base_env_manager import EnvState
from ding.utils import ENV_MANAGER_REGISTRY, remove_illegal_item

from planvec.vector.ding.episodes import EpisodeManager
from planvec.vector.ding.fleet import Answer
from planvec.vector.ding.timesteps import as_tree, timestep_of
from planvec.vector.ding_env import is_abnormal

_COMMON = {
    "episode_num": float("inf"),
    "max_retry": 1,
    "step_timeout": None,
    "auto_reset": True,
    "retry_type": "reset",
    "reset_timeout": None,
    "retry_waiting_time": 0.1,
    "shared_memory": True,
    "copy_on_get": True,
    "context": "template",
    "connect_timeout": 60,
    "reset_inplace": False,
    # what planvec adds
    "wait_for_resets": True,
    "num_workers": None,
    "timeout": None,
    "max_restarts": 3,
    "on_crash": None,
    "max_worker_rss": None,
}


@ENV_MANAGER_REGISTRY.register("planvec_async_subprocess")
class AsyncSubprocessEnvManager(EpisodeManager):
    """Steps environments, and returns when some are done, in place of DI-engine's manager of that name.

    Each worker has several environments, and steps them one after another. Where environments wait for
    something outside, such as another program, one worker per environment is better: `num_workers`.

    Args:
        env_fn: One function per environment, which makes it.
        cfg: The configuration: `default_config()`, with the keys of DI-engine and these of planvec:
            num_workers, worker processes (0: none; None: one per core);
            timeout, seconds that an operation may take before its worker is killed (`step_timeout` interrupts
            Python code without that);
            max_restarts, how often an operation is retried after a worker exited on it;
            on_crash, "restore", "reset" or "raise" (None: "restore" if states are exact, else "reset", where
            the environments of a worker that exits return abnormal timesteps);
            max_worker_rss, bytes of memory above which a worker is replaced;
            wait_for_resets, whether `ready_obs` waits for all resets, which makes the interaction
            reproducible; otherwise, as in DI-engine, for one environment. False here, True for the
            synchronous managers.

    Raises:
        AssertionError: A configuration or a call does not fit, as in DI-engine.
    """

    config: ClassVar[dict[str, Any]] = {
        **_COMMON,
        "wait_num": 2,
        "step_wait_timeout": 0.01,
        "wait_for_resets": False,
    }

    # -- steps --------------------------------------------------------------------------------------

    def step(self, actions: Mapping[int, Any]) -> Any:
        """Step environments.

        Args:
            actions: Environment -> its action.

        Returns:
            Environment -> its timestep: of at least `wait_num` environments, and of more if they are done
            within `step_wait_timeout` seconds. Later calls return the others.

        Raises:
            AssertionError: The manager is closed, or an environment is not ready.
            Exception: What an environment has raised. The manager is closed.
        """
        stepped = self._begin_steps(actions)
        config = self._cfg
        answers: dict[int, Answer] = {}
        while True:
            num_left = len(self._stepping) - len(answers)
            self._await_steps(min(config.wait_num, len(stepped), num_left), config.step_wait_timeout, answers)
            is_all = len(answers) == len(self._stepping)
            if is_all or any(_is_going_on(answer) for answer in answers.values()):
                # In the order of the calls, not of the arrival, which differs from run to run.
                return self._finish_steps({i: answers[i] for i in self._stepping if i in answers})

    def _begin_steps(self, actions: Mapping[int, Any]) -> list[int]:
        self._check_closed()
        self._handle(self._open_fleet().collect())
        ids = list(actions)
        assert all(self._env_states[env_id] == EnvState.RUN for env_id in ids), (
            f"step: expected environments in the state RUN, got {self._env_states}; take those of ready_obs"
        )
        again = [env_id for env_id in ids if env_id in self._stepping]
        assert not again, f"step: environments {again} are being stepped; take those of ready_obs"
        waits_for_all = self._cfg.step_wait_timeout is None
        self._open_fleet().submit(actions, in_parts=not waits_for_all)
        self._stepping.update(dict.fromkeys(ids))
        return ids

    def _await_steps(self, num_wanted: int, seconds: float | None, answers: dict[int, Answer]) -> None:
        """Wait for a number of steps, and some seconds for the others. Without `seconds`, for all."""
        deadline = None if seconds is None else time.monotonic() + seconds
        num_before = len(answers)
        while True:
            answers.update((i, answer) for i, answer in self._stepping.items() if answer is not None)
            num_new = len(answers) - num_before
            if len(answers) == len(self._stepping):
                return
            left = None if deadline is None else deadline - time.monotonic()
            if num_new >= num_wanted and left is not None and left <= 0:
                return
            is_enough = num_new >= num_wanted
            self._handle(self._open_fleet().wait(left if is_enough else None))

    def _finish_steps(self, answers: Mapping[int, Answer]) -> dict[int, Any]:
        """Return timesteps, and begin what follows the ends of episodes."""
        for env_id in answers:
            del self._stepping[env_id]
        failed = [answer for answer in answers.values() if answer.error is not None]
        if failed:
            for answer in failed:
                self._env_states[answer.env_id] = EnvState.ERROR
            self.close()
            assert failed[0].error is not None
            raise failed[0].error
        timesteps, ended = {}, []
        for env_id, answer in answers.items():
            timesteps[env_id] = timestep_of(answer)
            if self._has_ended(env_id, timesteps[env_id]):
                ended.append(env_id)
        self._begin_resets(ended)
        return timesteps

    def _has_ended(self, env_id: int, timestep: Any) -> bool:
        """Note the result of a step. Returns whether the environment is to be reset now."""
        if is_abnormal(timestep.info):
            self._env_states[env_id] = EnvState.ERROR
            return False
        self._ready_obs[env_id] = timestep.obs
        if not timestep.done:
            return False
        self._env_episode_count[env_id] += 1
        if self._env_episode_count[env_id] >= self._episode_num:
            self._env_states[env_id] = EnvState.DONE
        elif not self._auto_reset:
            self._env_states[env_id] = EnvState.NEED_RESET
        elif not self._reset_inplace:
            self._num_attempts[env_id] = 0
            return True
        return False


@ENV_MANAGER_REGISTRY.register("planvec_subprocess")
class SyncSubprocessEnvManager(AsyncSubprocessEnvManager):
    """Steps environments, and returns when all are done, in place of DI-engine's manager of that name.

    Arguments as for `AsyncSubprocessEnvManager`.
    """

    config: ClassVar[dict[str, Any]] = {
        **_COMMON,
        "wait_num": float("inf"),
        "step_wait_timeout": None,
    }


@ENV_MANAGER_REGISTRY.register("planvec_subprocess_v2")
class SubprocessEnvManagerV2(SyncSubprocessEnvManager):
    """Steps environments with trees of arrays, in place of DI-engine's manager of that name.

    Arguments as for `AsyncSubprocessEnvManager`.
    """

    @property
    def ready_obs(self) -> Any:
        """The observations of the environments that can be stepped, stacked. Waits until there is one."""
        return tnp.stack([tnp.array(observation) for observation in super().ready_obs.values()])

    def step(self, actions: Any) -> list[Any]:
        """Step the environments that are ready.

        Args:
            actions: One action per environment of `ready_obs_id`: a list, or an array.

        Returns:
            Per environment a `treetensor.numpy.ndarray` with obs, reward, done, info and env_id.
        """
        if isinstance(actions, tnp.ndarray):
            actions = [action.squeeze(0) for action in tnp.split(actions, actions.shape[0])]
        timesteps = super().step(dict(zip(self.ready_obs_id, actions, strict=False)))
        trees = []
        for env_id, timestep in timesteps.items():
            observation, reward, done, info = timestep[:4]
            trees.append(as_tree(env_id, observation, reward, done, remove_illegal_item(info)))
        return trees


def _is_going_on(answer: Answer) -> bool:
    """Return whether an episode goes on after a step, or the step has failed."""
    return answer.error is not None or not timestep_of(answer).done
