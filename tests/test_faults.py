"""What a user sees when something breaks: in the environment, in a worker, in the caller."""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same, same_states
from environments import ARMED, Faulty, fault
from gymnasium.envs.toy_text.frozen_lake import generate_random_map

import planvec
from planvec import ExternalProcess, PlanEnv
from planvec.workers import link

METHODS = ["spawn", "forkserver", "fork"]


@pytest.fixture(params=METHODS, scope="module")
def env(request: pytest.FixtureRequest) -> Iterator[planvec.BatchEnv]:
    with planvec.make(Faulty, num_workers=2, start_method=request.param) as env:
        yield env


def quick(source: Any = Faulty, num_workers: int = 2, **options: Any) -> planvec.BatchEnv:
    return planvec.make(source, num_workers=num_workers, start_method="fork", **options)


def armed(env: planvec.BatchEnv, num_rows: int) -> Any:
    return np.repeat(env.reset(seed=0, options=ARMED).state, num_rows)


def actions_with(name: str, num_rows: int = 8, row: int = 5) -> Any:
    actions = np.zeros(num_rows, int)
    actions[row] = fault(name)
    return actions


def wait_until_dead(pids: list[int], seconds: float) -> list[int]:
    """Wait for processes to end by their kernel handles; returns those still there."""
    left = []
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([handle], [], [], seconds)
        os.close(handle)
        if not ready:
            left.append(pid)
    return left


def is_zombie_or_gone(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


# -- errors in the environment (5 to 10) -----------------------------------------------------------


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
    ],
)
def test_an_error_in_the_environment_names_its_row_and_harms_nobody(
    env: planvec.BatchEnv, name: str, message: str
) -> None:
    states = armed(env, 8)
    with pytest.raises(planvec.EnvError, match=message) as caught:
        env.step_batch(actions_with(name), states)
    assert caught.value.row == 5
    out = env.step_batch(np.zeros(8, int), states)
    assert out.observations[:, 0].tolist() == [1.0] * 8
    assert env.stats.restarts == 0


def test_the_remote_traceback_is_the_cause(env: planvec.BatchEnv) -> None:
    with pytest.raises(planvec.EnvError) as caught:
        env.step_batch(actions_with("exception"), armed(env, 8))
    assert 'raise ValueError("the rocket exploded")' in str(caught.value.__cause__)
    assert "environments.py" in str(caught.value.__cause__)
    assert "EnvError" not in str(caught.value.__cause__)


def test_the_first_failing_row_is_named_whichever_worker_was_first(env: planvec.BatchEnv) -> None:
    actions = actions_with("exception", row=6)
    actions[2] = fault("sys_exit")
    for _ in range(5):
        with pytest.raises(planvec.EnvError) as caught:
            env.step_batch(actions, armed(env, 8))
        assert caught.value.row == 2


def test_an_error_in_one_promise_leaves_the_others_alone(env: planvec.BatchEnv) -> None:
    states = armed(env, 8)
    good = env.step_batch(np.zeros(8, int), states, blocking=False)
    bad = env.step_batch(actions_with("exception"), states, blocking=False)
    later = env.step_batch(np.zeros(8, int), good.result().new_states, blocking=False)
    assert later.result().observations[:, 0].tolist() == [2.0] * 8
    for _ in range(2):
        with pytest.raises(planvec.EnvError, match="row 5"):
            bad.result()


def test_a_promise_in_this_process_breaks_when_it_is_read() -> None:
    with quick(num_workers=0) as env:
        promise = env.step_batch(actions_with("exception"), armed(env, 8), blocking=False)
        rolled = env.rollout_batch(armed(env, 1), actions=[[fault("exception")]], blocking=False)
        for broken in (promise, rolled):
            assert broken.done()
            with pytest.raises(planvec.EnvError, match="the rocket exploded"):
                broken.result()


def test_a_worker_that_is_replaced_has_the_base_state_that_was_synced(env: planvec.BatchEnv) -> None:
    states = env.step_batch(np.zeros(4, int), armed(env, 4), dt=[1, 2, 3, 4]).new_states
    env.sync_states(states[2])
    env.workers[1].kill()
    wait_until_dead([env.workers[1].pid], 5)
    env.step_batch(np.zeros(4, int), states)
    assert [worker.get_state() for worker in env.workers] == [states[2]] * 2


def test_an_error_in_a_rollout_names_its_row(env: planvec.BatchEnv) -> None:
    states = armed(env, 4)
    actions = np.zeros((4, 6), int)
    actions[3, 4] = fault("exception")
    with pytest.raises(planvec.EnvError, match="row 3, action 1: step 4 of the rollout: ValueError: "):
        env.rollout_batch(states, 6, actions=actions)
    assert env.rollout_batch(states, 6, actions=actions * 0).returns.tolist() == [6.0] * 4


