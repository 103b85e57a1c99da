"""Vector environments have the results of one process each, whatever their environments share."""

from __future__ import annotations

import functools
import logging
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import sharing
from gymnasium import spaces
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv
from gymnasium.vector import AutoresetMode
from marks import slow_after
from sharing import (
    KINDS,
    LATE,
    REUSING,
    SHARING,
    CountsInConstructor,
    LateInList,
    LateUnseen,
    Walk,
    forget,
    trajectory,
)
from vectors import kill_worker

from planvec.codecs import find_shared, same
from planvec.envs import make_env
from planvec.errors import WorkerStartError
from planvec.vector import AsyncVectorEnv, EnvPool

NUM_ENVS = 4


def alone(kind: str) -> list[Callable[[], Any]]:
    """The functions for Gymnasium. It makes another environment in the process from which it forks."""
    make, *others = KINDS[kind](NUM_ENVS)
    parent = os.getpid()
    return [lambda: Walk() if os.getpid() == parent else make(), *others]


@functools.cache
def expected(kind: str, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> list[Any]:
    """What Gymnasium's own class returns, with a process for each environment."""
    forget()
    num_steps = 340 if "Late" in kind else 25
    env = gymnasium.vector.AsyncVectorEnv(alone(kind), context="fork", autoreset_mode=mode)
    try:
        return list(trajectory(env, num_steps))
    finally:
        env.close()


def check(kind: str, num_workers: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> None:
    wanted = expected(kind, mode)
    env = AsyncVectorEnv(KINDS[kind](NUM_ENVS), num_workers=num_workers, autoreset_mode=mode)
    try:
        assert same(wanted, list(trajectory(env, len(wanted) - 1)))
        assert (env.num_workers == NUM_ENVS) == (kind in SHARING or num_workers == NUM_ENVS)
    finally:
        env.close()


WALKS = [kind for kind in KINDS if kind != "BareReset"]  # Gymnasium cannot reset that a second time
INDIRECT = {kind.__name__ for kind in LATE}  # long walks, which differ in what the code shows only
QUICK = {
    "Walk": 2,  # shares nothing
    "one_object": 2,
    "ShowsTheCount": 0,
    "ChangesConfig": 2,
    "LogsLate": 0,
    "ClassCount": 2,
    "DefaultArgument": 0,
    "LateHeld": 2,
    "InOneWorld": 0,
    "Variable": 2,
    "NumpyGlobal": 0,
    "HoldsModule": 2,
    "popped_config": 0,
    "TakesList": 2,
    "GrowingInfo": 0,
    "SameArrays": 0,
    "StructInfo": 2,
    "OddInfo": 2,
}
"""One kind for each way to share, or to be unusual, and its number of workers."""


@pytest.mark.parametrize(("kind", "num_workers"), QUICK.items())
def test_environments_have_the_results_of_one_process_each(kind: str, num_workers: int) -> None:
    check(kind, num_workers)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1, 2, NUM_ENVS])
@pytest.mark.parametrize("kind", WALKS)
def test_so_they_have_with_any_number_of_workers(kind: str, num_workers: int) -> None:
    check(kind, num_workers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in WALKS if kind not in (*REUSING, *INDIRECT)])
def test_so_they_have_where_the_last_step_resets(kind: str) -> None:
    check(kind, 2, AutoresetMode.SAME_STEP)


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1, 2, NUM_ENVS])
@pytest.mark.parametrize("kind", [kind for kind in WALKS if kind not in INDIRECT])
def test_so_they_have_in_a_pool(kind: str, num_workers: int) -> None:
    wanted = expected(kind)
    with EnvPool(KINDS[kind](NUM_ENVS), num_workers=num_workers) as pool:
        observed = [out[:5] for out in trajectory(pool, len(wanted) - 1)]
    assert same(wanted, observed)


GIVEN = [{"scale": 3.0}, [1, 2], np.zeros(3), sharing.World(), (np.zeros(3), [1, 2])]


