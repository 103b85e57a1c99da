"""The backend over the actors of a Ray cluster: the same bits as in this process, whatever dies."""

from __future__ import annotations

import gc
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import ray
from compare import assert_same
from environments import Warehouse
from faulty import ARMED, Faulty, actions_with
from ray_here import PLACES, RAY_CPUS, connect_ray

import planvec
from planvec.backends.processes import system
from planvec.backends.ray import cluster
from planvec.backends.ray import worker as opening
from planvec.backends.ray.actor import LARGE

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def _ray() -> None:
    connect_ray()


def open_env(make: Any, num_workers: int = 2, **options: Any) -> Any:
    return planvec.make(make, backend="ray", num_workers=num_workers, **options)


def workers_of(env: Any) -> list[Any]:
    return [record.worker for record in env._backend._records]


def kill(env: Any, index: int) -> None:
    """Kill an actor. One that has died before is started again first."""
    worker = workers_of(env)[index]
    end = time.monotonic() + 60
    while not worker.is_ready:  # without a process its pid is 0, which stands for the group of this one
        assert time.monotonic() < end
        env.step_batch([0])
    os.kill(worker.pid, signal.SIGKILL)


def actions_of(env: Any, num_rows: int) -> Any:
    env.action_space.seed(3)
    return np.stack([env.action_space.sample() for _ in range(num_rows)])


LONG = pytest.mark.ray_product


@pytest.mark.parametrize(
    "make",
    [
        "CartPole-v1",
        Warehouse,
        pytest.param("FrozenLake-v1", marks=LONG),
        pytest.param("LunarLander-v3", marks=LONG),
    ],
)
def test_every_bit_is_that_of_this_process(make: Any) -> None:
    with open_env(make) as env, planvec.make(make, num_workers=0) as here:
        for each in (env, here):
            each.reset(seed=3)
        assert_same(env.get_state(), here.get_state())
        actions = actions_of(here, 40)
        for options in ({}, {"dt": 3}, {"seeds": np.arange(40)}, {"return_state": False}):
            assert_same(env.step_batch(actions, **options), here.step_batch(actions, **options))
        states = here.step_batch(actions).new_states
        assert_same(env.observe(states), here.observe(states))
        for out, expected in zip(
            env.rollout_batch(states, 12, action_seed=5, discount=0.9),
            here.rollout_batch(states, 12, action_seed=5, discount=0.9),
            strict=True,
        ):
            assert_same(out, expected)
        env.sync_states(states[7])
        here.sync_states(states[7])
        assert_same(env.step_batch(actions), here.step_batch(actions))
        promise = env.step_batch(actions, states, blocking=False)
        assert_same(promise.result(), here.step_batch(actions, states))


def test_a_plan_is_the_same_over_actors_over_processes_and_here() -> None:
    plans = []
    for options in ({"num_workers": 0}, {"num_workers": 2}, {"num_workers": 3, "backend": "ray"}):
        with planvec.make("CartPole-v1", **options) as env:
            state = env.reset(seed=1).state
            mcts = planvec.MCTS(num_simulations=40).plan(env, state, seed=5)
            swarm = planvec.Swarm(num_walkers=16).plan(env, state, seed=5)
            names = ("action", "value", "action_values", "best_actions", "best_return", "num_env_steps")
            plans.append([getattr(plan, name) for plan in (mcts, swarm) for name in names])
    assert_same(plans[1], plans[0])
    assert_same(plans[2], plans[0])


def test_an_actor_that_is_killed_takes_no_row_along() -> None:
    with open_env("CartPole-v1") as env, planvec.make("CartPole-v1", num_workers=0) as here:
        actions = actions_of(here, 3000)
        expected = here.step_batch(actions, dt=8)
        for moment in (0.0, 0.05):
            promise = env.step_batch(actions, dt=8, blocking=False)
            time.sleep(moment)
            kill(env, 0)
            assert_same(promise.result(60), expected)
        kill(env, 1)  # while it is idle
        time.sleep(0.5)
        assert_same(env.step_batch(actions, dt=8), expected)
        assert env.stats.crashes >= 2


def test_a_row_that_kills_every_actor_is_named_or_flagged_alone() -> None:
    with open_env(Faulty, max_restarts=1) as env:
        env.reset(seed=0, options=ARMED)
        actions = actions_with("os_exit")
        with pytest.raises(planvec.WorkerCrashedError, match="row 5: .* 2 workers failed on it") as caught:
            env.step_batch(actions)
        assert caught.value.row == 5
        out = env.step_batch(actions, on_error="mask")
        assert np.flatnonzero(out.infos["_error"]).tolist() == [5]
        assert (np.delete(out.observations, 5, axis=0) == 1).all()
        assert env.stats.masked_rows == 1


