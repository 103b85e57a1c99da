"""Several promises, of one environment or of several."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

import planvec


class Slow(gymnasium.Env[Any, Any]):
    """Sleeps for some actions, which orders the answers, and raises for another one.

    They are few among many, since random steps verify the codec.
    """

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(10_000)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        import time

        if action == 9:
            raise RuntimeError("nine")
        if action < 9:
            time.sleep(0.1 * int(action))
        return 0, float(action), False, False, {}


def test_promises_are_yielded_as_they_are_done() -> None:
    with planvec.make(Slow, num_workers=1, codec="replay") as one, one.clone() as other:
        late = one.step_batch([7], blocking=False)
        early = other.step_batch([0], blocking=False)
        failed = other.step_batch([9], blocking=False)
        done = list(planvec.as_completed([late, early, failed]))
        assert done == [early, failed, late]
        assert [promise.result().rewards[0] for promise in (early, late)] == [0.0, 7.0]
        with pytest.raises(planvec.EnvError, match="nine"):
            failed.result()
        assert repr(late) == "<Promise, done>"


def test_a_wait_for_several_promises_may_end_early() -> None:
    with planvec.make(Slow, num_workers=1, codec="replay") as env:
        promise = env.step_batch([8], blocking=False)
        assert repr(promise) == "<Promise, pending>"
        with pytest.raises(planvec.WorkerTimeoutError, match="1 promises are not done after 0.01 s"):
            list(planvec.as_completed([promise], timeout=0.01))
        assert promise.result().rewards[0] == 8.0


def test_what_is_done_already_comes_at_once_and_in_order() -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        promises = [env.step_batch(np.array([action]), blocking=False) for action in (0, 1)]
        assert list(planvec.as_completed(promises, timeout=0.0)) == promises
        assert list(planvec.as_completed([])) == []
