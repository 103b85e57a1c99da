"""States of environments that nobody can copy: replayed, and branched by forks of the process."""

from __future__ import annotations

import copy
import ctypes
import os
import random
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from marks import slow_after
from processes import is_zombie_or_gone, wait_until_dead

import planvec
from planvec.backends.processes.system import descendants

LIBC = ctypes.CDLL(None)
LIBC.malloc.restype = ctypes.c_void_p


class Memory(gymnasium.Env[Any, Any]):
    """Keeps its state in memory that a copy does not find. The options may make its steps slow."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self.address = LIBC.malloc(64)

    @property
    def cells(self) -> Any:
        return (ctypes.c_double * 8).from_address(self.address)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        for index in range(8):
            self.cells[index] = self.np_random.random()
        self.options = options or {}
        self.delay = self.options.get("delay", 0.0)
        self.count = 0  # steps
        return np.array(self.cells[:2]), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.delay:
            time.sleep(self.delay)
        self.cells[0] = 1.01 * self.cells[0] + int(action) + 0.01 * self.np_random.normal()
        self.cells[1] = 0.9 * self.cells[1] + self.cells[0]
        return np.array(self.cells[:2]), float(self.cells[1]), False, False, {"first": self.cells[0]}

    def render(self) -> Any:
        return np.full((2, 2, 3), int(abs(self.cells[0]) * 1e6) % 256, np.uint8)

    def total(self, factor: float) -> float:
        return factor * float(sum(self.cells))


class Episodes(Memory):
    """Counts its episodes, and does not restart exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.num_episodes = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.num_episodes += 1
        self.cells[0] += 0.5 * self.num_episodes
        return np.array(self.cells[:2]), {}


# A few steps take longer than a fork, so that snapshots are used.
SLOW = {"delay": 0.02}


IN_FORKS = planvec.Replayed(resets_in_forks=True)


def codec_of(make: Any) -> Any:
    return IN_FORKS if isinstance(make, type) and issubclass(make, Episodes) else "replay"


def straight(make: Callable[[], Any], actions: Sequence[int], seed: int = 0) -> Any:
    """Return what a new environment returns for the last action, stepped by itself."""
    env = make()
    env.reset(seed=seed)
    for action in actions:
        outcome = env.step(action)
    return outcome


def array(*states: Any) -> np.ndarray:
    result = np.empty(len(states), object)
    result[:] = states
    return result


def grow(env: Any, num_batches: int, num_rows: int = 4) -> Iterator[tuple[list[int], Any, int]]:
    """Step random states of a growing tree; yield the actions to each, the results, and the row."""
    rng = np.random.default_rng(0)
    paths: list[list[int]] = [[]]
    states = [env.reset(seed=0, options=SLOW).state]
    for _ in range(num_batches):
        chosen = [max(0, len(states) - 1 - int(abs(6 * rng.normal()))) for _ in range(num_rows)]
        actions = rng.integers(3, size=num_rows)
        out = env.step_batch(actions, array(*(states[one] for one in chosen)))
        for row, one in enumerate(chosen):
            paths.append([*paths[one], int(actions[row])])
            states.append(out.new_states[row])
            yield paths[-1], out, row


def assert_straight(make: Callable[[], Any], path: Sequence[int], out: Any, row: int) -> None:
    observation, reward, terminated, truncated, _ = straight(make, path)
    np.testing.assert_array_equal(out.observations[row], observation)
    assert (out.rewards[row], out.terminated[row], out.truncated[row]) == (reward, terminated, truncated)


def deep_state(env: Any, depth: int, **options: Any) -> Any:
    state = env.reset(seed=0, options={**SLOW, **options}).state
    for _ in range(depth):
        state = env.step_batch([1], array(state)).new_states[0]
    return state


def runners_of(env: Any) -> list[int]:
    """Return the process ids of the runners of all workers."""
    found = [pid for worker in env.workers for pid in descendants(worker.pid) if pid != worker.pid]
    return [pid for pid in found if not is_zombie_or_gone(pid)]


