"""`ExternalProcess` by itself, and every way in which people start Python."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import nbformat
import numpy as np
import pytest
from compare import same_states
from environments import Warehouse
from marks import slow_after
from methods import METHODS
from nbclient import NotebookClient

import planvec
from planvec import ExternalProcess, PlanEnv
from planvec.backends.processes import channel, slab, system, worker


class Counter:
    """An object of the user's own to host."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def add(self, number: int, *, times: int = 1) -> int:
        self.count += number * times
        return self.count

    def pid(self) -> int:
        return os.getpid()


@pytest.mark.parametrize("method", METHODS)
def test_a_process_hosts_any_object(method: str) -> None:
    with ExternalProcess(partial(Counter, 5), start_method=method) as worker:
        promise = worker.call("add", 2, times=3)
        assert isinstance(promise, planvec.Promise)
        assert promise.result() == promise() == 11
        worker.set_attr("count", 100)
        assert worker.get_attr("count") == 100
        assert worker.call("pid").result() == worker.pid != os.getpid()


def test_calls_are_carried_out_in_order_and_read_in_any() -> None:
    with ExternalProcess(Counter, start_method="fork") as worker:
        promises = [worker.call("add", number) for number in range(40)]
        assert promises[39].result() == 780
        assert [promise.result() for promise in promises] == list(np.cumsum(range(40)))


def test_an_unknown_name_is_an_error_and_harms_nothing() -> None:
    with ExternalProcess(Counter, start_method="fork") as worker:
        with pytest.raises(
            planvec.EnvError, match="AttributeError: 'Counter' object has no attribute 'nope'"
        ):
            worker.call("nope").result()
        assert not hasattr(worker, "nope")
        assert worker.call("add", 1).result() == 1


def test_a_large_value_passes_in_both_directions() -> None:
    with ExternalProcess(lambda: Echo(), start_method="fork") as worker:
        data = np.random.default_rng(0).random(3_000_000)
        promises = [worker.call("echo", data) for _ in range(3)]
        for promise in promises:
            np.testing.assert_array_equal(promise.result(), data)


class Echo:
    """Gives back what it gets."""

    def echo(self, value: Any) -> Any:
        return value


def test_one_process_steps_batches_and_keeps_a_state() -> None:
    with ExternalProcess(lambda: PlanEnv("CartPole-v1"), start_method="fork") as worker:
        state = worker.call("reset", seed=3).result().state
        out = worker.step_batch(np.array([0, 1]), np.repeat(state, 2))
        promise = worker.step_batch(np.array([0, 1]), np.repeat(state, 2), blocking=False)
        assert same_states(promise.result().new_states, out.new_states)
        worker.set_state(out.new_states[1])
        assert worker.get_state() == out.new_states[1]


def test_parts_make_a_batch_env_in_promise_mode() -> None:
    workers = [ExternalProcess(lambda: PlanEnv("CartPole-v1"), start_method="fork") for _ in range(2)]
    with planvec.BatchEnv(workers, blocking=False) as env:
        state = env.reset(seed=0).state
        promise = env.step_batch(np.zeros(5, int), np.repeat(state, 5))
        assert promise.result().rewards.tolist() == [1.0] * 5
        assert env.step_batch(np.zeros(5, int), blocking=True).rewards.tolist() == [1.0] * 5


def test_a_batch_env_without_workers_is_refused() -> None:
    with pytest.raises(planvec.InvalidBatchError, match="workers: expected at least one"):
        planvec.BatchEnv([])
    with pytest.raises(planvec.WorkerStartError, match="expected each to host a planvec.PlanEnv"):
        planvec.BatchEnv([ExternalProcess(Counter, start_method="fork")])
    with pytest.raises(planvec.WorkerStartError, match="start_method: expected one of"):
        ExternalProcess(Counter, start_method="thread")


def test_batches_larger_than_a_slab_travel_in_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slab, "_MAX_ROWS", 7)
    actions = np.random.default_rng(0).integers(2, size=100)
    with planvec.make("CartPole-v1", num_workers=3, start_method="fork") as env:
        state = env.reset(seed=0).state
        out = env.step_batch(actions, state)
        assert env.stats.num_chunks >= 100 // 7
        promise = env.step_batch(actions, out.new_states, blocking=False)
        rolled = env.rollout_batch(out.new_states, 9, action_seed=1)
        observed = env.observe(promise.result().new_states)
    with planvec.make("CartPole-v1", num_workers=0) as env:
        expected = env.step_batch(actions, state)
        assert same_states(out.new_states, expected.new_states)
        later = env.step_batch(actions, expected.new_states)
        np.testing.assert_array_equal(observed, later.observations)
        np.testing.assert_array_equal(
            rolled.returns, env.rollout_batch(out.new_states, 9, action_seed=1).returns
        )


