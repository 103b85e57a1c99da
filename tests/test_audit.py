"""Rows that are stepped a second time show an environment that is no function of its state."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from nasty import Nasty

import planvec


class Late(Nasty):
    """Is a function of its state for 3,000 calls in a process, and then no more.

    It counts in memory that the proof at opening does not know: in a descriptor of an open file.
    """

    def __init__(self) -> None:
        self.file = os.memfd_create("count")

    def extra(self, action: int) -> float:
        count = os.lseek(self.file, 1, os.SEEK_CUR)
        return float(count % 7) if count > 3000 else 1.0


class ByProcess(Nasty):
    """Has other rewards in each process, after 300 steps of an episode."""

    def extra(self, action: int) -> float:
        return float(os.getpid() % 10_007) if self.time > 300 else 1.0


def step_often(env: planvec.BatchEnv | planvec.PlanEnv, states: Any = None) -> None:
    for _ in range(200):
        env.step_batch(np.zeros(256, int), states)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_rows_that_differ_between_two_steps_are_found(num_workers: int) -> None:
    with planvec.make(Late, num_workers=num_workers, audit=0.5) as env:
        message = r"audit: row \d+ .*expected rewards\[0\]|audit: row \d+ .*differ"
        with pytest.raises(planvec.UnsupportedEnvError, match=message):
            step_often(env)


def test_rows_that_differ_between_workers_are_found() -> None:
    with planvec.make(ByProcess, num_workers=2, audit=0.5) as env:
        states = env.step_batch(np.zeros(256, int), dt=301).new_states
        message = r"audit: row .*worker-\d, then planvec-worker-\d"
        with pytest.raises(planvec.UnsupportedEnvError, match=message):
            step_often(env, states)


@pytest.mark.parametrize(
    ("num_workers", "call"),
    [
        (2, "step"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0, "step"), (1, "step"))),
        *(pytest.param(number, "rollout", marks=pytest.mark.slow) for number in (0, 1, 2)),
    ],
)
def test_a_pure_environment_passes_every_audit(num_workers: int, call: str) -> None:
    for env_id in ("CartPole-v1", "FrozenLake-v1"):
        with planvec.make(env_id, num_workers=num_workers, audit=0.5) as env:
            actions, seeds = np.zeros(256, int), np.arange(256, dtype=np.uint64)
            states = np.repeat(env.reset(seed=0).state, 256)
            for _ in range(60):
                if call == "step":
                    env.step_batch(actions, states, seeds=seeds, return_state=False)
                    states = env.step_batch(actions, states, dt=2).new_states
                else:
                    env.rollout_batch(states, 10, action_seed=0)
            assert env.stats.audited_rows > 5
            assert env.stats.num_rows == 60 * 256 * (2 if call == "step" else 1)


def test_without_audit_no_row_is_stepped_twice() -> None:
    with planvec.make("CartPole-v1", num_workers=2, audit=0) as env:
        for _ in range(50):
            env.step_batch(np.zeros(512, int))
        assert env.stats.audited_rows == 0


@pytest.mark.slow
def test_masked_rows_are_not_audited() -> None:
    class Fails(Nasty):
        def extra(self, action: int) -> float:
            if action == 1:
                raise ValueError("one")
            return 1.0

    with planvec.make(Fails, num_workers=2, audit=1.0) as env:
        for _ in range(60):
            out: Any = env.step_batch(np.arange(256) % 2, on_error="mask")
            assert np.isnan(out.rewards).sum() == 128


@pytest.mark.parametrize("wrong", [-0.1, 1.5, True, "all", None])
def test_the_fraction_is_checked(wrong: Any) -> None:
    with pytest.raises(planvec.InvalidBatchError, match="audit: expected a fraction from 0 to 1"):
        planvec.make("CartPole-v1", num_workers=0, audit=wrong)
    with pytest.raises(planvec.InvalidBatchError, match="audit: expected a fraction from 0 to 1"):
        planvec.PlanEnv("CartPole-v1", audit=wrong)


def test_a_plan_env_is_audited_as_often_as_asked() -> None:
    with planvec.PlanEnv(Late, audit=0.5) as env, pytest.raises(planvec.UnsupportedEnvError, match="audit=0"):
        step_often(env)
    with planvec.PlanEnv(Late, audit=0) as env, env.clone() as twin:
        step_often(env)
        step_often(twin)
