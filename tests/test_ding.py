"""DI-engine's environment managers, held against its own. Needs the extra `ding`."""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from ding.envs import BaseEnvTimestep, DingEnvWrapper
from ding.envs.env_manager import BaseEnvManager, create_env_manager, get_env_manager_cls
from ding.envs.env_manager import EnvSupervisor as PeerSupervisor
from ding.envs.env_manager import SubprocessEnvManagerV2 as PeerV2
from ding.envs.env_manager import SyncSubprocessEnvManager as Peer
from ding.envs.env_manager.base_env_manager import EnvState
from ding.framework.supervisor import ChildType, SendPayload
from easydict import EasyDict
from methods import METHODS

from planvec.errors import UnsupportedEnvError, WorkerCrashedError
from planvec.vector.ding import (
    AsyncSubprocessEnvManager,
    EnvSupervisor,
    SubprocessEnvManagerV2,
    SyncSubprocessEnvManager,
)

BOX = gymnasium.spaces.Box(-10, 10, (3,), np.float32)


def cartpole() -> Any:
    return DingEnvWrapper(gymnasium.make("CartPole-v1"))


class Scripted:
    """An environment that does what its action or its reset says."""

    def __init__(self, number: int = 0) -> None:
        self.observation_space, self.action_space = BOX, gymnasium.spaces.Discrete(2)
        self.reward_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
        self.time_id = os.urandom(8)
        self._seed: Any = None
        self._stat: Any = None
        self._name = f"name{number}"
        self._data_count = 0
        self._resets = 0
        self.draws = np.zeros(0)

    def seed(self, seed: int, dynamic_seed: Any = "none") -> None:
        self._seed = seed, dynamic_seed
        np.random.seed(seed)  # noqa: NPY002

    def reset(self, stat: Any = None) -> Any:
        self._stat = stat
        self._resets += 1
        if stat == "error" or (stat == "error_at_2" and self._resets == 2):
            raise RuntimeError("the reset failed")
        if stat == "block":
            time.sleep(100)
        if isinstance(stat, (int, float)):
            time.sleep(stat)
        self.draws = np.random.rand(2)  # noqa: NPY002
        return np.zeros(3, np.float32)

    def step(self, action: Any) -> BaseEnvTimestep:
        self._data_count += 1
        info: dict[str, Any] = {"name": self._name}
        if isinstance(action, float):
            time.sleep(action)
        match action:
            case "error":
                raise KeyError("the step failed")
            case "abnormal":
                return BaseEnvTimestep(None, None, True, {"abnormal": True})
            case "block":
                time.sleep(100)
            case "exit":
                os._exit(3)
            case "small":
                return BaseEnvTimestep(np.zeros(1, np.float32), np.zeros(1, np.float32), False, info)
        observation = np.full(3, self._data_count, np.float32)
        return BaseEnvTimestep(observation, np.ones(1, np.float32), action == "end", info)

    def close(self) -> None:
        pass

    def shape_rewards(self) -> None:
        pass

    def reward_shaping(self, transitions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**transition, "by": self._name} for transition in transitions]


def manager(cls: Any = SyncSubprocessEnvManager, num_envs: int = 3, env: Any = None, **config: Any) -> Any:
    env_fns = [env] * num_envs if env else [partial(Scripted, number) for number in range(num_envs)]
    defaults = {"on_crash": "reset"} if env is None else {}
    return cls(env_fns, EasyDict({**cls.default_config(), **defaults, **config}))


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def close(env: Any) -> None:
    """Close a manager once no reset runs in the background: `close` of DI-engine's reads the same pipe."""
    wait_for(lambda: len(env.ready_obs) == env.env_num)
    try:
        env.close()
    except (EOFError, OSError):
        if not type(env).__module__.startswith("ding."):
            raise
        for child in multiprocessing.active_children():  # DI-engine's own were not all ended
            child.terminate()
            child.join()


def kill_a_worker(env: Any, index: int = 0) -> None:
    os.kill(env._fleet._engine._processes.workers[index].pid, signal.SIGKILL)


def play(env: Any, num_steps: int, kills: tuple[int, ...] = (), seed: int = 5) -> list[Any]:
    """All observations, rewards and ends of a walk."""
    env.seed(seed)
    env.launch()
    actions = np.random.default_rng(0).integers(2, size=(num_steps, env.env_num, 1))
    seen = []
    for index in range(num_steps):
        wait_for(lambda: len(env.ready_obs) == env.env_num)
        if index in kills:
            kill_a_worker(env, kills.index(index) % 2)
        ready = {env_id: observation.tolist() for env_id, observation in env.ready_obs.items()}
        steps = env.step({env_id: actions[index, env_id] for env_id in range(env.env_num)})
        seen.append(
            (ready, [(steps[i].obs.tolist(), steps[i].reward.tolist(), bool(steps[i].done)) for i in ready])
        )
    if kills:
        assert env.stats.crashes == len(kills)
    close(env)
    return seen


