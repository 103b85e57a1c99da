"""Signal handlers that raise at each call of a function of planvec, or return: nothing is done twice."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import same_states
from gymnasium import spaces
from interrupted import Interrupted
from marks import slow_after

import planvec
from planvec.backends import signals
from planvec.backends.processes import starting
from planvec.vector import AsyncVectorEnv, EnvPool, PoolStep

# Python itself swallows what a handler raises where it happens to run while an object is deallocated.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

PACKAGE = os.path.dirname(planvec.__file__)


def interrupt(call: Callable[[], Any], at: int, send: Callable[[], None]) -> bool:
    """Make a call, and send a signal at event `at` in it. Return whether it came.

    An event is a call of a function of planvec, or a return from one, from a line that was not seen before:
    what waits for a worker polls any number of times.
    """
    events: set[Any] = set()

    def count(frame: FrameType, event: str, _: Any) -> None:
        caller = frame.f_back
        if event in ("call", "return") and caller and frame.f_code.co_filename.startswith(PACKAGE):
            events.add((event, frame.f_code, caller.f_code, caller.f_lineno))
            if len(events) == at:
                sys.setprofile(None)
                send()

    with contextlib.suppress(Interrupted):
        sys.setprofile(count)
        try:
            call()
        finally:
            sys.setprofile(None)
    return len(events) >= at


class Count(gymnasium.Env[Any, Any]):
    """Adds up its actions."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.sum = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.sum += int(action)
        return np.array([float(self.sum)]), 0.0, False, False, {}


# Each event costs the start of a worker. The quick suite takes some of them, from all parts of a call.
@pytest.mark.parametrize("stride", slow_after(1, [23, 3]))
def test_an_interrupted_vector_step_is_done_once_or_not_at_all(
    alarm: Callable[[], None], stride: int
) -> None:
    with contextlib.closing(AsyncVectorEnv([Count] * 2, num_workers=2)) as env:
        env.reset(seed=0)
        before, at = np.zeros((2, 1)), 1
        while interrupt(lambda: env.step([1, 1]), at, alarm):
            after = env.step([0, 0])[0]
            assert np.isin(after - before, (0, 1)).all(), f"event {at}: {before} became {after}"
            before, at = after, at + stride
        assert at > 50
        np.testing.assert_array_equal(env.step([1, 1])[0], before + 2)  # the last one came to its end


@pytest.mark.parametrize("stride", slow_after(1, [11, 1]))
def test_results_of_a_pool_are_received_once_though_receiving_was_interrupted(
    alarm: Callable[[], None], stride: int
) -> None:
    with EnvPool([Count] * 3, num_workers=2) as pool:
        pool.reset(seed=0)
        total, at, is_interrupted, num_lost = np.zeros(3), 1, True, 0
        while is_interrupted:
            pool.send([1, 2, 1])
            total += 1, 2, 1
            received: list[PoolStep] = []
            is_interrupted = interrupt(lambda into=received: into.append(pool.recv()), at, alarm)
            if not received and pool._in_flight.sent:  # else it was interrupted when it had them already
                received.append(pool.recv())
            num_lost += not received
            for step in received:
                order = np.argsort(step.rows)
                np.testing.assert_array_equal(step.observations[order, 0], total, f"event {at}")
            np.testing.assert_array_equal(pool.step([0, 0, 0]).observations[:, 0], total, f"event {at}")
            at += stride
        assert at > 20
        assert num_lost <= 1  # at the last event, the return of `recv`


@pytest.mark.parametrize("stride", slow_after(1, [11, 1]))
def test_what_a_pool_was_sent_is_received_though_sending_was_interrupted(
    alarm: Callable[[], None], stride: int
) -> None:
    with EnvPool([Count] * 3, num_workers=2) as pool:
        pool.reset(seed=0)
        total, at, is_interrupted = np.zeros(3), 1, True
        while is_interrupted:
            is_interrupted = interrupt(lambda: pool.send([1, 2, 1]), at, alarm)
            if pool._in_flight.sent:
                pool.recv()
                total += 1, 2, 1
            np.testing.assert_array_equal(pool.step([0, 0, 0]).observations[:, 0], total, f"event {at}")
            at += stride
        assert at > 20