class Holds(Walk):
    """Reads what it is given, and never changes it."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def shown(self) -> float:
        return self.given["scale"] * self.t if isinstance(self.given, dict) else float(self.t)


class DrawsAlone(Walk):
    """Draws from a space of its own, and reads a variable."""

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.action_space.seed(seed)
        return super().reset(seed=seed)

    def shown(self) -> float:
        return float(self.action_space.sample()) + len(sharing.DECK)


class LateOneOf(Walk):
    """Changes a list whose key is not in the code."""

    def step(self, action: Any) -> Any:
        if self.t > 300:
            sharing.LISTS[1 if action else 2].append(self.t)
        return super().step(action)


class LateInEach(Walk):
    def step(self, action: Any) -> Any:
        return [sharing.LISTS[key].append(self.t) for key in (1, 2) if self.t > 300] or super().step(action)


class LateInEither(Walk):
    """Changes a list of others, or one of its own."""

    def step(self, action: Any) -> Any:
        numbers = sharing.LISTS[1] if action else []
        if self.t > 300:
            numbers.append(self.t)
        return super().step(action)


@pytest.mark.parametrize("kind", [*LATE, LateOneOf, LateInEach, LateInEither])
def test_the_code_shows_what_changes_late(kind: Callable[[], Any]) -> None:
    forget()
    found, _ = find_shared([kind(), kind()], [kind, kind], tries=False)
    assert found.why


def messages_of(kind: Callable[[], Any], num_steps: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a worker with three environments logs while they are stepped, until the first message."""
    with caplog.at_level(logging.WARNING, "planvec"), EnvPool([kind] * 3, num_workers=1) as pool:
        assert pool._engine.num_workers == 1
        pool.reset(seed=0)
        for _ in range(num_steps):
            pool.step([1] * 3)
            if caplog.messages:
                break
            time.sleep(0.001)  # workers compare from time to time
    return caplog.messages


def test_a_message_says_what_has_changed_that_no_code_shows(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = messages_of(LateUnseen, 5000, caplog)
    assert "its 3 environments share sharing.STATISTICS, which has changed while they were stepped" in message


def test_what_each_has_for_itself_is_no_change_beside_them(caplog: pytest.LogCaptureFixture) -> None:
    assert not messages_of(DrawsAlone, 300, caplog)


@pytest.mark.parametrize("kind", [CountsInConstructor, LateInList])
def test_opening_changes_no_variable_of_the_program(kind: Callable[[], Any]) -> None:
    forget()
    with EnvPool([kind] * 3, num_workers=0) as pool:
        assert pool._engine._options.start_method is None  # only the trial is in a fork
    assert (sharing.COUNT, sharing.STATISTICS["wins"]) == (0, [])


@pytest.mark.parametrize("num_workers", slow_after(1, [0, 2, 1, 4]))
def test_one_object_from_all_functions_counts_for_each(num_workers: int) -> None:
    env = AsyncVectorEnv(KINDS["one_object"](4), num_workers=num_workers)
    env.reset(seed=0)
    env.step([1, 2, 3, 1])
    assert env.step([1, 2, 3, 2])[1].tolist() == [2, 4, 6, 3]
    env.close()


@pytest.mark.parametrize("num_workers", slow_after(1, [0, 2, 1]))
def test_what_wrappers_of_known_environments_share_counts_for_each(num_workers: int) -> None:
    statistics = gymnasium.wrappers.utils.RunningMeanStd(shape=(4,))

    def make() -> Any:
        env = gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))
        env.obs_rms = statistics
        return env

    with EnvPool([make] * 3, num_workers=num_workers) as pool:
        seen = [pool.reset(seed=[0] * 3)[0], *(pool.step([1] * 3).observations for _ in range(4))]
    for observations in seen:  # alike, since each counts its own observations
        assert (observations == observations[0]).all()


def test_a_message_says_why_environments_have_a_process_each(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "planvec"),
        EnvPool([CountsInConstructor] * 3, num_workers=1) as pool,
    ):
        assert pool._engine.num_workers == 3
    (message,) = caplog.messages
    assert message.startswith("each environment gets a process of its own (3), because in one process")
    assert message.endswith("CountsInConstructor.__init__ assigns the module variable COUNT")


class DrawsUnseeded(Walk):
    def shown(self) -> float:
        return random.random()


def test_environments_that_draw_from_random_differ_and_do_not_depend_on_workers() -> None:
    walks = []
    for num_workers in (0, 2):
        random.seed(5)
        with EnvPool([DrawsUnseeded] * 3, num_workers=num_workers) as pool:
            walks.append([out[:5] for out in trajectory(pool, 5)])
    assert same(*walks)
    assert len(np.unique(walks[0][2][0])) >= 3


KNOWN = ("CartPole-v1", "Taxi-v4", "MiniGrid-DoorKey-5x5-v0")


@pytest.mark.slow
def test_a_known_or_separate_environment_shares_a_worker() -> None:
    for make in (Walk, *(functools.partial(make_env, env_id) for env_id in KNOWN)):
        with EnvPool([make] * 4, num_workers=2) as pool:
            assert pool._engine.num_workers == 2


