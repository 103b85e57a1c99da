"""Defines the environment managers of DI-engine over few workers that survive crashes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MethodType
from typing import Any, ClassVar

import numpy as np
import treetensor.numpy as tnp
from ding.envs.env_manager.base_env_manager import BaseEnvManager, EnvState
from ding.utils import ENV_MANAGER_REGISTRY, make_key_as_identifier, remove_illegal_item
from easydict import EasyDict

from planvec.vector.ding.fleet import Fleet, FleetFace, FleetOptions, Task
from planvec.vector.ding_env import ResetOptions, is_abnormal, render_frame

#     VOID -launch-> INIT -reset-> RUN -step-> RUN | RESET (in the background) | NEED_RESET | DONE | ERROR
#
# Attributes that a manager does not have are asked of its environments, as in DI-engine, so it has few.

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
class AsyncSubprocessEnvManager(FleetFace, BaseEnvManager):  # type: ignore[misc]
    """Steps environments, and returns when some are done, in place of DI-engine's manager of that name.

    Each worker has several environments, and steps them one after another. Where environments wait for
    something outside, such as another program, one worker per environment is better: `num_workers`.

    Args:
        env_fn: One function per environment, which makes it.
        cfg: The configuration: `default_config()`, with the keys of DI-engine and these of planvec:
            num_workers, worker processes (0: none; None: one per core but one);
            timeout, seconds that an operation may take before its worker is killed (`step_timeout` interrupts
            Python code without that);
            max_restarts, how often an operation is retried after a worker exited on it;
            on_crash, "restore", "reset" or "raise" (None: "restore" if states are exact, else "reset", where
            the environments of a worker that exits return abnormal timesteps);
            max_worker_rss, bytes of memory above which a worker is replaced;
            wait_for_resets, whether `ready_obs` waits for all resets, which makes the interaction
            reproducible; otherwise, as in DI-engine, for one environment. False here, True for the
            synchronous managers.

    Inherited from DI-engine's `BaseEnvManager`: `launch`, `seed`, `enable_save_replay`,
    `env_state_done`, `random_action`, `default_config`, and the properties `env_num`, `env_ref`, `done`,
    `closed`, `method_name_list`, `observation_space`, `action_space` and `reward_space`.

    Raises:
        AssertionError: A configuration or a call does not fit, as in DI-engine.
    """

    config: ClassVar[dict[str, Any]] = {
        **_COMMON,
        "wait_num": 2,
        "step_wait_timeout": 0.01,
        "wait_for_resets": False,
    }

    def __init__(self, env_fn: list[Callable[[], Any]], cfg: EasyDict | None = None) -> None:
        config = EasyDict({**self.config, **(cfg or {})})
        super().__init__(env_fn, config)
        assert config.auto_reset or not config.reset_inplace, (
            "reset_inplace is unavailable when auto_reset=False."
        )
        self._connect_timeout = config.connect_timeout
        self._reset_inplace = config.reset_inplace
        self._env_dynamic_seed = None
        self._stepping: dict[int, Task | None] = {}  # environment -> the result of its step

    # -- life ---------------------------------------------------------------------------------------

    def _create_state(self) -> None:
        """Start the workers. Called by `launch`."""
        ids = range(self._env_num)
        config = self._cfg
        self._env_episode_count = dict.fromkeys(ids, 0)
        self._ready_obs: dict[int, Any] = dict.fromkeys(ids)
        self._reset_param: dict[int, Any] = {env_id: {} for env_id in ids}
        self._num_attempts = dict.fromkeys(ids, 0)
        self._stepping = {}
        options = {name: config[name] for name in FleetOptions._fields if name in config}
        options["step_timeout"] = self._step_timeout
        self._fleet = Fleet(
            self._env_fn, self._observation_space, self._action_space, FleetOptions(**options)
        )
        self._env_states = dict.fromkeys(ids, EnvState.INIT)
        self._closed = False

    def close(self) -> None:
        """Close the environments and the workers. The manager can be launched again."""
        if self._closed:
            return
        self._closed = True
        self._env_states = dict.fromkeys(range(self._env_num), EnvState.VOID)
        assert self._fleet is not None
        self._fleet.close()

    # -- what is ready ------------------------------------------------------------------------------

    @property
    def ready_env(self) -> list[int]:
        """The environments that can be stepped."""
        return [
            env_id
            for env_id, state in self._env_states.items()
            if state == EnvState.RUN and env_id not in self._stepping
        ]

    @property
    def ready_obs_id(self) -> list[int]:
        """The environments that can be stepped."""
        return self.ready_env

    @property
    def ready_obs(self) -> Any:
        """The observations of the environments that can be stepped. Waits until there is one."""
        fleet = self._open_fleet()
        self._handle(fleet.collect())
        while True:
            states = self._env_states.values()
            waits_for_resets = self._cfg.wait_for_resets and EnvState.RESET in states
            if self.done or (EnvState.RUN in states and not waits_for_resets):
                return {env_id: self._ready_obs[env_id] for env_id in self.ready_env}
            if fleet.is_idle:
                raise RuntimeError(
                    "ready_obs: expected an environment that runs or is being reset, got "
                    f"{self._env_states}; call reset"
                )
            self._handle(fleet.wait())

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """The frames of the environments that can be stepped."""
        ids = self.ready_env
        frames = self._open_fleet().values("apply", (partial(render_frame, "rgb_array"),), ids)
        return dict(zip(ids, frames, strict=True))

    # -- resets -------------------------------------------------------------------------------------

    def reset(self, reset_param: Mapping[int, Mapping[str, object] | None] | None = None) -> None:
        """Begin episodes, and wait for the observations.

        Args:
            reset_param: Environment -> arguments of its `reset`, which later resets take, too; None for none.
                Without it, all environments are reset with those of their last reset.

        Raises:
            AssertionError: The arguments of an environment are no dict.
            KeyError: There is no such environment.
            RuntimeError: An environment raised `max_retry` times. The manager is closed.
        """
        self._check_closed()
        if reset_param is None:
            ids = list(range(self._env_num))
        else:
            ids = list(reset_param)
            for env_id, parameters in reset_param.items():
                if env_id not in self._env_states:
                    text = f"expected environments 0 to {self._env_num - 1}, got {env_id}"
                    raise KeyError(f"reset_param: {text}")
                if not (parameters is None or isinstance(parameters, dict)):
                    raise AssertionError(
                        "reset_param: expected a dict of keyword arguments, or None, for environment "
                        f"{env_id}, got {parameters!r}"
                    )
            self._reset_param.update(reset_param)
        if self._env_replay_path is not None:
            ids = [env_id for env_id in ids if self._env_states[env_id] != EnvState.RUN]
        for env_id in ids:
            self._stepping.pop(env_id, None)
            self._num_attempts[env_id] = 0
        self._finish_resets(ids)
        self._begin_resets(ids)
        self._finish_resets(ids)

    def _begin_resets(self, ids: Sequence[int], is_renewed: bool = False) -> None:
        paths = self._env_replay_path or [None] * self._env_num
        limits = [limit for limit in (self._reset_timeout, self._connect_timeout) if limit is not None]
        dynamic = () if self._env_dynamic_seed is None else (self._env_dynamic_seed,)
        resets = [
            ResetOptions(
                parameters=self._reset_param[env_id],
                seeding=None if self._env_seed[env_id] is None else (self._env_seed[env_id], *dynamic),
                is_renewed=is_renewed,
                closes_on_error=True,
                timeout=min(limits, default=None),
                replay_path=paths[env_id],
            )
            for env_id in ids
        ]
        self._open_fleet().submit(zip(ids, resets, strict=True))
        for env_id in ids:
            self._env_states[env_id] = EnvState.RESET
            self._env_seed[env_id] = None  # `seed` is called once

    def _finish_resets(self, ids: Sequence[int]) -> None:
        while any(self._env_states[env_id] == EnvState.RESET for env_id in ids):
            assert not self._open_fleet().is_idle, "an environment is in the state RESET, and is not reset"
            self._handle(self._open_fleet().wait())

    def _handle(self, tasks: Sequence[Task]) -> None:
        """Note what is done."""
        for task in tasks:
            env_id, error = task.env_id, task.error
            if task.method == "step":
                if env_id in self._stepping:  # else a reset has cancelled it
                    self._stepping[env_id] = task
                continue
            if error is None:
                self._env_states[env_id] = EnvState.RUN
                self._ready_obs[env_id] = task.observation
                continue
            self._num_attempts[env_id] += 1
            if self._num_attempts[env_id] < self._max_retry:
                time.sleep(self._retry_waiting_time)
                self._begin_resets([env_id], is_renewed=self._retry_type == "renew")
                continue
            self._env_states[env_id] = EnvState.ERROR
            self.close()
            raise RuntimeError(
                f"Env {env_id} reset has exceeded max retries({self._max_retry}), and the latest exception "
                f"is: {error}"
            ) from error

    # -- states -------------------------------------------------------------------------------------

    def get_states(self, env_ids: Sequence[int] | None = None) -> np.ndarray:
        """Return the exact states of environments, `[B]`. Without `env_ids`, of all.

        Raises:
            UnsupportedEnvError: The states of an environment are not exact. The message says why.
        """
        return self._open_fleet().get_states(env_ids)

    def set_states(self, states: object, env_ids: Sequence[int] | None = None) -> None:
        """Put environments into states `[B]`, from which they can be stepped. Without `env_ids`, all.

        What no state contains stays what it is: the number of episodes, and the next seeds.

        Raises:
            InvalidBatchError: They are no states of these environments.
        """
        fleet = self._open_fleet()
        ids = list(range(self._env_num)) if env_ids is None else list(env_ids)
        observations = fleet.set_states(states, ids)
        for index, env_id in enumerate(ids):
            self._stepping.pop(env_id, None)  # the result of a step before
            self._ready_obs[env_id] = fleet.row_of(observations, index)
            self._env_states[env_id] = EnvState.RUN

    def branch(self, env_id: int, into: Sequence[int]) -> None:
        """Put environments into the state of one of them."""
        self.set_states(self.get_states([env_id])[0], into)

    # -- environments -------------------------------------------------------------------------------

    def __getattr__(self, key: str) -> Any:
        """Return an attribute of all environments, as a list."""
        env = None if key.startswith("__") or hasattr(type(self), key) else vars(self).get("_env_ref")
        if isinstance(getattr(env, key, None), MethodType) and key not in self.method_name_list:
            raise RuntimeError(f"env getattr doesn't support method({key}), please override method_name_list")
        return super().__getattr__(key)

    def reward_shaping(self, env_id: int, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return transitions with the rewards that an environment gives them."""
        call: tuple[Any, ...] = ("reward_shaping", (transitions,), {})
        shaped: list[dict[str, Any]] = self._open_fleet().values("call", call, [env_id])[0]
        return shaped

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Let an environment save a figure."""
        self._open_fleet().values("call", ("enable_save_figure", (figure_path,), {}), [env_id])

    # -- steps --------------------------------------------------------------------------------------

    def step(self, actions: Mapping[int, object]) -> Any:
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
        fleet, config = self._open_fleet(), self._cfg
        self._handle(fleet.collect())
        assert all(self._env_states[env_id] == EnvState.RUN for env_id in actions), (
            f"step: expected environments in the state RUN, got {self._env_states}; take those of ready_obs"
        )
        again = [env_id for env_id in actions if env_id in self._stepping]
        assert not again, f"step: environments {again} are being stepped; take those of ready_obs"
        fleet.submit(actions.items(), in_parts=config.step_wait_timeout is not None)
        self._stepping.update(dict.fromkeys(actions))
        done: dict[int, Task] = {}
        # Results of which all end episodes would leave no environment to step: then it waits for others.
        while len(done) < len(self._stepping) and all(
            task.error is None and task.full_timestep().done for task in done.values()
        ):
            num_wanted = len(done) + min(config.wait_num, len(actions), len(self._stepping) - len(done))
            self._await_steps(num_wanted, config.step_wait_timeout, done)
        # In the order of the calls, not of the arrival, which differs from run to run.
        tasks = [done[env_id] for env_id in self._stepping if env_id in done]
        for task in tasks:
            del self._stepping[task.env_id]
        failed = [task for task in tasks if task.error is not None]
        if failed:
            for task in failed:
                self._env_states[task.env_id] = EnvState.ERROR
            self.close()
            assert failed[0].error is not None
            raise failed[0].error
        timesteps = {task.env_id: task.full_timestep() for task in tasks}
        self._begin_resets([i for i, timestep in timesteps.items() if self._has_ended(i, timestep)])
        return timesteps

    def _await_steps(self, num_wanted: int, seconds: float | None, done: dict[int, Task]) -> None:
        """Wait for a number of steps, and some seconds for the others. Without `seconds`, for all."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            done.update((i, task) for i, task in self._stepping.items() if task is not None)
            left = None if deadline is None else deadline - time.monotonic()
            is_enough = len(done) >= num_wanted
            if len(done) == len(self._stepping) or (is_enough and left is not None and left <= 0):
                return
            self._handle(self._open_fleet().wait(left if is_enough else None))

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
            info = make_key_as_identifier(remove_illegal_item(info))  # those keys that are identifiers
            tree = {"obs": observation, "reward": reward, "done": done, "info": info, "env_id": env_id}
            trees.append(tnp.array(tree))
        return trees
