"""planvec's own vector interface, against Gymnasium's `SyncVectorEnv` and with faults."""

from __future__ import annotations

import functools
import gc
import json
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from array_files import changed_arrays
from compare import assert_same
from environments import Warehouse
from faulty import ARMED, Faulty, TwoArguments, fault
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from marks import needs_box2d, slow_after
from methods import METHODS
from vectors import cartpole, kill_worker, processes_of, random_actions, walk

import planvec
from planvec.errors import (
    ClosedError,
    EnvError,
    InvalidBatchError,
    RemoteTraceback,
    UnsupportedEnvError,
    WorkerCrashedError,
    WorkerTimeoutError,
)
from planvec.rows import leaves
from planvec.vector import EnvPool


def lake() -> Any:
    return gymnasium.make("FrozenLake-v1")


def pendulum() -> Any:
    return gymnasium.make("Pendulum-v1", max_episode_steps=30)


def lander() -> Any:
    return gymnasium.make("LunarLander-v3", max_episode_steps=60)


def door_key() -> Any:
    import minigrid  # noqa: F401

    return gymnasium.make("MiniGrid-DoorKey-5x5-v0", max_steps=25)


def pacman() -> Any:
    import ale_py  # noqa: F401

    return gymnasium.make("ALE/MsPacman-v5", max_num_frames_per_episode=120)


def cheetah() -> Any:
    return gymnasium.make("HalfCheetah-v5", max_episode_steps=25)


WALKS = [cartpole, lake, pendulum, Warehouse, lander]
SLOW_WALKS = [pytest.param(make, marks=pytest.mark.slow) for make in (door_key, pacman, cheetah)]


# -- steps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("make", slow_after(1, [cartpole, pendulum, Warehouse]))
def test_steps_are_those_of_gymnasium(make: Any, mode: AutoresetMode, num_workers: int) -> None:
    peer = SyncVectorEnv([make] * 3, autoreset_mode=mode)
    with EnvPool([make] * 3, num_workers=num_workers, autoreset_mode=mode) as pool:
        assert_same(pool.reset(seed=5), peer.reset(seed=5))
        num_ends = 0
        for action in random_actions(make().action_space, 3, 200):
            got, expected = pool.step(action), peer.step(action)
            assert_same(tuple(got[:5]), expected)
            num_ends += int((got.terminated | got.truncated).sum())
        assert num_ends > 1
        np.testing.assert_array_equal(got.rows, [0, 1, 2])


def test_environments_may_differ() -> None:
    heavy = [lambda g=g: gymnasium.make("Pendulum-v1", g=g) for g in (1.0, 5.0, 10.0)]
    peer = SyncVectorEnv(heavy)
    with EnvPool(heavy, num_workers=2) as pool:
        assert_same(pool.reset(seed=0), peer.reset(seed=0))
        for action in random_actions(peer.single_action_space, 3, 10):
            assert_same(tuple(pool.step(action)[:5]), peer.step(action))
        assert pool.get_attr("g") == [1.0, 5.0, 10.0]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rows_can_be_stepped_and_reset_in_any_order(num_workers: int) -> None:
    envs = [cartpole() for _ in range(5)]
    with EnvPool([cartpole] * 5, num_workers=num_workers, autoreset_mode="Disabled") as pool:
        for row, env in enumerate(envs):
            env.reset(seed=row)
        pool.reset(seed=0)
        for rows in ([4, 0, 2], [1], [3, 2, 1, 0, 4]):
            got = pool.step(np.ones(len(rows), int), rows=rows)
            expected = [envs[row].step(1) for row in rows]
            np.testing.assert_array_equal(got.observations, [outcome[0] for outcome in expected])
            np.testing.assert_array_equal(got.rows, rows)
        mask = np.array([False, True, False, True, False])
        observations, _ = pool.reset(seed=10, rows=mask)
        np.testing.assert_array_equal(observations, [envs[row].reset(seed=10 + row)[0] for row in (1, 3)])