@pytest.mark.parametrize("name", [pytest.param("hang", marks=LONG), "hang_in_c"])
def test_an_actor_that_takes_too_long_is_killed(name: str) -> None:
    with open_env(Faulty, timeout=1.0) as env:
        env.reset(seed=0, options=ARMED)
        actions = actions_with(name)
        with pytest.raises(planvec.WorkerTimeoutError, match=r"did not finish within 1 s, and was killed"):
            env.step_batch(actions)
        assert (env.step_batch(np.zeros(8, int)).observations == 1).all()
        assert env.stats.timeouts == 1


def test_errors_of_an_environment_name_the_row_and_hold_the_remote_traceback() -> None:
    with open_env(Faulty) as env:
        env.reset(seed=0, options=ARMED)
        with pytest.raises(
            planvec.EnvError, match="row 5, action 1: ValueError: the rocket exploded"
        ) as caught:
            env.step_batch(actions_with("exception"))
        assert "in _exception" in str(caught.value.__cause__)
        for name in ("two_arguments", "sys_exit", "unpicklable_info", "wrong_shape"):
            out = env.step_batch(actions_with(name), on_error="mask")
            assert np.flatnonzero(out.infos["_error"]).tolist() == [5], name
        assert env.stats.restarts == 0


def test_an_actor_that_takes_too_much_memory_is_replaced() -> None:
    with open_env(Faulty, num_workers=1, max_worker_rss=400_000_000) as env:
        env.reset(seed=0, options=ARMED)
        for _ in range(12):
            out = env.step_batch(actions_with("leak"))
            assert (out.observations == 1).all()
        assert env.stats.outgrown


def test_an_environment_that_cannot_be_made_is_an_error() -> None:
    def broken() -> Any:
        raise ValueError("no such level")

    with pytest.raises(
        planvec.WorkerStartError, match=r"planvec-actor-\d could not be started: .*no such level"
    ):
        open_env(broken)


class ReadableThere:
    """Can be unpickled in the process that has pickled it only, as if its module were not installed here."""

    def __reduce__(self) -> Any:
        return _read_there, (os.getpid(),)


def _read_there(pid: int) -> ReadableThere:
    if pid != os.getpid():
        raise ModuleNotFoundError("No module named 'only_there'")
    return ReadableThere()