# -- bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize(
    "codec", slow_after(1, ["replay", planvec.Replayed(num_snapshots=3), planvec.Replayed(0)])
)
def test_a_tree_of_states_has_the_bits_of_the_environment_alone(codec: Any, num_workers: int) -> None:
    with planvec.make(Memory, num_workers=num_workers, codec=codec) as env:
        for path, out, row in grow(env, 12):
            assert_straight(Memory, path, out, row)
        if num_workers and codec != planvec.Replayed(0):
            assert runners_of(env)
        else:
            assert not wait_until_dead(runners_of(env), 10)


@pytest.mark.parametrize("start_method", slow_after(1, ["template", "spawn", "fork"]))
def test_snapshots_are_used_by_workers_of_each_start_method(start_method: str) -> None:
    with planvec.make(Memory, num_workers=1, codec="replay", start_method=start_method) as env:
        # A replay takes 0.6 s; a fork of a large process on a busy machine, 0.1 s.
        state = deep_state(env, 30)
        for row in range(3):
            assert_straight(Memory, [1] * 30 + [2], env.step_batch([2] * 3, array(*[state] * 3)), row)
        assert runners_of(env)


@pytest.mark.parametrize("num_workers", slow_after(1, [1, 2]))
def test_an_environment_that_does_not_restart_exactly_begins_in_forks(num_workers: int) -> None:
    with planvec.make(Episodes, num_workers=num_workers, codec=IN_FORKS) as env:
        for path, out, row in grow(env, 12):
            assert_straight(Episodes, path, out, row)
        again = env.reset(seed=0)
        np.testing.assert_array_equal(again.observation, env.reset(seed=0).observation)
    with pytest.raises(
        planvec.UnsupportedEnvError, match=r"pass codec=planvec.Replayed\(resets_in_forks=True"
    ):
        planvec.make(Episodes, num_workers=1, codec="replay")
    with pytest.raises(planvec.UnsupportedEnvError, match="resets_in_forks=True: expected a worker process"):
        planvec.PlanEnv(Episodes, codec=IN_FORKS)


