"""Closing, dying and leaving nothing behind. The numbers name the faults."""

from __future__ import annotations

import ast
import gc
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty import ARMED, Faulty, fault
from marks import slow_after
from methods import METHODS
from processes import (
    is_gone,
    is_zombie_or_gone,
    parent_code,
    run_parent,
    wait_until_dead,
)

import planvec
from planvec.backends.processes import system
from planvec.backends.processes.worker import ProcessWorker

ROOT = Path(planvec.__file__).parent


def opened(method: str, **options: Any) -> tuple[planvec.BatchEnv, Any, list[int]]:
    env = planvec.make(Faulty, num_workers=2, start_method=method, **options)
    state = env.reset(seed=0, options=ARMED).state
    return env, state, [worker.pid for worker in env.workers]


# -- closing ---------------------------------------------------------------------------------------


@pytest.mark.fault(23)
@pytest.mark.parametrize("method", METHODS)
def test_closing_twice_is_nothing_and_use_after_close_an_error(method: str) -> None:
    env, state, pids = opened(method)
    promise = env.step_batch(np.zeros(4, int), blocking=False)
    env.close()
    env.close()
    assert all(is_zombie_or_gone(pid) for pid in pids)
    for use in (
        lambda: env.step_batch([0]),
        lambda: env.rollout_batch(horizon=1),
        lambda: env.sync_states(state),
        env.reset,
        lambda: env.observe(state),
    ):
        with pytest.raises(planvec.ClosedError):
            use()
    with pytest.raises(planvec.ClosedError):
        promise.result()


@pytest.mark.fault(22)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["hang", "hang_in_c"])
def test_closing_hung_workers_does_not_wait_for_them(method: str, name: str) -> None:
    env, state, pids = opened(method)
    promise = env.step_batch(np.full(2, fault(name)), state, blocking=False)
    env.close()
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(planvec.ClosedError):
        promise.result()


class SlowToClose(Faulty):
    """Says that it is being closed, and takes for ever."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def close(self) -> None:
        if not self.directory.exists():
            return
        (self.directory / str(os.getpid())).touch()
        threading.Event().wait()


@pytest.mark.fault(21)
@pytest.mark.parametrize("method", METHODS)
def test_workers_killed_during_close_leave_no_zombie(method: str, tmp_path: Path) -> None:
    directory = tmp_path / "closing"
    env = planvec.make(lambda: SlowToClose(directory), num_workers=2, start_method=method)
    pids = {worker.pid for worker in env.workers}
    directory.mkdir()
    closing = threading.Thread(target=env.close)
    closing.start()
    while {int(path.name) for path in directory.iterdir()} != pids:
        assert closing.is_alive()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    closing.join()
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.fault(22)
def test_workers_whose_environments_never_close_have_one_deadline_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines: list[float] = []
    finish_close = ProcessWorker.finish_close

    def note_and_close(process: ProcessWorker, deadline: float) -> None:
        deadlines.append(deadline)
        finish_close(process, deadline)

    env = planvec.make(lambda: SlowToClose(tmp_path), num_workers=3, start_method="fork")
    pids = [worker.pid for worker in env.workers]
    monkeypatch.setattr(ProcessWorker, "finish_close", note_and_close)
    env.close()
    assert len(deadlines) == 3
    assert len(set(deadlines)) == 1
    assert all(is_gone(pid) for pid in pids)


@pytest.mark.fault(24)
@pytest.mark.parametrize("method", METHODS)
def test_garbage_collection_ends_the_workers(method: str) -> None:
    env, _, pids = opened(method)
    env.step_batch(np.zeros(4, int), blocking=False)
    del env
    gc.collect()
    assert all(is_zombie_or_gone(pid) for pid in pids)


# -- the end of the parent -------------------------------------------------------------------------

BUSY = "promise = env.step_batch(np.zeros(400_000, int), state, dt=90, blocking=False); signal.pause()"
HUNG = "promise = env.step_batch(np.full(2, fault('hang_in_c')), state, blocking=False); signal.pause()"


@pytest.mark.fault(25, 26)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rest", slow_after(1, ["signal.pause()", BUSY, HUNG]), ids=["idle", "busy", "hung"])
def test_a_killed_parent_leaves_no_process(method: str, rest: str) -> None:
    parent, pids = run_parent(method, rest)
    family = set(system.descendants(parent.pid))
    assert set(pids) <= family
    parent.kill()
    parent.communicate()
    assert wait_until_dead(sorted(family), 2.0) == []


@pytest.mark.fault(27)
@pytest.mark.parametrize("method", METHODS)
def test_an_interpreter_exits_quietly_with_a_promise_pending(method: str) -> None:
    rest = "promise = env.step_batch(np.full(2, fault('hang_in_c')), state, blocking=False)"
    parent, pids = run_parent(method, rest)
    _, errors = parent.communicate(timeout=20)
    assert (parent.returncode, errors) == (0, "")
    assert wait_until_dead(pids, 2.0) == []


def test_an_uncaught_error_ends_the_interpreter_and_its_workers() -> None:
    parent, pids = run_parent("spawn", "env.step_batch(np.full(2, fault('exception')), state)")
    _, errors = parent.communicate(timeout=20)
    assert parent.returncode == 1
    assert "EnvError: row 0, action 1: ValueError: the rocket exploded" in errors
    assert wait_until_dead(pids, 2.0) == []


@pytest.mark.fault(37)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "what", slow_after(1, ["env.step_batch(np.full(2, fault('hang')), state)", "signal.pause()"])
)
def test_ctrl_c_at_a_terminal_gives_one_traceback_and_ends_the_workers(
    method: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_COLORS", "0")  # which Python 3.13 shows at terminals
    script = tmp_path / "script.py"
    script.write_text(parent_code(method, what))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, str(script)])
    shown = b""
    while not re.search(rb"\d+ \d+\r\n", shown):
        shown += os.read(terminal, 1000)
    pids = [int(word) for word in shown.split()]
    while system.state(pid) != "S":
        time.sleep(0.01)
    os.write(terminal, b"\x03")
    while True:
        try:
            data = os.read(terminal, 1000)
        except OSError:  # the other side is closed: that is how a terminal says so
            break
        if not data:
            break
        shown += data
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    text = shown.decode()
    assert code in (-signal.SIGINT, 130), text
    assert text.count("Traceback (most recent call last)") == 1, text
    assert text.rstrip().endswith("KeyboardInterrupt"), text
    assert wait_until_dead(pids, 2.0) == []


@pytest.mark.parametrize("method", METHODS)
def test_a_fork_of_the_parent_can_neither_use_nor_disturb_its_workers(method: str) -> None:
    env, state, _ = opened(method)
    with env:
        expected = env.step_batch([0, 0, 0], state)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                env.step_batch([0, 0, 0], state)
            except planvec.ClosedError:
                env.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert env.step_batch([0, 0, 0], state).rewards.tolist() == expected.rewards.tolist()
        assert env.stats.restarts == 0


@pytest.mark.slow
def test_a_fork_of_the_parent_does_not_keep_its_workers_alive() -> None:
    rest = """