class Slow(gymnasium.Env):
    """Waits for a file before it answers action 1."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, gate: Any) -> None:
        self.gate = gate

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        while action and not self.gate.exists():
            time.sleep(0.001)
        return np.full(1, action, np.float32), 0.0, False, False, {}


def test_recv_returns_the_rows_that_are_ready(tmp_path: Any) -> None:
    gate = tmp_path / "gate"
    with EnvPool([lambda: Slow(gate)] * 4, num_workers=2, on_crash="raise") as pool:
        pool.reset(seed=0)
        pool.send([0, 0, 0, 1])
        first = pool.recv(2)
        assert set(first.rows.tolist()) <= {0, 1, 2}
        with pytest.raises(WorkerTimeoutError):
            pool.recv(timeout=0.01)
        with pytest.raises(InvalidBatchError, match=r"\[.*3\] are being stepped; call recv\(\) first"):
            pool.step([0, 0, 0, 0])
        gate.touch()
        rest = pool.recv()
        assert sorted([*first.rows, *rest.rows]) == [0, 1, 2, 3]
        with pytest.raises(InvalidBatchError, match="min_ready: expected 1 to 0"):
            pool.recv()


def test_rewards_may_be_vectors() -> None:
    class TwoGoals(gymnasium.wrappers.TransformReward):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            return observation, np.array([reward, -1.0]), terminated, truncated, info

    make = lambda: TwoGoals(cartpole(), lambda reward: reward)  # noqa: E731
    with EnvPool([make] * 3, num_workers=2, on_crash="reset") as pool:
        pool.reset(seed=0)
        np.testing.assert_array_equal(pool.step([0, 1, 0]).rewards, [[1.0, -1.0]] * 3)


# -- states -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_states_are_those_of_a_batch_env(num_workers: int) -> None:
    with (
        EnvPool([cartpole] * 3, num_workers=num_workers) as pool,
        planvec.make("CartPole-v1", num_workers=0) as env,
    ):
        pool.reset(seed=0)
        for _ in range(4):
            pool.step([0, 1, 1])
        out = env.step_batch([1, 1, 0], pool.get_states())
        got = pool.step([1, 1, 0])
        np.testing.assert_array_equal(got.observations, out.observations)
        np.testing.assert_array_equal(pool.get_states(), out.new_states)
        plan = planvec.MCTS(num_simulations=16).plan(env, pool.get_states()[1], seed=0)
        assert plan.action in (0, 1)


def test_a_branch_continues_from_the_same_state() -> None:
    with EnvPool([Warehouse] * 4, num_workers=2) as pool:
        pool.reset(seed=0)
        actions = random_actions(pool.single_action_space, 4, 12)
        for action in actions[:6]:
            pool.step(action)
        pool.branch(1, into=[0, 3])
        for action in actions[6:]:
            step = pool.step(np.array([action[1]] * 4))
            assert step.rewards[0] == step.rewards[1] == step.rewards[3]
        with planvec.make(Warehouse, num_workers=0) as env:
            notes = env.observe(pool.get_states())["note"]
        assert notes[0] == notes[1] == notes[3]


@needs_box2d
def test_states_go_back_and_forth() -> None:
    with EnvPool([lander] * 2, num_workers=2) as pool:
        pool.reset(seed=1)
        actions = random_actions(pool.single_action_space, 2, 200)
        for action in actions[:90]:  # beyond the ends of episodes: resets without a seed
            pool.step(action)
        states = pool.get_states()
        first = [tuple(pool.step(action)[:5]) for action in actions[90:110]]
        pool.set_states(states)
        again = [tuple(pool.step(action)[:5]) for action in actions[90:110]]
        assert_same(again, first)


@pytest.mark.parametrize("make", slow_after(1, [cartpole, lander, Warehouse]))
def test_a_file_restores_all_environments_with_any_number_of_workers(make: Any, tmp_path: Path) -> None:
    actions = random_actions(make().action_space, 3, 120)
    with EnvPool([make] * 3, num_workers=2) as pool:
        pool.reset(seed=4)
        for action in actions[:70]:
            pool.step(action)
        pool.save(tmp_path / "pool.npz")
        expected = [tuple(pool.step(action)[:5]) for action in actions[70:]]
    assert os.listdir(tmp_path) == ["pool.npz"]
    for num_workers in (0, 1, 3):
        with EnvPool([make] * 3, num_workers=num_workers) as pool:
            observations = pool.load(tmp_path / "pool.npz")
            assert len(next(leaves(observations))) == 3
            if num_workers:
                kill_worker(pool)
            assert_same([tuple(pool.step(action)[:5]) for action in actions[70:]], expected)


class Spoken(gymnasium.Env):
    """Says a letter as often as it has been stepped. Its states have one of two forms."""

    observation_space = gymnasium.spaces.Text(10)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, letter: str, *more: Any) -> None:
        self.letter = letter
        if more:
            self.more = more[0]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.text = self.letter
        return self.text, {}

    def step(self, action: Any) -> Any:
        self.text = (self.text + self.letter)[:10]
        return self.text, 0.0, False, False, {}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_file_with_states_of_several_forms_is_read_in_the_order_of_the_environments(
    num_workers: int, tmp_path: Path
) -> None:
    makers = [lambda: Spoken("a"), lambda: Spoken("b", [1]), lambda: Spoken("c")]
    with EnvPool(makers, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        assert pool.step([0, 0, 0]).observations == ("aa", "bb", "cc")
        pool.save(tmp_path / "pool.npz")
        pool.step([0, 0, 0])
        assert pool.load(tmp_path / "pool.npz") == ("aa", "bb", "cc")
        assert pool.step([0, 0, 0]).observations == ("aaa", "bbb", "ccc")


def test_a_file_that_lacks_an_environment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    with EnvPool([cartpole] * 2, num_workers=0) as pool:
        pool.reset(seed=0)
        pool.save(path)
        arrays = dict(np.load(path))
        header = json.loads(str(arrays["header"]))
        header["parts"][0]["rows"] = [0, 0]
        np.savez(path, **{**arrays, "header": np.array(json.dumps(header))})
        with pytest.raises(InvalidBatchError, match="does not hold each environment once"):
            pool.load(path)


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("echo pwned",)


def test_a_file_runs_no_code(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    with EnvPool([Warehouse] * 2, num_workers=0) as pool:
        pool.reset(seed=0)
        pool.save(path)
        with changed_arrays(path) as arrays:
            states = arrays["states_0"].tobytes()
            evil = pickle.dumps(((b"", Evil()), 0, False, False), protocol=5)
            size = arrays["states_0.generator_sizes"][0]
            data = evil + states[:size] if size else evil
            rest = states[len(states) // 2 :]
            arrays["states_0.sizes"] = np.array([len(data), len(rest)])
            arrays["states_0"] = np.frombuffer(data + rest, np.uint8)
        with pytest.raises(InvalidBatchError, match=r"one that names \w+\.system"):
            pool.load(path)


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    with EnvPool([pendulum] * 2, num_workers=1) as pool:
        pool.reset(seed=0)
        pool.save(path)
        states = pool.get_states()
        lighter = lambda: gymnasium.make("Pendulum-v1", g=1.0, max_episode_steps=30)  # noqa: E731
        for env_fns, text in (
            ([lighter] * 2, "with the same constants"),
            ([pendulum], "path: expected 1 environments, got 2"),
        ):
            with EnvPool(env_fns, num_workers=0) as other, pytest.raises(InvalidBatchError, match=text):
                other.load(path)
        path.write_bytes(path.read_bytes()[:-30])
        with pytest.raises(InvalidBatchError, match="which is damaged or of another kind"):
            pool.load(path)
        with pytest.raises(FileNotFoundError):
            pool.load(tmp_path / "nothing")
        np.testing.assert_array_equal(pool.get_states(), states)


def test_states_need_a_reset() -> None:
    with (
        EnvPool([cartpole] * 2, num_workers=0) as pool,
        pytest.raises(InvalidBatchError, match=r"call reset\(\)"),
    ):
        pool.get_states()


class Entropic(gymnasium.Env):
    """Draws from a generator that no seed reaches when it is reset."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        generator = self.np_random if seed is not None else np.random.default_rng()
        return generator.random(1), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1), 0.0, True, False, {}


