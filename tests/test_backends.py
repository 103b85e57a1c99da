"""Answers, errors, promises and counts are alike on every backend."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from backends import BACKENDS, DEFAULT, Backend, quick_or_slow
from compare import assert_same, same_states
from faulty import ARMED, Faulty, actions_with, fault

import planvec
from planvec import BatchEnv, ExternalProcess, PlanEnv
from planvec.backends import ExitReason, InProcess
from planvec.backends.sharded.call import Pace

NUM_ROWS = 8
EACH = quick_or_slow(BACKENDS, DEFAULT)


@pytest.fixture(scope="module", params=EACH)
def backend(request: pytest.FixtureRequest) -> Backend:
    opened: Backend = request.param
    return opened


@pytest.fixture(scope="module")
def env(backend: Backend) -> Iterator[Any]:
    with backend.open(Faulty) as env:
        yield env


@pytest.fixture(scope="module")
def reference() -> Iterator[PlanEnv]:
    with PlanEnv(Faulty) as env:
        yield env


def states_of(env: Any) -> Any:
    """States that differ: row `i` has counted to `i + 1`."""
    start = env.reset(seed=0, options=ARMED).state
    return env.step_batch(np.zeros(NUM_ROWS, int), start, dt=np.arange(NUM_ROWS) + 1).new_states


def fresh(backend: Backend, source: Any = Faulty) -> Any:
    """Open an environment of one worker, whose batches are one chunk: all that it counts is known."""
    return backend.open(source, num_workers=1)


def assert_equal(out: Any, expected: Any) -> None:
    for one, other in zip(out[1:-1], expected[1:-1], strict=True):
        assert_same(one, other)
    assert same_states(out[0], expected[0])
    assert_same(out.infos, expected.infos)


# -- errors ----------------------------------------------------------------------------------------


def test_a_row_that_fails_raises_at_the_promise_and_names_its_row(env: Any) -> None:
    promise = env.step_batch(actions_with("exception"), states_of(env), blocking=False)
    for _ in range(2):
        with pytest.raises(planvec.EnvError, match="row 5, action 1: ValueError: the rocket") as caught:
            promise.result()
        assert (caught.value.row, caught.value.action) == (5, 1)
    assert promise.done()


def test_a_rollout_that_fails_raises_at_the_promise_and_names_its_row(env: Any) -> None:
    actions = np.zeros((NUM_ROWS, 4), int)
    actions[3, 2] = fault("exception")
    promise = env.rollout_batch(states_of(env), actions=actions, blocking=False)
    with pytest.raises(planvec.EnvError, match="row 3, action 1: step 2 of the rollout: ValueError"):
        promise.result()


def test_the_error_of_a_row_has_the_cause_that_the_environment_raised(env: Any) -> None:
    with pytest.raises(planvec.EnvError) as caught:
        env.step_batch(actions_with("exception"), states_of(env))
    assert "the rocket exploded" in str(caught.value.__cause__)


def test_of_several_rows_that_fail_the_first_is_raised(env: Any) -> None:
    actions = actions_with("exception", row=6)
    actions[2] = fault("sys_exit")
    with pytest.raises(planvec.EnvError, match="row 2, action 3: SystemExit: 3"):
        env.step_batch(actions, states_of(env))


def test_an_environment_can_be_used_on_after_an_error(env: Any, reference: PlanEnv) -> None:
    states = states_of(env)
    with pytest.raises(planvec.EnvError):
        env.step_batch(actions_with("exception"), states)
    actions = np.zeros(NUM_ROWS, int)
    assert_equal(env.step_batch(actions, states), reference.step_batch(actions, states_of(reference)))


def test_rows_that_fail_are_flagged_alike(env: Any, reference: PlanEnv) -> None:
    out, expected = (
        one.step_batch(actions_with("exception"), states_of(one), on_error="mask") for one in (env, reference)
    )
    assert str(out.infos.pop("error")[5]) == str(expected.infos.pop("error")[5])
    assert_equal(out, expected)


class Lockable(gymnasium.Env):
    """Holds what cannot be copied after action 1."""

    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count, self.held = 0, None
        self.is_armed = bool(options)
        return 0, {}

    def step(self, action: Any) -> Any:
        self.count += 1
        if action and self.is_armed:
            self.held = threading.Lock()
        return self.count, 1.0, False, False, {}


@pytest.fixture(scope="module")
def lockable(backend: Backend) -> Iterator[Any]:
    with backend.open(Lockable) as env:
        yield env


def test_a_state_that_cannot_be_saved_raises_at_the_promise(lockable: Any) -> None:
    state = lockable.reset(seed=0, options=ARMED).state
    actions = np.zeros(NUM_ROWS, int)
    actions[4] = 1
    promise = lockable.step_batch(actions, state, blocking=False)
    with pytest.raises(planvec.UnsupportedEnvError):
        promise.result()
    assert lockable.step_batch(actions * 0, state).rewards.tolist() == [1.0] * NUM_ROWS


@pytest.mark.parametrize("blocking", [True, False])
def test_wrong_arguments_raise_at_the_call(env: Any, blocking: bool) -> None:
    states = states_of(env)
    with pytest.raises(planvec.InvalidBatchError, match="actions: "):
        env.step_batch(np.zeros((NUM_ROWS, 2), int), states, blocking=blocking)
    with pytest.raises(planvec.InvalidBatchError, match="dt: "):
        env.step_batch(np.zeros(NUM_ROWS, int), states, dt=0, blocking=blocking)
    with pytest.raises(planvec.InvalidBatchError, match="states: "):
        env.step_batch(np.zeros(NUM_ROWS, int), states[:3], blocking=blocking)
    with pytest.raises(planvec.InvalidBatchError, match="on_error: "):
        env.step_batch(np.zeros(NUM_ROWS, int), states, on_error="ignore", blocking=blocking)
    with pytest.raises(planvec.InvalidBatchError, match="horizon: "):
        env.rollout_batch(states, 0, blocking=blocking)
    with pytest.raises(planvec.InvalidBatchError, match="action_seed: "):
        env.rollout_batch(states, 3, action_seed=-1, blocking=blocking)


# -- counts ----------------------------------------------------------------------------------------

COUNTED = [backend for backend in BACKENDS if backend.has_stats]


@pytest.fixture
def one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure no pace: rows that took long on a busy machine would be cut into several chunks."""
    monkeypatch.setattr(Pace, "learn", lambda *_: None)