if os.fork() == 0:
    print(os.getpid(), flush=True)
    signal.pause()
signal.pause()
"""
    parent, pids = run_parent("spawn", rest)
    assert parent.stdout is not None
    copy = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        assert wait_until_dead(pids, 2.0) == []
    finally:
        os.kill(copy, signal.SIGKILL)
        parent.communicate()


# -- what environments start -----------------------------------------------------------------------


@pytest.mark.fault(31)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("end", slow_after(1, ["close", "kill", "timeout"]))
def test_processes_that_an_environment_starts_go_with_its_worker(method: str, end: str) -> None:
    env, state, pids = opened(method, timeout=0.5)
    with env:
        out = env.step_batch([fault("children")], state)
        started = [int(pid) for pid in out.infos["pids"][0]]
        # The second is in a session of its own: only those who look for it can find it.
        expected = started
        if end == "close":
            env.close()
            expected = started[:1]
        elif end == "kill":
            os.kill(pids[0], signal.SIGKILL)
            env.step_batch([0, 0], state)
            expected = started[:1]
        else:
            with pytest.raises(planvec.WorkerTimeoutError):
                env.step_batch([fault("hang_in_c"), 0], state)
        assert wait_until_dead(expected, 2.0) == []
    for pid in set(started) - set(expected):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.fault(31)
@pytest.mark.parametrize("method", METHODS)
def test_processes_that_an_environment_starts_go_with_a_killed_parent(method: str) -> None:
    rest = """
out = env.step_batch([fault('children')], state)
print(*out.infos['pids'][0], flush=True)
promise = env.step_batch([fault('hang_in_c')], state, blocking=False)
signal.pause()
"""
    parent, _ = run_parent(method, rest)
    assert parent.stdout is not None
    started = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    assert wait_until_dead(started[:1], 2.0) == []
    os.kill(started[1], signal.SIGKILL)  # it had left for a session of its own
    parent.communicate()


THREADS = """
import sys
import numba, numpy as np, planvec
sys.path.insert(0, {tests!r})

@numba.vectorize(["float64(float64)"], target="parallel")
def twice(x):
    return 2 * x

def warm():
    square = np.ones((400, 400)) @ np.ones((400, 400))  # BLAS
    return square[0, 0] + twice(np.ones(100_000))[-1]

import gymnasium