@pytest.mark.slow
def test_an_environment_whose_resets_are_no_function_of_its_state_is_not_restored() -> None:
    with pytest.raises(UnsupportedEnvError, match="a reset without a seed"):
        EnvPool([Entropic] * 2, num_workers=2, on_crash="restore")
    with EnvPool([Entropic] * 2, num_workers=2) as pool:
        pool.reset(seed=0)
        with pytest.raises(UnsupportedEnvError, match="a reset without a seed"):
            pool.get_states()
        kill_worker(pool)
        step = pool.step([0, 0])
        assert step.truncated.tolist() == [True, False]


# -- crashes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [*slow_after(1, WALKS), *SLOW_WALKS])
def test_killed_workers_leave_no_trace(make: Any) -> None:
    actions = random_actions(make().action_space, 3, 120)
    expected = walk(make, actions, num_workers=0)
    assert_same(walk(make, actions, kills=[1, 30, 31, 77], num_workers=2), expected)


@pytest.mark.slow
def test_a_worker_that_is_killed_again_and_again_leaves_no_trace() -> None:
    actions = random_actions(cartpole().action_space, 2, 40)
    expected = walk(cartpole, actions, num_workers=0)
    assert_same(walk(cartpole, actions, kills=[4, 5, 6, 20, 21], num_workers=1), expected)


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_is_brought_up_to_date_leaves_no_trace() -> None:
    with EnvPool([Warehouse] * 2, num_workers=1) as pool, EnvPool([Warehouse] * 2, num_workers=0) as peer:
        for each in (pool, peer):
            each.reset(seed=0)
        actions = random_actions(pool.single_action_space, 2, 60)
        for action in actions[:30]:
            assert_same(tuple(pool.step(action)[:5]), tuple(peer.step(action)[:5]))
        pid = processes_of(pool)[0].pid
        kill_worker(pool)
        pool.send(actions[30])
        while processes_of(pool)[0].pid == pid or not processes_of(pool)[0].is_ready:
            pool._engine.poll()
        kill_worker(pool)  # ready, but not up to date
        assert_same(tuple(pool.recv()[:5]), tuple(peer.step(actions[30])[:5]))
        for action in actions[31:]:
            assert_same(tuple(pool.step(action)[:5]), tuple(peer.step(action)[:5]))
        assert pool.stats.crashes == 2


