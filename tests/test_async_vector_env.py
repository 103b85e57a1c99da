"""Gymnasium's vector interface, held against Gymnasium's own `AsyncVectorEnv`."""

from __future__ import annotations

import functools
import inspect
import multiprocessing
import subprocess
import sys
import textwrap
from collections import deque
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from environments import Warehouse
from faulty import ARMED, Faulty, TwoArguments, fault
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker
from marks import slow_after
from methods import METHODS
from older_gymnasium import since
from processes import wait_until_dead
from vectors import cartpole, kill_worker, processes_of, random_actions

from planvec.errors import EnvError
from planvec.vector import AsyncVectorEnv, EnvPool

Peer = gymnasium.vector.AsyncVectorEnv


def make(env_fns: Any = (cartpole,) * 3, **options: Any) -> AsyncVectorEnv:
    options.setdefault("num_workers", 2)
    return AsyncVectorEnv(env_fns, **options)


# -- the constructor and the spaces -----------------------------------------------------------------


def test_it_is_a_vector_env_with_gymnasiums_arguments_and_attributes() -> None:
    ours, peer = make(), Peer([cartpole] * 3)
    assert isinstance(ours, gymnasium.vector.VectorEnv)
    for name in (
        *("num_envs", "metadata", "render_mode", "closed", "single_observation_space", "single_action_space"),
        *("observation_space", "action_space", "shared_memory", "copy", "context", "daemon", "worker"),
        *("observation_mode", "autoreset_mode", "spec"),
    ):
        assert getattr(ours, name) == getattr(peer, name), name
    assert str(ours) == str(peer)
    ours.close()
    peer.close()
    assert ours.closed


@since("1.4", "max_concurrency")
def test_max_concurrency_is_an_attribute_as_gymnasiums() -> None:
    for limit in (None, 2):
        ours, peer = make(max_concurrency=limit), Peer([cartpole] * 3, max_concurrency=limit)
        assert ours.max_concurrency == peer.max_concurrency == limit
        ours.close()
        peer.close()


def test_metadata_is_a_copy() -> None:
    env = make()
    env.metadata["mine"] = 1
    assert "mine" not in env.get_attr("metadata")[0]
    env.close()


@pytest.mark.parametrize("mode", slow_after(1, [*AutoresetMode, "SameStep"]))
def test_the_mode_may_be_given_as_a_string(mode: Any) -> None:
    env = make(autoreset_mode=mode)
    assert env.metadata["autoreset_mode"] is AutoresetMode(mode)
    env.close()


@pytest.mark.parametrize("method", [*METHODS, "forkserver"])
def test_every_start_method_works_and_knows_ids_registered_at_run_time(method: str) -> None:
    gymnasium.register("Late-v0", entry_point=lambda: gymnasium.make("CartPole-v1").unwrapped)
    try:
        env = make([functools.partial(gymnasium.make, "Late-v0")] * 2, context=method)
        assert env.reset(seed=0)[0].shape == (2, 4)
        env.close()
    finally:
        del gymnasium.registry["Late-v0"]


def test_an_unknown_context_is_an_error() -> None:
    with pytest.raises(Exception, match="start_method: expected one of"):
        make(context="teleport")


def test_gymnasium_registers_it_as_a_vector_entry_point() -> None:
    def entry_point(num_envs: int, **kwargs: Any) -> AsyncVectorEnv:
        return AsyncVectorEnv(
            [functools.partial(gymnasium.make, "CartPole-v1", **kwargs)] * num_envs, num_workers=1
        )

    gymnasium.register("Many-v0", vector_entry_point=entry_point)
    try:
        env = gymnasium.make_vec("Many-v0", num_envs=3, vectorization_mode="vector_entry_point")
        assert env.reset(seed=0)[0].shape == (3, 4)
        assert env.spec is not None
        env.close()
    finally:
        del gymnasium.registry["Many-v0"]


def _box(high: float, shape: tuple[int, ...] = (2,), dtype: Any = np.float32) -> Any:
    class Boxed(gymnasium.Env):
        observation_space = spaces.Box(0, high, shape, dtype)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return np.ones(shape, dtype), {}

        def step(self, action: Any) -> Any:
            return np.ones(shape, dtype), 1.0, False, False, {}

    return Boxed