class MadeByChance(Episodes):
    """Draws when it is made, from the entropy of the system."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = np.random.default_rng().normal()

    def step(self, action: Any) -> Any:
        self.cells[0] += self.bias
        return super().step(action)


def test_what_differs_between_two_environments_is_refused_though_all_forks_agree() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="another one has another result in step 0"):
        planvec.make(MadeByChance, num_workers=1, codec=IN_FORKS)


class Asks(Episodes):
    """Depends on the number of its process."""

    def step(self, action: Any) -> Any:
        self.cells[0] += os.getpid()
        return super().step(action)


def test_an_environment_that_depends_on_its_process_is_refused() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="after restoring a saved state"):
        planvec.make(Asks, num_workers=1, codec=IN_FORKS)


class AsksAndRestarts(Memory):
    """Depends on the number of its process, and restarts exactly there."""

    def step(self, action: Any) -> Any:
        outcome = super().step(action)
        return outcome[0] + os.getpid(), *outcome[1:]


def test_where_steps_differ_in_a_fork_all_is_replayed(caplog: pytest.LogCaptureFixture) -> None:
    with planvec.make(AsksAndRestarts, num_workers=1, codec="replay") as env:
        first = env.step_batch([1], array(deep_state(env, 10)))
        assert not wait_until_dead(runners_of(env), 10)
        np.testing.assert_array_equal(
            first.observations[0], straight(Memory, [1] * 11)[0] + env.workers[0].pid
        )


@pytest.mark.parametrize("make", [Memory, Episodes])
def test_seeds_repeats_rollouts_frames_attributes_and_methods_are_those_of_the_state(
    make: Callable[[], Any],
) -> None:
    with planvec.make(make, num_workers=1, codec=codec_of(make)) as env:
        state = deep_state(env, 8)
        out = env.step_batch([0, 2, 0, 2], array(*[state] * 4), dt=[1, 3, 1, 3], seeds=[5, 6, 5, 6])
        np.testing.assert_array_equal(out.observations[:2], out.observations[2:])
        assert_straight(make, [1] * 8 + [2], env.step_batch([2], array(state)), 0)
        rolled = env.rollout_batch(array(state, state), horizon=5, actions=np.ones((2, 5), np.int64))
        after = env.step_batch([0], rolled.final_states[:1])
        assert_straight(make, [1] * 13 + [0], after, 0)
        np.testing.assert_array_equal(env.observe(array(state))[0], straight(make, [1] * 8)[0])
        twin = make()
        twin.reset(seed=0)
        for _ in range(8):
            twin.step(1)
        assert env.call("total", array(state), 2.0)[0] == twin.total(2.0)


# -- faults ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", slow_after(1, [Memory, Episodes]))
def test_killed_runners_change_no_bit(make: Callable[[], Any]) -> None:
    rng = np.random.default_rng(1)
    with planvec.make(make, num_workers=1, codec=codec_of(make), max_restarts=0) as env:
        num_killed = 0
        for path, out, row in grow(env, 12):
            assert_straight(make, path, out, row)
            pids = runners_of(env)
            spared = pids[:1] if make is Episodes else []  # from which episodes begin: the oldest
            if pids[len(spared) :] and rng.random() < 0.5:
                os.kill(int(rng.choice(pids[len(spared) :])), signal.SIGKILL)
                num_killed += 1
        assert num_killed


def test_a_killed_worker_takes_its_runners_with_it() -> None:
    with planvec.make(Memory, num_workers=1, codec="replay") as env:
        states = array(*[deep_state(env, 10)] * 3)
        env.step_batch([1] * 3, states)
        before = runners_of(env)
        assert before
        os.kill(env.workers[0].pid, signal.SIGKILL)
        for row in range(3):
            assert_straight(Memory, [1] * 10 + [2], env.step_batch([2] * 3, states), row)
        assert not wait_until_dead(before, 10)
        last = runners_of(env)
        assert last
    assert not wait_until_dead(last, 10)


class Hangs(Memory):
    """Hangs at the twelfth step, in C, with the interpreter's lock, in the process that is there first."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def step(self, action: Any) -> Any:
        if self.options.get("armed") and self.count == 11 and action == 2 and not self.path.exists():
            self.path.write_text(str(os.getpid()))
            ctypes.PyDLL(None).sleep(1000)
        return super().step(action)