@pytest.mark.slow
def test_rows_of_varying_size_travel_in_large_messages() -> None:
    rng = np.random.default_rng(0)
    with planvec.make(Warehouse, num_workers=2, start_method="fork") as env:
        states = np.repeat(env.reset(seed=0).state, 5000)
        actions = rng.integers([0, 0, 0], [3, 3, 2], (5000, 3))
        promises = [env.step_batch(actions, states, dt=3, blocking=False) for _ in range(2)]
        one, other = (promise.result() for promise in promises)
    with planvec.make(Warehouse, num_workers=0) as env:
        expected = env.step_batch(actions, states, dt=3)
    for out in (one, other):
        assert same_states(out.new_states, expected.new_states)
        assert out.observations["note"] == expected.observations["note"]


@pytest.mark.parametrize(("num_rows", "num_chunks"), [(2, 2), (10, 3)])
def test_rows_are_split_evenly_before_their_cost_is_known(num_rows: int, num_chunks: int) -> None:
    with planvec.make("CartPole-v1", num_workers=3, start_method="fork") as env:
        env.step_batch(np.zeros(num_rows, int))
        assert (env.stats.num_rows, env.stats.num_chunks) == (num_rows, num_chunks)


def test_an_idle_pool_uses_no_cpu() -> None:
    def used(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    with planvec.make("CartPole-v1", num_workers=2, start_method="fork") as env:
        env.step_batch(np.zeros(8, int))
        asleep = set()
        while len(asleep) < 2:  # each worker looks for some microseconds, then sleeps on its channel
            asleep |= {worker.pid for worker in env.workers if system.state(worker.pid) == "S"}
        before = [used(worker.pid or 0) for worker in env.workers]
        with ExternalProcess(Counter, start_method="spawn") as other:  # takes a while by itself
            other.call("add", 1).result()
        assert [used(worker.pid or 0) for worker in env.workers] == before


# -- how people start Python -----------------------------------------------------------------------

SCRIPT = """
import enum
import gymnasium
import numpy as np
import planvec

class Mine(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(1000)
    action_space = gymnasium.spaces.Discrete(3)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 500
        return self.x, {}
    def step(self, action):
        self.x += int(action) - 1
        return self.x, float(self.x), False, False, {}

class MineCodec(planvec.Codec):
    dtype = np.dtype([("x", "i8")])
    draws = False
    def get(self, env):
        return (env.x,)
    def set(self, env, value):
        (env.x,) = value
    def observe(self, env):
        return env.x

planvec.register_codec(Mine, MineCodec)
gymnasium.register("Mine-v0", entry_point=Mine)
offset = 0

def factory():
    return Mine() if offset == 0 else None

class Crate:
    def __init__(self, weight):
        self.weight = weight

class Colour(enum.Enum):
    RED = 1

class Depot(Mine):
    # No codec: copied, with classes of this script in its state and in its infos.
    def reset(self, **kwargs):
        self.crate = Crate(0)
        return super().reset(**kwargs)
    def step(self, action):
        self.crate = Crate(self.crate.weight + int(action))
        return (*super().step(action)[:1], float(self.crate.weight), False, False, {"colour": Colour.RED})

states = []
for num_workers in (0, 2):
    with planvec.make(Depot, num_workers=num_workers, start_method=METHOD) as env:
        out = env.step_batch(np.array([0, 1, 2]), dt=2)
        assert out.rewards.tolist() == [0.0, 3.0, 6.0], out
        assert list(out.infos["colour"]) == [Colour.RED] * 3
        states.append(out.new_states.tolist())
assert states[0] == states[1]

for source in (factory, lambda: Mine(), "Mine-v0"):
    with planvec.make(source, num_workers=2, start_method=METHOD) as env:
        state = env.reset(seed=0).state
        out = env.step_batch(np.array([0, 1, 2]), np.repeat(state, 3))
        assert out.observations.tolist() == [499, 500, 501], out
        assert env.state_dtype.names == ("x", "terminated", "truncated"), env.state_dtype
print("fine")
"""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", slow_after(1, ["file", "-c", "stdin"]))
def test_a_script_needs_no_main_guard(how: str, method: str, tmp_path: Path) -> None:
    code = SCRIPT.replace("METHOD", repr(method))
    script = tmp_path / "script.py"
    script.write_text(code)
    command = {"file": [str(script)], "-c": ["-c", code], "stdin": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        input=code if how == "stdin" else None,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")


@pytest.mark.slow
def test_a_lambda_from_a_notebook_cell_works_under_every_start_method() -> None:
    cell = """
    import gymnasium, numpy as np, planvec
    length = 3
    results = []
    for method in ("template", "spawn", "fork"):
        make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=length)
        with planvec.make(make, num_workers=2, start_method=method) as env:
            out = env.step_batch(np.array([0, 1]), env.reset(seed=0).state, dt=9)
            results.append(out.truncated.tolist())
    assert results == [[True, True]] * 3, results
    """
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(textwrap.dedent(cell))])
    NotebookClient(notebook, timeout=60).execute()


