"""Rows whose workers exit in rare orders, and operations that fail: what is repeated, and who is told."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from gymnasium import spaces
from marks import slow_after
from vectors import cartpole, kill_worker

import planvec
from planvec.vector import AsyncVectorEnv, EnvPool

CRASH = 9
"""An action that ends the process, in episodes that were begun with options."""


class Bomb:
    """Raises where it is unpickled, but not in the process with a given id."""

    def __init__(self, safe: int) -> None:
        self.safe = safe

    def __reduce__(self) -> Any:
        return _explode, (self.safe,)


def _explode(safe: int) -> None:
    if os.getpid() != safe:
        raise RuntimeError("it cannot be unpickled here")


class Counter(gymnasium.Env[Any, Any]):
    """Counts. It can be told to count from elsewhere, and to break."""

    observation_space = spaces.Box(-1e6, 1e6, (1,), np.float64)
    action_space = spaces.Discrete(10)

    def __init__(self, flag: str = "") -> None:
        self.flag = flag
        self.goal = 0.0
        self.turns_bad = False
        self.bad: Any = None
        self.count = 0.0

    def _observe(self) -> Any:
        return np.array([self.count])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.is_armed = bool(options)
        self.count = float((options or {}).get("start", [0])[0])
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        if (action == CRASH and self.is_armed) or (action == 1 and self.flag and Path(self.flag).exists()):
            os._exit(5)
        if self.turns_bad:
            self.bad = (number for number in range(3))
        self.count += 1
        return self._observe(), self.goal, False, False, {}

    def set_goal(self, goal: Any) -> None:
        self.goal = float(goal[0])

    def jump(self) -> Any:
        self.count += 100
        return Bomb(os.getpid())


def test_a_repeated_step_that_ends_the_worker_again_is_an_error_and_the_next_call_tries_again(
    tmp_path: Path,
) -> None:
    flag = tmp_path / "flag"
    with EnvPool([lambda: Counter(str(flag))] * 2, num_workers=1, max_restarts=2) as pool:
        pool.reset(seed=0)
        pool.step([1, 1])
        pool.step([1, 1])
        flag.touch()
        kill_worker(pool)
        with pytest.raises(planvec.WorkerCrashedError, match="its replacements exited, too"):
            pool.step([0, 0])
        flag.unlink()
        pool.reset(seed=0)
        assert pool.step([0, 0]).observations.tolist() == [[1], [1]]


def test_what_the_caller_changes_after_a_call_is_not_repeated() -> None:
    options: Any = {"start": [50]}
    goal, values = [7.0], [[3.0], [4.0]]
    with contextlib.closing(AsyncVectorEnv([Counter] * 2, num_workers=1)) as env:
        env.reset(seed=0, options=options)
        env.call("set_goal", goal)
        env.set_attr("bad", values)
        options["start"][0], goal[0], values[0][0] = 9, 9.0, 9.0
        kill_worker(env)
        observations, rewards, *_ = env.step([0, 0])
        assert observations.tolist() == [[51], [51]]
        assert rewards.tolist() == [7, 7]
        assert env.get_attr("bad") == ([3.0], [4.0])


def test_settings_outlive_states_that_turn_out_not_to_be_exact() -> None:
    with EnvPool([Counter] * 2, num_workers=1) as pool:
        pool.set_attr("goal", [3.0] * 2)
        pool.reset(seed=0)
        pool.step([0, 0])
        pool.set_attr("turns_bad", [True] * 2)
        group: Any = pool._engine.groups[0]
        while group.on_crash.value == "restore":  # the next snapshot finds it
            pool.step([0, 0])
        pool.set_attr("turns_bad", [False] * 2)
        kill_worker(pool)
        assert pool.step([0, 0]).truncated.all()
        pool.step([0, 0])
        assert pool.step([0, 0]).rewards.tolist() == [3, 3]


def test_with_raise_steps_raise_until_the_environments_of_the_worker_are_reset() -> None:
    with EnvPool([Counter] * 4, num_workers=2, on_crash="raise") as pool:
        pool.reset(seed=0, options={"start": [0]})
        with pytest.raises(planvec.WorkerCrashedError, match="row 1, action 9") as caught:
            pool.step([0, CRASH, 0, 0])
        assert caught.value.__notes__ == ["raised by environment 1"]
        for rows in ([0, 1, 2, 3], [0], [1, 2]):
            with pytest.raises(planvec.WorkerCrashedError, match="its environments must be reset"):
                pool.step([0] * len(rows), rows=rows)
        assert pool.get_attr("goal") == [0, 0, 0, 0]
        assert pool.reset(seed=0, rows=[0, 1])[0].tolist() == [[0]] * 2
        assert pool.step([0, 0], rows=[0, 1]).observations.tolist() == [[1], [1]]
        kill_worker(pool)  # while it is idle
        with pytest.raises(planvec.WorkerCrashedError, match="killed by SIGKILL; its environments must be"):
            pool.step([0] * 4)
        pool.reset(seed=0)
        kill_worker(pool)
        assert pool.reset(seed=0)[0].tolist() == [[0]] * 4  # nobody has to be told
        assert pool.step([0] * 4).observations.tolist() == [[1]] * 4


def test_an_action_that_cannot_be_sent_steps_nothing() -> None:
    with EnvPool([Counter] * 4, num_workers=2) as pool:
        pool.reset(seed=0)
        unsendable = (number for number in range(3))
        with pytest.raises(planvec.InvalidBatchError, match="step: an argument cannot be pickled"):
            pool.step([0, 0, 0, unsendable])
        with pytest.raises(planvec.InvalidBatchError, match="call: an argument cannot be pickled"):
            pool.call("set_goal", unsendable)
        assert pool.step([0] * 4).observations.tolist() == [[1]] * 4


@pytest.mark.parametrize("num_workers", [0, 1])
def test_states_are_checked_before_one_row_is_changed(num_workers: int) -> None:
    def acrobot() -> Any:
        env = gymnasium.make("Acrobot-v1")
        return gymnasium.wrappers.TransformObservation(env, lambda o: o[:4], cartpole().observation_space)

    with EnvPool([cartpole, acrobot], num_workers=num_workers) as pool:
        pool.reset(seed=0)
        start = pool.get_states([0])
        pool.step([0, 1])
        states = [pool.get_states([row]) for row in (0, 1)]
        with pytest.raises(planvec.InvalidBatchError):
            pool.set_states(np.concatenate([start.astype(object), start.astype(object)]))
        for row, state in enumerate(states):
            assert_same(pool.get_states([row]), state)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_states_before_the_first_reset_leave_the_generators_to_chance(num_workers: int) -> None:
    with EnvPool([cartpole] * 3, num_workers=0) as source:
        source.reset(seed=0)
        states = source.get_states()
    with EnvPool([cartpole] * 3, num_workers=num_workers) as pool:
        pool.set_states(states)
        if num_workers:
            kill_worker(pool)
        assert len(set(pool.get_attr("np_random_seed"))) == 3
        assert len({tuple(row) for row in pool.reset()[0].tolist()}) == 3


@pytest.mark.parametrize("num_workers", [0, 2])
def test_no_rows_are_no_work(num_workers: int) -> None:
    with EnvPool([cartpole] * 3, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        nothing = np.zeros(3, bool)
        assert pool.step(np.zeros(0, int), rows=nothing).observations.shape == (0, 4)
        assert pool.reset(rows=nothing)[0].shape == (0, 4)
        assert pool.get_states(nothing).shape == (0,)
        assert pool.set_states(pool.get_states()[:0], nothing).shape == (0, 4)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_first_reset_by_mask_shows_zeros_for_the_others(num_workers: int) -> None:
    mask = np.array([True, False, False])
    own = gymnasium.vector.AsyncVectorEnv([cartpole] * 3)
    with contextlib.closing(AsyncVectorEnv([cartpole] * 3, num_workers=num_workers)) as env:
        expected, _ = own.reset(seed=5, options={"reset_mask": mask})
        observations, _ = env.reset(seed=5, options={"reset_mask": mask})
        assert_same(observations, expected)
    own.close()


@pytest.mark.filterwarnings("ignore::UserWarning")  # Gymnasium's way to log an error
def test_results_that_cannot_be_unpickled_here_fail_their_call_and_no_other() -> None:
    with contextlib.closing(AsyncVectorEnv([Counter] * 2, num_workers=1)) as env:
        env.reset(seed=0)
        with pytest.raises(planvec.EnvError, match="the results cannot be read in this process"):
            env.call("jump")
        assert env.get_attr("count") == (100, 100)
        kill_worker(env)
        assert env.get_attr("count") == (100, 100)
        assert env.step([0, 0])[0].tolist() == [[101], [101]]


@pytest.mark.parametrize("num_workers", slow_after(1, [0, 1, 2]))
def test_recv_returns_the_environments_that_did_not_raise_in_a_later_call(num_workers: int) -> None:
    def fussy() -> Any:
        return Fussy()

    with EnvPool([fussy] * 4, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        pool.send([1, 2, 1, 2])
        with pytest.raises(ValueError, match="two is refused") as caught:
            pool.recv()
        assert caught.value.__notes__ == ["raised by environment 1; so did [3]"]
        out = pool.recv()
        assert out.rows.tolist() == [0, 2]
        assert out.observations.tolist() == [[1], [1]]
        assert out.infos["count"].tolist() == [1, 1]
        with pytest.raises(planvec.InvalidBatchError, match="min_ready: expected 1 to 0"):
            pool.recv()
        assert pool.step([1] * 4).observations.tolist() == [[2], [2], [2], [2]]


class Fussy(Counter):
    """Raises for one action, after it has counted."""

    def step(self, action: Any) -> Any:
        observation, *rest, _ = super().step(action)
        if action == 2:
            raise ValueError("two is refused")
        return observation, *rest, {"count": self.count}


class Speaker(Counter):
    """Has observations of variable size."""

    observation_space = spaces.Dict(
        {"text": spaces.Text(8), "count": spaces.Box(-1e6, 1e6, (1,), np.float64)}
    )

    def _observe(self) -> Any:
        return {"text": "a" * (int(self.count) % 5 + 1), "count": np.float32([self.count])}


def test_a_lost_episode_ends_with_its_last_observation_also_if_its_size_varies() -> None:
    with EnvPool([Speaker] * 2, num_workers=1, on_crash="reset") as pool:
        pool.reset(seed=0)
        pool.step([0, 0])
        before = pool.step([0, 0]).observations
        kill_worker(pool)
        out = pool.step([0, 0])
        assert_same(out.observations, before)
        assert out.truncated.all()
        assert out.infos["worker_exited"].all()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_environments_without_an_episode_are_not_saved(num_workers: int, tmp_path: Path) -> None:
    with EnvPool([cartpole] * 3, num_workers=num_workers) as pool:
        pool.reset(seed=0, rows=[1])
        with pytest.raises(planvec.InvalidBatchError, match="save: expected environments that were reset"):
            pool.save(tmp_path / "rows")
        pool.reset(seed=0)
        pool.save(tmp_path / "rows")
