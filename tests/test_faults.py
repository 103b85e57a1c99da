"""What a user sees when something breaks in an environment or in a worker. The numbers name the faults."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same, same_states
from faulty import ARMED, Faulty, Speechless, actions_with, fault, once
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import generate_random_map
from marks import slow_after
from methods import METHODS
from processes import is_zombie_or_gone, wait_until_dead
from toy_workers import ThreadWorker

import planvec
from planvec import ExternalProcess, PlanEnv
from planvec.backends import Sharded, client
from planvec.backends.base import Stats
from planvec.backends.client import Waiter
from planvec.backends.processes import starting
from planvec.backends.processes import worker as worker_module
from planvec.backends.sharded.call import Call, Pace
from planvec.backends.sharded.recovery import Queue, WorkerRecord
from planvec.rows import check_step


@pytest.fixture(params=METHODS, scope="module")
def env(request: pytest.FixtureRequest) -> Iterator[planvec.BatchEnv]:
    with planvec.make(Faulty, num_workers=2, start_method=request.param, timeout=0.5, max_restarts=2) as env:
        yield env


def quick(source: Any = Faulty, num_workers: int = 2, **options: Any) -> planvec.BatchEnv:
    return planvec.make(source, num_workers=num_workers, start_method="fork", **options)


def states_of(env: planvec.BatchEnv, options: Any = ARMED, num_rows: int = 8) -> Any:
    """States that differ: row `i` has counted to `i`. All workers are there.

    What rows cost is forgotten: the next batch is cut evenly, however busy this machine is.
    """
    for worker in env.workers:
        worker.wait_ready()
    start = env.reset(seed=0, options=options).state
    stepped = env.step_batch(np.zeros(num_rows, int), start, dt=np.arange(num_rows) + 1)
    if isinstance(env._backend, Sharded):
        env._backend._paces.clear()
    return np.concatenate([np.repeat(start, 1), stepped.new_states])[:num_rows]


def assert_counts(env: planvec.BatchEnv, states: Any) -> None:
    """The environment works: every row counts on from where it was."""
    out = env.step_batch(np.zeros(len(states), int), states)
    assert out.observations[:, 0].tolist() == list(range(1, len(states) + 1))


def go_on(env: planvec.BatchEnv, states: Any) -> None:
    while True:
        assert_counts(env, states)


def kill_and_wait(env: planvec.BatchEnv, *indices: int) -> list[int]:
    pids = [env.workers[index].pid for index in indices]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert wait_until_dead(pids, 5) == []
    return pids


def faults_by_test() -> dict[str, set[int]]:
    """Return the numbers that each test is marked with."""
    marked: dict[str, set[int]] = {}
    for path in Path(__file__).parent.glob("test_*.py"):
        numbers: set[int] = set()
        for mark, name in re.findall(
            r"^@pytest\.mark\.fault\((.*)\)$|^def (test_\w+)", path.read_text(), re.MULTILINE
        ):
            if mark:
                numbers = {int(number) for number in mark.split(",")}
            else:
                marked[name], numbers = numbers, set()
    return marked


@pytest.mark.slow
def test_each_of_the_38_faults_has_a_quick_test_with_the_default_start_method() -> None:
    folder = Path(__file__).parent
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-m",
        "fault and not slow",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder.parent)
    marked = faults_by_test()
    tested: set[int] = set()
    for name, parameters in re.findall(r"^tests/test_\w+\.py::(\w+)\[(.*)\]$", done.stdout, re.MULTILINE):
        if "template" in parameters.split("-"):
            tested |= marked[name]
    assert tested == set(range(1, 39))


# -- errors in the environment ---------------------------------------------------------------------


@pytest.mark.fault(5, 6, 7, 8, 9, 10)
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("exception", "row 5, action 1: ValueError: the rocket exploded"),
        ("two_arguments", r"row 5, action 2: TwoArguments: \(7, 'of two arguments'"),
        ("sys_exit", "row 5, action 3: SystemExit: 3"),
        ("keyboard_interrupt", "row 5, action 4: KeyboardInterrupt: "),
        ("unpicklable_info", r"info\['handle'\]: function cannot be pickled"),
        ("wrong_shape", r"row 5, action 6: observation: expected shape \(3,\).* got shape \(2, 2\)"),
        ("wrong_dtype", "row 5, action 7: observation: .*float32.* got shape .* and dtype float64"),
        ("broadcast", r"row 5, action 8: observation: expected shape \(3,\).* got shape \(1,\)"),
        ("wrong_reward", r"row 5, action 19: reward: expected a number, got array"),
        ("speechless", r"row 5, action 20: Speechless: \(its text cannot be read: RuntimeError\)"),
    ],
)
def test_an_error_in_the_environment_names_its_row_and_harms_nobody(
    env: planvec.BatchEnv, name: str, message: str
) -> None:
    states, restarts = states_of(env), env.stats.restarts
    with pytest.raises(planvec.EnvError, match=message) as caught:
        env.step_batch(actions_with(name), states)
    assert caught.value.row == 5
    assert_counts(env, states)
    assert env.stats.restarts == restarts


@pytest.mark.fault(7)
def test_the_remote_traceback_is_the_cause(env: planvec.BatchEnv) -> None:
    with pytest.raises(planvec.EnvError) as caught:
        env.step_batch(actions_with("exception"), states_of(env))
    assert 'raise ValueError("the rocket exploded")' in str(caught.value.__cause__)
    assert "faulty.py" in str(caught.value.__cause__)
    assert "EnvError" not in str(caught.value.__cause__)


def test_the_first_failing_row_is_named_whichever_worker_was_first(env: planvec.BatchEnv) -> None:
    actions = actions_with("exception", row=6)
    actions[2] = fault("sys_exit")
    for _ in range(5):
        with pytest.raises(planvec.EnvError) as caught:
            env.step_batch(actions, states_of(env))
        assert caught.value.row == 2


def test_a_row_that_raises_is_named_even_if_a_later_one_kills(env: planvec.BatchEnv) -> None:
    actions = actions_with("segfault", row=6)
    actions[4] = fault("exception")
    with pytest.raises(planvec.EnvError, match="row 4, action 1: ValueError"):
        env.step_batch(actions, states_of(env))


def test_an_error_in_one_promise_leaves_the_others_alone(env: planvec.BatchEnv) -> None:
    states = states_of(env)
    good = env.step_batch(np.zeros(8, int), states, blocking=False)
    bad = env.step_batch(actions_with("exception"), states, blocking=False)
    later = env.step_batch(np.zeros(8, int), good.result().new_states, blocking=False)
    assert later.result().observations[:, 0].tolist() == list(range(2, 10))
    for _ in range(2):
        with pytest.raises(planvec.EnvError, match="row 5"):
            bad.result()


def test_a_promise_in_this_process_breaks_when_it_is_read() -> None:
    with quick(num_workers=0) as env:
        promise = env.step_batch(actions_with("exception"), states_of(env), blocking=False)
        actions = [[fault("exception")]]
        rolled = env.rollout_batch(states_of(env)[:1], actions=actions, blocking=False)
        for broken in (promise, rolled):
            assert broken.done()
            with pytest.raises(planvec.EnvError, match="the rocket exploded"):
                broken.result()


def test_an_error_in_a_rollout_names_its_row(env: planvec.BatchEnv) -> None:
    states = states_of(env)
    actions = np.zeros((8, 6), int)
    actions[3, 4] = fault("exception")
    with pytest.raises(planvec.EnvError, match="row 3, action 1: step 4 of the rollout: ValueError: "):
        env.rollout_batch(states, 6, actions=actions)
    assert env.rollout_batch(states, 6, actions=actions * 0).returns.tolist() == [6.0] * 8


# -- workers that die once -------------------------------------------------------------------------


@pytest.mark.fault(1)
def test_a_worker_killed_while_idle_is_replaced_with_one_line_in_the_log(
    env: planvec.BatchEnv, caplog: pytest.LogCaptureFixture
) -> None:
    states = states_of(env)
    restarts = env.stats.restarts
    (pid,) = kill_and_wait(env, 0)
    with caplog.at_level(logging.INFO, "planvec"):
        assert_counts(env, states)
    assert env.stats.restarts == restarts + 1
    (line,) = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(
        rf"planvec-worker-0 \(pid {pid}\) was killed by SIGKILL"
        r"( during the step of rows 0 to 3 \(ticket \d+\))?; it is replaced",
        line,
    )


@pytest.mark.fault(2)
def test_of_a_batch_whose_worker_is_killed_only_that_chunk_runs_again(
    env: planvec.BatchEnv, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    states = states_of(env, {**once(tmp_path / "done"), "trace": str(trace)})
    trace.write_text("")
    before = env.stats.retries
    out = env.step_batch(actions_with("sigkill"), states)
    assert out.observations[:, 0].tolist() == list(range(1, 9))
    assert env.stats.retries == before + 1
    stepped = [int(line) for line in trace.read_text().split()]
    assert sorted(stepped) == [1, 2, 3, 4, 5, 5, 6, 6, 7, 8]  # row 4 of the chunk again, and the row itself


@pytest.mark.fault(28)
def test_if_all_workers_are_killed_at_once_nothing_changes(env: planvec.BatchEnv) -> None:
    states = states_of(env)
    kill_and_wait(env, 0, 1)
    assert_counts(env, states)
    promise = env.step_batch(np.zeros(8, int), states, dt=5, blocking=False)
    kill_and_wait(env, 0, 1)
    assert promise.result().observations[:, 0].tolist() == list(range(5, 13))


@pytest.mark.fault(11)
def test_a_crash_while_a_reply_is_pickled_changes_nothing(env: planvec.BatchEnv, tmp_path: Path) -> None:
    out = env.step_batch(actions_with("crash_in_reply"), states_of(env, once(tmp_path / "done")))
    assert out.observations[:, 0].tolist() == list(range(1, 9))


@pytest.mark.fault(14)
def test_a_reply_that_was_sent_before_a_crash_is_kept(env: planvec.BatchEnv, tmp_path: Path) -> None:
    states = states_of(env, once(tmp_path / "done"))
    retries, restarts, pid = env.stats.retries, env.stats.restarts, env.workers[1].pid
    promise = env.step_batch(actions_with("crash_after_reply"), states, blocking=False)
    assert wait_until_dead([pid], 5) == []
    assert promise.result().observations[:, 0].tolist() == list(range(1, 9))
    assert_counts(env, states)
    assert (env.stats.retries, env.stats.restarts) == (retries, restarts + 1)


@pytest.mark.fault(34)
def test_rows_that_were_torn_by_a_crash_never_surface(env: planvec.BatchEnv, tmp_path: Path) -> None:
    states = states_of(env, once(tmp_path / "done"))
    out = env.step_batch(actions_with("torn"), states)
    assert out.observations[:, 0].tolist() == list(range(1, 9))
    assert out.rewards.tolist() == [1.0] * 8
    assert out.infos["count"].tolist() == list(range(1, 9))


def test_a_worker_that_was_stopped_is_replaced_and_nothing_changes(
    env: planvec.BatchEnv, caplog: pytest.LogCaptureFixture
) -> None:
    states, stopped = states_of(env), env.stats.stopped
    os.kill(env.workers[0].pid, signal.SIGSTOP)
    with caplog.at_level(logging.WARNING, "planvec"):
        assert_counts(env, states)
    assert env.stats.stopped == stopped + 1
    assert "had been stopped by a signal" in caplog.text


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_noticed_without_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_STOPPED_SECONDS", 0.2)
    with quick() as env:
        states = states_of(env)
        os.kill(env.workers[0].pid, signal.SIGSTOP)
        assert_counts(env, states)
        assert env.stats.stopped == 1


@pytest.mark.slow
def test_a_killed_worker_changes_no_bit_of_a_large_batch() -> None:
    actions = np.random.default_rng(0).integers(2, size=5000)
    with quick("CartPole-v1") as env, quick("CartPole-v1", 0) as reference:
        states = np.repeat(env.reset(seed=0).state, 5000)
        expected = reference.step_batch(actions, states, dt=5)
        rolled = reference.rollout_batch(states, 20, action_seed=1)
        for _ in range(2):
            promises = [
                env.step_batch(actions, states, dt=5, blocking=False),
                env.rollout_batch(states, 20, action_seed=1, blocking=False),
            ]
            for worker in env.workers:
                worker.kill()
            out, ends = (promise.result() for promise in promises)
            assert_same(out.observations, expected.observations)
            assert same_states(out.new_states, expected.new_states)
            assert same_states(ends.final_states, rolled.final_states)
            assert_same(ends.returns, rolled.returns)
        assert env.stats.crashes == env.stats.restarts >= 4


def test_a_worker_that_is_replaced_has_the_base_state_that_was_synced(env: planvec.BatchEnv) -> None:
    states = states_of(env)
    env.sync_states(states[2])
    kill_and_wait(env, 1)
    assert_counts(env, states)
    assert [worker.get_state() for worker in env.workers] == [states[2]] * 2


def test_a_reset_whose_worker_is_killed_is_done_again(env: planvec.BatchEnv) -> None:
    expected = env.reset(seed=7).observation.tolist()
    kill_and_wait(env, 0)
    assert env.reset(seed=7).observation.tolist() == expected


def test_a_lone_process_that_was_killed_says_so_until_it_is_restarted() -> None:
    with ExternalProcess(lambda: PlanEnv(Faulty), start_method="fork") as worker:
        worker.wait_ready()
        worker.kill()
        wait_until_dead([worker.pid], 5)
        for _ in range(2):
            with pytest.raises(planvec.WorkerCrashedError, match="SIGKILL"):
                worker.call("reset", seed=1).result()
        worker.restart()
        assert worker.call("reset", seed=1).result().observation.tolist() == [0.0, 0.0, 0.0]


# -- rows that always kill, or never end -----------------------------------------------------------


@pytest.mark.fault(3, 4)
@pytest.mark.parametrize(
    ("name", "how"),
    slow_after(
        1,
        [
            ("segfault", "was killed by SIGSEGV"),
            ("os_exit", "exited with code 0"),
            ("sigkill", "was killed by SIGKILL"),
        ],
        unpack=True,
    ),
)
def test_a_row_that_always_kills_its_worker_is_named_with_its_action_and_the_signal(
    env: planvec.BatchEnv, name: str, how: str
) -> None:
    states, retries = states_of(env), env.stats.retries
    with pytest.raises(
        planvec.WorkerCrashedError,
        match=rf"row 5, action {fault(name)}: planvec-worker-. \(pid \d+\) {how} during the step of row 5; "
        r"3 workers failed on it, one after another",
    ) as caught:
        env.step_batch(actions_with(name), states)
    assert (caught.value.row, caught.value.action) == (5, fault(name))
    assert env.stats.retries == retries + 2
    assert_counts(env, states)


@pytest.mark.fault(11)
def test_a_row_that_is_not_known_is_found_by_halving(env: planvec.BatchEnv) -> None:
    states = states_of(env)
    with pytest.raises(planvec.WorkerCrashedError, match="^row 5: planvec-worker.* SIGKILL") as caught:
        env.step_batch(actions_with("torn"), states)
    assert caught.value.row == 5
    assert_counts(env, states)


def test_without_restarts_the_first_death_over_a_row_raises() -> None:
    with quick(max_restarts=0) as env:
        states = states_of(env)
        with pytest.raises(
            planvec.WorkerCrashedError,
            match=r"row 5, action 10: .* SIGSEGV during the step of rows 4 to 7; max_restarts=n",
        ):
            env.step_batch(actions_with("segfault"), states)
        assert env.stats.retries == 0
        kill_and_wait(env, 0)
        assert_counts(env, states)


def test_a_rollout_that_kills_its_worker_names_the_row_and_the_action(env: planvec.BatchEnv) -> None:
    actions = np.zeros((8, 6), int)
    actions[3, 4] = fault("segfault")
    with pytest.raises(planvec.WorkerCrashedError, match="row 3, action 10: .* SIGSEGV during the rollout"):
        env.rollout_batch(states_of(env), actions=actions)


@pytest.mark.fault(15, 16)
@pytest.mark.parametrize("name", ["hang", "hang_in_c"])
def test_a_row_that_hangs_is_given_up_and_its_worker_replaced(env: planvec.BatchEnv, name: str) -> None:
    states, timeouts, pids = states_of(env), env.stats.timeouts, [worker.pid for worker in env.workers]
    with pytest.raises(
        planvec.WorkerTimeoutError,
        match=rf"row 5, action {fault(name)}: planvec-worker-. .* did not finish within 0.5 s, and was "
        r"killed during the step of (row|rows .*)",
    ):
        env.step_batch(actions_with(name), states)
    assert sum(map(is_zombie_or_gone, pids)) == 1
    assert env.stats.timeouts == timeouts + 1
    assert_counts(env, states)


@pytest.mark.fault(17)
def test_what_a_worker_might_have_answered_after_its_time_is_never_seen(env: planvec.BatchEnv) -> None:
    states = states_of(env)
    late = env.step_batch(actions_with("hang"), states, blocking=False)
    behind = env.step_batch(np.zeros(8, int), states, dt=3, blocking=False)
    assert behind.result().observations[:, 0].tolist() == list(range(3, 11))
    for _ in range(2):
        with pytest.raises(planvec.WorkerTimeoutError, match="row 5"):
            late.result()
        assert_counts(env, states)


def test_a_batch_of_many_chunks_is_given_up_with_the_first_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with quick(timeout=0.5) as env:
        for worker in env.workers:
            monkeypatch.setattr(worker._worker, "capacity", 2)
        states = states_of(env, num_rows=40)
        with pytest.raises(planvec.WorkerTimeoutError):
            env.step_batch(np.full(40, fault("hang_in_c")), states)
        assert env.stats.timeouts <= 2  # one each, not one for each of the 20 chunks
        assert_counts(env, states)


@pytest.mark.slow
def test_a_row_that_stops_its_own_worker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "_STOPPED_SECONDS", 0.2)
    with (
        quick(max_restarts=0) as env,
        pytest.raises(planvec.WorkerCrashedError, match="row 5, action 21: .* had been stopped by a signal"),
    ):
        env.step_batch(actions_with("stop"), states_of(env))


def test_a_chunk_can_be_split_as_often_as_it_has_rows() -> None:
    num_rows = 3000
    with PlanEnv("CartPole-v1") as env:
        about = env.stepper.description
        request = check_step(about, np.zeros(num_rows, int), env.get_state(), 1, None, True, "raise")
        call = Call(request, about, Pace(), Waiter(), threading.RLock(), Stats(), False, set())
        rest = call.next_chunk(1, num_rows)
        while rest is not None and rest.num_rows < num_rows:
            call.deliver(rest, env.stepper.perform(rest.request()))
            num_rows -= rest.num_rows
            rest = call.next_chunk(1, num_rows)
        assert rest is not None
        first_rows = []
        while rest.num_rows > 1:
            first, rest = call.split(rest, 1)
            first_rows.append(first.first_row)
            call.deliver(first, env.stepper.perform(first.request()))
        assert first_rows == sorted(first_rows)
        assert not call.done()
        call.deliver(rest, env.stepper.perform(rest.request()))
        assert call.done()
        assert len(call.result().rewards) == 3000


def test_a_retried_chunk_that_a_worker_has_is_not_failed_with_those_that_wait() -> None:
    with PlanEnv("CartPole-v1") as env:
        about = env.stepper.description
        request = check_step(about, np.zeros(4, int), env.get_state(), 1, None, True, "raise")
        call = Call(request, about, Pace(), Waiter(), threading.RLock(), Stats(), False, set())
        chunk = call.next_chunk(1, 4)
        assert chunk is not None
        chunk.is_submitted = True
        queue, worker = Queue(), WorkerRecord(ThreadWorker(lambda: PlanEnv("CartPole-v1"), 0))
        queue.retry(chunk)
        assert queue.next_chunk(worker, 1, True) is chunk
        chunk.is_submitted = True
        queue.fail_waiting(planvec.WorkerStartError("the other worker cannot start"))
        call.deliver(chunk, env.stepper.perform(chunk.request()))
        assert len(call.result().rewards) == 4
        worker.worker.close()


# -- what cannot be sent ---------------------------------------------------------------------------


@pytest.mark.fault(12)
def test_what_cannot_be_pickled_fails_at_the_caller(env: planvec.BatchEnv) -> None:
    lock, generator = threading.Lock(), (x for x in range(3))
    with pytest.raises(planvec.WorkerStartError, match="factory: .*'generator', .* cannot be pickled"):
        ExternalProcess(lambda: generator)
    before = env.stats.num_chunks
    with pytest.raises(planvec.InvalidBatchError, match="reset: an argument cannot be pickled"):
        env.reset(options={"lock": lock})
    assert env.stats.num_chunks == before
    assert_counts(env, states_of(env))


class Token:
    """An action that cannot always be pickled."""

    def __init__(self, is_in_use: bool = False) -> None:
        self.is_in_use = is_in_use

    def __reduce__(self) -> Any:
        if self.is_in_use:
            raise RuntimeError("the token is in use")
        return Token, ()


class Tokens(gymnasium.Space[Token]):
    def sample(self, mask: Any = None, probability: Any = None) -> Token:
        return Token()

    def contains(self, x: Any) -> bool:
        return isinstance(x, Token)


class TakesTokens(Faulty):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = Tokens()

    def step(self, action: Any) -> Any:
        return super().step(0)


def test_an_action_that_cannot_be_pickled_is_named_and_keeps_nothing_waiting() -> None:
    with planvec.make(TakesTokens, num_workers=1, start_method="fork") as env:
        message = "step of 2 rows: an argument cannot be pickled .RuntimeError: the token is in use.$"
        with pytest.raises(planvec.InvalidBatchError, match=message):
            env.step_batch([Token(), Token(is_in_use=True)])
        assert env.step_batch([Token(), Token()]).rewards.shape == (2,)


class Closing:
    """Closes a process while it is pickled."""

    def __init__(self, worker: ExternalProcess) -> None:
        self.worker = worker

    def __reduce__(self) -> Any:
        self.worker.close()
        return dict, ()


def test_a_process_closed_while_a_call_is_made_says_so() -> None:
    worker = ExternalProcess(lambda: PlanEnv(Faulty), start_method="fork")
    worker.wait_ready()
    with pytest.raises(planvec.ClosedError):
        worker.call("reset", options=Closing(worker)).result()


def test_a_process_that_cannot_be_restarted_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    with ExternalProcess(lambda: PlanEnv(Faulty), start_method="fork") as worker:
        pending = worker.call("reset", seed=1)
        with monkeypatch.context() as patch:
            patch.setattr(starting, "open_memory", no_more)
            with pytest.raises(planvec.WorkerStartError, match="Too many open files"):
                worker.restart()
        with pytest.raises(planvec.WorkerCrashedError):
            pending.result()
        with pytest.raises(planvec.WorkerStartError):
            worker.call("reset", seed=1)
        worker.restart()
        assert worker.call("reset", seed=1).result().observation.tolist() == [0.0, 0.0, 0.0]


class Explosive:
    """Pickles, but does not unpickle."""

    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    raise RuntimeError("it went off")


@pytest.mark.fault(13)
@pytest.mark.parametrize("method", METHODS)
def test_what_cannot_be_unpickled_is_an_error_with_its_traceback(method: str) -> None:
    with ExternalProcess(lambda: PlanEnv(Faulty), start_method=method) as worker:
        with pytest.raises(planvec.EnvError, match="RuntimeError: it went off") as caught:
            worker.call("reset", options=Explosive()).result()
        assert "_explode" in str(caught.value.__cause__)
        assert worker.call("reset", seed=1).result().observation.tolist() == [0.0, 0.0, 0.0]


class Rocket:
    """Hosted by a process, though it is no environment."""

    def __init__(self, is_broken: bool = False) -> None:
        if is_broken:
            self.launch()

    def launch(self) -> None:
        raise Speechless

    def fuel(self) -> int:
        return 7


def test_an_exception_whose_text_cannot_be_read_costs_no_worker() -> None:
    message = r"Speechless: \(its text cannot be read: RuntimeError\)"
    with ExternalProcess(Rocket, start_method="fork") as worker:
        with pytest.raises(planvec.EnvError, match=message):
            worker.call("launch").result()
        assert worker.call("fuel").result() == 7
    with (
        ExternalProcess(lambda: Rocket(is_broken=True), start_method="fork") as worker,
        pytest.raises(planvec.WorkerStartError, match=f"could not be started: {message}"),
    ):
        worker.wait_ready()


# -- starting --------------------------------------------------------------------------------------


@pytest.mark.fault(18)
@pytest.mark.parametrize("method", METHODS)
def test_a_factory_that_raises_is_an_error_at_make_and_leaves_no_worker(method: str) -> None:
    def broken() -> Any:
        raise OSError("no such rocket")

    with pytest.raises(
        planvec.WorkerStartError, match="could not be started: OSError: no such rocket"
    ) as caught:
        planvec.make(broken, num_workers=2, start_method=method)
    assert "in broken" in str(caught.value.__cause__)


@pytest.mark.fault(18)
@pytest.mark.parametrize("method", METHODS)
def test_a_factory_that_hangs_is_an_error_at_make_and_leaves_no_worker(
    method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def hang() -> Any:
        (tmp_path / str(os.getpid())).touch()
        threading.Event().wait()

    monkeypatch.setattr(client, "START_SECONDS", 0.7)
    with pytest.raises(planvec.WorkerStartError, match="was not ready within 0.7 s"):
        planvec.make(hang, num_workers=2, start_method=method)
    assert all(is_zombie_or_gone(int(path.name)) for path in tmp_path.iterdir())


def test_a_space_of_a_class_that_only_the_worker_knows_is_an_error_at_make() -> None:
    def make() -> Any:
        module = types.ModuleType("known_to_the_worker")
        sys.modules[module.__name__] = module
        module.Buttons = type("Buttons", (spaces.Discrete,), {"__module__": module.__name__})
        env = Faulty()
        env.action_space = module.Buttons(100)
        return env

    with pytest.raises(planvec.WorkerStartError, match="ModuleNotFoundError: No module named 'known_to_the"):
        quick(make, num_workers=1)
    with ExternalProcess(lambda: PlanEnv(make), start_method="fork") as worker:
        for _ in range(2):
            with pytest.raises(planvec.WorkerStartError, match="cannot be read in this process"):
                worker.wait_ready()


def test_a_factory_that_dies_is_an_error_at_make() -> None:
    with pytest.raises(planvec.WorkerStartError, match="exited with code 4, while its environment was made"):
        quick(lambda: os._exit(4), max_restarts=1)


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_killed_while_it_first_starts_is_started_again(method: str, tmp_path: Path) -> None:
    def kill_once() -> Any:
        with contextlib.suppress(FileExistsError):
            (tmp_path / "done").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return Faulty()

    with planvec.make(kill_once, num_workers=2, start_method=method) as env:
        assert env.stats.restarts == 1
        assert_counts(env, states_of(env))


@pytest.mark.fault(19)
@pytest.mark.parametrize("method", METHODS)
def test_a_factory_that_fails_on_a_restart_is_an_error_and_the_rest_closes(
    method: str, tmp_path: Path
) -> None:
    marker = tmp_path / "broken"

    def sometimes() -> Any:
        if marker.exists():
            raise OSError("no second rocket")
        return Faulty()

    with planvec.make(sometimes, num_workers=2, start_method=method) as env:
        states = states_of(env)
        marker.touch()
        kill_and_wait(env, 1)
        with pytest.raises(planvec.WorkerStartError, match="worker-1 .*no second rocket"):
            go_on(env, states)  # the other worker does its rows until then, and afterwards
        assert env.step_batch(np.zeros(8, int), states).rewards.tolist() == [1.0] * 8
        kill_and_wait(env, 0)
        with pytest.raises(planvec.WorkerStartError, match="no second rocket"):
            go_on(env, states)
        marker.unlink()
        while not all(worker.is_ready for worker in env.workers):
            with contextlib.suppress(planvec.WorkerStartError):  # one that was not told yet
                assert_counts(env, states)
        pids = [worker.pid for worker in env.workers]
        marker.touch()
        kill_and_wait(env, 0)
    assert all(is_zombie_or_gone(pid) for pid in pids)


@pytest.mark.fault(20)
@pytest.mark.parametrize("method", METHODS)
def test_a_restart_storm_ends_after_max_restarts(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    marker, starts = tmp_path / "broken", tmp_path / "starts"

    def sometimes() -> Any:
        if marker.exists():
            with starts.open("a") as file:
                file.write(f"{time.monotonic()}\n")
            os._exit(5)
        return Faulty()

    with planvec.make(sometimes, num_workers=1, start_method=method, max_restarts=3) as env:
        states = states_of(env)
        marker.touch()
        kill_and_wait(env, 0)
        with pytest.raises(
            planvec.WorkerStartError,
            match=r"exited with code 5, while its environment was made .*; more than 3 workers exited",
        ):
            env.step_batch(np.zeros(8, int), states)
        times = [float(line) for line in starts.read_text().split()]
        pauses = np.diff(times)
        assert len(pauses) == 3
        # Slower and slower: these are lower bounds, not how long it takes.
        assert pauses[1] > 0.05
        assert pauses[2] > 0.1
        marker.unlink()
        assert_counts(env, states)


def test_jobs_of_a_worker_that_cannot_be_replaced_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    with quick("CartPole-v1", num_workers=1) as env:
        promise = env.step_batch(np.zeros(2000, int), dt=400, blocking=False)
        with monkeypatch.context() as patch:
            patch.setattr(starting, "open_memory", no_more)
            env.workers[0].kill()
            with pytest.raises(planvec.WorkerStartError, match="could not be started: .*Too many open files"):
                promise.result()
        assert env.step_batch([0, 1]).rewards.tolist() == [1.0, 1.0]


def test_workers_that_made_different_environments_are_refused() -> None:
    workers = [
        ExternalProcess(lambda: PlanEnv("CartPole-v1"), start_method="fork"),
        ExternalProcess(lambda: PlanEnv("Acrobot-v1"), start_method="fork"),
    ]
    with pytest.raises(planvec.WorkerStartError, match="made another environment than the first"):
        planvec.BatchEnv(workers)


def test_workers_whose_factory_draws_at_random_are_refused() -> None:
    def random_lake() -> Any:
        desc = generate_random_map(8, seed=os.getpid())
        return gymnasium.make("FrozenLake-v1", desc=desc)

    with pytest.raises(planvec.WorkerStartError, match="results would depend on the worker"):
        quick(random_lake)
    with quick(random_lake, num_workers=1) as env:
        kill_and_wait(env, 0)
        with pytest.raises(planvec.WorkerStartError, match="was restarted and made another environment"):
            env.step_batch([0, 1])


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_worker_that_leaks_is_replaced_between_chunks(
    method: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_MEMORY_CHECK_SECONDS", 0.0)
    with planvec.make(Faulty, num_workers=1, start_method=method) as env:
        states_of(env)
        limit = env.workers[0]._worker.memory_used() + (150 << 20)
    with (
        planvec.make(Faulty, num_workers=2, start_method=method, max_worker_rss=limit) as env,
        caplog.at_level(logging.WARNING, "planvec"),
    ):
        states = states_of(env)
        for _ in range(20):  # 20 times 32 MB
            out = env.step_batch(actions_with("leak"), states)
            assert out.observations[:, 0].tolist() == list(range(1, 9))
        assert env.stats.outgrown == env.stats.restarts > 0
        assert env.stats.retries == 0
        assert f"took more memory than max_worker_rss={limit:,} bytes" in caplog.text
        assert max(worker._worker.memory_used() for worker in env.workers) < limit + (200 << 20)


def test_workers_that_outgrow_their_limit_with_every_chunk_go_on_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_module, "_MEMORY_CHECK_SECONDS", 0.0)
    with quick(max_worker_rss=4 << 30) as env:
        states = states_of(env)
        env.sync_states(states[0])
        for worker in env.workers:
            worker._worker.max_rss = 1
        for _ in range(3):
            assert_counts(env, states)
        assert env.stats.outgrown > 0
        assert env.stats.retries == 0


def test_a_limit_that_a_fresh_worker_exceeds_is_refused() -> None:
    with pytest.raises(
        planvec.InvalidBatchError, match="max_worker_rss: expected more than the .* bytes that"
    ):
        quick(max_worker_rss=1 << 20)
    for wrong in (0, "1 GB", 1.5):
        with pytest.raises(
            planvec.InvalidBatchError, match="max_worker_rss: expected bytes above 0, or None"
        ):
            quick(num_workers=0, max_worker_rss=wrong)