def each_that_counts(test: Any) -> Any:
    counting = pytest.mark.parametrize("counting", quick_or_slow(COUNTED, DEFAULT))
    return pytest.mark.usefixtures("one_chunk")(counting(test))


def counts(env: BatchEnv) -> tuple[int, ...]:
    stats = env.stats
    return stats.num_rows, stats.num_chunks, stats.retries, stats.masked_rows, stats.restarts


@each_that_counts
def test_rows_count_once_whether_or_not_one_of_them_fails(counting: Backend) -> None:
    with fresh(counting) as env:
        states = states_of(env)  # 8 rows in one chunk
        assert counts(env) == (8, 1, 0, 0, 0)
        promise = env.step_batch(actions_with("exception"), states, blocking=False)
        with pytest.raises(planvec.EnvError):
            promise.result()
        assert counts(env) == (16, 2, 0, 0, 0)


@each_that_counts
def test_rows_that_are_flagged_count_once_and_only_as_flagged(counting: Backend) -> None:
    with fresh(counting) as env:
        states = states_of(env)
        env.step_batch(actions_with("exception"), states, on_error="mask")
        assert counts(env) == (16, 2, 0, 1, 0)


@each_that_counts
def test_only_rows_that_are_stepped_or_rolled_out_count(counting: Backend) -> None:
    with fresh(counting) as env:
        states = states_of(env)
        env.rollout_batch(states, actions=np.zeros((NUM_ROWS, 2), int))
        before = counts(env)
        assert before == (16, 2, 0, 0, 0)
        env.observe(states)
        env.get_attr("count", states)
        env.sync_states(states[2])
        env.reset(seed=1)
        with pytest.raises(planvec.InvalidBatchError):
            env.step_batch([[0]])
        assert counts(env) == before


