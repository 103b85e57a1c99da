"""DI-engine's managers with environments and calls that fail. Needs the extra `ding`."""

from __future__ import annotations

import random
import signal
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from ding.envs import BaseEnvTimestep, DingEnvWrapper
from ding.envs.env_manager import SyncSubprocessEnvManager as Peer
from ding.envs.env_manager.base_env_manager import EnvState
from test_ding import Scripted, close, kill_a_worker, manager, wait_for

from planvec.vector.ding import AsyncSubprocessEnvManager, EnvSupervisor, SyncSubprocessEnvManager
from planvec.vector.ding_env import DingEnv, ResetOptions, as_gymnasium, time_limit

MANAGERS = (SyncSubprocessEnvManager, Peer)


class Drawing(Scripted):
    """Draws from the global generator of Python, and has states that can be saved."""

    def __init__(self) -> None:
        super().__init__()
        self.time_id = b""

    def seed(self, seed: int, dynamic_seed: Any = "none") -> None:
        random.seed(seed)

    def reset(self, stat: Any = None) -> Any:
        return np.full(3, random.random(), np.float32)

    def step(self, action: Any) -> BaseEnvTimestep:
        if isinstance(action, float):
            time.sleep(action)
        done = random.random() < 0.2
        return BaseEnvTimestep(np.full(3, random.random(), np.float32), np.ones(1, np.float32), done, {})


class Fragile(Scripted):
    """Fails in its first reset until somebody closes it, or makes another one."""

    def __init__(self, flag: Path, *, may_be_closed: bool = True) -> None:
        super().__init__()
        self._flag, self._may_be_closed = flag, may_be_closed
        self._is_broken = not flag.exists()
        self.replay: Any = None

    def enable_save_replay(self, path: str) -> None:
        self.replay = path

    def reset(self, stat: Any = None) -> Any:
        if self._is_broken:
            self._flag.touch()
            raise RuntimeError("it is broken")
        return super().reset(stat)

    def close(self) -> None:
        if self._is_broken and not self._may_be_closed:
            raise RuntimeError("it cannot be closed")
        self._is_broken = False


class Hanging(Scripted):
    """Hangs in its second reset."""

    def reset(self, stat: Any = None) -> Any:
        return super().reset("block" if self._resets else None)


class Reusing(Scripted):
    """Returns the same array and the same dict in every step."""

    def __init__(self) -> None:
        super().__init__()
        self._reward, self._info = np.zeros(1, np.float32), {"k": 0}

    def step(self, action: Any) -> BaseEnvTimestep:
        self._reward[0] += 1
        self._info["k"] += 1
        return BaseEnvTimestep(np.zeros(3, np.float32), self._reward, False, self._info)


def draws(cls: Any, num_steps: int = 30, kills: tuple[int, ...] = (), **config: Any) -> list[Any]:
    env = manager(cls, 2, env=Drawing, **config)
    env.seed(5)
    env.launch()
    seen = []
    for index in range(num_steps):
        while len(env.ready_obs) < 2:
            time.sleep(0.01)
        if index in kills:
            kill_a_worker(env)
        before = {env_id: observation.tolist() for env_id, observation in env.ready_obs.items()}
        steps = env.step({0: 1, 1: 1})
        seen.append((before, [(steps[i].obs.tolist(), bool(steps[i].done)) for i in (0, 1)]))
    close(env)
    return seen


@pytest.fixture(scope="module")
def peers_draws() -> list[Any]:
    return draws(Peer)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_each_environment_has_the_global_generator_of_python_to_itself(
    num_workers: int, peers_draws: list[Any]
) -> None:
    assert sum(done for _, steps in peers_draws for _, done in steps) > 5
    state = random.getstate()
    kills = (4, 20) if num_workers else ()
    assert (
        draws(SyncSubprocessEnvManager, num_workers=num_workers, kills=kills, on_crash="restore")
        == peers_draws
    )
    assert random.getstate() == state


def test_the_limit_of_a_step_covers_the_reset_in_place() -> None:
    env = manager(num_envs=1, env=Hanging, reset_inplace=True, step_timeout=0.5, on_crash="reset")
    env.launch()
    with pytest.raises(TimeoutError, match="step"):
        env.step({0: "end"})
    assert env.closed


@pytest.mark.parametrize("wrong", [{0: "oops"}, {7: {}}])
def test_wrong_parameters_of_a_reset_change_nothing(wrong: Any) -> None:
    env = manager()
    env.launch({i: {"stat": "a"} for i in range(3)})
    with pytest.raises((AssertionError, KeyError), match="reset_param: expected"):
        env.reset({1: {"stat": "b"}, **wrong})
    assert env._env_states == dict.fromkeys(range(3), EnvState.RUN)
    env.reset()
    assert env._stat == ["a"] * 3
    env.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_parameters_that_cannot_be_copied_change_no_state(num_workers: int) -> None:
    env = manager(num_workers=num_workers)
    env.seed(3)
    env.launch()
    env.seed(4)
    with pytest.raises(TypeError, match="pickle"):
        env.reset({0: {"stat": threading.Lock()}})
    env.reset({0: {}})
    assert env._seed[0] == (4, "none")  # the seed was not lost
    env.close()