@pytest.fixture(scope="module")
def peers_walk() -> list[Any]:
    return play(manager(Peer, env=cartpole), 90)


@pytest.mark.parametrize("config", [{"num_workers": 0}, {}, {"shared_memory": False}, {"num_workers": 3}])
def test_it_returns_what_ding_returns_with_its_dynamic_seeds(config: Any, peers_walk: list[Any]) -> None:
    assert sum(end for _, steps in peers_walk for *_, end in steps) > 6
    assert play(manager(env=cartpole, **config), 90) == peers_walk


def test_a_killed_worker_leaves_no_trace(peers_walk: list[Any]) -> None:
    assert play(manager(env=cartpole, num_workers=2), 90, kills=(10, 31, 60)) == peers_walk


def test_the_asynchronous_manager_returns_the_same_when_it_waits_for_all(peers_walk: list[Any]) -> None:
    env = manager(AsyncSubprocessEnvManager, env=cartpole, wait_num=3, step_wait_timeout=None)
    assert play(env, 90) == peers_walk


def test_resets_in_place_return_what_ding_returns() -> None:
    ours, peer = manager(env=cartpole, reset_inplace=True), manager(Peer, env=cartpole, reset_inplace=True)
    assert play(ours, 60) == play(peer, 60)


@pytest.mark.parametrize("method", [*METHODS, "forkserver"])
def test_it_runs_with_every_start_method(method: str, peers_walk: list[Any]) -> None:
    assert play(manager(env=cartpole, context=method), 5) == peers_walk[:5]


def test_timesteps_have_the_order_of_the_actions() -> None:
    env = manager(num_workers=3)
    env.launch()
    assert list(env.step({2: 1, 0: 0.3, 1: 1})) == [2, 0, 1]
    env.close()


def test_it_is_one_of_dings_managers_and_its_configurations_name_it() -> None:
    config = EasyDict(type="planvec_subprocess", import_names=["planvec.vector.ding"])
    assert get_env_manager_cls(config) is SyncSubprocessEnvManager
    full = EasyDict({**SyncSubprocessEnvManager.default_config(), **config, "num_workers": 0})
    env = create_env_manager(full, [cartpole] * 2)
    assert isinstance(env, SyncSubprocessEnvManager)
    assert isinstance(env, BaseEnvManager)
    assert set(Peer.default_config()) <= set(SyncSubprocessEnvManager.default_config())
    for name in ("planvec_async_subprocess", "planvec_subprocess_v2"):
        assert issubclass(get_env_manager_cls(EasyDict(type=name)), AsyncSubprocessEnvManager)


def test_nothing_runs_before_the_launch_and_it_can_be_launched_again() -> None:
    env = manager()
    assert env.closed
    assert env._env_states == dict.fromkeys(range(3), EnvState.VOID)
    for _ in range(2):
        with pytest.raises(AssertionError):
            env.reset([])
        with pytest.raises(AssertionError):
            env.step([])
        env.launch({i: {"stat": "first"} for i in range(3)})
        assert env._env_states == dict.fromkeys(range(3), EnvState.RUN)
        assert env._stat == ["first"] * 3
        with pytest.raises(AssertionError):
            env.launch()
        env.close()
        env.close()


def test_attributes_are_asked_of_the_environments() -> None:
    env = manager()
    env.seed([314] * 3)
    env.launch({i: {"stat": "a"} for i in range(3)})
    assert env._seed == [(314, "none")] * 3
    assert env._stat == ["a"] * 3
    assert env._name == ["name0", "name1", "name2"]
    assert env._data_count == [0] * 3
    with pytest.raises(AttributeError, match="xxx"):
        _ = env.xxx
    with pytest.raises(RuntimeError, match="shape_rewards"):
        _ = env.shape_rewards
    assert env.reward_shaping(1, [{"r": 1}]) == [{"r": 1, "by": "name1"}]
    env.close()
    with pytest.raises(AssertionError):
        _ = env._name