@each_that_counts
def test_flagged_rows_count_once_though_two_threads_read_the_promise(counting: Backend) -> None:
    with fresh(counting) as env:
        states = states_of(env)
        for number in range(1, 6):
            promise = env.step_batch(actions_with("exception"), states, on_error="mask", blocking=False)
            together = threading.Barrier(2)

            def read(promise: Any = promise, together: threading.Barrier = together) -> None:
                together.wait()
                promise.result()

            threads = [threading.Thread(target=read) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            promise.result()
            assert env.stats.masked_rows == number


@each_that_counts
def test_flagged_rows_count_though_nobody_reads_the_promise(counting: Backend) -> None:
    with fresh(counting) as env:
        states = states_of(env)
        promise = env.step_batch(actions_with("exception"), states, on_error="mask", blocking=False)
        while not promise.done():
            pass
        assert env.stats.masked_rows == 1


# -- promises --------------------------------------------------------------------------------------


def test_promises_are_read_in_any_order_and_twice(env: Any, reference: PlanEnv) -> None:
    states = states_of(env)
    expected = [
        reference.step_batch(np.zeros(size, int), states_of(reference)[:size]) for size in (3, 8, 1, 5)
    ]
    promises = [
        env.step_batch(np.zeros(len(one.rewards), int), states[: len(one.rewards)], blocking=False)
        for one in expected
    ]
    for index in (2, 0, 3, 2, 1, 0):
        assert_equal(promises[index].result(), expected[index])


def test_a_promise_may_be_called_and_gives_the_same_object_each_time(env: Any) -> None:
    promise = env.step_batch(np.zeros(NUM_ROWS, int), states_of(env), blocking=False)
    assert isinstance(promise, planvec.Promise)
    assert promise() is promise.result() is promise.result(timeout=10)
    assert promise.done()


def test_a_promise_need_not_be_read(env: Any, reference: PlanEnv) -> None:
    states = states_of(env)
    for name in ("none", "exception"):
        env.step_batch(actions_with(name), states, blocking=False)
    gc.collect()
    actions = np.zeros(NUM_ROWS, int)
    assert_equal(env.step_batch(actions, states), reference.step_batch(actions, states_of(reference)))


def test_an_error_in_one_promise_leaves_the_others_alone(env: Any, reference: PlanEnv) -> None:
    states, actions = states_of(env), np.zeros(NUM_ROWS, int)
    before = env.step_batch(actions, states, blocking=False)
    bad = env.step_batch(actions_with("exception"), states, blocking=False)
    after = env.step_batch(actions, states, blocking=False)
    expected = reference.step_batch(actions, states_of(reference))
    assert_equal(after.result(), expected)
    with pytest.raises(planvec.EnvError):
        bad.result()
    assert_equal(before.result(), expected)


def test_arrays_that_are_changed_after_the_call_do_not_change_the_promise(
    env: Any, reference: PlanEnv
) -> None:
    states, actions = states_of(env), np.zeros(NUM_ROWS, int)
    promise = env.step_batch(actions, states, blocking=False)
    actions[:], states[:] = fault("exception"), states[-1]
    assert_equal(promise.result(), reference.step_batch(np.zeros(NUM_ROWS, int), states_of(reference)))


def test_a_result_belongs_to_the_caller(env: Any) -> None:
    states, actions = states_of(env), np.zeros(NUM_ROWS, int)
    first = env.step_batch(actions, states)
    kept = copy.deepcopy(first)
    env.step_batch(actions, first.new_states, dt=3)
    assert_equal(first, kept)
    first.rewards[:] = 7.0
    assert env.step_batch(actions, states).rewards.tolist() == [1.0] * NUM_ROWS


def test_calls_from_several_threads_are_not_mixed_up(env: Any) -> None:
    state = np.repeat(states_of(env)[:1], NUM_ROWS)  # which has counted to 1
    counts: dict[int, list[float]] = {}

    def step(dt: int) -> None:
        outs = [env.step_batch(np.zeros(dt, int), state[:dt], dt) for _ in range(10)]
        counts[dt] = [float(count) for out in outs for count in out.observations[:, 0]]

    threads = [threading.Thread(target=step, args=(dt,)) for dt in range(2, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {dt: [dt + 1.0] * dt * 10 for dt in range(2, 6)}


def test_a_promise_of_one_thread_is_read_by_another(env: Any) -> None:
    promise = env.step_batch(np.zeros(NUM_ROWS, int), states_of(env), blocking=False)
    rewards: list[Any] = []
    thread = threading.Thread(target=lambda: rewards.extend(promise.result().rewards))
    thread.start()
    thread.join()
    assert rewards == [1.0] * NUM_ROWS


# -- everything else that can be asked ---------------------------------------------------------------


def test_a_reset_is_the_same_everywhere(env: Any, reference: PlanEnv) -> None:
    start, expected = env.reset(seed=5, options=ARMED), reference.reset(seed=5, options=ARMED)
    assert start.state == expected.state == env.get_state()
    assert_same(start.observation, expected.observation)
    assert start.info == expected.info


def test_rows_without_states_start_at_the_base_state(env: Any) -> None:
    states = states_of(env)
    env.set_state(states[3])
    assert env.step_batch([0, 0]).observations[:, 0].tolist() == [5.0, 5.0]
    assert env.step(0)[0].tolist() == [5.0, 5.0, 5.0]
    assert env.step_batch([0]).observations[:, 0].tolist() == [6.0]


def test_a_base_state_that_is_synced_is_where_rows_start(env: Any) -> None:
    if isinstance(env, BatchEnv):
        states = states_of(env)
        env.sync_states(states[3])
        assert env.get_state() == states[3]
        assert env.step_batch([0, 0]).observations[:, 0].tolist() == [5.0, 5.0]


def test_states_are_observed_alike(env: Any) -> None:
    assert env.observe(states_of(env))[:, 0].tolist() == list(range(1, NUM_ROWS + 1))


def test_attributes_are_read_and_methods_called_alike(env: Any) -> None:
    states = states_of(env)
    assert env.get_attr("count", states).tolist() == list(range(1, NUM_ROWS + 1))
    assert env.call("_observe", states).shape == (NUM_ROWS, 3)


def test_rendering_without_a_render_mode_is_an_error(env: Any) -> None:
    with pytest.raises(planvec.EnvError, match="render: the environment was made without a render_mode"):
        env.render(states_of(env))


def test_frames_of_states_are_the_environments_own(backend: Backend) -> None:
    def make() -> Any:
        return gymnasium.make("CartPole-v1", render_mode="rgb_array")

    # pygame draws polygons in global memory, so that threads would disturb each other
    with backend.open(make, num_workers=1) as env, PlanEnv(make) as reference:
        states = env.step_batch([0, 1, 0], env.reset(seed=0).state, dt=[1, 2, 3]).new_states
        frames = env.render(states)
        assert len(frames) == 3
        for frame, expected in zip(frames, reference.render(states), strict=True):
            assert_same(frame, expected)


def test_empty_batches_give_empty_results(env: Any) -> None:
    none = states_of(env)[:0]
    out = env.step_batch(np.zeros(0, int), none)
    assert out.rewards.shape == (0,)
    assert out.observations.shape == (0, 3)
    assert env.step_batch(np.zeros(0, int), none, blocking=False).result().new_states.shape == (0,)
    assert env.rollout_batch(none, 3, action_seed=0).returns.shape == (0,)
    assert env.observe(none).shape == (0, 3)
    assert env.get_attr("count", none).shape == (0,)


# -- copies, and the end ---------------------------------------------------------------------------


def test_a_clone_has_the_base_state_and_a_life_of_its_own(backend: Backend) -> None:
    with fresh(backend) as env:
        state = states_of(env)[4]
        env.set_state(state)
        if not backend.can_be_cloned:
            with pytest.raises(TypeError, match="clone: expected a BatchEnv opened with planvec.make"):
                env.clone()
            return
        with env.clone() as other:
            assert type(other) is type(env)
            assert other.get_state() == state
            env.close()
            assert other.step_batch([0]).observations[:, 0].tolist() == [6.0]


def test_a_clone_has_as_many_workers_and_the_same_mode() -> None:
    with (
        planvec.make("CartPole-v1", num_workers=2, start_method="fork", blocking=False) as env,
        env.clone() as other,
    ):
        assert other.num_workers == 2
        assert isinstance(other.step_batch([0]), planvec.Promise)


def test_one_environment_cannot_be_cloned() -> None:
    with (
        PlanEnv(Faulty()) as env,
        pytest.raises(TypeError, match="clone: expected a PlanEnv opened with"),
    ):
        env.clone()


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_an_environment_cannot_be_copied_and_says_how_to_clone_it(env: Any, way: Any) -> None:
    with pytest.raises(TypeError, match=rf"a {type(env).__name__} cannot be copied or pickled.*clone\(\)"):
        way(env)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_process_cannot_be_copied_and_says_how_to_clone_it(way: Any) -> None:
    with (
        ExternalProcess(lambda: PlanEnv(Faulty), start_method="fork") as process,
        pytest.raises(TypeError, match=r"an ExternalProcess cannot be copied or pickled.*clone\(\)"),
    ):
        way(process)


def test_a_process_that_is_cloned_has_an_object_of_its_own() -> None:
    with ExternalProcess(lambda: PlanEnv(Faulty), start_method="fork") as process, process.clone() as other:
        other.call("reset", seed=3).result()
        process.close()
        assert other.step_batch([0]).observations[:, 0].tolist() == [1.0]


def test_use_after_close_is_an_error(backend: Backend) -> None:
    env = fresh(backend)
    states = states_of(env)
    env.close()
    env.close()
    uses = [
        lambda: env.step_batch([0]),
        lambda: env.step_batch([0], blocking=False),
        lambda: env.rollout_batch(states, 2, action_seed=0),
        lambda: env.reset(seed=0),
        lambda: env.step(0),
        lambda: env.observe(states),
        lambda: env.render(states),
        lambda: env.get_attr("count", states),
        lambda: env.call("_observe", states),
        lambda: env.set_state(states[0]),
    ]
    if isinstance(env, BatchEnv):
        uses.append(lambda: env.sync_states(states[0]))
    for use in uses:
        with pytest.raises(planvec.ClosedError):
            use()


def test_a_closed_backend_raises_at_the_promise(backend: Backend) -> None:
    env = fresh(backend)
    env._backend.close()
    with pytest.raises(planvec.ClosedError):
        env.step_batch([0], blocking=False).result()


class Growing(gymnasium.Env[Any, Any]):
    """Has a state of another shape after 1000 steps, which its codec cannot save."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x = np.zeros(2)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.x = np.zeros(3) if self.x[0] >= 1000 else self.x + 1
        return np.zeros(1, np.float32), 0.0, False, False, {}


class GrowingCodec(planvec.Codec):
    """Saves a `Growing`, as long as it has not grown."""

    dtype = np.dtype([("x", "f8", 2)])
    draws = False

    def get(self, env: Any) -> Any:
        return (env.x.copy(),)

    def set(self, env: Any, value: Any) -> None:
        env.x = np.array(value[0])


@pytest.mark.parametrize("call", ["step", "rollout"])
def test_a_state_that_does_not_fit_its_codec_raises_at_the_promise(backend: Backend, call: str) -> None:
    def make() -> Any:
        planvec.register_codec(Growing, GrowingCodec)
        return Growing()

    planvec.register_codec(Growing, GrowingCodec)
    with backend.open(make, num_workers=1) as env:
        states = np.repeat(np.atleast_1d(env.get_state()), 3)
        states["x"][1] = 1000
        actions = np.zeros(3, int)
        if call == "step":
            promise = env.step_batch(actions, states, blocking=False)
        else:
            promise = env.rollout_batch(states, actions=actions[:, None], blocking=False)
        with pytest.raises(planvec.EnvError, match="ValueError"):
            promise.result()
        assert env.step_batch([0], states[:1]).rewards.tolist() == [0.0]


@pytest.mark.parametrize("name", ["set_wrapper_attr", "unwrapped.__setattr__", "reset"])
def test_methods_that_change_the_environment_are_not_called_at_a_state(env: Any, name: str) -> None:
    with pytest.raises(planvec.InvalidBatchError, match="only reads the state"):
        env.call(name, None, "count", 3)


def test_limits_are_given_to_the_backend_and_not_to_its_batch_env() -> None:
    with PlanEnv(Faulty) as env, pytest.raises(planvec.InvalidBatchError, match="pass them to the backend"):
        BatchEnv(InProcess(env.stepper), timeout=1.0)


def test_a_result_that_was_ready_outlives_its_environment(backend: Backend) -> None:
    env = fresh(backend)
    promise = env.step_batch(np.zeros(NUM_ROWS, int), states_of(env), blocking=False)
    while not promise.done():
        pass
    env.close()
    assert promise.result().rewards.tolist() == [1.0] * NUM_ROWS


def test_counts_begin_at_nothing() -> None:
    with PlanEnv(Faulty) as env:
        backend = InProcess(env.stepper)
        assert backend.stats.exits == dict.fromkeys(ExitReason, 0)
        assert backend.num_workers == 0