# -- workers that die ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("os_exit", "exited with code 0"),
        ("segfault", "was killed by SIGSEGV"),
        ("sigkill", "was killed by SIGKILL"),
    ],
)
def test_a_worker_that_dies_is_noticed_and_named(env: planvec.BatchEnv, name: str, how: str) -> None:
    states = armed(env, 8)
    with pytest.raises(
        planvec.WorkerCrashedError, match=rf"planvec-worker-1 .*{how} during the step of rows 4 to 7"
    ):
        env.step_batch(actions_with(name), states)
    out = env.step_batch(np.zeros(8, int), states)
    assert out.observations[:, 0].tolist() == [1.0] * 8


def test_a_worker_killed_while_idle_is_replaced_and_nothing_is_lost(
    env: planvec.BatchEnv, caplog: pytest.LogCaptureFixture
) -> None:
    states = armed(env, 8)
    restarts = env.stats.restarts
    pid = env.workers[0].pid
    env.workers[0].kill()
    wait_until_dead([pid], 5)
    with caplog.at_level(logging.WARNING, "planvec"):
        out = env.step_batch(np.zeros(8, int), states)
    assert out.rewards.tolist() == [1.0] * 8
    assert env.stats.restarts == restarts + 1
    assert f"(pid {pid}) was killed by SIGKILL" in caplog.text


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


def test_with_max_restarts_a_killed_worker_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(0)
    with quick("CartPole-v1", max_restarts=2) as env, quick("CartPole-v1", 0) as reference:
        states = np.repeat(env.reset(seed=0).state, 3000)
        actions = rng.integers(2, size=3000)
        expected = reference.step_batch(actions, states, dt=5)
        with caplog.at_level(logging.WARNING, "planvec"):
            promise = env.step_batch(actions, states, dt=5, blocking=False)
            for worker in env.workers:
                worker.kill()
            out = promise.result()
        assert_same(out.observations, expected.observations)
        assert same_states(out.new_states, expected.new_states)
        assert env.stats.restarts == env.stats.retries == 2
        assert "was killed by SIGKILL" in caplog.text


def test_a_row_that_always_kills_its_worker_ends_the_retries() -> None:
    with quick(max_restarts=2) as env:
        states = armed(env, 8)
        with pytest.raises(planvec.WorkerCrashedError, match="SIGSEGV"):
            env.step_batch(actions_with("segfault"), states)
        assert env.stats.retries == 2
        assert env.step_batch(np.zeros(8, int), states).rewards.tolist() == [1.0] * 8


def test_a_chunk_that_takes_too_long_is_given_up_and_its_worker_replaced() -> None:
    with quick(timeout=0.5) as env:
        states = armed(env, 8)
        with pytest.raises(
            planvec.WorkerTimeoutError, match=r"did not finish the step of rows 4 to 7 within 0.5 s"
        ):
            env.step_batch(actions_with("hang"), states)
        assert env.step_batch(np.zeros(8, int), states).rewards.tolist() == [1.0] * 8


# -- what cannot be sent (12, 13) ------------------------------------------------------------------


def test_what_cannot_be_pickled_fails_at_the_caller() -> None:
    lock = threading.Lock()
    with pytest.raises(planvec.WorkerStartError, match="factory: .* cannot be pickled"):
        ExternalProcess(lambda: lock)
    with quick() as env:
        before = env.stats.num_chunks
        with pytest.raises(planvec.InvalidBatchError, match="reset: an argument cannot be pickled"):
            env.reset(options={"lock": lock})
        assert env.stats.num_chunks == before
        assert env.step_batch(np.zeros(3, int)).rewards.tolist() == [1.0] * 3


class Explosive:
    """Pickles, but does not unpickle."""

    def __reduce__(self) -> Any:
        return _explode, ()


def _explode() -> None:
    raise RuntimeError("it went off")


def test_what_cannot_be_unpickled_is_an_error_with_its_traceback() -> None:
    with ExternalProcess(lambda: PlanEnv(Faulty), start_method="fork") as worker:
        with pytest.raises(planvec.EnvError, match="RuntimeError: it went off") as caught:
            worker.call("reset", options=Explosive()).result()
        assert "_explode" in str(caught.value.__cause__)
        assert worker.call("reset", seed=1).result().observation.tolist() == [0.0, 0.0, 0.0]


# -- starting (18, 19) -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_factory_that_raises_is_an_error_at_make_and_leaves_no_worker(method: str) -> None:
    def broken() -> Any:
        raise OSError("no such rocket")

    with pytest.raises(
        planvec.WorkerStartError, match="could not be started: OSError: no such rocket"
    ) as caught:
        planvec.make(broken, num_workers=2, start_method=method)
    assert "in broken" in str(caught.value.__cause__)