def test_seeds_are_used_once_and_each_environment_has_its_own_global_generator() -> None:
    env = manager(num_workers=1)
    env.seed(7, dynamic_seed=False)
    env.launch()
    assert env._seed == [(7, False), (8, False), (9, False)]
    first = np.array(env.draws)
    for index in range(3):
        assert first[index].tolist() == np.random.RandomState(7 + index).rand(2).tolist()
    env.reset()
    second = np.array(env.draws)
    generator = np.random.RandomState(8)
    generator.rand(2)
    assert second[1].tolist() == generator.rand(2).tolist()
    env.seed({1: 40})
    env.reset()
    assert [seed for seed, _ in env._seed] == [7, 40, 9]
    env.close()


def test_the_global_generator_of_this_process_is_left_alone() -> None:
    np.random.seed(5)  # noqa: NPY002
    env = manager(num_workers=0)
    env.seed(7)
    env.launch()
    env.close()
    assert np.random.rand() == np.random.RandomState(5).rand()  # noqa: NPY002


@pytest.mark.parametrize("retry_type", ["reset", "renew"])
def test_a_reset_is_repeated_and_renews_the_environment_if_asked(retry_type: str) -> None:
    env = manager(max_retry=2, retry_waiting_time=0.0, retry_type=retry_type)
    env.launch({i: {"stat": "a"} for i in range(3)})
    before = env.time_id
    env.reset({0: {"stat": "error_at_2"}})
    assert (env.time_id[0] == before[0]) == (retry_type == "reset")
    assert env.time_id[1:] == before[1:]
    assert env.step({0: 1})[0].obs.tolist() == [1, 1, 1]
    env.close()


def test_a_reset_that_always_raises_closes_the_manager() -> None:
    env = manager(max_retry=2, retry_waiting_time=0.0)
    with pytest.raises(RuntimeError, match="exceeded max retries") as caught:
        env.launch({i: {"stat": "error"} for i in range(3)})
    assert "the reset failed" in str(caught.value)
    assert env.closed
    env.launch()
    env.step({0: "end"})
    env._reset_param[0] = {"stat": "error"}
    wait_for(lambda: env._env_states[0] == EnvState.RUN or env.ready_obs)
    env.step({0: "end"})
    with pytest.raises(RuntimeError, match="exceeded max retries"):  # in the background
        wait_for(lambda: len(env.ready_obs) == 3 and False)
    assert env.closed


def test_the_error_of_a_step_is_raised_as_it_was_and_closes_the_manager() -> None:
    env = manager()
    env.launch()
    with pytest.raises(KeyError, match="the step failed"):
        env.step({0: 1, 1: "error", 2: 1})
    assert env.closed


def test_an_abnormal_timestep_stops_its_environment_alone() -> None:
    env = manager()
    env.launch()
    steps = env.step({0: 1, 1: "abnormal", 2: 1})
    assert steps[1].info["abnormal"]
    assert env._env_states[1] == EnvState.ERROR
    assert list(env.ready_obs) == [0, 2]
    env.reset({1: None})
    assert list(env.ready_obs) == [0, 1, 2]
    env.close()


@pytest.mark.parametrize(("limit", "stat"), [("reset_timeout", "reset"), ("connect_timeout", "connection")])
def test_a_reset_that_hangs_is_interrupted(limit: str, stat: str) -> None:
    env = manager(**{limit: 0.3}, retry_waiting_time=0.0)
    with pytest.raises(RuntimeError, match="took longer"):
        env.launch({0: {"stat": "block"}, 1: {}, 2: {}})
    assert env.closed


def test_a_step_that_hangs_is_interrupted() -> None:
    env = manager(step_timeout=0.3)
    env.launch()
    with pytest.raises(TimeoutError):
        env.step({0: "block", 1: 1, 2: 1})
    assert env.closed


def test_episodes_are_counted_and_reset_in_the_background() -> None:
    env = manager(AsyncSubprocessEnvManager, episode_num=2, num_workers=3)
    env.launch({0: {"stat": 0.5}, 1: {}, 2: {}})
    env.step({0: "end", 1: "end"})
    assert env._env_states[0] == EnvState.RESET
    wait_for(lambda: 1 in env.ready_obs)
    assert list(env.ready_obs) == [1, 2]  # environment 0 is being reset, for half a second
    wait_for(lambda: 0 in env.ready_obs)
    assert env._stat[0] == 0.5  # the parameters of the last reset
    env.step({0: "end", 1: "end", 2: "end"})
    assert env._env_episode_count == {0: 2, 1: 2, 2: 1}
    assert env.env_state_done(0)
    assert not env.done
    wait_for(lambda: 2 in env.ready_obs)
    env.step({2: "end"})
    assert env.done
    assert env.ready_obs == {}
    env.close()