@pytest.mark.parametrize("method", METHODS)
def test_killed_workers_leave_no_trace_with_any_start_method(method: str) -> None:
    actions = random_actions(cartpole().action_space, 3, 60)
    expected = walk(cartpole, actions, num_workers=0)
    assert_same(walk(cartpole, actions, kills=[20, 40], num_workers=2, start_method=method), expected)


@pytest.mark.parametrize(
    "make", [*slow_after(3, [cartpole, lake, pendulum, lander, pacman]), *SLOW_WALKS[::2]]
)
def test_an_unseeded_walk_survives_a_kill(make: Any) -> None:
    with EnvPool([make] * 2, num_workers=1) as pool:
        pool.reset()
        actions = random_actions(make().action_space, 2, 10)
        for action in actions[:5]:
            pool.step(action)
        states = pool.get_states()
        expected = [pool.step(action)[:4] for action in actions[5:]]
        pool.set_states(states)
        kill_worker(pool)
        np.testing.assert_array_equal(pool.get_states(), states)
        for action, result in zip(actions[5:], expected, strict=True):
            assert_same(tuple(pool.step(action)[:4]), tuple(result))


@pytest.mark.parametrize("make", [cartpole, pacman])
def test_the_first_reset_in_this_process_needs_no_seed(make: Any) -> None:
    with EnvPool([make] * 2, num_workers=0) as pool:
        assert len(pool.reset()[0]) == 2
        pool.step([0, 1])


@pytest.mark.parametrize("name", slow_after(2, ["segfault", "torn", "os_exit", "crash_in_reply"]))
def test_a_step_that_crashes_once_is_repeated(name: str, tmp_path: Any) -> None:
    with EnvPool([Faulty] * 4, num_workers=2) as pool:
        pool.reset(seed=0, options=[{"once": str(tmp_path / str(row)), "x": 1} for row in range(4)])
        pool.step([0, 0, 0, 0])
        step = pool.step([fault(name), 0, 0, 0])
        np.testing.assert_array_equal(step.observations[:, 0], [2, 2, 2, 2])
        assert pool.stats.crashes == 1


def test_a_step_that_hangs_once_is_repeated(tmp_path: Any) -> None:
    with EnvPool([Faulty] * 2, num_workers=1, timeout=1.0) as pool:
        pool.reset(seed=0, options={"once": str(tmp_path / "once")})
        step = pool.step([fault("hang_in_c"), 0])
        np.testing.assert_array_equal(step.observations[:, 0], [1, 1])
        assert pool.stats.timeouts == 1


def test_a_step_that_always_crashes_raises_and_leaves_the_state_before_it() -> None:
    with EnvPool([Faulty] * 4, num_workers=2, max_restarts=1) as pool:
        pool.reset(seed=0, options=ARMED)
        pool.step([0, 0, 0, 0])
        with pytest.raises(WorkerCrashedError, match=f"row 1, action {fault('segfault')}: .*SIGSEGV"):
            pool.step([0, fault("segfault"), 0, 0])
        step = pool.step([0, 0, 0, 0])
        np.testing.assert_array_equal(step.observations[:, 0], [2, 2, 3, 3])