@pytest.mark.slow
def test_observation_spaces_must_be_the_same_unless_the_mode_says_otherwise() -> None:
    both = [_box(1), _box(2)]
    with pytest.raises(RuntimeError, match="use `observation_mode='different'` instead"):
        make(both)
    env = make(both, observation_mode="different")
    np.testing.assert_array_equal(env.observation_space.high, [[1, 1], [2, 2]])
    assert env.reset()[0].shape == (2, 2)
    env.close()
    single, batched = spaces.Box(0, 9, (2,), np.float32), spaces.Box(0, 9, (2, 2), np.float32)
    env = make(both, observation_mode=(batched, single))
    assert (env.observation_space, env.single_observation_space) == (batched, single)
    env.close()
    with pytest.raises(RuntimeError, match="do not share a common shape and dtype"):
        make([_box(1), _box(1, (3,))], observation_mode=(batched, single))
    with pytest.raises(ValueError, match="Invalid `observation_mode`"):
        make(observation_mode="similar")
    with pytest.raises(TypeError, match="Expected both elements of observation_mode to be Spaces"):
        make(observation_mode=(1, 2))


def test_action_spaces_must_be_the_same() -> None:
    other = type("Other", (_box(1),), {"action_space": spaces.Discrete(3)})
    with pytest.raises(RuntimeError, match="Some environments have an action space different from"):
        make([_box(1), other])


class Odd(spaces.Space[Any]):
    """A space that Gymnasium does not know."""

    def sample(self, mask: Any = None, probability: Any = None) -> Any:
        return 0

    def contains(self, x: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd)

    __hash__ = None  # type: ignore[assignment]


class OddEnv(gymnasium.Env):
    observation_space = Odd()
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return ("odd", 0), {}

    def step(self, action: Any) -> Any:
        return ("odd", int(action)), 0.0, False, False, {}


class Words(OddEnv):
    observation_space = spaces.Sequence(spaces.Discrete(3))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return (1, 2), {}


def test_custom_spaces_give_tuples_without_shared_memory() -> None:
    with pytest.raises(ValueError, match="shared_memory=False"):
        make([OddEnv] * 2, on_crash="raise")
    env = make([OddEnv] * 2, on_crash="raise", shared_memory=False)
    assert env.reset()[0] == (("odd", 0), ("odd", 0))
    assert env.step([0, 1])[0] == (("odd", 0), ("odd", 1))
    env.close()


def test_spaces_of_dynamic_shape_need_shared_memory_off() -> None:
    with pytest.raises(TypeError, match="has a dynamic shape"):
        make([Words] * 2, on_crash="raise")
    env = make([Words] * 2, on_crash="raise", shared_memory=False)
    assert env.reset()[0] == ((1, 2), (1, 2))
    env.close()


def test_float16_observations_work() -> None:
    env = make([_box(1, dtype=np.float16)] * 2)
    assert env.reset()[0].dtype == np.float16
    env.close()


def test_help_shows_the_arguments() -> None:
    ours, theirs = map(inspect.signature, (AsyncVectorEnv, gymnasium.vector.AsyncVectorEnv))
    assert [*ours.parameters][: len(theirs.parameters)] == [*theirs.parameters]
    assert isinstance(AsyncVectorEnv.__new__(AsyncVectorEnv), AsyncVectorEnv)  # as Gymnasium's own tests do


def test_a_custom_worker_is_run_by_gymnasium() -> None:
    env: Any = AsyncVectorEnv([cartpole] * 2, worker=_async_worker)
    assert type(env) is gymnasium.vector.AsyncVectorEnv
    env.reset(seed=0)
    assert env.step([0, 1])[0].shape == (2, 4)
    env.close()
    with pytest.raises(ValueError, match=r"worker: expected None with \['num_workers'\]"):
        AsyncVectorEnv([cartpole] * 2, worker=_async_worker, num_workers=1)


@since("1.4", "a check of the arguments of a custom worker")
def test_gymnasium_checks_the_arguments_of_a_custom_worker() -> None:
    with pytest.raises(ValueError, match="must accept 8 arguments"):
        AsyncVectorEnv([cartpole] * 2, worker=lambda index: None)


