"""Defines what `EnvSupervisor` knows of its environments, and how it starts and ends."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from numbers import Integral
from typing import Any

import treetensor.numpy as tnp
from ding.envs.env_manager.env_supervisor import EnvRetryType, EnvState
from ding.framework.supervisor import ChildType

from planvec.backends import Stats
from planvec.vector.ding.fleet import Answer, Fleet, FleetOptions

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