@pytest.mark.slow
def test_lost_episodes_are_truncated_if_the_user_wants_that() -> None:
    with EnvPool([cartpole] * 4, num_workers=2, on_crash="reset") as pool:
        pool.reset(seed=0)
        before = pool.step([0, 1, 0, 1])
        kill_worker(pool)
        step = pool.step([0, 1, 0, 1])
        np.testing.assert_array_equal(step.truncated, [True, True, False, False])
        np.testing.assert_array_equal(step.terminated, [False] * 4)
        np.testing.assert_array_equal(step.observations[:2], before.observations[:2])
        np.testing.assert_array_equal(step.infos["worker_exited"], [True, True, False, False])
        after = pool.step([0, 1, 0, 1])
        assert not after.truncated.any()
        assert (abs(after.observations[:2]) < 0.05).all()  # a new episode


def test_lost_episodes_end_in_the_same_step_in_that_mode() -> None:
    with EnvPool([cartpole] * 2, num_workers=1, on_crash="reset", autoreset_mode="SameStep") as pool:
        pool.reset(seed=0)
        before = pool.step([0, 1])
        kill_worker(pool)
        step = pool.step([0, 1])
        assert step.truncated.all()
        assert_same(list(step.infos["final_obs"]), list(before.observations))
        assert not pool.step([0, 1]).truncated.any()


def test_a_crash_raises_if_the_user_wants_that() -> None:
    with EnvPool([cartpole] * 2, num_workers=1, on_crash="raise") as pool:
        pool.reset(seed=0)
        kill_worker(pool)
        with pytest.raises(WorkerCrashedError, match="SIGKILL"):
            pool.step([0, 1])
        pool.reset(seed=0)
        pool.step([0, 1])


@pytest.mark.slow
def test_attributes_that_were_set_survive_a_kill() -> None:
    with EnvPool([cartpole] * 2, num_workers=1) as pool, EnvPool([cartpole] * 2, num_workers=0) as peer:
        for each in (pool, peer):
            each.reset(seed=0)
            each.step([0, 1])
            each.set_attr("gravity", [1.0, 20.0])
        for number in range(40):
            if number % 13 == 5:
                kill_worker(pool)
            assert_same(tuple(pool.step([0, 1])[:5]), tuple(peer.step([0, 1])[:5]))
        assert pool.get_attr("gravity") == [1.0, 20.0]


class Tunable(gymnasium.Wrapper):
    """Has a method that changes what no state of CartPole contains."""

    def set_difficulty(self, gravity: float) -> None:
        self.unwrapped.gravity = gravity


@pytest.mark.slow
def test_methods_that_change_settings_are_called_again_after_a_kill() -> None:
    make = lambda: Tunable(cartpole())  # noqa: E731
    with EnvPool([make] * 2, num_workers=1) as pool, EnvPool([make] * 2, num_workers=0) as peer:
        for each in (pool, peer):
            each.reset(seed=0)
            each.call("set_difficulty", 30.0)
        for number in range(30):
            if number in (3, 20):
                kill_worker(pool)
            assert_same(tuple(pool.step([0, 1])[:5]), tuple(peer.step([0, 1])[:5]))


@pytest.mark.slow
def test_a_worker_that_needs_too_much_memory_is_replaced() -> None:
    with EnvPool([Faulty] * 2, num_workers=1, max_worker_rss=400 << 20) as pool:
        pool.reset(seed=0, options=ARMED)
        for count in range(1, 30):
            step = pool.step([fault("leak"), 0])
            np.testing.assert_array_equal(step.observations[:, 0], [count, count])
            time.sleep(0.02)
        assert pool.stats.outgrown >= 1


# -- errors -----------------------------------------------------------------------------------------


