"""Replaced workers are started as the first ones were: with the same code, variables, paths and hash seed."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from methods import METHODS
from processes import wait_until_dead

import planvec

COUNTER = """
import os
import gymnasium
import numpy as np

class Counter(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    gain = {gain}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.total = 0.0
        return np.array([self.total]), {{}}

    def step(self, action):
        # After 100 steps the outcome depends on the surroundings: the proof at opening does not get there.
        reward = 1.0 if self.total < 100 else float({late})
        self.total += reward
        return np.array([self.total]), reward, False, False, {{}}
"""


def write_counter(folder: Path, gain: str = "1", late: str = "self.gain") -> Path:
    """Write a module with an environment, and return its path."""
    path = folder / "edited_counter.py"
    path.write_text(textwrap.dedent(COUNTER).format(gain=gain, late=late))
    return path


def make_counter() -> Any:
    return importlib.import_module("edited_counter").Counter()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of modules that workers can import."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield tmp_path
    sys.modules.pop("edited_counter", None)


def replace_workers(env: planvec.BatchEnv) -> None:
    """Kill all workers. They are replaced at the next call."""
    pids = [worker.pid for worker in env.workers]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert wait_until_dead(pids, 5) == []


def late_rewards(env: planvec.BatchEnv) -> list[float]:
    """Return the rewards of two rows after step 100."""
    states = np.repeat(env.reset(seed=0).state, 2)
    states = env.step_batch([0, 0], states, dt=101).new_states
    rewards: list[float] = env.step_batch([0, 0], states).rewards.tolist()
    return rewards


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_worker_is_not_replaced_by_one_with_edited_code(method: str, folder: Path) -> None:
    path = write_counter(folder)
    with planvec.make(make_counter, num_workers=2, start_method=method) as env:
        states = np.repeat(env.reset(seed=0).state, 2)
        write_counter(folder, gain="2")
        replace_workers(env)
        for _ in range(2):  # a worker that was refused once is not accepted at its next start
            with pytest.raises(planvec.WorkerStartError, match="imported other code") as error:
                env.step_batch([0, 0], states)
            assert str(path) in str(error.value)
        write_counter(folder)
        assert env.step_batch([0, 0], states).rewards.tolist() == [1.0, 1.0]


@pytest.mark.slow
def test_a_worker_that_made_another_environment_is_refused_at_each_start(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    def changes() -> Any:
        return gymnasium.make("FrozenLake-v1", map_name="8x8" if marker.exists() else "4x4")

    with planvec.make(changes, num_workers=1) as env:
        marker.touch()
        replace_workers(env)
        for _ in range(3):
            with pytest.raises(planvec.WorkerStartError, match="was restarted and made another environment"):
                env.step_batch([0, 0])
        marker.unlink()
        assert env.step_batch([0, 0]).rewards.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("method", METHODS)
def test_workers_started_around_an_edit_are_refused(method: str, folder: Path) -> None:
    path = write_counter(folder)
    first = planvec.ExternalProcess(lambda: planvec.PlanEnv(make_counter), start_method=method)
    first.wait_ready()
    write_counter(folder, gain="2")
    second = planvec.ExternalProcess(lambda: planvec.PlanEnv(make_counter), start_method=method)
    with pytest.raises(planvec.WorkerStartError, match="imported other code") as error:
        planvec.BatchEnv([first, second])
    assert str(path) in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_replaced_worker_has_the_first_environment_variables(
    method: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_counter(folder, late="float(os.environ['COUNTER_GAIN'])")
    monkeypatch.setenv("COUNTER_GAIN", "3")
    with planvec.make(make_counter, num_workers=2, start_method=method) as env:
        assert late_rewards(env) == [3.0, 3.0]
        monkeypatch.setenv("COUNTER_GAIN", "4")
        replace_workers(env)
        assert late_rewards(env) == [3.0, 3.0]
        with env.clone() as other:
            assert late_rewards(other) == [3.0, 3.0]


@pytest.mark.parametrize("method", METHODS)
def test_a_replaced_worker_imports_from_the_first_paths(
    method: str, folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_counter(folder)
    other = tmp_path_factory.mktemp("other")
    write_counter(other, gain="2")
    with planvec.make(make_counter, num_workers=2, start_method=method) as env:
        monkeypatch.syspath_prepend(str(other))
        monkeypatch.chdir(other)
        replace_workers(env)
        assert late_rewards(env) == [1.0, 1.0]


class Hashes:
    """Tells the order of a set of strings, and its process."""

    def order(self) -> list[str]:
        return list({f"key {number}" for number in range(50)})


@pytest.mark.parametrize("method", METHODS)
def test_strings_have_the_same_hashes_in_all_workers(method: str) -> None:
    orders = []
    for _ in range(2):
        with planvec.ExternalProcess(Hashes, start_method=method) as process:
            orders.append(process.call("order").result())
            process.restart()
            orders.append(process.call("order").result())
    assert orders == orders[:1] * 4


def test_the_hash_seed_of_the_user_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with planvec.ExternalProcess(Hashes, start_method="spawn") as process:
        order = process.call("order").result()
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    for method in ("spawn", "template"):
        with planvec.ExternalProcess(Hashes, start_method=method) as process:
            assert process.call("order").result() != order
