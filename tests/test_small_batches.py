"""Small batches of harmless environments are stepped in this process where that is faster."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same, same_states
from gymnasium.envs.classic_control import AcrobotEnv, CartPoleEnv, acrobot
from marks import slow_after

import planvec
from planvec.backends.sharded import backend as sharded
from planvec.rows import StepBatch
from planvec.stepping import EnvStepper

FEW, MANY = 4, 256


@pytest.fixture(autouse=True)
def _this_process_counts_as_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fix what is measured, which depends on the machine: no test may."""
    monkeypatch.setattr(sharded, "_NUM_BEFORE", 1)
    monkeypatch.setattr(sharded, "_FIRST_MESSAGE_SECONDS", 1e9)
    monkeypatch.setattr(sharded, "_WEIGHT", 0.0)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of rows of the requests that this process performs."""
    rows: list[int] = []
    perform = EnvStepper.perform

    def counted(self: EnvStepper, request: Any, *args: Any, **options: Any) -> Any:
        rows.append(request.num_rows)
        return perform(self, request, *args, **options)

    monkeypatch.setattr(EnvStepper, "perform", counted)
    return rows


def clip_to_zero(x: float, m: Any, _: Any = None) -> float:
    """In place of a function of Acrobot's module."""
    return 0.0


def step(env: planvec.BatchEnv[Any], num_rows: int = FEW, **options: Any) -> planvec.Transitions:
    out = env.step_batch(np.arange(num_rows) % 2, **options)
    return out if isinstance(out, planvec.Transitions) else out.result()


def step_often(env: planvec.BatchEnv[Any], num_rows: int = FEW, **options: Any) -> None:
    for _ in range(5):
        step(env, num_rows, **options)


