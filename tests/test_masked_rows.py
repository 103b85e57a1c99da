"""`on_error="mask"`: rows that fail come back flagged, and the others complete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from compare import assert_same, same_states
from environments import Warehouse
from faulty import ARMED, Faulty, fault
from methods import METHODS

import planvec
from planvec import PlanEnv

NUM_ROWS = 12
RAISING = {2: "exception", 3: "wrong_shape", 4: "unpicklable_info", 7: "wrong_reward"}
KILLING = {0: "segfault", 5: "os_exit", 9: "hang_in_c", 10: "torn"}


@pytest.fixture(params=METHODS, scope="module")
def env(request: pytest.FixtureRequest) -> Iterator[planvec.BatchEnv]:
    with planvec.make(Faulty, num_workers=2, start_method=request.param, timeout=0.5, max_restarts=1) as env:
        yield env


def armed(env: Any) -> Any:
    start = env.reset(seed=0, options=ARMED).state
    return env.step_batch(np.zeros(NUM_ROWS, int), start, dt=np.arange(NUM_ROWS) + 1).new_states


def actions_of(faults: dict[int, str]) -> Any:
    actions = np.zeros(NUM_ROWS, int)
    for row, name in faults.items():
        actions[row] = fault(name)
    return actions


def assert_flagged(env: Any, out: planvec.Transitions, states: Any, failed: set[int]) -> None:
    good = [row for row in range(NUM_ROWS) if row not in failed]
    bad = sorted(failed)
    assert np.flatnonzero(out.infos["_error"]).tolist() == bad
    assert [row for row in range(NUM_ROWS) if out.infos["error"][row] is not None] == bad
    assert [out.infos["error"][row].row for row in bad] == bad
    expected = env.step_batch(np.zeros(len(good), int), states[good])
    assert_same(out.observations[good], expected.observations)
    assert_same(out.rewards[good], expected.rewards)
    assert same_states(out.new_states[good], expected.new_states)
    assert not out.terminated[good].any()
    assert out.infos["count"][good].tolist() == expected.infos["count"].tolist()
    assert not out.infos["_count"][bad].any()
    assert np.isnan(out.rewards[bad]).all()
    assert out.terminated[bad].all()
    assert not out.truncated[bad].any()
    assert not out.infos["num_steps"][bad].any()
    assert not out.observations[bad].any()
    # They stay where they were, and are ended: stepping one gives nothing more.
    after = env.step_batch(np.zeros(len(bad), int), out.new_states[bad])
    assert_same(after.observations[:, 0], np.array(bad, np.float32) + 1)
    assert after.rewards.tolist() == [0.0] * len(bad)
    assert after.terminated.all()


def test_rows_that_raise_are_flagged_and_the_others_complete(env: planvec.BatchEnv) -> None:
    states, restarts = armed(env), env.stats.restarts
    out = env.step_batch(actions_of(RAISING), states, on_error="mask")
    assert_flagged(env, out, states, set(RAISING))
    errors = out.infos["error"]
    assert str(errors[2]) == "row 2, action 1: ValueError: the rocket exploded"
    assert "the rocket exploded" in str(errors[2].__cause__)
    assert str(errors[3]).startswith("row 3, action 6: observation: expected shape (3,)")
    assert "info['handle']: function cannot be pickled" in str(errors[4])
    assert str(errors[7]).startswith("row 7, action 19: reward: expected a number")
    assert env.stats.restarts == restarts


def test_rows_that_kill_or_hang_are_flagged_and_the_others_complete(env: planvec.BatchEnv) -> None:
    states, masked = armed(env), env.stats.masked_rows
    out = env.step_batch(actions_of({**RAISING, **KILLING}), states, on_error="mask")
    assert_flagged(env, out, states, {*RAISING, *KILLING})
    errors = out.infos["error"]
    kinds = {row: type(errors[row]).__name__ for row in KILLING}
    assert kinds == {
        0: "WorkerCrashedError",
        5: "WorkerCrashedError",
        9: "WorkerTimeoutError",
        10: "WorkerCrashedError",
    }
    assert "SIGSEGV" in str(errors[0])
    assert "exited with code 0" in str(errors[5])
    assert "did not finish within 0.5 s" in str(errors[9])
    assert env.stats.masked_rows == masked + 8


def test_rollouts_that_fail_are_flagged_and_the_others_complete(env: planvec.BatchEnv) -> None:
    states = armed(env)
    actions = np.zeros((NUM_ROWS, 6), int)
    actions[2, 3], actions[8, 5], actions[9, 0] = fault("exception"), fault("segfault"), fault("hang")
    ends = env.rollout_batch(states, actions=actions, on_error="mask")
    good = [row for row in range(NUM_ROWS) if row not in (2, 8, 9)]
    assert ends.returns[good].tolist() == [6.0] * len(good)
    assert ends.num_steps[good].tolist() == [6] * len(good)
    assert np.flatnonzero(np.isnan(ends.returns)).tolist() == [2, 8, 9]
    assert np.flatnonzero(ends.terminated).tolist() == [2, 8, 9]
    assert np.flatnonzero(ends.infos["_error"]).tolist() == [2, 8, 9]
    assert "step 3 of the rollout: ValueError" in str(ends.infos["error"][2])
    assert str(ends.infos["error"][8]).startswith("row 8, action 10: ")
    assert isinstance(ends.infos["error"][9], planvec.WorkerTimeoutError)
    expected = env.step_batch(np.zeros(len(good), int), states[good], dt=6)
    assert same_states(ends.final_states[good], expected.new_states)
    assert env.step_batch([0], ends.final_states[2:3]).rewards.tolist() == [0.0]


def test_what_raises_is_flagged_alike_with_any_number_of_workers() -> None:
    found = []
    for num_workers in (0, 1, 3):
        with planvec.make(Faulty, num_workers=num_workers, start_method="fork") as env:
            states = armed(env)
            out = env.step_batch(actions_of(RAISING), states, on_error="mask", dt=2)
            found.append((out, [str(error) for error in out.infos.pop("error")]))
            assert env.stats.masked_rows == (4 if num_workers else 3)
    # In this process an info need not be pickled, and is kept.
    (here, told), *others = found
    rows = [row for row in range(NUM_ROWS) if row != 4]
    for out, texts in others:
        assert [texts[row] for row in rows] == [told[row] for row in rows]
        assert_same(out.rewards[rows], here.rewards[rows])
        assert same_states(out.new_states[rows], here.new_states[rows])


def test_rows_of_varying_size_are_flagged_with_a_blank_observation() -> None:
    class Breakable(Warehouse):
        def step(self, action: Any) -> Any:
            if action[0] == 2:
                raise ValueError("a crate fell")
            return super().step(action)

    for num_workers in (0, 2):
        with planvec.make(Breakable, num_workers=num_workers, start_method="fork") as env:
            out = env.step_batch([[1, 1, 1], [2, 1, 1], [1, 1, 1]], on_error="mask")
            assert np.isnan(out.rewards).tolist() == [False, True, False]
            assert out.observations["note"][1] == "a"  # the shortest text of its characters
            assert out.observations["note"][0] == out.observations["note"][2] != "a"
            assert not out.observations["position"][1].any()
            assert str(out.infos["error"][1]).endswith("ValueError: a crate fell")
            again = env.step_batch([[1, 1, 1]], out.new_states[1:2])
            assert (again.rewards.tolist(), again.terminated.tolist()) == ([0.0], [True])


def test_nothing_is_flagged_where_nothing_fails() -> None:
    with planvec.make("CartPole-v1", num_workers=1, start_method="fork") as env:
        out = env.step_batch([0, 1], on_error="mask")
        assert out.infos["error"].tolist() == [None, None]
        assert out.infos["_error"].tolist() == [False, False]
        assert "error" not in env.step_batch([0, 1]).infos
        empty = env.step_batch(np.zeros(0, int), on_error="mask")
        assert empty.infos["error"].shape == (0,)


def test_new_states_need_not_be_wanted_to_flag_rows() -> None:
    with planvec.make(Faulty, num_workers=1, start_method="fork", max_restarts=0) as env:
        states = armed(env)
        actions = actions_of({1: "exception", 3: "segfault"})
        out = env.step_batch(actions, states, on_error="mask", return_state=False)
        assert out.new_states is None
        assert np.flatnonzero(out.infos["_error"]).tolist() == [1, 3]


def test_a_row_of_a_slow_chunk_is_not_blamed_for_it() -> None:
    """Each row takes a while: the chunk runs out of time, but no row by itself does."""

    class Slow(Faulty):
        def step(self, action: Any) -> Any:
            if self.armed:
                time.sleep(0.1)
            return super().step(action)

    with planvec.make(Slow, num_workers=1, start_method="fork", timeout=0.45) as env:
        out = env.step_batch(np.zeros(8, int), env.reset(options=ARMED).state, on_error="mask")
        assert not out.infos["_error"].any()
        assert out.rewards.tolist() == [1.0] * 8
        assert env.stats.timeouts > 0


@pytest.mark.parametrize("wrong", ["ignore", None, True])
def test_anything_but_raise_or_mask_is_refused(wrong: Any) -> None:
    with (
        PlanEnv("CartPole-v1") as env,
        pytest.raises(planvec.InvalidBatchError, match="on_error: expected 'raise' or 'mask', got"),
    ):
        env.step_batch([0], on_error=wrong)