@pytest.mark.parametrize("actions", [{0: threading.Lock(), 1: 1}, {0: 1, 1: (i for i in range(3))}])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_actions_that_cannot_be_copied_step_nothing(actions: Any, num_workers: int) -> None:
    env = manager(num_workers=num_workers)
    env.launch()
    with pytest.raises(TypeError, match="pickle"):
        env.step(actions)
    assert list(env.ready_obs) == [0, 1, 2]
    steps = env.step({0: 1, 1: 1, 2: 1})
    assert [steps[i].obs.tolist() for i in range(3)] == [[1, 1, 1]] * 3
    env.close()


@pytest.mark.parametrize("cls", MANAGERS)
def test_an_environment_is_closed_after_a_reset_that_raised(cls: Any, tmp_path: Path) -> None:
    make = partial(Fragile, tmp_path / "flag")
    env = manager(cls, 1, env=make, max_retry=2, retry_waiting_time=0.0, on_crash="reset")
    env.launch()
    assert env.ready_env == [0]
    close(env)


@pytest.mark.parametrize("cls", MANAGERS)
def test_an_environment_is_renewed_even_if_it_cannot_be_closed_and_saves_videos_again(
    cls: Any, tmp_path: Path
) -> None:
    make = partial(Fragile, tmp_path / "flag", may_be_closed=False)
    retries = {"max_retry": 2, "retry_type": "renew", "retry_waiting_time": 0.0}
    env = manager(cls, 1, env=make, on_crash="reset", **retries)
    env.enable_save_replay("videos")
    env.launch()
    assert env.replay == ["videos"]
    close(env)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_timesteps_keep_their_rewards_and_infos(num_workers: int) -> None:
    env = manager(num_envs=1, env=Reusing, num_workers=num_workers, on_crash="reset")
    env.launch()
    kept = env.step({0: 1})[0]
    env.step({0: 1})
    assert (kept.reward.tolist(), kept.info["k"]) == ([1], 1)
    env.close()


def test_the_result_of_a_step_before_set_states_is_dropped() -> None:
    env = manager(AsyncSubprocessEnvManager, 2, env=Drawing, num_workers=2, wait_num=1, step_wait_timeout=0.0)
    env.seed(5)
    env.launch()
    states = env.get_states()
    first = env.step({0: 0.0, 1: 0.3})
    assert list(first) == [0]
    wait_for(lambda: env._handle(env._fleet.collect()) or env._stepping[1] is not None)
    env.set_states(states)
    assert env.ready_env == [0, 1]
    assert list(env.step({1: 0.0})) == [1]
    assert env.step({0: 0.0})[0].obs.tolist() == first[0].obs.tolist()
    env.close()


def test_a_supervisor_that_is_made_by_a_configuration_warns_of_nothing(caplog: Any) -> None:
    EnvSupervisor(env_fn=[partial(Scripted, 0)], cfg_type="EnvSupervisorDict")
    assert not caplog.records


def test_spaces_may_have_classes_as_dtypes() -> None:
    env = DingEnvWrapper(gymnasium.make("Pendulum-v1"))
    env.reset()
    env.observation_space.dtype = np.float32  # as DI-engine does for MuJoCo
    space = as_gymnasium(env.observation_space)
    assert isinstance(space, gymnasium.spaces.Box)
    assert space.dtype == np.float32


def test_actions_of_several_numbers_keep_their_first_numbers_and_their_dtype() -> None:
    space = as_gymnasium(gymnasium.spaces.MultiDiscrete([3, 3], dtype=np.int8, start=[5, 7]))
    assert space == gymnasium.spaces.MultiDiscrete([3, 3], dtype=np.int8, start=[5, 7])
    assert space.dtype == np.int8


class Slow(Scripted):
    """Takes a second to be seeded, closed or reset."""

    def __init__(self, slow: str) -> None:
        super().__init__()
        self._slow = slow

    def seed(self, seed: int, dynamic_seed: Any = "none") -> None:
        self._wait("seed")

    def close(self) -> None:
        self._wait("close")

    def reset(self, stat: Any = None) -> Any:
        self._wait("reset")
        return np.zeros(3, np.float32)

    def _wait(self, method: str) -> None:
        if method == self._slow:
            threading.Event().wait(1.0)


@pytest.mark.parametrize("slow", ["seed", "close", "reset"])
def test_the_limit_of_a_reset_holds_for_all_that_a_reset_does(slow: str) -> None:
    env = DingEnv(partial(Slow, slow), None, None, None, False)
    with pytest.raises(TimeoutError, match="reset: expected at most 0.2 s"):
        env.reset(options={"reset": ResetOptions(seeding=(1,), timeout=0.2, is_renewed=True)})


def test_a_limit_leaves_the_timer_of_the_user_running() -> None:
    rung = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda *_: rung.set())
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with time_limit(0.1, "step"):
            pass
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.3
        with pytest.raises(TimeoutError, match=r"step: expected at most 0.1 s"), time_limit(0.1, "step"):
            threading.Event().wait(20)
        assert rung.wait(20)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
