"""Rollouts from new nodes of a search tree. Letters: B states, H steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.mcts.config import MCTSConfig
from planvec.planners.mcts.rules import SINGLE, Rules
from planvec.planners.search import RolloutRequest, StepRequest
from planvec.rows import BatchStepper, action_masks, draw_legal, has_action_masks, uniform_actions


class LeafRollouts:
    """Requests rollouts from states, by random actions or by the user's policy."""

    def __init__(
        self, config: MCTSConfig, env: BatchStepper, rules: Rules, generator: np.random.Generator
    ) -> None:
        self._config = config
        self._env = env
        self._has_seeds = rules.chance != SINGLE
        self._generator = generator

    def seeds(self, num_rows: int) -> NDArray[np.uint64] | None:
        """Draw the seeds `[num_rows]` of a batch; None where a step has one outcome."""
        if not self._has_seeds:
            return None
        return self._generator.integers(0, 2**64, num_rows, dtype=np.uint64)

    def returns(self, states: NDArray[Any]) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the discounted returns `[B]` of a rollout from each state. Yields requests."""
        # `states`: `[B]`.
        if self._config.rollout_policy is not None:
            return (yield from self._policy_returns(states))
        config = self._config
        if config.dt > 1 and has_action_masks(states):
            return (yield from self._legal_returns(states))
        action_seed = int(self._generator.integers(2**63))
        seeds = self.seeds(len(states))
        actions = self._repeated_actions(len(states)) if config.dt > 1 else None
        out = yield RolloutRequest(states, config.rollout_steps, actions, action_seed, seeds, config.discount)
        returns: NDArray[np.float64] = out.returns
        return returns

    def _policy_returns(self, states: NDArray[Any]) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the returns `[B]` of rollouts by `rollout_policy`; a generator that yields requests."""
        config = self._config
        assert config.rollout_policy is not None
        returns, discounts = np.zeros(len(states)), np.ones(len(states))
        observations = self._env.observe(states)
        for _ in range(config.rollout_steps):
            actions = np.asarray(config.rollout_policy(observations))
            num_steps = np.ones(len(states), np.int64)
            out = yield StepRequest(actions, states, num_steps, self.seeds(len(states)))
            returns += discounts * out.rewards
            discounts *= config.discount
            states, observations = out.new_states, out.observations
            if (out.terminated | out.truncated).all():
                break
        return returns

    def _legal_returns(self, states: NDArray[Any]) -> Generator[Any, Any, NDArray[np.float64]]:
        """Return the returns `[B]` of random legal actions that are repeated; a generator of requests."""
        config, space = self._config, self._env.action_space
        returns, discounts = np.zeros(len(states)), np.ones(len(states))
        for first in range(0, config.rollout_steps, config.dt):
            masks = action_masks(space, states)
            assert masks is not None
            uniforms = self._generator.random((len(states), *(space.shape or ())))
            dt = min(config.dt, config.rollout_steps - first)
            actions, seeds = draw_legal(space, masks, uniforms), self.seeds(len(states))
            out = yield StepRequest(actions, states, dt, seeds)
            returns += discounts * out.rewards
            discounts *= float(config.discount) ** out.infos["num_steps"]
            states = out.new_states
            if (out.terminated | out.truncated).all():
                break
        return returns

    def _repeated_actions(self, num_rows: int) -> NDArray[Any]:
        """Draw random actions `[num_rows, H, *action shape]`, each repeated for `dt` steps."""
        horizon, dt = self._config.rollout_steps, self._config.dt
        num_drawn = -(-horizon // dt)
        drawn = uniform_actions(self._env.action_space, self._generator, num_rows * num_drawn)
        repeated = drawn.reshape(num_rows, num_drawn, *drawn.shape[1:]).repeat(dt, axis=1)
        return repeated[:, :horizon]