@pytest.mark.parametrize("timeout", slow_after(1, [None, 2.0]))
def test_a_runner_that_hangs_ends_with_its_worker(timeout: float | None, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    make = lambda: Hangs(path)  # noqa: E731
    with planvec.make(make, num_workers=1, codec="replay", timeout=timeout) as env:
        state = deep_state(env, 11, armed=True)
        env.step_batch([1] * 3, array(*[state] * 3))  # leaves a runner at the state
        promise = env.step_batch([2], array(state), blocking=False)
        while not (path.exists() and path.read_text()):
            time.sleep(0.01)
        pid = int(path.read_text())
        assert pid != env.workers[0].pid
        assert not is_zombie_or_gone(pid)
        if timeout is None:
            os.kill(env.workers[0].pid, signal.SIGKILL)
            assert_straight(Memory, [1] * 11 + [2], promise.result(), 0)
        else:
            with pytest.raises(planvec.WorkerTimeoutError, match="row 0, action 2"):
                promise.result()
        assert not wait_until_dead([pid], 10)


class Raises(Memory):
    """Raises at some actions of deep states."""

    def step(self, action: Any) -> Any:
        if self.count >= 10 and action == 2:
            raise ZeroDivisionError("the tank is empty")
        return super().step(action)


class RaisesOnce(Raises, Episodes):
    """The same, of an environment that does not restart exactly."""


@pytest.mark.parametrize("kind", [Raises, RaisesOnce])
def test_what_the_environment_raises_in_a_runner_is_the_error_of_its_row(kind: Callable[[], Any]) -> None:
    with planvec.make(kind, num_workers=1, codec=codec_of(kind)) as env:
        state = deep_state(env, 10)
        for _ in range(2):
            with pytest.raises(
                planvec.EnvError, match="row 1, action 2: ZeroDivisionError: the tank is empty"
            ):
                env.step_batch([1, 2], array(state, state))
        out = env.step_batch([1, 2, 0], array(*[state] * 3), on_error="mask")
        assert out.terminated.tolist() == [False, True, False]
        assert np.isnan(out.rewards[1])
        assert env.stats.restarts == 0


class Exits(Memory):
    """Ends its process at some actions of deep states."""

    def step(self, action: Any) -> Any:
        if self.options.get("armed") and self.count >= 10 and action == 2:
            os._exit(3)
        return super().step(action)


class ExitsOnce(Exits, Episodes):
    """The same, of an environment that does not restart exactly."""


@pytest.mark.parametrize("kind", slow_after(1, [Exits, ExitsOnce]))
def test_a_row_that_ends_its_process_is_blamed(kind: Callable[[], Any]) -> None:
    with planvec.make(kind, num_workers=1, codec=codec_of(kind), max_restarts=1) as env:
        state = deep_state(env, 10, armed=True)
        with pytest.raises(planvec.WorkerCrashedError, match="row 1, action 2"):
            env.step_batch([1, 2], array(state, state))
        assert_straight(Memory if kind is Exits else Episodes, [1] * 11, env.step_batch([1], array(state)), 0)


class Reads(Memory):
    """Reads a line of a file in each step."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = path.open()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.file.seek(0)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.cells[0] += float(self.file.readline())
        return super().step(action)


def test_forks_have_places_of_their_own_in_files(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_text("".join(f"{number:020}\n" for number in range(2000)))
    with planvec.make(lambda: Reads(path), num_workers=1, codec="replay") as env:
        late = env.rollout_batch(array(env.reset(seed=0).state), horizon=400, action_seed=0).final_states
        for _ in range(3):
            late = env.step_batch([1], late).new_states
        rolled = [
            env.rollout_batch(array(*late, *late, *late), horizon=600, action_seed=1).returns
            for _ in range(2)
        ]
        same = env.rollout_batch(late, horizon=600, action_seed=1).returns[0]
        assert rolled[0][0] == rolled[1][0] == same


class Waits(Memory):
    """Runs a program in each step of the slow episodes, and uses its exit code."""

    def step(self, action: Any) -> Any:
        if self.delay:
            self.cells[0] += subprocess.run(["/bin/sh", "-c", "exit 3"], check=False).returncode
        return super().step(action)


def test_an_environment_may_wait_for_processes_of_its_own() -> None:
    with planvec.make(Waits, num_workers=1, codec="replay") as env:
        states = array(*[deep_state(env, 8)] * 4)
        out = env.step_batch([1] * 4, states)
        env.step_batch([1] * 4, out.new_states)
        twin = Waits()
        twin.reset(seed=0, options=SLOW)
        for _ in range(9):
            expected = twin.step(1)
        for row in range(4):
            np.testing.assert_array_equal(out.observations[row], expected[0])


class Masked(Memory):
    """Reports legal actions in steps, and in deep slow states a wrong mask."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed, options=options)
        return observation, {"action_mask": np.ones(3, np.int8)}

    def step(self, action: Any) -> Any:
        *outcome, info = super().step(action)
        mask = np.ones(3, np.int8)
        mask[self.count % 3] = 0
        if self.delay and self.count > 10 and action == 2:
            mask[:] = 0
        return *outcome, {**info, "action_mask": mask}


class MaskedOnce(Masked, Episodes):
    """The same, of an environment that does not restart exactly."""


@pytest.mark.parametrize("kind", [Masked, MaskedOnce])
def test_masks_are_those_of_the_state_also_after_a_wrong_one(kind: Any) -> None:
    with planvec.make(kind, num_workers=1, codec=codec_of(kind)) as env:
        state = deep_state(env, 10)
        expected = env.step_batch([0], array(state))
        for _ in range(3):
            with pytest.raises(planvec.EnvError, match="action_mask"):
                env.step_batch([2], array(state))
            again = env.step_batch([0], array(state))
            np.testing.assert_array_equal(again.observations, expected.observations)
            assert again.new_states[0] == expected.new_states[0]


def test_masks_are_kept_though_infos_are_left_out() -> None:
    masks = []
    for num_workers in (0, 1):
        with planvec.make(Masked, num_workers=num_workers, codec="replay", info_keys=[]) as env:
            states = array(*[deep_state(env, 8)] * 3)
            masks.append([state.action_mask for state in env.step_batch([1] * 3, states).new_states])
    assert masks[0] == masks[1]
    assert masks[0][0] == bytes([0 != 9 % 3, 1 != 9 % 3, 2 != 9 % 3])


class LateThread(Memory):
    """Starts a thread in a deep slow state."""

    def step(self, action: Any) -> Any:
        if self.delay and self.count == 9:
            threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        return super().step(action)


class LateThreadOnce(LateThread, Episodes):
    """The same, of an environment that does not restart exactly."""


@pytest.mark.slow
def test_a_thread_that_comes_late_ends_the_snapshots() -> None:
    with planvec.make(LateThread, num_workers=1, codec="replay") as env:
        states = array(*[deep_state(env, 8)] * 3)
        out = env.step_batch([1] * 3, env.step_batch([1] * 3, states).new_states)
        for row in range(3):
            assert_straight(Memory, [1] * 10, out, row)
    with planvec.make(LateThreadOnce, num_workers=1, codec=IN_FORKS) as env:
        state = deep_state(env, 9)
        with pytest.raises(
            planvec.UnsupportedEnvError, match="its resets cannot begin in forks: it has threads"
        ):
            env.step_batch([1], array(state))


class Unsendable(Memory):
    """Reports what cannot be pickled."""

    def step(self, action: Any) -> Any:
        *outcome, info = super().step(action)
        return *outcome, {**info, "lock": threading.Lock()}


def test_infos_that_cannot_be_sent_are_an_error_unless_they_are_left_out() -> None:
    with planvec.make(Unsendable, num_workers=1, codec="replay", info_keys=["first"]) as env:
        out = env.step_batch([2], array(deep_state(env, 8)))
        assert_straight(Memory, [1] * 8 + [2], out, 0)
        assert out.infos["first"][0] == straight(Memory, [1] * 8 + [2])[4]["first"]


# -- limits ----------------------------------------------------------------------------------------


def test_the_number_of_snapshots_is_bounded() -> None:
    with planvec.make(Memory, num_workers=1, codec=planvec.Replayed(num_snapshots=5)) as env:
        for _ in grow(env, 10):
            pass
        deadline = time.monotonic() + 10
        while len(runners_of(env)) > 5 + 1 and time.monotonic() < deadline:  # and one at work
            time.sleep(0.01)
        assert len(runners_of(env)) <= 5 + 1


class Large(Memory):
    """Writes to a megabyte in each step, so that forks share little."""

    def step(self, action: Any) -> Any:
        self.bulk = np.full(1 << 17, float(self.cells[0]))
        return super().step(action)


@pytest.mark.slow
def test_the_memory_of_snapshots_is_bounded() -> None:
    with planvec.make(Large, num_workers=1, codec=planvec.Replayed(megabytes=20)) as env:
        for path, out, row in grow(env, 12):
            assert_straight(Large, path, out, row)
        assert 1 <= len(runners_of(env)) <= 20


# -- where a fork is unsafe --------------------------------------------------------------------------


class WithThread(Memory):
    """Has a thread."""

    def __init__(self) -> None:
        super().__init__()
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


class WithSocket(Memory):
    """Is connected to another process."""

    def __init__(self) -> None:
        super().__init__()
        self.ends = socket.socketpair()


@pytest.mark.parametrize("make", [WithThread, WithSocket])
def test_an_environment_that_cannot_go_on_in_a_fork_is_replayed(make: Callable[[], Any]) -> None:
    with planvec.make(make, num_workers=1, codec=codec_of(make)) as env:
        out = env.step_batch([2], array(deep_state(env, 8)))
        assert_straight(Memory, [1] * 8 + [2], out, 0)
        assert not wait_until_dead(runners_of(env), 10)


# -- generators outside the environment ----------------------------------------------------------------


class Seeding(Memory):
    """Seeds a global generator in its reset, and draws from it."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        random.seed(seed)
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.cells[0] += random.random()
        return super().step(action)


class SeedingOnce(Seeding, Episodes):
    """The same, of an environment that does not restart exactly."""


@pytest.mark.parametrize(("make", "num_workers"), [(Seeding, 0), (Seeding, 1), (SeedingOnce, 1)])
def test_a_global_generator_that_the_reset_seeds_is_a_part_of_states(
    make: Callable[[], Any], num_workers: int
) -> None:
    with planvec.make(make, num_workers=num_workers, codec=codec_of(make)) as env:
        for path, out, row in grow(env, 8):
            before = random.getstate()
            assert_straight(make, path, out, row)
            random.setstate(before)
            random.random()  # of the program


class DrawsLate(Memory):
    """Draws from a generator that nobody has seeded, in deep states."""

    def step(self, action: Any) -> Any:
        if self.count >= 300:
            self.cells[0] += random.random()
        return super().step(action)


class DrawsLateOnce(DrawsLate, Episodes):
    """The same, of an environment that does not restart exactly."""


@pytest.mark.parametrize(("make", "num_workers"), [(DrawsLate, 0), (DrawsLate, 1), (DrawsLateOnce, 1)])
def test_a_late_draw_from_a_generator_that_nobody_seeds_is_refused(
    make: Callable[[], Any], num_workers: int
) -> None:
    with planvec.make(make, num_workers=num_workers, codec=codec_of(make)) as env:
        start = array(env.reset(seed=0).state)
        late = env.rollout_batch(start, horizon=300).final_states
        with pytest.raises(planvec.UnsupportedEnvError, match="draw from the global generator of `random`"):
            env.step_batch([0], late)


# -- arguments ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((-1,), ValueError, "num_snapshots: expected at least 0, got -1"),
        ((1.5,), TypeError, "num_snapshots: expected an integer, got 1.5"),
        ((True,), TypeError, "num_snapshots: expected an integer, got True"),
        ((3, 0), ValueError, "megabytes: expected more than 0, got 0"),
        ((3, "1"), TypeError, "megabytes: expected a number, got '1'"),
        ((0, 1, True), ValueError, "num_snapshots: expected at least 1 with resets_in_forks, got 0"),
    ],
)
def test_limits_are_checked(arguments: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        planvec.Replayed(*arguments)


class TwiceUsed(gymnasium.Env[Any, Any]):
    """Remembers how often it was reset."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)
    num_resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.num_resets += 1
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        return self._seen(), 0.0, False, False, {}

    def _seen(self) -> Any:
        return np.array([float(self.num_resets)])


def test_what_does_not_restart_is_told_to_begin_in_forks() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=r"codec=planvec\.Replayed\(resets_in_forks=True\)"):
        planvec.make(TwiceUsed, num_workers=1, codec="replay")
    with planvec.make(TwiceUsed, num_workers=1, codec=planvec.Replayed(resets_in_forks=True)) as env:
        assert env.reset(seed=3).observation == 1


