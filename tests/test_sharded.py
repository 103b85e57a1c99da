"""`Sharded` over workers that die, start late and cancel: no row is lost, and every event is counted."""

from __future__ import annotations

import functools
import logging
import threading
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
from compare import assert_same, same_states
from faulty import ARMED, Faulty, actions_with
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_worker import DEADLY, ScriptedWorker, finish, over
from toy_workers import ObjectWorker, ThreadWorker
from toy_workers import over as over_toys

import planvec
from planvec import PlanEnv
from planvec.backends import ExitReason
from planvec.rows import StepBatch

NUM_ROWS = 8
DTS = np.arange(NUM_ROWS)
"""Rows differ in `dt`, so that a worker can note which it was given."""


def workers(number: int, **options: Any) -> list[ScriptedWorker]:
    def make() -> PlanEnv:
        return PlanEnv(Faulty, trust=True)

    return [ScriptedWorker(make, f"worker-{index}", **options) for index in range(number)]


def actions_of(*deadly: int) -> Any:
    actions = np.zeros(NUM_ROWS, int)
    actions[list(deadly)] = DEADLY
    return actions


def ask(env: planvec.BatchEnv, *deadly: int, **options: Any) -> Any:
    """Step rows 1 to 8, each as often as its number says; workers may die over some of them."""
    return env.step_batch(actions_of(*deadly), dt=DTS + 1, blocking=False, **options)


@functools.cache
def complete() -> planvec.Transitions:
    """Return what `ask` gives in this process."""
    with PlanEnv(Faulty) as env:
        return env.step_batch(np.zeros(NUM_ROWS, int), dt=DTS + 1)


def assert_complete(out: planvec.Transitions) -> None:
    expected = complete()
    assert same_states(out.new_states, expected.new_states)
    for one, other in zip(out[1:], expected[1:], strict=True):
        assert_same(one, other)


# -- deadlines -----------------------------------------------------------------------------------


@pytest.mark.parametrize("has_one_clock", [True, False])
def test_workers_with_another_clock_get_no_deadline_and_step_all_rows(has_one_clock: bool) -> None:
    several = workers(2)
    with over(several, has_one_clock=has_one_clock) as env:
        promise = ask(env, deadline=0.0)
        deadlines = {request.deadline for worker in several for request, _ in worker.pending}
        assert deadlines == {0.0 if has_one_clock else None}
        out = finish(promise, several)
    if has_one_clock:
        assert (out.infos["num_steps"] == -1).all()
    else:
        assert_complete(out)


