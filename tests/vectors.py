"""What the tests of vector environments share."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np

from planvec.vector import EnvPool


def cartpole() -> Any:
    return gymnasium.make("CartPole-v1")


def random_actions(space: Any, num_rows: int, num_steps: int) -> list[Any]:
    """Batches of actions, the same in every call."""
    space.seed(0)
    return [np.array([space.sample() for _ in range(num_rows)]) for _ in range(num_steps)]


def processes_of(env: Any) -> list[Any]:
    """The worker processes of a vector environment."""
    return list(env._engine._processes.processes)


def kill_worker(env: Any, index: int = 0) -> None:
    os.kill(processes_of(env)[index].pid, signal.SIGKILL)


def walk(
    make: Callable[[], Any], actions: Sequence[Any], kills: Sequence[int] = (), **options: Any
) -> list[Any]:
    """Everything that a pool returns on a walk; a worker is killed before each of some steps."""
    num_rows = len(actions[0])
    with EnvPool([make] * num_rows, **options) as pool:
        seen: list[Any] = [pool.reset(seed=3)]
        for index, action in enumerate(actions):
            if index in kills:
                kill_worker(pool, kills.index(index) % pool.num_workers)
            seen.append(tuple(pool.step(action)[:5]))
        if kills:
            assert pool.stats.crashes >= len(kills)
    return seen