def test_without_auto_reset_the_caller_resets() -> None:
    env = manager(auto_reset=False)
    env.launch()
    env.step({0: "end", 1: 1, 2: 1})
    assert env._env_states[0] == EnvState.NEED_RESET
    with pytest.raises(AssertionError, match="NEED_RESET"):
        env.step({0: 1})
    env.step({1: "end", 2: "end"})
    with pytest.raises(RuntimeError, match="call reset"):
        _ = env.ready_obs
    env.reset({0: None})
    assert list(env.ready_obs) == [0]
    env.close()
    with pytest.raises(AssertionError, match="reset_inplace"):
        manager(auto_reset=False, reset_inplace=True)


def test_the_asynchronous_manager_returns_slow_environments_with_a_later_call() -> None:
    env = manager(AsyncSubprocessEnvManager, wait_num=1, num_workers=3)
    env.launch()
    steps = env.step({0: 1.0, 1: 1, 2: 1})
    assert sorted(steps) == [1, 2]
    assert list(env.ready_obs) == [1, 2]
    with pytest.raises(AssertionError, match="are being stepped"):
        env.step({0: 1})
    returned: dict[int, Any] = {}
    while 0 not in returned:
        returned |= env.step(dict.fromkeys(env.ready_obs, 0.1))
    assert returned[0].obs.tolist() == [1, 1, 1]
    env.close()


def test_a_reset_cancels_a_pending_step() -> None:
    env = manager(AsyncSubprocessEnvManager, wait_num=1, num_workers=3)
    env.launch()
    assert 0 not in env.step({0: 0.5, 1: 1, 2: 1})
    env.reset({0: None})
    assert env.ready_obs[0].tolist() == [0, 0, 0]
    assert sorted(env.step({0: 1})) == [0]
    env.close()


def test_a_worker_that_exits_returns_abnormal_timesteps_where_states_are_not_exact() -> None:
    env = manager(num_workers=3, max_restarts=0)
    env.launch()
    kill_a_worker(env, 1)
    steps = env.step({0: 1, 1: 1, 2: 1})
    assert [i for i in range(3) if "abnormal" in steps[i].info] == [1]
    assert steps[1].info["worker_exited"]
    assert env._env_states[1] == EnvState.ERROR
    env.reset({1: None})
    assert env.step({1: 1})[1].obs.tolist() == [1, 1, 1]
    env.close()


def test_an_environment_that_exits_its_process_is_reported() -> None:
    env = manager(num_workers=3)
    env.launch()
    assert env.step({0: "exit", 1: 1, 2: 1})[0].info["worker_exited"]
    assert env.stats.crashes == 1
    env.close()
    env = manager(on_crash="raise")
    env.launch()
    with pytest.raises(WorkerCrashedError, match="exit"):
        env.step({0: "exit", 1: 1, 2: 1})
    assert env.closed


def test_an_observation_of_another_shape_is_an_error() -> None:
    env = manager()
    env.launch()
    with pytest.raises(Exception, match=r"expected shape \(3,\)"):
        env.step({0: "small", 1: 1, 2: 1})


def test_the_second_version_returns_what_ding_returns() -> None:
    ours = manager(SubprocessEnvManagerV2, env=cartpole)
    peer = manager(PeerV2, env=cartpole)
    for env in (ours, peer):
        env.seed(3)
        env.launch()
    for _ in range(8):
        assert ours.ready_obs.tolist() == peer.ready_obs.tolist()
        got, expected = ours.step(np.array([[1]] * 3)), peer.step(np.array([[1]] * 3))
        for mine, theirs in zip(got, expected, strict=True):
            assert mine.env_id == theirs.env_id
            assert mine.obs.tolist() == theirs.obs.tolist()
            assert mine.reward.tolist() == theirs.reward.tolist()
            assert mine.done == theirs.done
            assert repr(mine.info.json()) == repr(theirs.info.json())
    close(ours)
    close(peer)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_states_are_exact_and_can_be_branched(shared_memory: bool) -> None:
    env = manager(env=cartpole, num_envs=4, shared_memory=shared_memory)
    env.seed(1)
    env.launch()
    env.step({i: np.array([i % 2]) for i in range(4)})
    states, before = env.get_states(), env.ready_obs
    expected = env.step({i: np.array([1]) for i in range(4)})
    env.set_states(states)
    assert {i: o.tolist() for i, o in env.ready_obs.items()} == {i: o.tolist() for i, o in before.items()}
    again = env.step({i: np.array([1]) for i in range(4)})
    assert [again[i].obs.tolist() for i in range(4)] == [expected[i].obs.tolist() for i in range(4)]
    env.branch(2, [0, 3])
    assert env.ready_obs[0].tolist() == env.ready_obs[2].tolist()
    steps = env.step({i: np.array([0]) for i in (0, 2, 3)})
    assert steps[0].obs.tolist() == steps[2].obs.tolist() == steps[3].obs.tolist()
    env.close()
    env = manager()  # its states are not exact
    env.launch()
    with pytest.raises(UnsupportedEnvError):
        env.get_states()
    env.close()