def test_an_id_registered_in_the_parent_alone_works_in_workers() -> None:
    gymnasium.register("OnlyInTheParent-v0", entry_point=Warehouse, max_episode_steps=5)
    try:
        with planvec.make("OnlyInTheParent-v0", num_workers=1) as env:
            out = env.step_batch([[0, 0, 0]], dt=9)
            assert out.truncated.tolist() == [True]
            assert env.spec is not None
            assert env.spec.id == "OnlyInTheParent-v0"
    finally:
        del gymnasium.registry["OnlyInTheParent-v0"]


# -- workers that the user closes ---------------------------------------------------------------------


def test_a_batch_over_a_worker_that_was_closed_raises() -> None:
    with planvec.make("CartPole-v1", num_workers=1) as env:
        env.workers[0].close()
        for _ in range(2):
            with pytest.raises(planvec.ClosedError, match="planvec-worker-0 was closed"):
                env.step_batch([0])


def test_the_other_workers_take_the_rows_of_one_that_was_closed() -> None:
    with planvec.make("CartPole-v1", num_workers=2) as env:
        env.workers[0].close()
        with pytest.raises(planvec.ClosedError, match="planvec-worker-0 was closed"):
            env.step_batch([0, 1])  # it is reported once
        assert env.step_batch([0, 1]).rewards.tolist() == [1.0, 1.0]


def test_a_batch_env_over_a_closed_process_is_an_error() -> None:
    process = planvec.ExternalProcess(lambda: planvec.PlanEnv("CartPole-v1"))
    process.close()
    with pytest.raises(planvec.ClosedError, match="planvec-worker was closed"):
        planvec.BatchEnv([process])


def test_a_call_of_a_process_that_was_abandoned_raises() -> None:
    with planvec.ExternalProcess(lambda: planvec.PlanEnv("CartPole-v1")) as process:
        promise = process.call("get_state")
        promise.abandon()
        with pytest.raises(planvec.ClosedError, match="was interrupted"):
            promise.result()


class Clock:
    """A clock, and polls that take time on it until a message arrives."""

    def __init__(self) -> None:
        self.now, self.arrives_at, self.num_polls = 0.0, 0.0, 0
        self.pause = 0.0  # seconds for which another process takes the core when it is offered
        self.num_offers = 0

    def offer_core(self) -> None:
        self.num_offers += 1
        self.now += self.pause

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        self.num_polls += 1
        self.now = max(self.now, self.arrives_at) if timeout is None else self.now + 1e-6
        return [(3, 1)] if self.now >= self.arrives_at else []

    def wait(self, poller: channel.Poller, seconds: float) -> int:
        """Wait for a message that arrives after some seconds. Returns the number of polls."""
        self.num_polls, self.arrives_at = 0, self.now + seconds
        assert poller.spin(self.poll) or poller.sleep(self.poll)
        return self.num_polls


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(channel.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(channel, "_yield_core", clock.offer_core)
    return clock


def test_who_waits_polls_only_if_messages_arrive_soon(clock: Clock) -> None:
    poller = channel.Poller()
    assert 40 <= clock.wait(poller, 50e-6) <= 60
    assert 190 <= clock.wait(poller, 1.0) <= 210  # polls for 200 us, then sleeps
    assert clock.wait(poller, 1.0) == 2  # the last wait was long: sleeps at once
    assert clock.wait(poller, 50e-6) == 2
    assert clock.wait(poller, 50e-6) > 40  # and the last one was short


def test_who_waits_polls_only_while_nobody_else_needs_the_core(clock: Clock) -> None:
    """A pause between two polls shows that another process ran; the next waits then sleep at once."""
    poller = channel.Poller()
    clock.pause = 120e-6
    for _ in range(100):
        clock.wait(poller, 150e-6)
    assert 3 < clock.num_offers < 12  # more and more of the waits sleep at once
    clock.pause = 0.0
    waits = [clock.wait(poller, 150e-6) for _ in range(200)]
    assert waits[0] == 2
    assert waits[-1] > 100  # polls again when the core is idle again


def test_a_caller_polls_for_longer_if_there_are_fewer_workers_than_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker, "num_cores", lambda: 2)
    for count, seconds in [(1, channel.LONG_SPIN_SECONDS), (2, channel.SPIN_SECONDS)]:
        with planvec.make("CartPole-v1", num_workers=count) as env:
            assert env._backend._group._longest_spin == seconds  # type: ignore[attr-defined]