class Hangs(Count):
    """Gets Ctrl-C in the middle of a step if the options say so, and would go on."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.is_armed = bool(options)
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        if self.is_armed:
            signal.raise_signal(signal.SIGINT)
        return super().step(action)


def test_a_step_that_was_sent_in_this_process_can_be_interrupted() -> None:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    with EnvPool([Hangs], num_workers=0) as pool:
        pool.reset(seed=0, options={"armed": True})
        try:
            with pytest.raises(KeyboardInterrupt):
                pool.send([1])
        finally:
            signal.signal(signal.SIGINT, previous)
        assert pool.call("get_wrapper_attr", "sum") == [0]


@pytest.mark.parametrize("stride", slow_after(1, [23, 3]))
def test_a_batch_after_an_interrupted_one_is_correct(alarm: Callable[[], None], stride: int) -> None:
    actions, others = np.arange(4000) % 2, np.arange(4000) % 3 % 2
    with (
        planvec.make("CartPole-v1", num_workers=0) as reference,
        planvec.make("CartPole-v1", num_workers=2) as env,
    ):
        state = env.reset(seed=0).state
        expected = reference.step_batch(others, state).new_states
        at = 1
        while interrupt(lambda: env.step_batch(actions, state), at, alarm):
            assert same_states(env.step_batch(others, state).new_states, expected), f"event {at}"
            at += stride
        assert at > 50
        assert env.stats.crashes == 0


@pytest.mark.parametrize("stride", slow_after(1, [23, 3]))
def test_a_promise_is_kept_though_waiting_for_it_was_interrupted(
    alarm: Callable[[], None], stride: int
) -> None:
    actions = np.arange(4000) % 2
    with (
        planvec.make("CartPole-v1", num_workers=0) as reference,
        planvec.make("CartPole-v1", num_workers=2) as env,
    ):
        state = env.reset(seed=0).state
        expected = reference.step_batch(actions, state).new_states
        at, is_interrupted = 1, True
        while is_interrupted:
            promise = env.step_batch(actions, state, blocking=False)
            is_interrupted = interrupt(promise.result, at, alarm)
            assert same_states(promise.result(60).new_states, expected), f"event {at}"
            at += stride
        assert at > 20


def test_a_restart_that_fails_under_ctrl_c_is_still_due(monkeypatch: pytest.MonkeyPatch) -> None:
    start = starting.Child._start
    failures = [OSError(11, "no processes")]

    def fail_once(*arguments: Any) -> Any:
        if failures:
            os.kill(os.getpid(), signal.SIGINT)
            raise failures.pop()
        return start(*arguments)

    with planvec.make("CartPole-v1", num_workers=1) as env:
        expected = env.step_batch([0, 1]).new_states
        monkeypatch.setattr(starting.Child, "_start", fail_once)
        env.workers[0].kill()
        with pytest.raises(KeyboardInterrupt):
            env.step_batch([0, 1])
        assert same_states(env.step_batch([0, 1]).new_states, expected)
        assert not failures


def test_delayed_signals_run_each_handler_although_another_one_raises(
    monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None]
) -> None:
    received: list[int] = []
    other = max(set(signals.HANDLED) - {signal.SIGUSR1}, key=[*signals.HANDLED].index)
    previous = signal.signal(other, lambda number, _: received.append(number))
    monkeypatch.setattr(signals, "HANDLED", (other, signal.SIGUSR1))
    ask = signals._signal.getsignal

    def send_before(number: int) -> Any:
        if number == signal.SIGUSR1:  # the handler of the other one is replaced already
            signal.raise_signal(other)
            alarm()
        return ask(number)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(signals._signal, "getsignal", send_before)
            with pytest.raises(Interrupted), signals.DelayedSignals():
                pass
        assert received == [other]
    finally:
        signal.signal(other, previous)


class Space(spaces.Box):
    """A space that is equal to no other one."""

    __eq__ = object.__eq__
    __hash__ = object.__hash__


class Lonely(Count):
    """Has such a space."""

    observation_space = Space(-np.inf, np.inf, (1,), np.float64)


def test_a_worker_whose_spaces_cannot_be_compared_is_restarted() -> None:
    with planvec.make(Lonely, num_workers=1) as env:
        expected = env.step_batch([1, 2]).observations
        env.workers[0].kill()
        np.testing.assert_array_equal(env.step_batch([1, 2]).observations, expected)
        assert env.stats.restarts == 1
