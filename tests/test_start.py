"""Starting workers: by the template process above all, which forks them from a clean interpreter."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import sabotage
from faulty import ARMED, Faulty, fault
from marks import slow_after
from processes import is_gone, is_zombie_or_gone, run_parent, wait_until_dead

import planvec
from planvec import ExternalProcess
from planvec.backends.processes import starting, system
from planvec.backends.processes.starting import DEFAULT_START_METHOD
from planvec.vector import AsyncVectorEnv


class Probe:
    """Tells about the process that it is in."""

    def pids(self) -> tuple[int, int]:
        return os.getpid(), os.getppid()

    def surroundings(self) -> tuple[dict[str, str], str, list[str], list[str]]:
        return dict(os.environ), os.getcwd(), sys.path, sys.argv

    def draws(self) -> tuple[float, float, int]:
        return random.random(), float(np.random.random()), int(np.random.randint(1 << 30))  # noqa: NPY002

    def files(self) -> list[str]:
        links = []
        for path in Path("/proc/self/fd").iterdir():
            try:
                links.append(os.readlink(path))
            except FileNotFoundError:  # of the listing itself
                continue
        return sorted(links)

    def modules(self) -> set[str]:
        return set(sys.modules)

    def say(self, text: str) -> None:
        os.write(1, f"{text} on 1\n".encode())
        os.write(2, f"{text} on 2\n".encode())

    def end(self, code: int) -> None:
        os._exit(code)


def templates() -> list[int]:
    """The templates of this process."""
    return [pid for pid in system.children(os.getpid()) if "processes.template" in system.command(pid)]


def open_probe(**options: Any) -> ExternalProcess:
    return ExternalProcess(Probe, start_method="template", **options)


def ask(name: str, *args: Any) -> Any:
    """What a new worker answers."""
    with open_probe() as worker:
        return worker.call(name, *args).result()


@pytest.fixture
def new_template(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without a template."""
    monkeypatch.setattr(starting, "_templates", {})


# -- the template ----------------------------------------------------------------------------------


def test_the_template_is_the_default() -> None:
    assert DEFAULT_START_METHOD == "template"
    with ExternalProcess(Probe) as worker:
        assert worker.call("pids").result()[1] in templates()


def test_workers_are_forked_by_one_template_that_this_process_has_started(new_template: None) -> None:
    before = set(templates())
    parents = [ask("pids")[1] for _ in range(2)]
    assert parents[0] == parents[1]
    assert set(templates()) - before == {parents[0]}