class Counting(gymnasium.Env[Any, Any]):
    """Observes its action, a number, in an integer of another size than that of its space."""

    observation_space = gymnasium.spaces.Box(0, 255, (2,), np.uint8)
    action_space = gymnasium.spaces.Discrete(1000)

    def __init__(self, make: Callable[[list[int]], Any]) -> None:
        self._make = make

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        return self._make([0, 0]), {}

    def step(self, action: Any) -> Any:
        return self._make([int(action), 0]), 0.0, False, False, {}


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("make", [list, np.array])
def test_numbers_that_the_dtype_of_the_space_cannot_hold_are_an_error(
    make: Callable[[list[int]], Any], num_workers: int
) -> None:
    with EnvPool([functools.partial(Counting, make)] * 2, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        assert pool.step([255, 0]).observations.tolist() == [[255, 0], [0, 0]]
        with pytest.raises(EnvError, match=r"expected an element of Box.*got .*300.*uint8 does not hold"):
            pool.step([1, 300])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "expected", "text"),
    slow_after(
        2,
        [
            ("exception", ValueError, "the rocket exploded"),
            ("two_arguments", TwoArguments, "of two arguments"),
            ("sys_exit", EnvError, "SystemExit: 3"),
            ("broadcast", EnvError, r"observation: expected shape \(3,\).*got \(1,\)"),
            ("wrong_shape", EnvError, r"observation: expected shape \(3,\).*got \(2, 2\)"),
        ],
        unpack=True,
    ),
)
def test_errors_of_environments_are_raised_as_what_they_are(
    name: str, expected: type[Exception], text: str, num_workers: int
) -> None:
    with EnvPool([Faulty] * 4, num_workers=num_workers) as pool:
        pool.reset(seed=0, options=ARMED)
        with pytest.raises(expected, match=text) as caught:
            pool.step([0, 0, 0, fault(name)])
        assert "raised by environment 3" in "".join(caught.value.__notes__)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        step = pool.step([0, 0, 0, 0])  # the others were stepped, and all go on
        np.testing.assert_array_equal(step.observations[:, 0], [2, 2, 2, 2])
        assert not pool.stats.restarts


class Late(gymnasium.Env[Any, Any]):
    """Draws in another way from a step on that the options of the reset tell."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space: Any = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count, self.first = 0, 400 if options is None else int(options["first"])
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        noise = self.np_random.normal() if self.count < self.first else self.draw_late()
        return np.array([noise]), 0.0, False, False, {}

    def draw_late(self) -> float:
        raise NotImplementedError


class DrawsLate(Late):
    """Draws from the global generator of NumPy."""

    def draw_late(self) -> float:
        return float(np.random.normal())  # noqa: NPY002


def test_environments_that_draw_late_from_a_global_generator_are_not_restored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with EnvPool([DrawsLate] * 2, num_workers=1) as pool:
        pool.reset(seed=0, options={"first": 20})
        for _ in range(19):
            pool.step([0, 0])
        saved = pool.get_states()
        assert not caplog.records[1:]
        pool.step([0, 0])
        assert "DrawsLate: its steps draw from the global generator of `numpy.random`" in caplog.text
        with pytest.raises(UnsupportedEnvError, match="the environments cannot be saved"):
            pool.set_states(saved)
        os.kill(pool._engine._processes.workers[0].pid, signal.SIGKILL)  # type: ignore[union-attr]
        assert pool.step([0, 0]).infos["worker_exited"].tolist() == [True, False]


class SamplesLate(Late):
    """Draws from its action space instead, which nobody finds who reads the code."""

    def __init__(self) -> None:
        self.action_space, self.draw = gymnasium.spaces.Discrete(2), "sample"

    def draw_late(self) -> float:
        return float(getattr(self.action_space, self.draw)())


@pytest.mark.parametrize("late", [0, 1])
def test_the_spaces_of_all_environments_of_a_worker_are_watched_also_beside_threads(late: int) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(1) as other, ExitStack() as stack:
        stack.callback(over.set)
        other.submit(over.wait)
        pool = stack.enter_context(EnvPool([SamplesLate] * 2, num_workers=0))
        pool.reset(seed=0, options=[{"first": 20 if row == late else 400} for row in range(2)])
        for _ in range(19):
            pool.step([0, 0])
        pool.get_states()
        pool.step([0, 0])
        with pytest.raises(UnsupportedEnvError, match="SamplesLate: its steps draw from .*action_space"):
            pool.get_states()


def test_the_message_names_the_environment_that_draws() -> None:
    with EnvPool([DrawsLate, SamplesLate], num_workers=0) as pool:
        pool.reset(seed=0, options=[{"first": 400}, {"first": 20}])
        for _ in range(20):
            pool.step([0, 0])
        with pytest.raises(UnsupportedEnvError, match="SamplesLate: its steps draw"):
            pool.get_states()


class DrawsInReset(SamplesLate):
    """Draws in a reset with options from a generator that nobody has seeded."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.offset = np.random.normal() if options else 0.0  # noqa: NPY002
        return np.full(1, self.offset), {}

    def step(self, action: Any) -> Any:
        return np.full(1, self.offset), 0.0, False, False, {}