class Multiplying(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([self.x]), {{}}
    def step(self, action):
        if not self.x:
            self.x = float((np.ones((300, 300)) @ np.ones((300, 300)))[0, 0])
        return np.array([self.x]), 0.0, False, False, {{}}

assert warm() == 402.0
with planvec.make(Multiplying, num_workers=2, start_method={method!r}) as env:
    assert env.step_batch([0] * 8, dt=3).observations[:, 0].tolist() == [300.0] * 8
    assert warm() == 402.0
    env.workers[0].kill()
    assert env.step_batch([0] * 8, dt=3).observations[:, 0].tolist() == [300.0] * 8
print("fine")
"""


@pytest.mark.fault(32)
@pytest.mark.parametrize("method", METHODS)
def test_threads_of_blas_and_numba_in_the_parent_lock_no_worker_up(method: str) -> None:
    code = THREADS.format(tests=str(Path(__file__).parent), method=method)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.stdout == "fine\n", done.stderr


# -- nothing is left, and nothing can be reached -----------------------------------------------------


def _open_files() -> dict[str, str]:
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            found[path.name] = os.readlink(path)
        except FileNotFoundError:
            continue
    return found


@pytest.mark.fault(38)
@pytest.mark.parametrize("method", METHODS)
def test_no_file_and_no_memory_is_left_after_crashes(method: str) -> None:
    opened(method)[0].close()  # the fork server and the resource tracker, which stay, are there now
    before = _open_files()
    shared = set(Path("/dev/shm").iterdir())
    env, state, pids = opened(method, timeout=0.5, max_restarts=1)
    for name in ("segfault", "os_exit", "hang_in_c"):
        with pytest.raises(planvec.PlanvecError):
            env.step_batch([0, fault(name)], state)
        pids += [worker.pid for worker in env.workers]
    env.close()
    assert sorted(_open_files().values()) == sorted(before.values())
    assert set(Path("/dev/shm").iterdir()) == shared
    assert all(is_gone(pid) for pid in pids)
    assert "memfd:planvec" not in Path("/proc/self/maps").read_text()


def _listeners() -> dict[int, str]:
    """Inode -> address of every socket that anybody listens on."""
    found = {}
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if name.startswith("udp") or fields[3] == "0A":
                found[int(fields[9])] = f"{name} {fields[1]}"
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[3], 16) & 0x10000:  # it accepts connections
            found[int(fields[6])] = f"unix {fields[7] if len(fields) > 7 else ''}"
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_no_socket_memory_or_file_can_be_opened_by_another_user(method: str) -> None:
    rest = "env.step_batch(np.zeros(4, int), state); signal.pause()"
    parent, _ = run_parent(method, rest)
    try:
        listeners = _listeners()
        for pid in [parent.pid, *system.descendants(parent.pid)]:
            for file in Path(f"/proc/{pid}/fd").iterdir():
                target = os.readlink(file)
                inode = re.fullmatch(r"socket:\[(\d+)\]", target)
                assert not (inode and int(inode[1]) in listeners), listeners[int(inode[1])]
                assert not target.startswith("/dev/shm"), target
                assert not target.startswith("/tmp"), target
            assert "/dev/shm" not in Path(f"/proc/{pid}/maps").read_text()
    finally:
        parent.kill()
        parent.communicate()


def test_no_file_that_planvec_loads_can_run_code() -> None:
    """Pickles come from the other end of a socket pair, or out of a state in memory; never from a file."""
    loaders = set()
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner, name = ast.unparse(node.func.value), node.func.attr
                if name == "load" and owner in ("pickle", "cloudpickle", "np", "numpy", "marshal", "joblib"):
                    loaders.add((path.name, ast.unparse(node)))
                assert name not in ("memmap", "fromfile", "run_path", "unpack_archive"), path
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert ast.unparse(node.value) == "False", path
    assert loaders == {("array_files.py", "np.load(file, allow_pickle=False)")}


def test_a_trajectory_that_holds_objects_is_refused_by_the_way_to_load_it(tmp_path: Path) -> None:
    ran = tmp_path / "ran"

    class Harm:
        def __reduce__(self) -> Any:
            return Path.touch, (ran,)

    path = tmp_path / "trajectory.npz"
    np.savez(path, actions=np.array([Harm()], object))
    with np.load(path, allow_pickle=False) as saved, pytest.raises(ValueError, match="allow_pickle=False"):
        saved["actions"]
    assert not ran.exists()


def test_calls_leave_no_reference_cycles_that_would_keep_their_arrays() -> None:
    with planvec.make("CartPole-v1", num_workers=2) as env:
        states = np.repeat(env.reset(seed=0).state, 100)
        actions = np.zeros(100, int)
        env.step_batch(actions, states)
        gc.collect()
        gc.disable()
        try:
            env.step_batch(actions, states, on_error="mask")
            env.step_batch(actions, states, blocking=False).result()
            env.rollout_batch(states, 3, action_seed=0)
            assert gc.collect() == 0
        finally:
            gc.enable()