@pytest.mark.parametrize("given", slow_after(1, GIVEN), ids=type)
def test_environments_that_only_read_what_they_share_share_a_worker(given: Any) -> None:
    for make in (lambda: Holds(given), functools.partial(Holds, given)):
        with EnvPool([make] * 4, num_workers=1) as pool:
            assert (pool._engine.num_workers == 1) == (type(given) is not sharing.World)  # which may tick


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Rescales", "CountsInConstructor"])
def test_rows_with_a_process_each_are_restored_after_a_crash(kind: str) -> None:
    factories = KINDS["CountsInConstructor"](3) if kind == "CountsInConstructor" else holding_one(3)
    runs = []
    for kills in (False, True):
        with EnvPool(factories, num_workers=1) as pool:
            assert pool._engine.num_workers == 3
            seen = []
            for index, out in enumerate(trajectory(pool, 30)):
                if kills and index % 7 == 3:
                    kill_worker(pool, index % 3)
                seen.append(out[:5])
            assert pool.stats.crashes >= 4 * kills
        runs.append(seen)
    assert same(*runs)


class Rescales(Holds):
    """Could change what it is given, and never does."""

    def rescale(self, scale: float) -> None:
        self.given["scale"] = scale


def holding_one(num_envs: int) -> list[Callable[[], Any]]:
    shared = {"scale": 3.0}
    return [lambda: Rescales(shared)] * num_envs


# -- what a call has returned -----------------------------------------------------------------------------


class Trail(gymnasium.Env[Any, Any]):
    """Returns the list that it appends to."""

    observation_space = spaces.Dict({"trail": spaces.Sequence(spaces.Discrete(99)), "t": spaces.Discrete(99)})
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.trail: list[int] = []
        return {"trail": self.trail, "t": 0}, {"trail": self.trail}

    def step(self, action: Any) -> Any:
        self.trail.append(int(action))
        return {"trail": self.trail, "t": len(self.trail)}, 0.0, False, False, {"trail": self.trail}


@pytest.mark.parametrize("num_workers", slow_after(1, [0, 2, 1]))
def test_what_a_call_returned_stays_as_it_was(num_workers: int) -> None:
    env = AsyncVectorEnv([Trail] * 2, shared_memory=False, num_workers=num_workers)
    env.reset()
    observations, *_, infos = env.step([1, 2])
    trail = env.get_attr("trail")
    env.step([0, 0])
    assert [list(map(int, row)) for row in observations["trail"]] == [[1], [2]]
    assert infos["trail"].tolist() == [[1], [2]]
    assert trail == ([1], [2])
    env.close()


# -- an environment of which only one may exist ---------------------------------------------------------


class Exclusive(Walk):
    """Holds a file that must not exist before."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))

    def close(self) -> None:
        self.path.unlink()


@pytest.fixture
def lock() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "lock"


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_environment_of_which_only_one_may_exist_is_opened(num_workers: int, lock: Path) -> None:
    env = AsyncVectorEnv([lambda: Exclusive(lock)], num_workers=num_workers)
    env.reset(seed=0)
    assert env.step([2])[1].tolist() == [2]
    env.close()
    assert not lock.exists()


class Controlled(InvertedPendulumEnv):
    """Sets MuJoCo's callback, of which a process has one."""

    def __init__(self, gain: float) -> None:
        self.gain = gain
        super().__init__()
        mujoco.set_mjcb_control(self.control)

    def control(self, model: Any, data: Any) -> None:
        data.ctrl[0] += self.gain * data.qpos[1]

    def close(self) -> None:
        mujoco.set_mjcb_control(None)
        super().close()


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [3, 0, 1])
def test_environments_with_a_callback_of_the_process_are_stepped_alone(num_workers: int) -> None:
    factories = [functools.partial(Controlled, gain) for gain in (0.1, 1.0, 3.0)]
    walks = []
    for make in (
        lambda: gymnasium.vector.AsyncVectorEnv(factories, context="fork"),
        lambda: AsyncVectorEnv(factories, num_workers=num_workers),
    ):
        env = make()
        walks.append([env.reset(seed=[1, 2, 3])[0]])
        walks[-1] += [env.step(np.zeros((3, 1), np.float32))[0] for _ in range(20)]
        env.close()
    assert same(*walks)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_a_later_function_raises_is_raised(num_workers: int) -> None:
    def fail() -> Any:
        raise LookupError("no such map")

    with pytest.raises(LookupError if not num_workers else WorkerStartError, match="no such map"):
        AsyncVectorEnv([Walk, fail], num_workers=num_workers)


# -- rewards and flags that are arrays ------------------------------------------------------------------