def test_a_reset_that_draws_from_a_global_generator_is_restored_as_it_was() -> None:
    with EnvPool([DrawsInReset], num_workers=1) as pool:
        pool.reset(seed=0)
        for _ in range(20):
            pool.step([0])
        for _ in range(3):
            observations, _ = pool.reset(seed=0, options={"draw": True})
            kill_worker(pool)
            np.testing.assert_array_equal(pool.step([0]).observations, observations)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_environment_that_has_raised_is_stepped_again_beside_one_that_waits(num_workers: int) -> None:
    with EnvPool([Faulty] * 2, num_workers=num_workers) as pool:
        pool.reset(seed=0, options=ARMED)
        pool.send([fault("exception"), 0])
        with pytest.raises(ValueError, match="the rocket exploded"):
            pool.recv()
        pool.send([0], rows=[0])
        step = pool.recv()
        assert sorted(step.rows) == [0, 1]
        counts = dict(zip(step.rows.tolist(), step.observations[:, 0].tolist(), strict=True))
        for expected in (counts[0] + 1, counts[0] + 2):  # no result comes twice
            pool.send([0], rows=[0])
            step = pool.recv()
            assert step.rows.tolist() == [0]
            assert step.observations[:, 0].tolist() == [expected]
        with pytest.raises(InvalidBatchError, match="expected 1 to 0"):
            pool.recv(1)


def test_an_info_that_cannot_be_sent_is_an_error_of_its_row() -> None:
    with EnvPool([Faulty] * 4, num_workers=2) as pool:
        pool.reset(seed=0, options=ARMED)
        with pytest.raises(EnvError, match="handle") as caught:
            pool.step([0, 0, fault("unpicklable_info"), 0])
        assert "raised by environment 2" in "".join(caught.value.__notes__)


class Unsendable(gymnasium.Env):
    """Action 1 gives an observation that cannot be sent, beside an info that can."""

    observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return (0,), {}

    def step(self, action: Any) -> Any:
        return ((lock,) if action else (1,)), 0.0, False, False, {"number": 1.0}


lock = threading.Lock()


def test_an_observation_that_cannot_be_sent_is_an_error_of_its_row() -> None:
    with EnvPool([Unsendable] * 2, num_workers=1, on_crash="raise") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=r"observation: expected something that can be pickled") as caught:
            pool.step([0, 1])
        assert "raised by environment 1" in "".join(caught.value.__notes__)


def test_float64_observations_are_converted_as_gymnasium_does() -> None:
    with EnvPool([Faulty] * 2, num_workers=1) as pool:
        pool.reset(seed=0, options=ARMED)
        step = pool.step([fault("wrong_dtype"), 0])
        assert step.observations.dtype == np.float32


@pytest.mark.parametrize(
    ("call", "error", "text"),
    slow_after(
        5,
        [
            (lambda pool: pool.step([0]), ValueError, "actions: expected 3, one per environment, got 1"),
            (lambda pool: pool.step(0), TypeError, "actions: expected one action per environment, got int"),
            (lambda pool: pool.step([0], rows=[5]), InvalidBatchError, "rows: expected indices from 0 to 2"),
            (
                lambda pool: pool.step([0, 0], rows=[1, 1]),
                InvalidBatchError,
                "rows: expected each index once",
            ),
            (
                lambda pool: pool.step([0], rows=[True]),
                InvalidBatchError,
                r"rows: expected a mask of shape \(3,\)",
            ),
            (lambda pool: pool.reset(seed=[1]), ValueError, "num_envs=3 but got length=1"),
            (
                lambda pool: pool.reset(options=[{}]),
                InvalidBatchError,
                "options: expected 3, one per row, got 1",
            ),
            (
                lambda pool: pool.set_attr("x", [1]),
                InvalidBatchError,
                "values: expected 3, one per row, got 1",
            ),
            (lambda pool: pool.set_states(np.zeros(2)), InvalidBatchError, r"states: expected shape \(3,\)"),
            (lambda pool: pool.get_attr("nothing"), AttributeError, "nothing"),
        ],
        unpack=True,
    ),
)
def test_wrong_arguments_are_named(call: Any, error: type[Exception], text: str) -> None:
    with EnvPool([cartpole] * 3, num_workers=1) as pool:
        pool.reset(seed=0)
        with pytest.raises(error, match=text):
            call(pool)
        pool.step([0, 1, 0])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_workers": -1}, "num_workers: expected an integer of at least 0, got -1"),
        ({"on_crash": "pray"}, "on_crash: expected one of .*, got 'pray'"),
        ({"timeout": 0}, "timeout: expected seconds above 0"),
        ({"max_restarts": -1}, "max_restarts: expected an integer of at least 0"),
        ({"max_worker_rss": 0}, "max_worker_rss: expected bytes above 0"),
    ],
)
def test_wrong_options_are_named(options: Any, text: str) -> None:
    with pytest.raises(InvalidBatchError, match=text):
        EnvPool([cartpole], **options)