def test_a_caller_with_a_timeout_does_not_poll_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "num_cores", lambda: 2)
    seconds: list[float] = []
    with planvec.make("CartPole-v1", num_workers=1) as env:
        group = env._backend._group  # type: ignore[attr-defined]
        monkeypatch.setattr(group._poller, "spin", lambda poll, longest: seconds.append(longest) or poll(0))
        promise = env.step_batch(np.zeros(1, np.int64), blocking=False)
        group.wait(1e-3)
        group.wait(1.0)
        promise()
    assert seconds[:2] == [1e-3, channel.LONG_SPIN_SECONDS]


def test_who_may_poll_for_longer_does_not_sleep_through_a_wait_of_milliseconds(clock: Clock) -> None:
    poller = channel.Poller()
    clock.arrives_at = clock.now + 3e-3
    assert poller.spin(clock.poll, channel.LONG_SPIN_SECONDS)
    assert clock.num_polls > 2000


@pytest.mark.parametrize(
    ("texts", "limit"),
    [
        (["450000 100000\n"], 4),
        (["250000 100000\n"], 2),
        (["max 100000\n"], 64),
        (["50000", "100000"], 1),
        (["-1", "100000"], 64),
        ([], 64),
    ],
)
def test_the_quota_of_a_container_limits_the_number_of_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, texts: list[str], limit: int
) -> None:
    paths = [tmp_path / f"file-{number}" for number in range(len(texts) or 1)]
    for path, text in zip(paths, texts, strict=False):
        path.write_text(text)
    monkeypatch.setattr(system, "_QUOTAS", (tuple(map(str, paths)),))
    monkeypatch.setattr(system.os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert system.num_cores() == limit
    assert system.default_num_workers() == {64: 63, 4: 3, 2: 2, 1: 1}[limit]


def warns() -> str:
    """Import MuJoCo in a worker, and let it print a warning."""
    import mujoco

    body = "<worldbody><body><freejoint/><geom size='1'/></body></worldbody>"
    model = mujoco.MjModel.from_xml_string(f"<mujoco><compiler settotalmass='1'/>{body}</mujoco>")
    data = mujoco.MjData(model)
    data.qvel[0] = np.nan
    mujoco.mj_step(model, data)
    return str(mujoco.get_mju_user_warning())


class Warner:
    """An object whose method prints a warning."""

    def call(self) -> str:
        return warns()


@pytest.mark.parametrize("start_method", [None, "spawn", "fork"])
def test_workers_print_no_banners_and_deprecations_but_warnings(
    start_method: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    for env in ("HalfCheetah-v5", lambda: gymnasium.make("ALE/Pong-v5")):
        with planvec.make(env, num_workers=1, start_method=start_method) as batch_env:
            batch_env.step_batch(np.array([batch_env.action_space.sample()] * 2))
    with ExternalProcess(Warner, start_method=start_method) as process:
        assert "warn" in process.call("call").result()
    captured = capfd.readouterr()
    assert "Arcade Learning Environment" not in captured.out + captured.err
    assert "deprecated" not in captured.out + captured.err
    assert captured.err.count("WARNING: Nan, Inf or huge value in QVEL at DOF 0") == 1