@pytest.mark.slow
def test_threads_that_start_workers_together_share_one_template(new_template: None) -> None:
    parents: list[int] = []
    threads = [threading.Thread(target=lambda: parents.append(ask("pids")[1])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(parents) == 8
    assert len(set(parents)) == 1


def test_a_template_has_one_thread_and_no_file_of_a_worker() -> None:
    with open_probe() as worker:
        _, parent = worker.call("pids").result()
        files = [os.readlink(path) for path in Path(f"/proc/{parent}/fd").iterdir()]
        assert not [name for name in files if "memfd" in name]
        # Requests, the lifeline, two ends of its wake-up, and the report of each worker that lives.
        assert sum(name.startswith("socket:") for name in files) == 4 + len(system.children(parent))
        assert len(list(Path(f"/proc/{parent}/task").iterdir())) == 1


def test_a_worker_has_no_file_of_the_template_or_of_another_worker() -> None:
    with open_probe(), open_probe() as worker:
        files = worker.call("files").result()
    assert sum(name.startswith("socket:") for name in files) == 2  # the channel and the lifeline
    assert sum("memfd" in name for name in files) == 1


def test_a_template_has_imported_neither_a_simulator_nor_numba() -> None:
    names = {name.split(".")[0] for name in ask("modules")}
    assert not {"numba", "mujoco", "Box2D", "ale_py", "pygame", "matplotlib", "torch"} & names
    assert {"planvec", "gymnasium", "numpy", "cloudpickle"} <= names


IMPORTS = """
import sys
import planvec

class Imports:
    def __init__(self, env_id):
        before = set(sys.modules)
        planvec.PlanEnv(env_id)
        self.new = sorted(set(sys.modules) - before)

for env_id in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1"):
    with planvec.ExternalProcess(lambda: Imports(env_id), start_method="template") as worker:
        print(*worker.get_attr("new"))
"""


def test_a_worker_of_gymnasiums_own_environments_finds_everything_imported() -> None:
    done = run_script(IMPORTS)
    assert (done.stdout, done.stderr) == ("\n" * 4, "")


def test_ctrl_c_does_not_end_a_template() -> None:
    _, parent = ask("pids")
    os.kill(parent, signal.SIGINT)
    assert ask("pids")[1] == parent


# -- what a worker has from its parent -----------------------------------------------------------------


def test_a_worker_has_the_environment_the_directory_and_the_path_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask("pids")  # the template is there before any of it changes
    monkeypatch.setenv("PLANVEC_PROBE", "set later")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "argv", ["a", "b"])
    environ, directory, path, arguments = ask("surroundings")
    assert environ == dict(os.environ)
    assert directory == str(tmp_path)
    assert path == sys.path
    assert arguments == ["a", "b"]


@pytest.mark.slow
def test_variables_that_count_at_an_import_start_another_template(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    one = ask("pids")[1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert ask("pids")[1] != one
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert ask("pids")[1] == one


def test_a_worker_writes_to_the_streams_that_its_parent_has_now(capfd: pytest.CaptureFixture[str]) -> None:
    ask("say", "hello")
    assert capfd.readouterr() == ("hello on 1\n", "hello on 2\n")


def test_workers_draw_from_generators_of_their_own() -> None:
    draws = [ask("draws") for _ in range(3)]
    for numbers in zip(*draws, strict=True):
        assert len(set(numbers)) == 3


def test_a_factory_of_many_megabytes_arrives() -> None:
    data = np.arange(4 << 20)

    class Holder:
        def total(self) -> int:
            return int(data.sum())

    with ExternalProcess(Holder, start_method="template") as worker:
        assert worker.call("total").result() == data.sum()


SCRIPT = """
import numpy as np, planvec
import neighbour

def factory():
    import neighbour as again
    return again.Mine()

with planvec.make(factory, num_workers=2) as env:
    assert env.step_batch(np.zeros(4, int)).rewards.tolist() == [7.0] * 4
with planvec.make(neighbour.Mine, num_workers=1) as env:
    assert env.step_batch([0]).rewards.tolist() == [7.0]
print("fine")
"""
NEIGHBOUR = """
import os
import gymnasium
os.write(1, b"imported\\n")  # in one piece
class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}
    def step(self, action):
        return 0, 7.0, False, False, {}
"""


def test_a_worker_imports_from_the_directory_of_the_script_and_the_template_does_not(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
    )
    assert done.stderr == ""
    # Once in the script, once in each of three workers: had the template done it, they would not.
    assert sorted(done.stdout.split()) == ["fine"] + ["imported"] * 4


# -- how workers end, and what is told of it -----------------------------------------------------------


@pytest.mark.parametrize("method", ["template", "spawn", "fork"])
def test_the_exit_code_of_a_worker_is_told(method: str) -> None:
    with ExternalProcess(Probe, start_method=method) as worker:
        with pytest.raises(planvec.WorkerCrashedError, match="exited with code 7"):
            worker.call("end", 7).result()
        assert is_gone(worker.pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
def test_the_signal_that_has_killed_a_worker_is_told(number: signal.Signals) -> None:
    with open_probe() as worker:
        worker.wait_ready()
        os.kill(worker.pid, number)
        with pytest.raises(planvec.WorkerCrashedError, match=f"was killed by {number.name}"):
            worker.call("pids").result()
        assert is_gone(worker.pid)


def test_workers_of_a_killed_template_go_on_and_their_end_is_told_honestly() -> None:
    with open_probe() as worker:
        pid, parent = worker.call("pids").result()
        os.kill(parent, signal.SIGKILL)
        assert wait_until_dead([parent], 2.0) == []
        assert worker.call("pids").result()[0] == pid
        with pytest.raises(planvec.WorkerCrashedError, match="ended with an unknown exit code"):
            worker.call("end", 7).result()
        assert is_gone(parent)  # nor is a zombie left
        assert ask("pids")[1] != parent


@pytest.mark.slow
def test_a_killed_template_is_replaced_under_a_batch() -> None:
    with planvec.make(Faulty, num_workers=2, start_method="template", max_restarts=1) as env:
        state = env.reset(seed=0, options=ARMED).state
        states = np.repeat(state, 8)
        for _ in range(3):
            env.workers[0].wait_ready()
            for pid in templates():
                os.kill(pid, signal.SIGKILL)
            env.workers[0].kill()
            assert wait_until_dead([env.workers[0].pid], 2.0) == []
            assert env.step_batch(np.zeros(8, int), states).rewards.tolist() == [1.0] * 8
        assert env.stats.restarts == 3
        with pytest.raises(planvec.WorkerCrashedError, match="exited with code 0"):
            env.step_batch([fault("os_exit")], states[:1])
        pids = [worker.pid for worker in env.workers]
    assert all(is_zombie_or_gone(pid) for pid in pids)


def test_a_killed_template_leaves_no_file() -> None:
    worker = open_probe()
    _, parent = worker.call("pids").result()
    before = len(list(Path("/proc/self/fd").iterdir()))
    os.kill(parent, signal.SIGKILL)
    with open_probe() as other:
        other.wait_ready()
    worker.close()
    with open_probe() as other:
        other.wait_ready()
        assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.slow
def test_a_stopped_template_is_replaced() -> None:
    _, parent = ask("pids")
    os.kill(parent, signal.SIGSTOP)
    assert ask("pids")[1] != parent
    assert is_gone(parent)


def test_a_template_that_cannot_start_is_an_error(
    new_template: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "_COMMAND", "raise SystemExit(3)")
    with pytest.raises(planvec.WorkerStartError, match="template process has exited with code 3"):
        open_probe()


@pytest.fixture
def lives(tmp_path: Path) -> Path:
    """A file with one byte for each template that is to kill itself."""
    path = tmp_path / "lives"
    path.write_bytes(b"")
    return path


def kill_templates(
    monkeypatch: pytest.MonkeyPatch, stage: str, lives: Path, number: int, env: Any = None
) -> None:
    """Let the next templates kill themselves; kill the present one, and the workers of an environment."""
    command = sabotage.COMMAND.format(stage=stage, lives=str(lives))
    monkeypatch.setattr(starting, "_COMMAND", command)
    lives.write_bytes(b"x" * number)
    pids = [*templates(), *(worker.pid for worker in ([] if env is None else env.workers))]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert wait_until_dead(pids, 5.0) == []


NUMBERS = slow_after(1, [1, 1000])
STAGES = slow_after(1, reversed(sabotage.STAGES))


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("stage", STAGES)
def test_templates_killed_at_any_stage_of_a_start_are_nobodys_fault(
    stage: str, number: int, new_template: None, lives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_templates(monkeypatch, stage, lives, number)
    with planvec.make(Faulty, num_workers=2, max_restarts=1) as env:
        states = np.repeat(env.reset(seed=0, options=ARMED).state, 8)
        num_rounds = 1 if number == 1 else 3
        for _ in range(num_rounds):
            kill_templates(monkeypatch, stage, lives, number, env)
            assert env.step_batch(np.zeros(8, int), states).rewards.tolist() == [1.0] * 8
        assert env.stats.restarts == 2 * num_rounds


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("stage", STAGES)
def test_vector_environments_outlive_templates_killed_at_any_stage(
    stage: str, number: int, new_template: None, lives: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk(num_workers: int) -> list[Any]:
        env = AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4, num_workers=num_workers)
        results = [env.reset(seed=0)[0].copy()]
        for action in np.random.default_rng(0).integers(2, size=(60, 4)):
            if num_workers and len(results) % 20 == 0:
                kill_templates(monkeypatch, stage, lives, number, env._engine._processes)
            results += [np.copy(column) for column in env.step(action)[:4]]
        env.close()
        return results

    kill_templates(monkeypatch, stage, lives, number)
    for got, expected in zip(walk(2), walk(0), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
def test_kills_of_starting_workers_and_their_template_do_not_add_up(
    new_template: None, tmp_path: Path
) -> None:
    marker, spared = tmp_path / "marker", os.getpid()

    def starts_badly() -> Any:
        # Kills its template and itself, as a storm does.
        if os.getpid() != spared and marker.exists() and marker.stat().st_size:
            os.truncate(marker, marker.stat().st_size - 1)
            os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        return Faulty()

    with planvec.make(starts_badly, num_workers=1, max_restarts=1) as env:
        states = np.repeat(env.reset(seed=0, options=ARMED).state, 8)
        marker.write_bytes(b"x" * 3)
        env.workers[0].kill()
        assert env.step_batch(np.zeros(8, int), states).rewards.tolist() == [1.0] * 8
        assert env.stats.restarts == 4


# -- the end of the parent -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param("", marks=pytest.mark.slow),
        pytest.param("os._exit(0)", marks=pytest.mark.slow),
        "os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_a_parent_leaves_neither_template_nor_worker(rest: str) -> None:
    tell = """
from planvec.backends.processes import system
assert ["processes.template" in system.command(pid) for pid in system.children(os.getpid())] == [True]
print(*system.descendants(os.getpid()), flush=True)
"""
    parent, workers = run_parent("template", tell + rest)
    assert parent.stdout is not None
    family = [int(pid) for pid in parent.stdout.readline().split()]
    assert parent.communicate(timeout=20) == ("", "")
    assert len(family) == 3
    assert set(workers) < set(family)
    assert wait_until_dead(family, 2.0) == []


KILLED_EARLY = """
import os, signal, threading
import planvec
from planvec.backends.processes import system
threading.Thread(target=lambda: planvec.make("CartPole-v1", num_workers=1), daemon=True).start()
while not system.children(os.getpid()):
    pass
print(*system.children(os.getpid()), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_parent_killed_while_its_template_starts_leaves_none() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED_EARLY], stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert wait_until_dead([int(pid) for pid in done.stdout.split()], 10.0) == []


FORKED = """
import os, signal, sys
import planvec
from planvec.backends.processes import system

with planvec.make("CartPole-v1", num_workers=1) as env:
    mine = system.children(os.getpid())
    pid = os.fork()
    if pid == 0:
        with planvec.make("CartPole-v1", num_workers=1) as other:
            assert other.step_batch([0]).rewards.tolist() == [1.0]
            assert len(system.children(os.getpid())) == 1
            assert system.children(os.getpid()) != mine
            sys.exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert system.children(os.getpid()) == mine
    env.workers[0].kill()
    assert env.step_batch([0]).rewards.tolist() == [1.0]
    assert system.children(os.getpid()) == mine
    print("fine")
"""


def run_script(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.slow
def test_a_fork_of_the_parent_has_a_template_of_its_own_and_leaves_the_other_alone() -> None:
    done = run_script(FORKED)
    assert done.stdout == "fine\n", done.stderr
    # That worker 0 was killed is told by the log, and nothing else is.
    assert re.fullmatch(r"planvec-worker-0 \(pid \d+\) was killed .*\n", done.stderr)


BUSY_PARENT = """
import threading
import numba, numpy as np, planvec

@numba.njit(parallel=True)
def total(x):
    result = 0.0
    for i in numba.prange(len(x)):
        result += x[i]
    return result

numbers = np.ones(100_000)
assert total(numbers) == 100_000
stop = threading.Event()
def work():
    square = np.ones((200, 200))
    while not stop.is_set():
        square @ square
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
with planvec.make("CartPole-v1", num_workers=2) as env:
    assert env.step_batch([0] * 8).rewards.tolist() == [1.0] * 8
    assert total(numbers) == 100_000
stop.set()
for thread in threads:
    thread.join()
print("fine")
"""


@pytest.mark.slow
def test_threads_and_parallel_regions_in_the_parent_do_not_matter() -> None:
    done = run_script(BUSY_PARENT)
    assert (done.stdout, done.stderr) == ("fine\n", "")


WITHOUT_PIDFD = """
import os, signal
import planvec
from planvec.backends.processes import system
assert not hasattr(os, "pidfd_open")
with planvec.make("CartPole-v1", num_workers=2) as env:
    for _ in range(2):
        env.workers[0].wait_ready()
        pid = env.workers[0].pid
        os.kill(pid, signal.SIGKILL)
        while system.state(pid) not in ("", "Z"):
            pass
        assert env.step_batch([0] * 8).rewards.tolist() == [1.0] * 8
    (template,) = system.children(os.getpid())
    os.kill(template, signal.SIGKILL)
    assert env.step_batch([0] * 8).rewards.tolist() == [1.0] * 8
    assert env.stats.restarts == 2
    pids = [worker.pid for worker in env.workers]
while any(system.state(pid) not in ("", "Z") for pid in pids):  # its files are closed a moment before
    pass
print("fine")
"""


@pytest.mark.slow
def test_workers_start_and_end_where_there_are_no_pidfds_and_no_memfds(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os; del os.pidfd_open, os.memfd_create")
    paths = [str(tmp_path), str(Path(planvec.__file__).parents[1])]
    done = run_script(WITHOUT_PIDFD, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.slow
def test_every_worker_knows_the_ids_of_its_parent_and_no_others() -> None:
    gymnasium.register("OnlyInTheParent-v1", entry_point=Faulty)
    try:

        class Registry:
            def names(self) -> set[str]:
                return set(gymnasium.registry)

        seen = []
        for method in ("template", "spawn", "fork"):
            with ExternalProcess(Registry, start_method=method) as worker:
                seen.append(worker.call("names").result())
        assert seen == [set(gymnasium.registry)] * 3
    finally:
        del gymnasium.registry["OnlyInTheParent-v1"]