def test_factories_are_checked() -> None:
    with pytest.raises(InvalidBatchError, match="env_fns: expected at least one function, got none"):
        EnvPool([])
    with pytest.raises(InvalidBatchError, match="env_fns: expected functions that make environments"):
        EnvPool([cartpole()])


def test_a_factory_that_raises_is_reported_and_nothing_is_left() -> None:
    def explode() -> Any:
        raise RuntimeError("no fuel")

    with pytest.raises(planvec.WorkerStartError, match="RuntimeError: no fuel"):
        EnvPool([cartpole, explode], num_workers=2)


def test_a_closed_pool_says_so() -> None:
    pool = EnvPool([cartpole] * 2, num_workers=1)
    processes = processes_of(pool)
    pool.close()
    pool.close()
    with pytest.raises(ClosedError):
        pool.reset()
    assert all(not process._worker._child.is_alive() for process in processes)


def test_ctrl_c_in_a_step_is_survived(tmp_path: Any) -> None:
    gate = tmp_path / "gate"
    with EnvPool([lambda: Slow(gate)] * 2, num_workers=1, on_crash="raise") as pool:
        pool.reset(seed=0)
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            pool.step([1, 1])
        gate.touch()
        step = pool.step([0, 0])  # not the results of the interrupted step
        np.testing.assert_array_equal(step.observations[:, 0], [0, 0])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_returned_arrays_are_never_written_again(num_workers: int) -> None:
    with EnvPool([cartpole] * 3, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        step = pool.step([0, 1, 0])
        before = [array.copy() for array in step[:4]]
        pool.reset(rows=[0, 2])
        pool.step([1, 1], rows=[1, 2])
        pool.branch(1, into=[0])
        pool.send([0, 0, 0])
        received = pool.recv()
        assert sorted(received.rows) == [0, 1, 2]
        pool.step([1, 1, 1])
        assert_same([array.tolist() for array in step[:4]], [array.tolist() for array in before])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_calls_leave_no_reference_cycles_that_would_keep_their_arrays(num_workers: int) -> None:
    with EnvPool([cartpole] * 4, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        pool.step([0] * 4)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for _ in range(40):  # with ends of episodes
                pool.step([0] * 4)
            pool.step([1], rows=[2])
            pool.send([0] * 4)
            pool.recv()
            pool.set_states(pool.get_states())
            pool.reset(rows=[0])
            gc.collect()
            # Threads of other packages may leave garbage meanwhile, but no arrays.
            kept = [
                each for each in gc.garbage if any(isinstance(r, np.ndarray) for r in gc.get_referents(each))
            ]
            assert kept == []
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


@pytest.mark.parametrize("num_workers", slow_after(1, [0, 1]))
def test_blackjack_may_be_stepped_past_the_end_for_a_while(num_workers: int) -> None:
    def blackjack() -> Any:
        return gymnasium.make("Blackjack-v1")

    with EnvPool([blackjack], num_workers=num_workers, autoreset_mode="Disabled") as pool:
        pool.reset(seed=0)
        for _ in range(40):
            pool.step([1])
        states = pool.get_states()
        expected = pool.step([1])[0]
        pool.set_states(states)
        assert_same(pool.step([1])[0], expected)
        for _ in range(30):
            pool.step([1])
        if not num_workers:  # a snapshot of a worker would be refused before
            with pytest.raises(planvec.EnvError, match="at most 64 cards in a hand of Blackjack, got"):
                pool.get_states()
        pool.reset()
        pool.get_states()