# -- EnvSupervisor ------------------------------------------------------------------------------------


def supervisor(type_: ChildType = ChildType.PROCESS, cls: Any = EnvSupervisor, **options: Any) -> Any:
    env_fns = options.pop("env_fn", None) or [partial(Scripted, number) for number in range(3)]
    if cls is EnvSupervisor:
        options.setdefault("on_crash", "reset")
    return cls(type_=type_, env_fn=env_fns, **options)


TYPES = pytest.mark.parametrize("type_", [ChildType.PROCESS, ChildType.THREAD])


@TYPES
def test_a_supervisor_steps_until_all_episodes_have_ended(type_: ChildType) -> None:
    env = supervisor(type_, auto_reset=False)
    env.seed([314] * 3)
    assert env.closed
    env.launch({i: {"stat": "a"} for i in range(3)})
    assert list(env._env_seed.values()) == [314] * 3
    assert env._stat == ["a"] * 3
    assert env.get_child_attr(1, "_name") == "name1"
    assert env.ready_obs.shape == (3, 3)
    results = env.step({0: 1, 2: "end"})
    assert [int(result.env_id) for result in results] == [0, 2]
    assert env.env_states == {0: EnvState.RUN, 1: EnvState.RUN, 2: EnvState.DONE}
    assert env.ready_obs_id == [0, 1]
    env.step({0: "end", 1: "end"})
    assert env.done
    env.close()
    assert env.env_states == dict.fromkeys(range(3), EnvState.VOID)
    with pytest.raises(AssertionError):
        env.reset([])
    with pytest.raises(AssertionError):
        env.step([])


@TYPES
def test_a_supervisor_returns_what_dings_returns(type_: ChildType) -> None:
    seen = []
    for cls in (EnvSupervisor, PeerSupervisor):
        env = supervisor(type_, cls, env_fn=[cartpole] * 2)
        env.seed(3)
        env.launch()
        walk = []
        for _ in range(20):  # with ends of episodes
            walk.append((env.ready_obs.tolist(), [r.json() for r in env.step([np.array([1])] * 2)]))
        seen.append(repr(walk))
        env.close()
        if type_ is ChildType.THREAD:
            return  # the threads of DI-engine share one global generator
    assert seen[0] == seen[1]


@TYPES
def test_a_supervisor_returns_results_one_by_one(type_: ChildType) -> None:
    env = supervisor(type_, auto_reset=False)
    env.launch(block=False)
    received: list[tuple[str, int]] = []
    while not env.done:
        payload = env.recv()
        received.append((payload.method, payload.proc_id))
        assert payload.err is None
        if payload.method == "reset":
            assert payload.data.shape == (3,)
            env.step({payload.proc_id: "end"}, block=False)
        else:
            assert bool(payload.data.done)
    assert sorted(received) == [(method, i) for method in ("reset", "step") for i in range(3)]
    with pytest.raises(RuntimeError, match="step"):
        env.recv()
    env.close()


@TYPES
def test_a_supervisor_resets_after_an_error_in_a_step(type_: ChildType) -> None:
    env = supervisor(type_)
    env.launch()
    results = env.step([1, "error", "abnormal"])
    assert results[1].info.abnormal
    assert isinstance(results[1].info.err.item(), KeyError)
    assert results[2].info.abnormal
    assert set(env.env_states.values()) == {EnvState.RUN}
    assert env.ready_obs.shape == (3, 3)
    env.close()


@TYPES
def test_a_supervisor_repeats_resets(type_: ChildType) -> None:
    env = supervisor(type_, max_retry=2, retry_type="renew")
    env.launch()
    before = env.time_id
    env.reset({0: {"stat": "error_at_2"}})
    env.reset({1: {"stat": "error_at_2"}}, block=False)
    payload = env.recv()
    assert (payload.proc_id, payload.method, payload.data.tolist()) == (1, "reset", [0, 0, 0])
    assert [old == new for old, new in zip(before, env.time_id, strict=True)] == [False, False, True]
    with pytest.raises(RuntimeError, match="exceeded max_try"):
        env.reset({0: {"stat": "error"}})
    assert env.closed


