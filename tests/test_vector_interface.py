"""Where a vector interface belongs: above `BatchEnv`, whose rows are its environments.

The other three places to add something are shown elsewhere: a codec and a planner in the README, which
`test_readme.py` runs, and a backend in `toy_workers.py`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

import planvec


class RowsVectorEnv(VectorEnv[Any, Any, Any]):
    """Gymnasium's vector interface over the rows of a `BatchEnv`, without autoreset.

    Args:
        env: Steps the rows.
        num_envs: How many there are.
    """

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, env: planvec.BatchEnv, num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_action_space, self.single_observation_space = env.action_space, env.observation_space
        self.action_space = batch_space(env.action_space, num_envs)
        self.observation_space = batch_space(env.observation_space, num_envs)
        self._env = env

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        starts = [self._env.reset(seed=seed + row, options=options) for row in range(self.num_envs)]
        self._states = np.array([start.state for start in starts])
        return self._env.observe(self._states), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        out = self._env.step_batch(actions, self._states)
        self._states = out.new_states
        return out.observations, out.rewards, out.terminated, out.truncated, out.infos

    def close_extras(self, **kwargs: Any) -> None:
        self._env.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_vector_interface_over_rows_steps_as_gymnasium_does(num_workers: int) -> None:
    peer = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 5, autoreset_mode=AutoresetMode.DISABLED)
    env = RowsVectorEnv(planvec.make("CartPole-v1", num_workers=num_workers), 5)
    np.testing.assert_array_equal(env.reset(seed=3)[0], peer.reset(seed=3)[0])
    rng = np.random.default_rng(0)
    for _ in range(8):  # no episode is that short
        actions = rng.integers(2, size=5)
        for ours, theirs in zip(env.step(actions)[:4], peer.step(actions)[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs)
    env.close()
    peer.close()