def test_max_concurrency_limits_the_workers() -> None:
    env = make(max_concurrency=1)
    assert env.num_workers == 1
    env.close()
    with pytest.raises(ValueError, match="must be a positive"):
        make(max_concurrency=0)


# -- episodes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", slow_after(1, [True, False]))
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_it_returns_what_gymnasium_returns(mode: AutoresetMode, num_workers: int, copy: bool) -> None:
    ours, peer = (
        make(autoreset_mode=mode, num_workers=num_workers, copy=copy),
        Peer([cartpole] * 3, autoreset_mode=mode),
    )
    assert_same(ours.reset(seed=7), peer.reset(seed=7))
    first = None
    for number, action in enumerate(random_actions(ours.single_action_space, 3, 90)):
        got, expected = ours.step(action.tolist() if number % 2 else action), peer.step(action)
        assert_same(got, expected)
        assert [type(part) for part in got] == [type(part) for part in expected]
        assert [part.dtype for part in got[:4]] == [part.dtype for part in expected[:4]]
        first = got[0] if first is None else first
    assert (first is got[0]) is (not copy)
    assert_same(ours.reset(seed=[3, None, 5])[0][::2], peer.reset(seed=[3, None, 5])[0][::2])
    assert ours.np_random_seed == ours.get_attr("np_random_seed")
    ours.close()
    peer.close()


def test_dictionaries_texts_and_nested_infos_are_those_of_gymnasium() -> None:
    ours, peer = make([Warehouse] * 3), gymnasium.vector.SyncVectorEnv([Warehouse] * 3)
    assert_same(ours.reset(seed=1), peer.reset(seed=1))
    for action in random_actions(ours.single_action_space, 3, 100):
        assert_same(ours.step(action), peer.step(action))
    ours.close()


def test_a_mask_resets_some_environments() -> None:
    ours, peer = make(), Peer([cartpole] * 3)
    mask = np.array([True, False, True])
    for env in (ours, peer):
        env.reset(seed=0)
    action = [0, 1, 0]
    assert_same(ours.step(action), peer.step(action))
    options = {"reset_mask": mask}
    got = ours.reset(seed=[4, 5, 6], options=options)
    assert_same(got, peer.reset(seed=[4, 5, 6], options={"reset_mask": mask}))
    assert list(options) == ["reset_mask"]  # the caller's dict stays as it was
    assert_same(ours.step(action), peer.step(action))
    for wrong, error in (
        (np.array([True]), ValueError),
        (np.zeros(3, bool), ValueError),
        (np.ones(3, int), TypeError),
        ([True] * 3, TypeError),
    ):
        with pytest.raises(error, match="reset_mask"):
            ours.reset(options={"reset_mask": wrong})
    ours.close()
    peer.close()


def test_options_and_seeds_reach_the_environments() -> None:
    env = make([Faulty] * 2)
    env.reset(seed=3, options=ARMED)
    assert env.get_attr("armed") == (True, True)
    assert env.np_random_seed == (3, 4)
    generators = env.np_random
    env.reset(seed=None)
    assert env.np_random_seed == (3, 4)
    assert all(isinstance(generator, np.random.Generator) for generator in generators)
    with pytest.raises(ValueError, match="the length must match num_envs=2 but got length=1"):
        env.reset(seed=[1])
    env.close()


def test_a_disabled_autoreset_leaves_ended_environments_alone() -> None:
    env = make([lambda: gymnasium.make("CartPole-v1", max_episode_steps=2)] * 2, autoreset_mode="Disabled")
    env.reset(seed=0)
    env.step([0, 1])
    assert env.step([0, 1])[3].tolist() == [True, True]
    assert env.step([0, 1])[3].tolist() == [True, True]
    env.close()


def test_wrong_actions_are_refused() -> None:
    env = make()
    env.reset(seed=0)
    for actions, error in (([0, 1], ValueError), ([0] * 4, ValueError), (1, TypeError)):
        with pytest.raises(error, match="actions: expected"):
            env.step(actions)
    assert env.step([0, 1, 0])[0].shape == (3, 4)
    env.close()


# -- asynchronous calls -----------------------------------------------------------------------------