class Arrays(Walk):
    """Returns arrays of one element for numbers and flags."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, np.array([reward]), np.array([terminated]), np.array([False]), info


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("num_workers", slow_after(1, [0, 2, 1]))
def test_rewards_that_are_arrays_keep_their_shape_through_resets(num_workers: int, mode: str) -> None:
    env = AsyncVectorEnv([Arrays] * 3, num_workers=num_workers, autoreset_mode=mode)
    plain = AsyncVectorEnv([Walk] * 3, num_workers=0, autoreset_mode=mode)
    for given, wanted in zip(trajectory(env, 12), trajectory(plain, 12), strict=True):
        if len(given) == 5:
            assert given[1].shape == (3, 1)
            np.testing.assert_array_equal(given[1][:, 0], wanted[1])
            np.testing.assert_array_equal(given[2], wanted[2])
            np.testing.assert_array_equal(given[3], wanted[3])
    env.close()
    plain.close()


class Ragged(Walk):
    """Its rewards have one element more with each step."""

    def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        return observation, np.zeros(self.t), terminated, truncated, info


class Typed(Walk):
    """Reports an array of its own type."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def info(self) -> dict[str, Any]:
        return {"of_type": np.ones(2, self.dtype)}


@pytest.mark.parametrize("num_workers", slow_after(1, [0, 2]))
def test_infos_of_several_types_get_their_common_one(num_workers: int) -> None:
    factories = [functools.partial(Typed, dtype) for dtype in ("f4", "f8", "i4")]
    with EnvPool(factories, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        assert pool.step([1, 1, 1]).infos["of_type"].dtype == np.float64


@pytest.mark.parametrize("num_workers", [0, 1])
def test_rewards_of_other_shapes_are_named(num_workers: int) -> None:
    with EnvPool([Ragged] * 2, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        with pytest.raises(
            Exception, match=r"reward: expected shape \(1,\) as in other environments, got array"
        ):
            pool.step([1, 2])


# -- action spaces --------------------------------------------------------------------------------------

GRAPH = spaces.Graph(spaces.Box(0, 1, (2,)), spaces.Discrete(3))
ACTIONS = {
    "sequence": spaces.Sequence(spaces.Discrete(5)),
    "stacked": spaces.Sequence(spaces.Box(0, 1, (2,)), stack=True),
    "graph": GRAPH,
    "one_of": spaces.OneOf((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
    "text": spaces.Text(6),
    "tuple": spaces.Tuple((spaces.Discrete(3), spaces.Sequence(spaces.Discrete(5)))),
    "dict": spaces.Dict({"a": spaces.Text(4), "b": spaces.Box(0, 1, (2,)), "c": spaces.Tuple((GRAPH,))}),
    "nested": spaces.Tuple((spaces.Tuple((spaces.Text(3), spaces.Discrete(2))), spaces.MultiBinary(3))),
    "fixed": spaces.Tuple((spaces.Discrete(3), spaces.Box(0, 1, (2,)))),
    "bool": spaces.Box(0, 1, (3,), dtype=bool),  # type: ignore[arg-type]
}


class Echo(gymnasium.Env[Any, Any]):
    """Checks its actions, and shows them."""

    observation_space = spaces.Discrete(2)

    def __init__(self, kind: str) -> None:
        self.action_space = ACTIONS[kind]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return 1, 0.0, False, False, {"text": repr(action)}


@pytest.mark.parametrize("kind", slow_after(2, ACTIONS))
@pytest.mark.parametrize("num_workers", slow_after(1, [0, 2]))
def test_samples_of_the_action_space_are_actions(kind: str, num_workers: int) -> None:
    factories = [lambda: Echo(kind)] * 3
    env = AsyncVectorEnv(factories, num_workers=num_workers)
    sync = gymnasium.vector.SyncVectorEnv(factories)
    env.action_space.seed(1)
    env.reset()
    sync.reset()
    for _ in range(3):
        actions = env.action_space.sample()
        given, wanted = env.step(actions)[4]["text"], sync.step(actions)[4]["text"]
        assert given.tolist() == wanted.tolist()
    env.close()
    sync.close()


def test_a_batch_of_actions_with_the_wrong_length_is_named() -> None:
    env = AsyncVectorEnv([lambda: Echo("sequence")] * 3, num_workers=0)
    env.reset()
    with pytest.raises(ValueError, match="actions: expected 3, one per environment, got 2"):
        env.step(((1,), (2, 3)))
    env.close()


# -- resets ---------------------------------------------------------------------------------------------


class Resets(Walk):
    """Shows what its reset is given."""

    def reset(self, *, seed: Any = "default", options: Any = "default") -> Any:
        super().reset(seed=None)
        self.t = 0
        return self.observe(), {"given": repr((seed, options))}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_resets_are_given_what_gymnasium_gives(num_workers: int) -> None:
    infos = []
    for make in (
        lambda: gymnasium.vector.AsyncVectorEnv([Resets] * 2, context="fork"),
        lambda: AsyncVectorEnv([Resets] * 2, num_workers=num_workers),
    ):
        env = make()
        seen = [env.reset()[1], env.reset(seed=3)[1], env.reset(options={"a": 1})[1]]
        seen += [env.step([3, 3])[4] for _ in range(5)]
        infos.append([info["given"].tolist() for info in seen if info])
        env.close()
    assert infos[0] == infos[1]