class Deterministic(gymnasium.Env[Any, Any]):
    """Counts; draws only where it passes a tenth number."""

    observation_space = spaces.Discrete(1000)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number = 0
        return self.number, {}

    def step(self, action: Any) -> Any:
        self.number += int(action)
        if self.number // 10 > (self.number - int(action)) // 10:
            self.number += int(self.np_random.integers(5))
        return self.number, 1.0, False, False, {}


@pytest.mark.parametrize("in_forks", [False, True])
def test_searches_do_not_tell_apart_seeds_from_which_nothing_was_drawn(in_forks: bool) -> None:
    codec = planvec.Replayed(resets_in_forks=in_forks)
    with planvec.make(Deterministic, num_workers=1, codec=codec) as env:
        states = np.array([env.reset(seed=0).state] * 2)
        same = env.step_batch(np.array([2, 2]), states, seeds=np.array([1, 2])).new_states
        assert same[0].without_generator == same[1].without_generator
        assert same[0] != same[1]
        drawn = env.step_batch(np.array([2, 2]), states, dt=5, seeds=np.array([1, 2]))
        assert drawn.new_states[0].without_generator != drawn.new_states[1].without_generator
        # Seeds decide about the draws of all steps of a row, also after some that drew nothing.
        np.testing.assert_array_equal(drawn.observations, [10 + drawn_by(1), 10 + drawn_by(2)])
        # Later steps draw from the seed, which has become a part of what is compared.
        later = env.step_batch(np.array([2, 2]), same, dt=4)
        np.testing.assert_array_equal(later.observations, [10 + drawn_by(1), 10 + drawn_by(2)])
        assert later.new_states[0].without_generator != later.new_states[1].without_generator
        # Another seed makes that of the state before meaningless.
        again = env.step_batch(np.array([2, 2]), same, dt=4, seeds=np.array([3, 3]))
        assert again.new_states[0].without_generator == again.new_states[1].without_generator