def test_calls_come_in_pairs() -> None:
    env = make()
    pairs = {"reset": (), "step": ([0, 1, 0],), "call": ("get_wrapper_attr", "gravity")}
    env.reset(seed=0)
    for name, arguments in pairs.items():
        with pytest.raises(
            NoAsyncCallError, match=f"Calling `{name}_wait` without any prior call to `{name}_async`"
        ):
            getattr(env, f"{name}_wait")()
        getattr(env, f"{name}_async")(*arguments)
        for other, other_arguments in pairs.items():
            text = f"Calling `{other}_async` while waiting for a pending call to `{name}` to complete"
            with pytest.raises(AlreadyPendingCallError, match=text):
                getattr(env, f"{other}_async")(*other_arguments)
        with pytest.raises(AlreadyPendingCallError):
            env.set_attr("gravity", 1.0)
        with pytest.raises(AlreadyPendingCallError):
            env.get_states()
        assert len(getattr(env, f"{name}_wait")()) >= 2
    env.close()


def test_a_late_reply_is_seen_by_no_later_call() -> None:
    env = make([lambda: Sleeper()] * 2, on_crash="raise")
    env.reset()
    env.step_async([3, 3])
    with pytest.raises(multiprocessing.TimeoutError, match="`step_wait` has timed out after 0.05 second"):
        env.step_wait(timeout=0.05)
    np.testing.assert_array_equal(env.step([1, 2])[0], [[1], [2]])
    env.close()


def test_calls_begin_in_their_order_though_few_may_run_at_once() -> None:
    env = make([lambda: Counting()] * 2, max_concurrency=1, num_workers=2)
    env.reset(seed=[7, 7])
    env.step_async([2, 0])
    with pytest.raises(multiprocessing.TimeoutError):
        env.step_wait(timeout=0.05)  # the step of the second environment waits for that of the first
    env.reset(options={"reset_mask": np.array([False, True])})
    assert env.get_attr("calls") == (["reset", "step"], ["reset", "step", "reset"])
    env.close()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_values_are_what_they_were_when_they_were_returned(num_workers: int) -> None:
    env = make([lambda: Counting()] * 2, num_workers=num_workers)
    env.reset()
    calls, steps, generators = env.get_attr("calls"), env.call("get_steps"), env.get_attr("np_random")
    drawn = [generator.bit_generator.state for generator in generators]
    env.step([0, 0])
    assert calls == (["reset"], ["reset"])
    assert steps == (deque(), deque())
    assert [generator.bit_generator.state for generator in generators] == drawn
    env.close()


def test_a_method_that_was_asked_for_acts_on_the_environment_itself() -> None:
    with EnvPool([lambda: Counting()] * 2, num_workers=0) as pool:
        pool.reset(seed=0)
        pool.get_attr("get_steps")[0]().append(7)
        assert pool.get_attr("steps") == [deque([7]), deque()]


class Sleeper(gymnasium.Env):
    """Takes 0.1 s times the action, and returns the action."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        import time

        time.sleep(0.1 * int(action))
        return np.full(1, action, np.float32), 0.0, False, False, {}


class Counting(Sleeper):
    """Remembers its calls in objects that it goes on changing. Sleeps in episodes with a seed."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.steps: deque[int] = deque()

    def get_steps(self) -> deque[int]:
        return self.steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        gymnasium.Env.reset(self, seed=seed)
        self.sleeps = seed == 7
        self.calls.append("reset")
        return super().reset()

    def step(self, action: Any) -> Any:
        self.calls.append("step")
        self.steps.append(int(action))
        self.np_random.random()
        return super().step(action if self.sleeps else 0)


def test_closed_environments_say_so() -> None:
    env = make()
    env.close()
    env.close()
    for call in (env.reset, lambda: env.step([0, 0, 0]), lambda: env.call("render"), env.reset_wait):
        with pytest.raises(ClosedEnvironmentError, match="after a call to `close\\(\\)`"):
            call()


@pytest.mark.parametrize("terminate", [True, False])
def test_closing_with_a_pending_call_warns_and_ends(terminate: bool) -> None:
    env = make([lambda: Sleeper()] * 2, on_crash="raise")
    env.reset()
    env.step_async([3, 3])
    with pytest.warns(UserWarning, match="Calling `close` while waiting for a pending call to `step`"):
        env.close(terminate=terminate)


# -- attributes -------------------------------------------------------------------------------------


