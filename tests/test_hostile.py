"""Environments, arguments and callers that break the rules get a clear error, or work."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from backends import BACKENDS, DEFAULT, Backend, quick_or_slow
from gymnasium import spaces
from marks import slow_after

import planvec

EACH = quick_or_slow(BACKENDS, DEFAULT)


@pytest.fixture(scope="module", params=EACH)
def backend(request: pytest.FixtureRequest) -> Backend:
    opened: Backend = request.param
    return opened


class Walk(gymnasium.Env[Any, Any]):
    """Counts its steps."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space: Any = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        return np.array([self.time], float), 1.0, False, False, {}


# -- environments that break the interface ------------------------------------------------------------


class FourValues(Walk):
    def step(self, action: Any) -> Any:
        return np.zeros(1), 0.0, False, {}


class OneValue(Walk):
    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)[0]


class RaisesInReset(Walk):
    def reset(self, **kwargs: Any) -> Any:
        raise AttributeError("no board")


class RaisesInSecondReset(Walk):
    """Knows only one seed."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed:
            raise RuntimeError("only once")
        return super().reset(seed=seed)


class NotUnwrapped(gymnasium.Wrapper[Any, Any, Any, Any]):
    @property
    def unwrapped(self) -> Any:
        return object()


class DeepState(Walk):
    """Holds something whose pickling raises an error of its own."""

    class Part:
        def __reduce__(self) -> Any:
            raise KeyError("handle")

    def __init__(self) -> None:
        self.part = self.Part()


BROKEN: list[tuple[Callable[[], Any], str]] = [
    (FourValues, r"step: expected the tuple \(observation, reward, .*got 4 values"),
    (OneValue, r"reset: expected \(observation, info\), got ndarray"),
    (RaisesInReset, "raised AttributeError: no board while planvec checked"),
    (RaisesInSecondReset, "raised RuntimeError: only once while planvec checked"),
    (lambda: NotUnwrapped(Walk()), "unwrapped: expected a gymnasium.Env, got object"),
    (DeepState, r'DeepState.part: Part cannot be pickled .*Copied\(\["part"\]\)'),
]


@pytest.mark.parametrize(("make", "message"), slow_after(9, BROKEN, unpack=True))
def test_an_environment_that_breaks_the_interface_is_refused(
    backend: Backend, make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=message):
        backend.open(make)


def test_advice_to_name_a_constant_works_when_followed() -> None:
    with planvec.PlanEnv(DeepState, codec=planvec.Copied(["part"])) as env:
        assert env.step_batch([0, 1]).rewards.tolist() == [1.0, 1.0]


def test_functions_that_hold_each_other_can_be_looked_into(backend: Backend) -> None:
    def ping(count: int) -> int:
        return count if count <= 0 else pong(count - 1)

    def pong(count: int) -> int:
        return ping(count)

    class Recursive(Walk):
        def __init__(self) -> None:
            self.play = ping

    with backend.open(Recursive) as env:
        assert env.step_batch([0, 1]).rewards.tolist() == [1.0, 1.0]


def test_messages_show_the_first_difference_and_not_whole_arrays() -> None:
    class Noisy(Walk):
        observation_space = spaces.Box(-np.inf, np.inf, (500,), np.float64)
        count = 0

        def observe(self) -> Any:
            self.memory[0] += 1
            return np.arange(500.0) + (np.arange(500) == 17) * self.memory[0]

        def __init__(self) -> None:
            self.memory = np.zeros(1)

        def reset(self, **kwargs: Any) -> Any:
            super().reset(**kwargs)
            return self.observe(), {}

        def step(self, action: Any) -> Any:
            return self.observe(), 0.0, False, False, {}

    with pytest.raises(planvec.UnsupportedEnvError, match=r"expected observation\[17\] ") as error:
        planvec.PlanEnv(Noisy, codec=planvec.Copied(["memory"]))
    assert len(str(error.value)) < 700


# -- spaces without elements --------------------------------------------------------------------------


class Blind(Walk):
    """Observes nothing, and takes actions without a number."""

    observation_space = spaces.Box(-1, 1, (0,), np.float64)
    action_space = spaces.Box(-1, 1, (0,), np.float64)

    def reset(self, **kwargs: Any) -> Any:
        return np.zeros(0), super().reset(**kwargs)[1]

    def step(self, action: Any) -> Any:
        return (np.zeros(0), *super().step(action)[1:])


def test_spaces_without_elements_work(backend: Backend) -> None:
    with backend.open(Blind) as env:
        out = env.step_batch(np.zeros((3, 0)))
        assert out.observations.shape == (3, 0)
        assert out.rewards.tolist() == [1.0] * 3
        rollouts = env.rollout_batch(out.new_states, 4, action_seed=0)
        assert rollouts.num_steps.tolist() == [4] * 3


# -- arguments ----------------------------------------------------------------------------------------


def test_seeds_may_be_a_list_of_small_and_large_integers(backend: Backend) -> None:
    with backend.open("FrozenLake-v1") as env:
        seeds = [0, 2**64 - 1, 2**63]
        out = env.step_batch([1, 1, 1], seeds=seeds)
        assert (
            out.new_states == env.step_batch([1, 1, 1], seeds=np.array(seeds, np.uint64)).new_states
        ).all()
        for wrong in ([0, 2**64], [0, -1], [0, 1.5]):
            with pytest.raises(planvec.InvalidBatchError, match="seeds"):
                env.step_batch([1, 1], seeds=wrong)


def test_states_may_be_mapped_from_a_file(backend: Backend, tmp_path: Path) -> None:
    with backend.open("CartPole-v1") as env:
        states = env.step_batch([0, 1, 0], dt=[1, 2, 3]).new_states
        np.save(tmp_path / "states.npy", states)
        mapped = np.load(tmp_path / "states.npy", mmap_mode="r")
        assert (
            env.step_batch([1, 1, 1], mapped).new_states == env.step_batch([1, 1, 1], states).new_states
        ).all()


def test_the_largest_number_of_elapsed_steps_is_past_the_time_limit(backend: Backend) -> None:
    with backend.open("CartPole-v1") as env:
        state = env.get_state() if hasattr(env, "get_state") else env.reset(seed=0).state
        states = np.repeat(state, 2)
        states["elapsed_steps"] = 2**31 - 1
        out = env.step_batch([0, 1], states)
        assert out.truncated.all()
        assert (out.new_states["elapsed_steps"] == 2**31 - 1).all()


# -- callers ------------------------------------------------------------------------------------------


class Signals(Walk):
    """Sends a signal to this process, once it is armed."""

    is_armed: ClassVar = [False]

    def step(self, action: Any) -> Any:
        if self.is_armed[0]:
            os.kill(os.getpid(), signal.SIGUSR1)
        return super().step(action)


@pytest.fixture
def calls() -> Iterator[list[Callable[[], Any]]]:
    """Calls to make from a signal handler."""
    pending: list[Callable[[], Any]] = []

    def handler(number: int, frame: FrameType | None) -> None:
        for call in pending:
            call()

    before = signal.signal(signal.SIGUSR1, handler)
    yield pending
    signal.signal(signal.SIGUSR1, before)


def test_a_call_from_a_signal_handler_during_another_call_is_refused(calls: list[Callable[[], Any]]) -> None:
    with planvec.PlanEnv(Signals) as env:
        errors = []

        def again() -> None:
            try:
                env.step_batch([0])
            except planvec.PlanvecError as error:
                errors.append(str(error))

        calls.append(again)
        Signals.is_armed[0] = True
        out = env.step_batch([0, 1, 2])
        Signals.is_armed[0] = False
        assert out.rewards.tolist() == [1.0] * 3
        assert len(errors) == 3
        assert "a signal handler called this environment during another call" in errors[0]
        assert env.step_batch([0]).rewards.tolist() == [1.0]


def step_in_worker(start_method: str) -> list[float]:
    with planvec.make("CartPole-v1", num_workers=1, start_method=start_method) as env:
        rewards: list[float] = env.step_batch([0, 1]).rewards.tolist()
    return rewards


@contextmanager
def closing_pool() -> Iterator[Any]:
    """A pool of one daemonic process."""
    pool = multiprocessing.get_context("spawn").Pool(1)
    try:
        yield pool
    finally:
        pool.close()
        pool.join()
        del pool
        gc.collect()


@pytest.mark.parametrize("method", ["template", pytest.param("spawn", marks=pytest.mark.slow)])
def test_daemonic_processes_can_open_environments(method: str) -> None:
    with closing_pool() as pool:
        assert pool.apply(step_in_worker, (method,)) == [1.0, 1.0]


def test_a_start_method_that_daemonic_processes_cannot_use_says_so() -> None:
    with (
        closing_pool() as pool,
        pytest.raises(planvec.WorkerStartError, match='daemonic .* start_method="template"'),
    ):
        pool.apply(step_in_worker, ("fork",))


class KillsItself(Walk):
    """Is killed while it is made, as by a system that is short of memory."""

    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_an_environment_that_is_killed_while_it_is_made_is_soon_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(planvec.WorkerStartError, match=r"was killed by SIGKILL.*too little memory"):
        planvec.make(KillsItself, num_workers=2)
    assert len(caplog.records) < 12


# -- no file descriptors left ---------------------------------------------------------------------------

WITHOUT_FILES = """
import os, resource, signal, sys
import numpy as np
import planvec

env = planvec.make("CartPole-v1", num_workers=2, timeout=0.5, start_method=sys.argv[1])
pids = [worker.pid for worker in env.workers]
state = env.reset(seed=0).state
actions = np.arange(64) % 2
expected = env.step_batch(actions, state).observations
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 4096))
os.kill(pids[0], signal.SIGSTOP)  # exceeds the timeout, is killed, and cannot be replaced
assert (env.step_batch(actions, state).observations == expected).all()
env.workers[1].kill()
env.close()
for pid in pids:
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        continue
    os.remove("left")  # fails, and shows the traceback
"""


@pytest.mark.parametrize(
    "method", ["template", *(pytest.param(name, marks=pytest.mark.slow) for name in ("spawn", "fork"))]
)
def test_workers_are_killed_and_closed_when_no_file_descriptor_is_left(method: str, tmp_path: Path) -> None:
    script = tmp_path / "without_files.py"
    script.write_text(WITHOUT_FILES)
    done = subprocess.run(
        [sys.executable, script, method], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