@pytest.mark.parametrize("on_error", ["raise", "mask"])
@pytest.mark.parametrize("capacity", [3, 100])
def test_late_rows_outlast_a_worker_that_dies_and_are_as_many_chunks_as_a_worker_can_take(
    capacity: int, on_error: str
) -> None:
    several = workers(2)
    for worker in several:
        worker.capacity = capacity
    with over(several) as env:
        promise = ask(env, deadline=0.0, on_error=on_error)
        assert sum(len(worker.pending) for worker in several) == -(-NUM_ROWS // capacity)
        several[0].die(is_cause=True)
        out = finish(promise, several)
    assert (out.infos["num_steps"] == -1).all()
    assert same_states(out.new_states, np.repeat(np.atleast_1d(env.get_state()), NUM_ROWS))


# -- more workers than cores ---------------------------------------------------------------------


def test_no_more_workers_step_at_once_than_find_a_core_unless_steps_wait() -> None:
    """More would take the cores from each other; where steps wait for something, cores are idle meanwhile."""
    several = workers(5)
    with over(several, num_busy=2) as env:

        def step(waits: int | None) -> list[int]:
            """Step a batch, and return how many chunks each worker did."""
            before = [len(worker.done) for worker in several]
            for worker in several:
                worker.waits = waits
            assert_complete(finish(ask(env), several))
            return [len(worker.done) - count for worker, count in zip(several, before, strict=True)]

        assert min(step(None)) > 0  # nothing is known: all step
        counts = [step(0) for _ in range(12)]
        assert counts[-1][:2] > [0, 0]
        assert counts[-1][2:] == [0, 0, 0]
        several[0].die()
        assert step(0)[2] > 0  # another one takes its place until it is ready again
        counts = [step(1) for _ in range(12)]
        assert min(counts[-1][1:]) > 0


def test_rows_that_were_late_say_nothing_about_costs_and_waits() -> None:
    several = workers(2)
    for worker in several:
        worker.waits = 0
    with over(several, num_busy=2) as env:
        for _ in range(5):
            finish(ask(env), several)
        pace = env._backend._paces[StepBatch].seconds  # type: ignore[attr-defined]
        for _ in range(5):
            out = finish(ask(env, deadline=0.0), several)
            assert (out.infos["num_steps"] == -1).all()
        assert env._backend._paces[StepBatch].seconds == pace  # type: ignore[attr-defined]


# -- audits --------------------------------------------------------------------------------------


def test_a_worker_that_repeats_a_row_gets_its_share_of_the_next_batch() -> None:
    one, other = both = workers(2)
    with over(both, audit=1.0) as env:
        for _ in range(1000):
            promise = ask(env)
            chunks = sum(len(worker.pending[0][0].actions) for worker in both if worker.pending)
            # Behind a chunk, the audit. A busy machine may have cut the batch into three chunks.
            if [len(worker.pending) for worker in both] == [1, 2] and chunks == NUM_ROWS:
                break
            finish(promise, both)
        one.work()
        other.work()
        assert_complete(promise.result())
        assert [len(worker.pending) for worker in both] == [0, 1]
        promise = ask(env)
        assert [len(worker.pending) for worker in both] == [1, 2]
        assert_complete(finish(promise, both))
        for worker in both:
            worker.work()
        ask(env)
        assert env.stats.audited_rows >= 1


# -- workers that die ------------------------------------------------------------------------------


def test_a_row_that_a_worker_died_over_is_tried_alone_and_the_rows_around_it_elsewhere() -> None:
    one, other = both = workers(2)
    with over(both) as env:
        promise = ask(env, 2)
        assert [len(worker.pending) for worker in both] == [1, 1]  # rows 1 to 4, and 5 to 8
        one.num_lives = 1
        one.work()
        assert one.exit is None  # it was started again, but is not ready yet
        other.work()
        assert other.done == [[5, 6, 7, 8]]
        while not promise.done():
            other.work()
        assert other.done[1:] == [[3], [1, 2], [4]]
        assert_complete(promise.result())


def test_a_death_over_a_row_is_counted_once_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    one, other = both = workers(2)
    with over(both) as env, caplog.at_level(logging.WARNING, "planvec"):
        one.num_lives = 1
        assert_complete(finish(ask(env, 2), both))
        stats = env.stats
        assert (stats.num_rows, stats.retries, stats.masked_rows) == (8, 1, 0)
        assert stats.num_chunks == 2 + 3
        assert stats.exits == {**dict.fromkeys(ExitReason, 0), ExitReason.CRASH: 1}
        assert (one.pauses, other.pauses) == ([0.0], [])
        (line,) = (record.getMessage() for record in caplog.records)
        assert line == "worker-0 fell over during the step of rows 0 to 3; it is replaced"


def test_a_row_that_every_worker_dies_over_is_named_after_max_restarts() -> None:
    both = workers(2)
    with over(both, max_restarts=2) as env:
        for worker in both:
            worker.num_lives = 100
        with pytest.raises(
            planvec.WorkerCrashedError, match="row 2, action 1: .* 3 workers failed"
        ) as caught:
            finish(ask(env, 2), both)
        assert (caught.value.row, caught.value.action) == (2, DEADLY)
        assert (env.stats.retries, env.stats.crashes) == (2, 3)
        assert_complete(finish(ask(env), both))


def test_a_row_that_has_killed_twice_is_given_to_no_other_worker() -> None:
    both = workers(3)
    with over(both, max_restarts=6) as env:
        for worker in both:
            worker.num_lives = 100
        with pytest.raises(planvec.WorkerCrashedError):
            finish(ask(env, 2), both)
        deaths = [len(worker.pauses) for worker in both]
        assert sum(deaths) == 7
        assert sorted(deaths)[0] == 0  # one of the three was never killed


def test_a_row_that_every_worker_dies_over_is_flagged_where_errors_are_masked() -> None:
    both = workers(2)
    with over(both, max_restarts=1) as env:
        for worker in both:
            worker.num_lives = 100
        out = finish(ask(env, 2, 6, on_error="mask"), both)
        assert np.flatnonzero(out.infos["_error"]).tolist() == [2, 6]
        assert all(isinstance(out.infos["error"][row], planvec.WorkerCrashedError) for row in (2, 6))
        assert np.flatnonzero(np.isnan(out.rewards)).tolist() == [2, 6]
        assert out.infos["num_steps"].tolist() == [1, 2, 0, 4, 5, 6, 0, 8]
        assert (env.stats.masked_rows, env.stats.crashes) == (2, 4)


def test_a_death_over_nothing_costs_no_row_an_attempt() -> None:
    one, _ = both = workers(2)
    with over(both, max_restarts=0) as env:
        promise = ask(env)
        one.die()
        assert_complete(finish(promise, both))
        assert (env.stats.retries, env.stats.crashes) == (0, 1)


def test_what_a_dead_worker_had_not_begun_is_done_by_another_first() -> None:
    (alone,) = workers(1)
    with over([alone]) as env:
        alone.capacity = 2
        promise = ask(env)
        assert [len(request.dt) for request, _ in alone.pending] == [2, 2]
        alone.die(row=0)  # of the first; the second was not begun
        assert_complete(finish(promise, [alone]))
        assert alone.done[:3] == [[1], [2], [3, 4]]
        # A busy machine may have cut these into more chunks.
        assert [row for chunk in alone.done[3:] for row in chunk] == [5, 6, 7, 8]


def test_chunks_of_an_unknown_row_are_halved_until_it_is_known() -> None:
    (alone,) = workers(1)
    with over([alone], max_restarts=0) as env:
        promise = ask(env)
        while not promise.done():
            if not alone.is_ready:
                alone.become_ready()
            elif 6 in alone.pending[0][0].dt:
                alone.die(is_cause=True)
            else:
                alone.work()
        with pytest.raises(planvec.WorkerCrashedError, match="^row 5: ") as caught:
            promise.result()
        assert caught.value.row == 5


def test_a_row_that_runs_out_of_time_is_not_tried_again() -> None:
    one, _ = both = workers(2)
    with over(both) as env:
        promise = ask(env)
        one.die(row=1, reason=ExitReason.TIMEOUT)
        with pytest.raises(planvec.WorkerTimeoutError, match="row 1, action 0: worker-0 fell over"):
            finish(promise, both)
        assert (env.stats.retries, env.stats.timeouts) == (0, 1)


def test_pauses_grow_while_a_worker_dies_again_and_again_and_end_when_it_answers() -> None:
    (alone,) = workers(1)
    with over([alone], max_restarts=10) as env:
        alone.num_lives = 5
        assert_complete(finish(ask(env, 0), [alone]))
        assert alone.pauses == [0.0, 0.05, 0.1, 0.2, 0.4]
        alone.num_lives = 1
        assert_complete(finish(ask(env, 0), [alone]))
        assert alone.pauses[5:] == [0.0]


def test_workers_that_die_faster_than_they_start_end_the_call() -> None:
    (alone,) = workers(1)
    with over([alone], max_restarts=2) as env:
        promise = ask(env)
        alone.die()
        for _ in range(3):
            assert not promise.done()
            alone.die()  # while it starts
        assert promise.done()
        with pytest.raises(planvec.WorkerStartError, match="worker-0 fell over; more than 2 workers exited"):
            promise.result()
        assert_complete(finish(ask(env), [alone]))  # the next call tries again


def test_a_row_bound_to_a_worker_that_dies_faster_than_it_starts_ends_its_call() -> None:
    (alone,) = workers(1)
    with over([alone]) as env:
        promise = env.step_batch([DEADLY], blocking=False)
        alone.num_lives = 2  # from now on the row waits for this worker alone
        while alone.num_lives:
            alone.work()
        for _ in range(4):
            assert not promise.done()
            alone.die()  # while it starts
        assert promise.done()
        with pytest.raises(planvec.WorkerStartError, match="worker-0 fell over; more than 3 workers exited"):
            promise.result()
        assert_complete(finish(ask(env), [alone]))


def test_a_worker_that_cannot_be_started_is_told_once_and_others_do_its_rows() -> None:
    one, other = both = workers(2)
    with over(both) as env:
        promise = ask(env)
        one.die(error=planvec.WorkerStartError("no more processes"))
        assert_complete(finish(promise, [other]))
        assert one.pauses == []
        with pytest.raises(planvec.WorkerStartError, match="no more processes"):
            ask(env).result()
        assert_complete(finish(ask(env), both))  # it is tried again
        assert one.pauses == [0.0]


def test_a_worker_that_is_started_again_gets_the_base_state_first() -> None:
    one, other = both = workers(2)
    with over(both) as env:
        state = env.get_state()
        calls = env._backend.sync_base_state()
        finish(calls, both)
        assert (one.done, other.done) == (["set_state"], ["set_state"])
        promise = ask(env)
        one.die()
        assert_complete(finish(promise, both))
        assert one.done[1] == "set_state"
        assert same_states(np.repeat(env.get_state(), 1), np.repeat(state, 1))


def test_a_base_state_that_a_worker_lost_does_not_replace_a_newer_one() -> None:
    one, other = both = workers(2)
    one.capacity = other.capacity = 1
    with over(both) as env:
        newer = finish(env.step_batch([0], blocking=False), both).new_states[0]
        promises = [env._backend.sync_base_state()]
        other.work()
        promises.append(ask(env))  # gives the other worker as much as it takes
        one.die()  # which loses the base state that it was sent
        env._backend.base_state = newer
        promises.append(env._backend.sync_base_state())
        for promise in promises:
            finish(promise, both)
        for worker in both:
            assert same_states(np.repeat(worker.stepper.base_state, 1), np.repeat(newer, 1))


def test_a_base_state_that_a_worker_exited_on_is_not_sent_to_another_one() -> None:
    one, other = both = workers(2)
    with over(both) as env:
        newer = finish(env.step_batch([0], blocking=False), both).new_states[0]
        promises = [env._backend.sync_base_state()]
        env._backend.base_state = newer
        promises.append(env._backend.sync_base_state())
        other.work()
        other.work()
        one.die(is_cause=True)  # while it handles the older one
        for promise in promises:
            finish(promise, both)
        for worker in both:
            while worker.pending or not worker.is_ready:
                worker.work()
            assert same_states(np.repeat(worker.stepper.base_state, 1), np.repeat(newer, 1))


def test_a_worker_that_exits_on_every_base_state_ends_the_call() -> None:
    (one,) = only = workers(1)
    with over(only, max_restarts=2) as env:
        env._backend.sync_base_state()
        promise = ask(env)
        for _ in range(4):
            one.become_ready()
            one.die(is_cause=True)
        with pytest.raises(planvec.WorkerStartError, match="without completing anything"):
            promise.result(timeout=0)


# -- calls that do not end normally ------------------------------------------------------------------


def test_a_call_that_is_interrupted_before_its_promise_is_returned_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = workers(2)

    def interrupted(call: Any) -> None:
        raise KeyboardInterrupt

    with over(both) as env:
        with monkeypatch.context() as patch:
            patch.setattr("planvec.backends.sharded.call.Call.prepare", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ask(env)
        assert all(future.cancelled() for worker in both for _, future in worker.pending)
        assert_complete(finish(ask(env), both))


def test_a_call_during_which_the_environment_is_closed_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with over(workers(2)) as env:
        backend: Any = env._backend
        new_call = backend._new_call

        def close_first(*args: Any) -> Any:
            backend.close()
            return new_call(*args)

        monkeypatch.setattr(backend, "_new_call", close_first)
        with pytest.raises(planvec.ClosedError):
            ask(env).result(timeout=0)


def test_a_call_from_inside_another_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one, *_ = both = workers(2)
    inner: list[Any] = []
    submit = one.submit

    def handle_signal_and_submit(request: Any) -> Any:
        if not inner:
            inner.append(None)
            inner[0] = ask(env)
        return submit(request)

    with over(both) as env:
        monkeypatch.setattr(one, "submit", handle_signal_and_submit)
        assert_complete(finish(ask(env), both))
        with pytest.raises(planvec.PlanvecError, match="a signal handler called this environment"):
            inner[0].result()


def test_calls_that_end_before_anything_is_submitted_are_forgotten() -> None:
    one, *_ = only = workers(1)
    with over(only) as env:
        backend: Any = env._backend
        one.die()
        for _ in range(3):
            ask(env).abandon()
        assert not backend._calls


def test_workers_that_answer_at_once_take_any_number_of_chunks() -> None:
    with over_toys(ObjectWorker, lambda: PlanEnv("CartPole-v1"), 2) as env:
        num_rows = 40_000  # in recursive calls, about 25,000 would exceed the limit of the interpreter
        out = env.step_batch(np.zeros(num_rows, int))
        assert len(np.unique(out.new_states)) == 1


def test_an_answer_that_cannot_be_merged_fails_the_call() -> None:
    class Wrong(ThreadWorker):
        def submit(self, request: Any) -> Any:
            def answer() -> Any:
                answer = self._env.stepper.perform(request)
                answer.outputs.rewards = np.zeros(3)
                return answer

            return self._thread.submit(answer)

    with over_toys(Wrong, lambda: PlanEnv("CartPole-v1"), 2) as env:
        promise = env.step_batch(np.zeros(16, int), blocking=False)
        with pytest.raises(planvec.PlanvecError, match="thread-. answered wrongly .ValueError"):
            promise.result(timeout=30)


def test_a_worker_that_raises_instead_of_taking_a_request_fails_the_call() -> None:
    class Gone(ThreadWorker):
        def submit(self, request: Any) -> Any:
            raise ConnectionError("the actor is gone")

    with over_toys(Gone, lambda: PlanEnv("CartPole-v1"), 2) as env:
        promise = env.step_batch(np.zeros(16, int), blocking=False)
        with pytest.raises(planvec.PlanvecError, match="thread-. did not take it .ConnectionError"):
            promise.result(timeout=30)


# -- workers that are slow to start ------------------------------------------------------------------


def test_a_backend_opens_when_its_last_worker_is_ready() -> None:
    _, other = both = [*workers(1), *workers(1, is_ready=False)]
    opened: list[planvec.BatchEnv] = []
    thread = threading.Thread(target=lambda: opened.append(over(both)))
    thread.start()
    assert other.listens.wait(10)
    assert not opened
    other.become_ready()
    thread.join(10)
    (env,) = opened
    with env:
        assert_complete(finish(ask(env), both))


def test_a_worker_that_dies_while_it_first_starts_is_started_again() -> None:
    _, other = both = [*workers(1), *workers(1, is_ready=False)]
    opened: list[planvec.BatchEnv] = []
    thread = threading.Thread(target=lambda: opened.append(over(both)))
    thread.start()
    assert other.listens.wait(10)
    other.die()
    other.become_ready()
    thread.join(10)
    (env,) = opened
    with env:
        assert other.pauses == [0.0]
        assert env.stats.crashes == 1
        assert_complete(finish(ask(env), both))


def test_a_worker_that_cannot_start_is_the_error_of_opening_and_closes_the_others() -> None:
    one, other = both = [*workers(1), *workers(1, is_ready=False)]
    errors: list[planvec.PlanvecError] = []

    def open_env() -> None:
        try:
            over(both)
        except planvec.PlanvecError as error:
            errors.append(error)

    thread = threading.Thread(target=open_env)
    thread.start()
    assert other.listens.wait(10)
    other.die(error=planvec.WorkerStartError("no rocket"))
    thread.join(10)
    assert [str(error) for error in errors] == ["no rocket"]
    assert (one.is_closed, other.is_closed) == (True, True)


def test_rows_wait_for_no_worker_that_is_slow_to_start_again() -> None:
    one, other = both = workers(2)
    with over(both) as env:
        one.die()
        assert not one.is_ready
        assert_complete(finish(ask(env), [other]))
        assert one.done == []


def test_a_worker_that_becomes_ready_takes_its_share_of_what_is_left() -> None:
    one, other = both = workers(2)
    with over(both) as env:
        for worker in both:
            worker.capacity = 1
        one.die()
        promise = ask(env)
        other.work()
        one.become_ready()
        assert_complete(finish(promise, both))
        assert len(one.done) >= 2


# -- promises that are not ready ---------------------------------------------------------------------


def test_a_promise_that_is_not_ready_in_time_says_so_and_stays_valid() -> None:
    both = workers(2)
    with over(both) as env:
        promise = ask(env)
        for timeout in (0, 0.001):
            with pytest.raises(planvec.WorkerTimeoutError, match="the promise stays valid"):
                promise.result(timeout=timeout)
        assert not promise.done()
        assert_complete(finish(promise, both))
        assert_complete(promise.result(timeout=0))


def test_promises_are_done_in_the_order_of_their_answers_and_read_in_any() -> None:
    (alone,) = workers(1)
    with over([alone]) as env:
        promises = [ask(env) for _ in range(3)]
        for number in range(3):
            assert [promise.done() for promise in promises] == [index < number for index in range(3)]
            while not promises[number].done():  # a busy machine may have cut a batch into several chunks
                alone.work()
        for promise in reversed(promises):
            assert_complete(promise.result())


def test_an_error_of_a_worker_that_is_none_of_the_environment_raises_too() -> None:
    (alone,) = workers(1)
    with over([alone]) as env:
        promise = ask(env)
        (_, future), *_ = alone.pending
        alone.pending.clear()
        future.set_exception(RuntimeError("out of rockets"))
        with pytest.raises(planvec.EnvError, match="RuntimeError: out of rockets"):
            promise.result()
        assert_complete(finish(ask(env), [alone]))


# -- what nobody wants any more ----------------------------------------------------------------------


def test_chunks_behind_a_row_that_failed_are_cancelled() -> None:
    (alone,) = workers(1)
    with over([alone]) as env:
        alone.capacity = 2
        promise = env.step_batch(actions_with("exception", row=1), armed(alone), dt=DTS + 1, blocking=False)
        (_, first), (_, second) = alone.pending
        alone.work()
        assert (first.cancelled(), second.cancelled()) == (False, True)
        assert promise.done()
        with pytest.raises(planvec.EnvError, match="row 1"):
            promise.result()
        assert_complete(finish(ask(env), [alone]))


def test_chunks_before_a_row_that_failed_are_done_all_the_same() -> None:
    one, other = both = workers(2)
    with over(both) as env:
        actions = actions_with("exception", row=6)
        actions[1] = 1
        promise = env.step_batch(actions, armed(one), blocking=False)
        other.work()
        assert not promise.done()
        one.work()
        with pytest.raises(planvec.EnvError, match="row 1"):
            promise.result()


def test_a_promise_that_is_abandoned_cancels_its_chunks_and_leaves_the_others_alone() -> None:
    both = workers(2)
    with over(both) as env:
        unwanted, wanted = ask(env), ask(env)
        futures = [worker.pending[0][1] for worker in both]
        unwanted.abandon()
        assert all(future.cancelled() for future in futures)
        assert_complete(finish(wanted, both))
        with pytest.raises(planvec.ClosedError, match="interrupted"):
            unwanted.result()
        for future in futures:
            with pytest.raises(CancelledError):
                future.result()


def test_a_worker_that_cancels_what_is_wanted_fails_the_call() -> None:
    (alone,) = workers(1)
    with over([alone]) as env:
        promise = ask(env)
        (_, future) = alone.pending.pop()
        future.cancel()
        with pytest.raises(planvec.PlanvecError, match="worker-0 cancelled the step of rows 0 to 7"):
            promise.result(timeout=10)
        assert_complete(finish(ask(env), [alone]))


def test_an_answer_that_comes_after_its_promise_was_abandoned_is_ignored() -> None:
    (alone,) = workers(1)
    with over([alone]) as env:
        promise = ask(env)
        (_, future), *_ = alone.pending
        assert future.set_running_or_notify_cancel()  # it is too late to cancel
        promise.abandon()
        future.set_exception(ValueError("too late"))
        alone.pending.clear()
        assert_complete(finish(ask(env), [alone]))


def test_closing_ends_promises_that_are_open() -> None:
    both = workers(2)
    env = over(both)
    promise = ask(env)
    env.close()
    assert promise.done()
    with pytest.raises(planvec.ClosedError, match="the workers were closed"):
        promise.result()


def test_promises_that_nobody_reads_are_done_in_the_background_and_keep_nothing_waiting() -> None:
    both = workers(2)
    with over(both) as env:
        for _ in range(5):
            ask(env)
        assert_complete(finish(ask(env), both))
        assert env.stats.num_rows == 48


def armed(worker: ScriptedWorker) -> Any:
    """Return a state at which actions are faults."""
    return np.repeat(worker.stepper.reset(0, ARMED).state, NUM_ROWS)


# -- anything at any time ----------------------------------------------------------------------------

WORKER = st.integers(0, 2)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("work"), WORKER),
        st.tuples(st.just("die over nothing"), WORKER),
        st.tuples(st.just("die over the first row"), WORKER),
        st.tuples(st.just("die over an unknown row"), WORKER),
        st.tuples(st.just("be killed"), WORKER),
        st.tuples(st.just("ask"), WORKER),
    ),
    max_size=30,
)


def happen(event: str, worker: ScriptedWorker) -> None:
    """Let something happen to a worker, where it can."""
    if event == "work":
        worker.work()
    elif event == "be killed":
        worker.die(was_killed=True)
    elif event == "die over nothing":
        worker.die()
    elif worker.pending and worker.is_ready:
        worker.die(row=0 if event == "die over the first row" else None, is_cause=True)


@pytest.mark.slow
@given(events=EVENTS, capacity=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_no_row_is_lost_or_changed_whatever_happens_to_workers(
    events: list[tuple[str, int]], capacity: int
) -> None:
    group = workers(3)
    with over(group, max_restarts=100) as env:
        for worker in group:
            worker.capacity = capacity
        promises = [ask(env)]
        for event, index in events:
            if event == "ask":
                promises.append(ask(env))
            else:
                happen(event, group[index])
        for promise in promises:
            assert_complete(finish(promise, group))
        assert env.stats.num_rows == NUM_ROWS * len(promises)
        assert env.stats.restarts == sum(len(worker.pauses) for worker in group)