class Informative(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Has infos that cannot be read here."""

    def step(self, action: Any) -> Any:
        return (*self.env.step(action)[:4], {"object": ReadableThere()})


def test_an_answer_that_cannot_be_read_here_is_an_error_of_its_own_call() -> None:
    with open_env(lambda: Informative(gymnasium.make("CartPole-v1")), num_workers=1, codec="copied") as env:
        promise = env.step_batch([0], blocking=False)
        for _ in range(2):
            with pytest.raises(planvec.EnvError, match="cannot be read in this process .*info_keys"):
                promise.result(10)


class Registered(gymnasium.Env[Any, Any]):
    """Is registered here, so that actors do not know its id."""

    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.count = 0
        return self.count, {}

    def step(self, action: Any) -> Any:
        self.count += int(action)
        return self.count, 1.0, False, False, {}


def test_ids_that_the_script_registers_reach_the_actors() -> None:
    gymnasium.register("planvec-tests/Registered-v0", Registered)
    with open_env("planvec-tests/Registered-v0", num_workers=1) as env:
        assert env.step_batch([1, 0, 1]).observations.tolist() == [1, 0, 1]
    del gymnasium.registry["planvec-tests/Registered-v0"]


class Bulky(gymnasium.Env[Any, Any]):
    """Has a state of 400 kB."""

    observation_space = gymnasium.spaces.Discrete(1000)
    action_space = gymnasium.spaces.Discrete(1000)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.numbers = self.np_random.integers(1000, size=50_000)
        return int(self.numbers[0]), {}

    def step(self, action: Any) -> Any:
        self.numbers = (self.numbers + action) % 1000
        return int(self.numbers[0]), 1.0, False, False, {}


def test_a_large_state_that_several_requests_hold_is_put_into_the_object_store_once() -> None:
    with open_env(Bulky) as env, planvec.make(Bulky, num_workers=0) as here:
        state = here.reset(seed=1).state
        assert state.nbytes >= LARGE
        actions = actions_of(here, 40)
        for _ in range(3):
            assert_same(env.step_batch(actions, [state] * 40), here.step_batch(actions, [state] * 40))
        env.sync_states(state)
        references = workers_of(env)[0]._launcher.shared_states._references
        assert [known for known, reference in references.items() if reference is not None] == [state]


# -- the cluster ------------------------------------------------------------------------------------


def test_workers_without_a_place_do_not_block_the_others() -> None:
    with open_env("CartPole-v1", num_workers=2, ray_actor_options={"num_cpus": RAY_CPUS - 1}) as env:
        assert sorted(worker.is_ready for worker in workers_of(env)) == [False, True]
        env.sync_states(env.reset(seed=3).state)
        assert len(env.step_batch(np.zeros(100, int)).rewards) == 100


def test_bad_arguments_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(text: str, error: type[Exception] = planvec.InvalidBatchError, **options: Any) -> None:
        with pytest.raises(error, match=text):
            planvec.make("CartPole-v1", **{"backend": "ray", "num_workers": 1, **options})

    refused('backend: expected "processes" or "ray", got "dask"'.replace('"dask"', "'dask'"), backend="dask")
    refused('ray_address: expected None without backend="ray"', backend="processes", ray_address="auto")
    refused("num_workers: expected at least 1", num_workers=0)
    refused('start_method: expected None with backend="ray"', start_method="spawn")
    refused('ray_address: expected "host:port", "auto" or None, got 6379', ray_address=6379)
    refused(
        "ray_actor_options: expected a dict of options of ray.remote, or None, got 'gpu'",
        ray_actor_options="gpu",
    )
    refused("audit: expected a fraction from 0 to 1, got 7", audit=7)
    refused("blocking: expected True or False, got 'yes'", blocking="yes")
    refused(
        "ray_address: expected .* since this process is connected to that cluster",
        ray_address="10.0.0.1:6379",
    )
    refused(
        "ray_actor_options: expected none of .* got .'max_restarts'.", ray_actor_options={"max_restarts": 3}
    )
    refused("ray_actor_options: .*num_gpu", ray_actor_options={"num_gpu": 3})
    refused("ray_address: expected", ray_address="")
    for options, text in (
        ({"num_cpus": "1"}, "num_cpus"),
        ({"runtime_env": "x"}, "runtime_env: expected a dict or None, got 'x'"),
        ({"runtime_env": {"env_vars": "x"}}, "env_vars: expected a dict or None, got 'x'"),
        ({"resources": "gold"}, "resource"),
        ({"resources": {"gold": "x"}}, "str"),
        ({"max_pending_calls": 1}, "expected none of"),
    ):
        refused(f"ray_actor_options: .*{text}", ray_actor_options=options)
    refused("max_worker_rss: expected more than the .* bytes that a worker uses", max_worker_rss=1000)
    monkeypatch.setattr(opening, "_PLACE_SECONDS", 1.0)
    refused(
        "no node had room for an actor within 1 s.*'gold': 1.*; no node has as much",
        planvec.WorkerStartError,
        ray_actor_options={"resources": {"gold": 1}},
    )


def run(script: str, timeout: float = 100) -> str:
    """Run a script in a process of its own, which is not connected to Ray."""
    environ = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environ,
        check=False,
    )
    return done.stdout + done.stderr


def test_ray_is_started_and_stopped_where_there_is_none() -> None:
    printed = run(
        """
        import planvec, ray
        half = {"num_cpus": 0.5}
        with planvec.make("CartPole-v1", backend="ray", num_workers=1, ray_actor_options=half) as env:
            with planvec.make("FrozenLake-v1", backend="ray", num_workers=1, ray_actor_options=half) as other:
                other.step_batch([0])
            env.step_batch([0])
            print("open", ray.is_initialized())
        print("closed", ray.is_initialized())
        """
    )
    assert "Ray was started on this machine" in printed
    assert "open True" in printed
    assert "closed False" in printed


def test_what_uses_ray_after_it_was_stopped_or_in_a_fork_is_refused_and_starts_nothing() -> None:
    port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
    printed = run(
        f"""
        import os, planvec, ray, warnings
        warnings.simplefilter("ignore")
        env = planvec.make("CartPole-v1", backend="ray", num_workers=1, ray_address="127.0.0.1:{port}")
        promise = env.step_batch([0], blocking=False)
        pid = os.fork()
        if not pid:
            for call in (lambda: env.step_batch([0]), lambda: promise.result(5)):
                try:
                    call()
                except planvec.ClosedError as error:
                    print("in the fork:", error, flush=True)
            env.close()
            os._exit(0)
        os.waitpid(pid, 0)
        promise.result()
        ray.shutdown()
        try:
            env.step_batch([0])
        except planvec.ClosedError as error:
            print("after the end:", error)
        env.close()
        print("started", ray.is_initialized())
        """
    )
    assert printed.count("in the fork: the workers belong to the process that forked this one") == 2, printed
    assert "after the end: Ray was stopped, perhaps by ray.shutdown()" in printed
    assert "started False" in printed


def _answer(server: socket.socket, answer: bytes) -> None:
    with server.accept()[0] as sock:
        sock.recv(100)
        sock.sendall(answer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "nothing answers there .*refused"),
        ("", "nothing answers there within 0.5 s"),
        ("HTTP/1.1 400 Bad Request", "another program answers there"),
    ],
)
def test_an_address_where_no_cluster_answers_is_an_error(
    monkeypatch: pytest.MonkeyPatch, answer: str | None, text: str
) -> None:
    monkeypatch.setattr(
        ray, "is_initialized", lambda: False
    )  # else the address is compared with the present one
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 0.5)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{server.getsockname()[1]}"
        if answer is not None:
            server.listen()
        if answer:
            threading.Thread(target=_answer, args=(server, answer.encode())).start()
        with pytest.raises(planvec.WorkerStartError, match=f"got '{address}'; {text}"):
            open_env("CartPole-v1", ray_address=address)


def test_a_package_that_a_node_lacks_is_named(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\nsys.modules['planvec'] = None\n"  # which Python takes for a module that is missing
    )
    options = {"runtime_env": {"env_vars": {"PYTHONPATH": str(site)}}}
    with pytest.raises(
        planvec.WorkerStartError, match="a node of the cluster lacks the package 'planvec': install"
    ):
        open_env("CartPole-v1", ray_actor_options=options)

    def make() -> Any:
        return __import__("no_such_game").make()

    with pytest.raises(planvec.WorkerStartError, match="No module named 'no_such_game' on its node: install"):
        open_env(make)


def wait_for_the_end_of(pids: list[int]) -> None:
    end = time.monotonic() + 30
    while any(system.exists(pid) and system.state(pid) != "Z" for pid in pids):
        assert time.monotonic() < end, "actors are left"
        time.sleep(0.1)


def test_environments_that_are_dropped_without_close_leave_no_actor() -> None:
    env = open_env("CartPole-v1", num_workers=1)
    pids = [worker.pid for worker in workers_of(env)]
    del env
    gc.collect()
    wait_for_the_end_of(pids)


def test_a_driver_that_is_killed_leaves_no_actor() -> None:
    port = ray.get_runtime_context().gcs_address.rpartition(":")[2]
    script = f"""
        import os, planvec
        env = planvec.make("CartPole-v1", backend="ray", num_workers=1, ray_address="127.0.0.1:{port}")
        other = env.clone()  # at the same address, which Ray knows by another name
        workers = [each._backend._records[0].worker for each in (env, other)]
        print("actors:", *[worker.pid for worker in workers], flush=True)
        os.kill(os.getpid(), 9)
        """
    printed = run(script)
    found = re.search(r"^actors: (\d+) (\d+)$", printed, re.MULTILINE)
    assert found is not None, printed
    wait_for_the_end_of([int(pid) for pid in found.groups()])


def step_until(env: Any, actions: Any, num_ready: int) -> None:
    """Step until so many actors have a place and are ready."""
    end = time.monotonic() + 60
    while sum(worker.is_ready for worker in workers_of(env)) != num_ready:
        assert time.monotonic() < end
        env.step_batch(actions[:100])


def test_a_node_that_leaves_takes_no_row_along_and_one_that_joins_is_used() -> None:
    nodes = connect_ray()
    node = nodes.add_node(num_cpus=1, resources={PLACES: 1})
    options = {"num_cpus": 0, "resources": {PLACES: 1}}
    with (
        open_env("CartPole-v1", num_workers=3, max_restarts=0, ray_actor_options=options) as env,
        planvec.make("CartPole-v1", num_workers=0) as here,
    ):
        actions = actions_of(here, 6000)
        step_until(env, actions, num_ready=2)
        expected = here.step_batch(actions, dt=16)
        promise = env.step_batch(actions, dt=16, blocking=False)
        nodes.remove_node(node, allow_graceful=False)
        assert_same(promise.result(60), expected)
        node = nodes.add_node(num_cpus=1, resources={PLACES: 2})
        step_until(env, actions, num_ready=3)
        assert len({worker.node for worker in workers_of(env)}) == 2
        assert_same(env.step_batch(actions, dt=16), expected)
    nodes.remove_node(node)