@TYPES
def test_a_supervisor_answers_to_whatever_is_sent_to_it(type_: ChildType) -> None:
    answers = []
    for cls in (EnvSupervisor, PeerSupervisor):
        env = supervisor(type_, cls, env_fn=[partial(Asked, number) for number in range(2)])
        env.launch()
        for number, method, argument in ((0, "seed", 7), (1, "double", 4)):
            env.send(SendPayload(proc_id=number, method=method, args=[argument]))
            answer = env.recv()
            answers.append((answer.proc_id, answer.method, answer.data, answer.err))
        if cls is EnvSupervisor:
            env.send(SendPayload(proc_id=1, method="double", args=[None]))
            with pytest.raises(RuntimeError, match="expected a step or a reset"):
                env.recv()  # drops answers with errors; DI-engine's waits for ever then
        env.close()
    assert answers[:2] == answers[2:] == [(0, "seed", None, None), (1, "double", 8, None)]


@TYPES
def test_payloads_to_one_environment_are_done_in_their_order(type_: ChildType) -> None:
    env = supervisor(type_, auto_reset=False)
    env.launch()
    for method, arguments in (("step", [1]), ("step", [1]), ("reset", []), ("step", ["end"])):
        env.send(SendPayload(proc_id=0, method=method, args=arguments))
    answers = [env.recv() for _ in range(4)]
    assert [answer.method for answer in answers] == ["step", "step", "reset", "step"]
    assert [np.asarray(answer.data.obs)[0] for answer in answers if answer.method == "step"] == [1, 2, 3]
    env.close()


def test_a_supervisor_that_was_never_made_is_forgotten_without_a_word() -> None:
    with pytest.raises(ValueError, match="EnvRetryType"):
        supervisor(retry_type="perhaps")  # pytest makes an error of one in `__del__`
    gc.collect()


def test_the_own_error_of_a_property_is_shown() -> None:
    env = manager()
    env.launch()
    with contextlib.closing(env), pytest.raises(AttributeError, match="'_env'"):
        _ = env.ready_imgs


class Asked(Scripted):
    """Has a method that DI-engine's interface does not know."""

    def double(self, number: int) -> int:
        return 2 * number + 0  # None has no sum


def test_a_supervisor_interrupts_what_hangs() -> None:
    env = supervisor(step_timeout=0.3, reset_timeout=0.3)
    env.launch()
    results = env.step(["block", 1, 1])
    assert results[0].info.abnormal
    assert isinstance(results[0].info.err.item(), TimeoutError)
    env._reset_param[0] = {"stat": "block"}
    with pytest.raises(RuntimeError, match="exceeded max_try"):
        env.step(["block", 1, 1])
    assert env.closed


def test_a_supervisor_survives_a_killed_worker() -> None:
    def walk(kills: tuple[int, ...]) -> str:
        env = supervisor(env_fn=[cartpole] * 4, on_crash="restore", num_workers=2)
        env.seed(3)
        env.launch()
        seen = []
        for index in range(40):
            if index in kills:
                kill_a_worker(env, kills.index(index) % 2)
            seen.append((env.ready_obs.tolist(), [r.json() for r in env.step([np.array([1])] * 4)]))
        assert env.stats.crashes == len(kills)
        env.close()
        return repr(seen)

    assert walk((9, 25)) == walk(())


# -- a training ---------------------------------------------------------------------------------------


def train(manager_config: dict[str, Any], folder: Any, steps_between_kills: int = 0) -> str:
    """Train in a new process, since DI-engine is deterministic only there; return a digest of the network."""
    script = Path(__file__).parent / "ding_training.py"
    arguments = [json.dumps(manager_config), str(steps_between_kills)]
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=True)
    return result.stdout.strip().splitlines()[-1]


@pytest.mark.timeout(600)
def test_dings_dqn_learns_the_same_network_though_workers_are_killed(tmp_path: Any) -> None:
    ours = {"type": "planvec_subprocess", "import_names": ["planvec.vector.ding"]}
    network = train({**ours, "num_workers": 0}, tmp_path)
    assert train({**ours, "num_workers": 2}, tmp_path, steps_between_kills=150) == network
    assert len(network) == 40