def test_attributes_and_methods() -> None:
    env = make()
    assert env.get_attr("gravity") == (9.8,) * 3
    env.set_attr("gravity", [1.0, 2.0, 3.0])
    assert env.get_attr("gravity") == (1.0, 2.0, 3.0)
    env.set_attr("brand_new", "x")
    assert env.get_attr("brand_new") == ("x",) * 3
    assert env.call("get_wrapper_attr", "gravity") == (1.0, 2.0, 3.0)
    for name in ("reset", "step", "close"):
        with pytest.raises(ValueError, match=f"Trying to call function `{name}` with `call`"):
            env.call(name)
    with pytest.raises(ValueError, match="Got `2` values for 3 environments"):
        env.set_attr("gravity", [1.0, 2.0])
    env.close()


def test_frames_are_rendered() -> None:
    env = make([functools.partial(gymnasium.make, "CartPole-v1", render_mode="rgb_array")] * 2)
    env.reset(seed=0)
    frames = env.render()
    assert isinstance(frames, tuple)
    assert [frame.shape for frame in frames] == [(400, 600, 3)] * 2
    assert env.render_mode == "rgb_array"
    env.close()


# -- errors and crashes -----------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
def test_errors_are_logged_as_gymnasium_does_and_the_last_one_is_raised(num_workers: int) -> None:
    env = make([Faulty] * 3, num_workers=num_workers)
    env.reset(seed=0, options=ARMED)
    with pytest.warns(UserWarning, match="ERROR") as caught, pytest.raises(TwoArguments):
        env.step([fault("exception"), 0, fault("two_arguments")])
    texts = [str(warning.message) for warning in caught]
    assert len(texts) == 5
    assert "Received the following error from Worker-0 - Shutting it down" in texts[0]
    assert "Traceback" in texts[1]
    assert "ValueError: the rocket exploded\n" in texts[1]
    assert "Worker-2" in texts[2]
    assert "Raising the last exception back to the main process." in texts[4]
    np.testing.assert_array_equal(env.step([0, 0, 0])[0][:, 0], [2, 2, 2])
    env.close()


def test_an_environment_that_exits_does_not_end_the_parent() -> None:
    env = make([Faulty] * 2)
    env.reset(seed=0, options=ARMED)
    with pytest.warns(UserWarning, match="ERROR"), pytest.raises(EnvError, match="SystemExit: 3"):
        env.step([fault("sys_exit"), 0])
    env.close()


def test_a_killed_worker_leaves_no_trace() -> None:
    ours, peer = make(), Peer([cartpole] * 3)
    assert_same(ours.reset(seed=7), peer.reset(seed=7))
    for number, action in enumerate(random_actions(ours.single_action_space, 3, 60)):
        if number in (0, 11, 12, 40):
            kill_worker(ours, number % 2)
        assert_same(ours.step(action), peer.step(action))
    assert ours.stats.crashes == 4
    ours.close()
    peer.close()


def test_a_worker_that_is_killed_between_async_and_wait_leaves_no_trace() -> None:
    ours, peer = make(), Peer([cartpole] * 3)
    for env in (ours, peer):
        env.reset(seed=7)
        env.step_async([0, 1, 0])
    kill_worker(ours)
    assert_same(ours.step_wait(), peer.step_wait())
    ours.close()
    peer.close()


PARENT = """
import os, signal, gymnasium
from planvec.vector import AsyncVectorEnv
env = AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 4, num_workers=2, context={method!r})
env.reset(seed=0)
print(*[process.pid for process in env._engine._processes.processes], flush=True)
env.step([0, 1, 0, 1])
{end}
"""


@pytest.mark.parametrize(
    "end",
    [
        "os.kill(os.getpid(), signal.SIGKILL)",
        *(pytest.param(end, marks=pytest.mark.slow) for end in ("raise SystemExit(1)", "1 / 0")),
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_workers_end_with_their_parent(method: str, end: str) -> None:
    code = textwrap.dedent(PARENT).format(method=method, end=end)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    assert not wait_until_dead(pids, 10)


def test_a_forgotten_environment_closes_its_workers() -> None:
    env = make()
    pids = [process.pid for process in processes_of(env)]
    del env
    assert not wait_until_dead(pids, 10)