def test_a_factory_that_dies_is_an_error_at_make() -> None:
    with pytest.raises(planvec.WorkerStartError, match="exited with code 4, while its environment was made"):
        quick(lambda: os._exit(4))


def test_a_factory_that_hangs_is_given_up() -> None:
    worker = ExternalProcess(lambda: threading.Event().wait(), start_method="fork")
    pid = worker.pid or 0
    with pytest.raises(planvec.WorkerStartError, match="was not ready within 0.3 s"):
        worker.wait_ready(timeout=0.3)
    assert is_zombie_or_gone(pid)


def test_a_factory_that_fails_on_a_restart_is_an_error_and_the_rest_closes(tmp_path: Path) -> None:
    marker = tmp_path / "broken"

    def sometimes() -> Any:
        if marker.exists():
            raise OSError("no second rocket")
        return Faulty()

    with quick(sometimes) as env:
        states = armed(env, 8)
        marker.touch()
        with pytest.raises(planvec.WorkerCrashedError):
            env.step_batch(actions_with("sigkill"), states)
        with pytest.raises(planvec.WorkerStartError, match="no second rocket"):
            env.step_batch(np.zeros(8, int), states)
        marker.unlink()
        assert env.step_batch(np.zeros(8, int), states).rewards.tolist() == [1.0] * 8


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
    with quick(random_lake, num_workers=1, max_restarts=1) as env:
        env.workers[0].kill()
        wait_until_dead([env.workers[0].pid], 5)
        with pytest.raises(planvec.WorkerStartError, match="was restarted and made another environment"):
            env.step_batch([0, 1])


# -- closing (23, 24, 25, 27) ----------------------------------------------------------------------


def test_closing_twice_is_nothing_and_use_after_close_an_error() -> None:
    env = quick()
    promise = env.step_batch(np.zeros(4, int), blocking=False)
    pids = [worker.pid or 0 for worker in env.workers]
    env.close()
    env.close()
    assert all(is_zombie_or_gone(pid) for pid in pids)
    for use in (lambda: env.step_batch([0]), env.reset, lambda: env.observe(env.get_state())):
        with pytest.raises(planvec.ClosedError):
            use()
    with pytest.raises(planvec.ClosedError):
        promise.result()


def test_closing_busy_workers_does_not_wait_for_them() -> None:
    env = quick()
    promise = env.step_batch(actions_with("hang", 2, 1), armed(env, 2), blocking=False)
    pids = [worker.pid or 0 for worker in env.workers]
    env.close()
    assert all(is_zombie_or_gone(pid) for pid in pids)
    with pytest.raises(planvec.ClosedError):
        promise.result()


def test_garbage_collection_ends_the_workers() -> None:
    env = quick()
    pids = [worker.pid or 0 for worker in env.workers]
    env.step_batch(np.zeros(4, int), blocking=False)
    del env
    gc.collect()
    assert all(is_zombie_or_gone(pid) for pid in pids)


PARENT = """
import os, signal, sys
import numpy as np, planvec
sys.path.insert(0, {tests!r})
from environments import ARMED, Faulty, fault
env = planvec.make(Faulty, num_workers=2, start_method={method!r})
state = env.reset(seed=0, options=ARMED).state
print(*(worker.pid for worker in env.workers), flush=True)
{rest}
"""


def run_parent(method: str, rest: str) -> subprocess.Popen[str]:
    code = PARENT.format(tests=str(Path(__file__).parent), method=method, rest=rest)
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("method", METHODS)
def test_a_killed_parent_leaves_no_worker(method: str) -> None:
    parent = run_parent(method, "signal.pause()")
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.communicate()
    assert wait_until_dead(pids, 2.0) == []


def test_a_fork_of_the_parent_can_neither_use_nor_disturb_its_workers() -> None:
    with quick("CartPole-v1") as env:
        state = env.reset(seed=0).state
        expected = env.step_batch([0, 1, 1], state)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                env.step_batch([0, 1, 1], state)
            except planvec.ClosedError:
                env.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        again = env.step_batch([0, 1, 1], state)
        assert same_states(again.new_states, expected.new_states)
        assert env.stats.restarts == 0


@pytest.mark.parametrize("method", METHODS)
def test_an_interpreter_exits_quietly_with_a_promise_pending(method: str) -> None:
    rest = "promise = env.step_batch(np.full(2, fault('hang')), state, blocking=False)"
    parent = run_parent(method, rest)
    assert parent.stdout is not None
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    _, errors = parent.communicate(timeout=20)
    assert parent.returncode == 0
    assert errors == ""
    assert wait_until_dead(pids, 2.0) == []


# -- promises (35) and signals (36) ----------------------------------------------------------------