@pytest.mark.parametrize(
    "env_id", slow_after(2, ["CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "Pendulum-v1"])
)
def test_results_are_those_of_the_workers(env_id: str, here: list[int]) -> None:
    with planvec.make(env_id, num_workers=2) as env, planvec.make(env_id, num_workers=2, timeout=60) as other:
        env.action_space.seed(0)
        states = [np.repeat(each.reset(seed=3).state, FEW) for each in (env, other)]
        for number in range(6):
            actions = np.stack([env.action_space.sample() for _ in range(FEW)])
            seeds = np.arange(FEW) + number
            one, two = (
                each.step_batch(actions, start, seeds=seeds)
                for each, start in zip((env, other), states, strict=True)
            )
            assert same_states(one.new_states, two.new_states)
            for part, expected in zip(one[1:], two[1:], strict=True):
                assert_same(part, expected)
            rollouts = [
                each.rollout_batch(start, 9, action_seed=number)
                for each, start in zip((env, other), states, strict=True)
            ]
            assert rollouts[0].returns.tobytes() == rollouts[1].returns.tobytes()
            states = [one.new_states, two.new_states]
    assert here


def test_only_small_batches_are_stepped_here(here: list[int]) -> None:
    with planvec.make("CartPole-v1", num_workers=2) as env:
        step_often(env, MANY)
        step_often(env, FEW, dt=1000)
        env.observe(np.repeat(env.get_state(), FEW))
        assert not here
        step_often(env)
        assert set(here) == {FEW}


def test_the_time_of_messages_is_what_a_batch_takes_beyond_its_largest_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sharded, "_FIRST_MESSAGE_SECONDS", 1e-3)
    monkeypatch.setattr(sharded, "_WEIGHT", 0.5)
    monkeypatch.setattr(sharded, "_NUM_BEFORE", 1000)
    with planvec.make("CartPole-v1", num_workers=2) as env:
        step_often(env)
        backend = env._backend
        clock = iter([0.0, 0.010, 1.0, 1.010])
        monkeypatch.setattr(sharded, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
        for num_rows, seconds, expected in ((3, 3.0e-3, 2e-3), (1, 9.9e-3, 1e-4)):
            backend._paces[StepBatch].seconds = seconds / num_rows
            backend._message_seconds = 2e-3 if num_rows == 3 else 1e-4
            step(env, num_rows)
            assert backend._message_seconds == pytest.approx(expected, rel=1e-3)


def test_promises_are_kept_by_workers(here: list[int]) -> None:
    with planvec.make("CartPole-v1", num_workers=2, blocking=False) as env:
        step_often(env)
    assert not here


@pytest.mark.parametrize(
    "options",
    slow_after(
        2,
        [
            {"timeout": 60.0},
            {"max_worker_rss": 1 << 40},
            {"codec": "copied"},
            {"compiled": True},
            {"render_mode": "rgb_array"},
        ],
    ),
    ids=lambda options: next(iter(options)),
)
def test_options_that_need_workers_keep_every_row_in_them(options: dict[str, Any], here: list[int]) -> None:
    with planvec.make("CartPole-v1", num_workers=2, **options) as env:
        step_often(env)
    assert not here


def test_code_that_is_not_known_to_be_harmless_stays_in_workers(here: list[int]) -> None:
    class Own(CartPoleEnv):
        """May step otherwise than its base class."""

    for make in (lambda: gymnasium.make("CartPole-v1"), Own, "MountainCar-v0"):
        with planvec.make(make, num_workers=1, env_kwargs=None) as env:
            step_often(env)
        assert bool(here) == (make == "MountainCar-v0")


@pytest.mark.parametrize("owner", slow_after(1, ["class", "module", "function"]))
def test_what_a_program_has_changed_for_all_environments_does_not_change_results(
    owner: str, monkeypatch: pytest.MonkeyPatch, here: list[int]
) -> None:
    """Workers import the class and its module anew."""
    if owner == "class":
        monkeypatch.setattr(AcrobotEnv, "LINK_MASS_1", 3.0)
    elif owner == "module":
        monkeypatch.setattr(acrobot, "rk4", lambda derivs, y0, t: y0)
    else:
        monkeypatch.setattr(acrobot.bound, "__code__", clip_to_zero.__code__)
    with planvec.make("Acrobot-v1", num_workers=2, compiled=False, start_method="spawn") as env:
        states = np.repeat(env.reset(seed=0).state, MANY)
        expected = step(env, MANY, states=states)
        for _ in range(5):
            out = step(env, states=states[:FEW])
            np.testing.assert_array_equal(out.observations, expected.observations[:FEW])
        assert not here


def test_rows_and_chunks_are_counted_wherever_they_are_stepped(here: list[int]) -> None:
    with planvec.make("CartPole-v1", num_workers=2) as env:
        step_often(env)
        before, num_here = env.stats.num_chunks, len(here)
        step_often(env)
        assert env.stats.num_rows == 10 * FEW
        assert env.stats.num_chunks - before == len(here) - num_here == 5


def test_rows_that_are_stepped_here_are_audited(here: list[int]) -> None:
    with planvec.make("CartPole-v1", num_workers=2, audit=1.0) as env:
        while not env.stats.audited_rows or 1 not in here:
            step(env, 64)
        assert set(here) == {64, 1}


def test_a_small_batch_needs_no_worker_that_lives() -> None:
    with planvec.make("CartPole-v1", num_workers=1) as env:
        step_often(env)
        pid = env.workers[0].pid
        os.kill(pid, signal.SIGKILL)
        step_often(env)
        step(env, MANY)
        assert env.stats.restarts == 1
        assert env.workers[0].pid != pid


def test_a_closed_environment_refuses_small_batches() -> None:
    with planvec.make("CartPole-v1", num_workers=1) as env:
        step_often(env)
    with pytest.raises(planvec.ClosedError):
        step(env)


def test_a_clone_steps_small_batches_here_too(here: list[int]) -> None:
    with planvec.make("CartPole-v1", num_workers=1) as env, env.clone() as other:
        step_often(other)
        assert here
        assert other.num_workers == 1


def test_what_an_environment_raises_is_the_same_error() -> None:
    with planvec.make("CartPole-v1", num_workers=1) as env:
        step_often(env)
        with pytest.raises(planvec.InvalidBatchError, match="actions"):
            env.step_batch([7])


# -- what is measured -----------------------------------------------------------------------------


def test_batches_whose_steps_take_longer_than_messages_go_to_workers(here: list[int]) -> None:
    with planvec.make("CartPole-v1", num_workers=2) as env:
        step_often(env)
        num_here = len(here)
        env._backend._paces[StepBatch].seconds = 4e9 / FEW
        step(env)
        assert len(here) == num_here
        step_often(env)  # the workers have measured that they are fast
        assert len(here) > num_here
