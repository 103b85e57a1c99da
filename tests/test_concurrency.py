"""Promises, threads, signals and large batches. The numbers name the faults."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import same_states
from faulty import ARMED, Faulty, fault
from interrupted import Interrupted
from marks import slow_after
from methods import METHODS

import planvec
from planvec.backends import client
from planvec.backends.sharded.call import Call

# Python itself swallows what a handler raises where it happens to run in a callback of a weak reference.
SWALLOWED = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(params=METHODS, scope="module")
def env(request: pytest.FixtureRequest) -> Iterator[planvec.BatchEnv]:
    with planvec.make("CartPole-v1", num_workers=2, start_method=request.param) as env:
        yield env


@pytest.fixture(scope="module")
def reference() -> Iterator[planvec.BatchEnv]:
    with planvec.make("CartPole-v1", num_workers=0) as env:
        yield env


def start_of(env: planvec.BatchEnv) -> Any:
    for worker in env.workers:
        worker.wait_ready()
    return env.reset(seed=0).state


# -- promises --------------------------------------------------------------------------------------


@pytest.mark.fault(35)
def test_promises_can_be_read_in_any_order_twice_or_never(
    env: planvec.BatchEnv, reference: planvec.BatchEnv
) -> None:
    rng = np.random.default_rng(0)
    state = start_of(env)
    batches = [rng.integers(2, size=size) for size in (1, 700, 3, 5000, 2, 64)]
    promises = [env.step_batch(batch, state, blocking=False) for batch in batches]
    order = [3, 0, 5, 2, 3]  # 1 and 4 are never read
    for index in order:
        expected = reference.step_batch(batches[index], state)
        assert same_states(promises[index]().new_states, expected.new_states)
    del promises
    after = env.step_batch(batches[1], state)
    assert same_states(after.new_states, reference.step_batch(batches[1], state).new_states)


@pytest.mark.slow
def test_arrays_changed_after_the_call_do_not_change_a_promise(
    env: planvec.BatchEnv, reference: planvec.BatchEnv
) -> None:
    states = np.repeat(start_of(env), 20_000)
    actions = np.random.default_rng(0).integers(2, size=20_000)
    expected = reference.step_batch(actions, states)
    for kill in (False, True):
        given, copied = states.copy(), actions.copy()
        promise = env.step_batch(copied, given, blocking=False)
        copied[:], given[:] = 0, np.zeros(1, states.dtype)
        if kill:
            env.workers[0].kill()
        assert same_states(promise.result().new_states, expected.new_states)


def test_a_promise_that_outlives_a_crash_keeps_the_arrays_that_it_was_given() -> None:
    with planvec.make(Faulty, num_workers=1, start_method="fork", max_restarts=1) as env:
        state = env.reset(seed=0, options=ARMED).state
        doomed = env.step_batch([fault("sigkill")], state, blocking=False)
        actions = np.zeros(3, int)
        innocent = env.step_batch(actions, state, blocking=False)
        actions[:] = fault("exception")
        with pytest.raises(planvec.WorkerCrashedError):
            doomed.result()
        assert innocent.result().rewards.tolist() == [1.0] * 3


def test_a_promise_that_is_kept_can_be_taken_with_no_time_at_all(env: planvec.BatchEnv) -> None:
    promise = env.step_batch([0, 1], start_of(env), blocking=False)
    while not promise.done():
        pass
    assert len(promise.result(timeout=0).rewards) == 2


def test_a_promise_that_is_not_ready_in_time_stays_valid(env: planvec.BatchEnv) -> None:
    promise = env.step_batch(np.zeros(20_000, int), start_of(env), dt=4, blocking=False)
    with pytest.raises(planvec.WorkerTimeoutError, match="the promise stays valid"):
        promise.result(timeout=0.001)
    assert isinstance(promise.done(), bool)
    assert len(promise.result(timeout=60).rewards) == 20_000
    assert promise.done()


# -- signals and threads ---------------------------------------------------------------------------


@SWALLOWED
@pytest.mark.fault(36)
@pytest.mark.parametrize("raised", [TimeoutError, ValueError, Interrupted])
def test_what_a_signal_handler_raises_reaches_the_caller(raised: type[Exception]) -> None:
    def interrupt(*_: Any) -> None:
        raise raised("the alarm of the user")

    previous = signal.signal(signal.SIGALRM, interrupt)
    num_interrupted = 0
    try:
        with planvec.make(Faulty, num_workers=2, start_method="fork") as env:
            state = env.reset(seed=0, options=ARMED).state
            for number in range(25):
                signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.0007 * number)
                try:
                    env.step_batch(np.full(60, fault("chatty")), state)  # infos of 14 MB
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except raised as error:
                    num_interrupted += str(error) == "the alarm of the user"
            assert env.step_batch([0, 0], state).rewards.tolist() == [1.0, 1.0]
            assert env.stats.crashes == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert num_interrupted > 10


@pytest.mark.slow
@SWALLOWED
@pytest.mark.fault(36)
def test_a_call_that_was_interrupted_is_not_finished_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "_CANCELLED_SECONDS", 0.2)

    def interrupt(*_: Any) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        with planvec.make(Faulty, num_workers=2, start_method="fork") as env:
            state = env.reset(seed=0, options=ARMED).state
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                env.step_batch(np.full(8, fault("hang_in_c")), state)
            assert env.step_batch([0, 0], state).rewards.tolist() == [1.0, 1.0]
            assert env.stats.stopped == env.stats.restarts == 2
    finally:
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.fault(36)
def test_a_worker_whose_first_message_was_interrupted_is_replaced_at_once(
    monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None]
) -> None:
    with planvec.make("CartPole-v1", num_workers=1, start_method="fork") as env:
        worker = env.workers[0]._worker
        greet = worker._on_ready_message
        monkeypatch.setattr(client, "START_SECONDS", 5.0)
        monkeypatch.setattr(worker, "_on_ready_message", lambda frame: alarm())
        worker.kill()
        with pytest.raises(Interrupted):
            env.step_batch([0, 1])
        monkeypatch.setattr(worker, "_on_ready_message", greet)
        assert env.step_batch([0, 1]).rewards.tolist() == [1.0, 1.0]
        assert (env.stats.crashes, env.stats.stopped) == (1, 1)


@pytest.mark.fault(36)
@pytest.mark.parametrize("where", ["deliver", "_finish_if_complete"], ids=["before", "after"])
def test_a_promise_whose_answer_was_interrupted_before_or_after_it_was_merged_is_kept(
    monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None], where: str
) -> None:
    with planvec.make("CartPole-v1", num_workers=1, start_method="fork") as env:
        promise = env.step_batch([0, 1], blocking=False)
        with monkeypatch.context() as patch:
            patch.setattr(Call, where, lambda *_: alarm())
            with pytest.raises(Interrupted):
                promise.result()
        assert promise.result(60).rewards.tolist() == [1.0, 1.0]
        assert env.stats.stopped == env.stats.restarts == 1


@SWALLOWED
@pytest.mark.fault(36)
@pytest.mark.parametrize("signum", slow_after(1, [signal.SIGALRM, signal.SIGINT]))
@pytest.mark.parametrize("kill", [False, True], ids=["alone", "while-workers-die"])
def test_a_signal_handler_that_raises_leaves_the_next_call_correct(
    env: planvec.BatchEnv, reference: planvec.BatchEnv, signum: signal.Signals, kill: bool
) -> None:
    main = threading.main_thread().ident
    assert main is not None

    def interrupt(*_: Any) -> None:
        raise Interrupted

    previous = signal.signal(signum, interrupt)
    rng = np.random.default_rng(signum)
    num_interrupted = 0
    state = start_of(env)
    try:
        for number, size in enumerate((4000, 30, 9000, 500, 6000, 2, 8000, 700) * 2):
            actions = rng.integers(2, size=size)
            timer = threading.Timer(float(rng.uniform(2e-5, 6e-3)), signal.pthread_kill, (main, signum))
            if kill and number % 3 == 0:
                env.workers[number % 2].kill()
            try:
                timer.start()
                env.step_batch(actions, state)
                timer.join()
            except Interrupted:
                num_interrupted += 1
            timer.join()
            check = rng.integers(2, size=100)
            got, expected = env.step_batch(check, state), reference.step_batch(check, state)
            assert same_states(got.new_states, expected.new_states)
    finally:
        signal.signal(signum, previous)
    assert num_interrupted > 3


@pytest.mark.fault(33)
@pytest.mark.parametrize("kill", [False, True], ids=["alone", "while-workers-die"])
def test_calls_from_several_threads_are_not_mixed_up(
    env: planvec.BatchEnv, reference: planvec.BatchEnv, kill: bool
) -> None:
    wrong: list[Any] = []
    errors: list[BaseException] = []
    state = start_of(env)
    jobs = []
    for seed in range(4):
        actions = np.random.default_rng(seed).integers(2, size=(30, 40 + seed))
        jobs.append((actions, [reference.step_batch(row, state) for row in actions]))

    def work(actions: Any, expected: list[Any]) -> None:
        try:
            for number, (row, answer) in enumerate(zip(actions, expected, strict=True)):
                if kill and number % 10 == 5:
                    env.workers[number % 2].kill()
                out = env.step_batch(row, state)
                if not same_states(out.new_states, answer.new_states):
                    wrong.append(row)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert wrong == []


# -- large batches ---------------------------------------------------------------------------------


class Huge(gymnasium.Env):
    """A state of 4 MB."""

    observation_space = gymnasium.spaces.Discrete(256)
    action_space = gymnasium.spaces.Discrete(256)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.data = np.zeros(4 << 20, np.uint8)
        return 0, {}

    def step(self, action: Any) -> Any:
        self.data[-1] += action
        return int(self.data[-1]), 0.0, False, False, {}


class HugeCodec(planvec.Codec):
    """Saves it."""

    dtype = np.dtype([("data", np.uint8, (4 << 20,))])
    draws = False

    def get(self, env: Any) -> Any:
        return (env.data.copy(),)

    def set(self, env: Any, value: Any) -> None:
        env.data = value[0].copy()

    def observe(self, env: Any) -> Any:
        return int(env.data[-1])


@pytest.mark.fault(29, 30)
@pytest.mark.parametrize("gib", [0.25, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", METHODS)
def test_large_states_travel_in_waves_through_a_bounded_memory(method: str, gib: float) -> None:
    with planvec.make(Huge, codec=HugeCodec, num_workers=2, start_method=method) as env:
        num_rows = int(gib * 260)
        states = np.zeros(num_rows, env.state_dtype)  # zero pages: they take no memory until they are written
        assert states.nbytes > gib * 2**30
        actions = np.arange(num_rows) % 256
        out = env.step_batch(actions, states, return_state=method == "template")
        assert out.observations.tolist() == actions.tolist()
        if out.new_states is not None:
            assert out.new_states["data"][:, -1].tolist() == actions.tolist()
        shared = {file: size for worker in env.workers for file, size in _shared_memory(worker.pid)}
        assert 0 < sum(shared.values()) < 64 << 20


def _shared_memory(pid: int) -> Iterator[tuple[int, int]]:
    """The shared memory that a process has open: which, and its bytes. None of it is in /dev/shm.

    But for what a fork inherits from this process, in which Gymnasium's vector environments may have run.
    """
    inherited = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
    for file in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(file)
        assert not target.startswith("/dev/shm") or target in inherited
        if target.startswith("/memfd:"):
            yield file.stat().st_ino, file.stat().st_size