class LooksAhead(Deterministic):
    """Observes what it would draw, and remembers the state of the generator."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.kept: Any = None
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        if self.kept is not None and int(action) == 2:
            self.np_random.bit_generator.state = self.kept
        self.kept = self.np_random.bit_generator.state
        value = copy.deepcopy(self.np_random).random()
        return np.array([value]), value, False, False, {}


@pytest.mark.parametrize("in_forks", [False, True])
def test_a_generator_has_an_influence_without_a_draw(in_forks: bool) -> None:
    codec = planvec.Replayed(resets_in_forks=in_forks)
    with planvec.make(LooksAhead, num_workers=1, codec=codec) as env:
        states = np.array([env.reset(seed=0).state] * 3)
        seen = env.step_batch(np.array([1, 1, 1]), states, seeds=np.array([1, 2, 3]))
        assert len({*seen.rewards.tolist()}) == 3
        assert len({state.without_generator for state in seen.new_states}) == 3
        np.testing.assert_array_equal(env.observe(seen.new_states), seen.observations)
        undone = env.step_batch(np.array([2, 2, 2]), seen.new_states)
        np.testing.assert_array_equal(undone.rewards, seen.rewards)
        again = env.step_batch(np.array([2, 2, 2]), seen.new_states[::-1])
        np.testing.assert_array_equal(again.rewards, seen.rewards[::-1])


def drawn_by(seed: int) -> int:
    return int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed))).integers(5))


def test_a_search_that_samples_chance_gets_as_deep_by_replay_as_with_copies() -> None:
    plans = []
    for codec in ("copied", "replay"):
        with planvec.make(Deterministic, num_workers=0, codec=codec) as env:
            state = env.reset(seed=0).state
            planner = planvec.MCTS(num_simulations=60, transpositions=False)
            plan = planner.plan(env, state, seed=0)
            plans.append((plan.visit_counts.tolist(), plan.value, plan.depth_histogram.tolist()))
    assert plans[0] == plans[1]