def test_promises_can_be_read_in_any_order_twice_or_never() -> None:
    rng = np.random.default_rng(0)
    with quick("CartPole-v1") as env, quick("CartPole-v1", 0) as reference:
        state = env.reset(seed=0).state
        batches = [rng.integers(2, size=size) for size in (1, 700, 3, 5000, 2, 64)]
        promises = [env.step_batch(batch, state, blocking=False) for batch in batches]
        order = [3, 0, 5, 2, 3]  # 1 and 4 are never read
        for index in order:
            expected = reference.step_batch(batches[index], state)
            assert same_states(promises[index]().new_states, expected.new_states)
        del promises
        after = env.step_batch(batches[1], state)
        assert same_states(after.new_states, reference.step_batch(batches[1], state).new_states)


def test_arrays_changed_after_the_call_do_not_change_a_promise() -> None:
    with quick("CartPole-v1") as env, quick("CartPole-v1", 0) as reference:
        states = np.repeat(env.reset(seed=0).state, 20_000)
        actions = np.random.default_rng(0).integers(2, size=20_000)
        expected = reference.step_batch(actions, states)
        promise = env.step_batch(actions, states, blocking=False)
        actions[:], states[:] = 0, np.zeros(1, states.dtype)
        assert same_states(promise.result().new_states, expected.new_states)


def test_a_promise_that_outlives_a_crash_keeps_the_arrays_that_it_was_given() -> None:
    with quick(num_workers=1) as env:
        state = armed(env, 1)[0]
        doomed = env.step_batch([fault("sigkill")], state, blocking=False)
        actions = np.zeros(3, int)
        innocent = env.step_batch(actions, state, blocking=False)
        actions[:] = fault("exception")
        with pytest.raises(planvec.WorkerCrashedError):
            doomed.result()
        assert innocent.result().rewards.tolist() == [1.0] * 3


def test_jobs_of_a_worker_that_cannot_be_replaced_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*_: Any) -> Any:
        raise OSError(24, "Too many open files")

    with quick("CartPole-v1", num_workers=1) as env:
        promise = env.step_batch(np.zeros(2000, int), dt=400, blocking=False)
        with monkeypatch.context() as patch:
            patch.setattr(link, "Child", no_more)
            env.workers[0].kill()
            with pytest.raises(planvec.WorkerCrashedError):
                promise.result()
        assert env.step_batch([0, 1]).rewards.tolist() == [1.0, 1.0]


def test_a_promise_that_is_kept_can_be_taken_with_no_time_at_all() -> None:
    with quick("CartPole-v1") as env:
        promise = env.step_batch([0, 1], blocking=False)
        while not promise.done():
            pass
        assert len(promise.result(timeout=0).rewards) == 2


def test_a_promise_that_is_not_ready_in_time_stays_valid() -> None:
    with quick("CartPole-v1") as env:
        promise = env.step_batch(np.zeros(20_000, int), dt=4, blocking=False)
        with pytest.raises(planvec.WorkerTimeoutError, match="the promise stays valid"):
            promise.result(timeout=0.001)
        assert isinstance(promise.done(), bool)
        assert len(promise.result(timeout=60).rewards) == 20_000
        assert promise.done()


class Interrupted(Exception):
    """Raised by a signal handler."""


def test_a_signal_handler_that_raises_leaves_the_next_call_correct() -> None:
    def interrupt(*_: Any) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, interrupt)
    rng = np.random.default_rng(0)
    num_interrupted = 0
    try:
        with quick("CartPole-v1", max_restarts=1) as env, quick("CartPole-v1", 0) as reference:
            state = env.reset(seed=0).state
            for size in (4000, 30, 9000, 500, 6000, 2, 8000, 700) * 3:
                actions = rng.integers(2, size=size)
                signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(2e-5, 6e-3)))
                try:
                    env.step_batch(actions, state)
                except Interrupted:
                    num_interrupted += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                check = rng.integers(2, size=100)
                got, expected = env.step_batch(check, state), reference.step_batch(check, state)
                assert same_states(got.new_states, expected.new_states)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert num_interrupted > 3


def test_calls_from_several_threads_are_not_mixed_up() -> None:
    wrong: list[Any] = []
    with quick("CartPole-v1") as env, quick("CartPole-v1", 0) as reference:
        state = env.reset(seed=0).state
        jobs = []
        for seed in range(4):
            actions = np.random.default_rng(seed).integers(2, size=(30, 40 + seed))
            jobs.append((actions, [reference.step_batch(row, state) for row in actions]))

        def work(actions: Any, expected: list[Any]) -> None:
            for row, answer in zip(actions, expected, strict=True):
                out = env.step_batch(row, state)
                if not same_states(out.new_states, answer.new_states):
                    wrong.append(row)

        threads = [threading.Thread(target=work, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
