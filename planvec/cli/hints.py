"""Hints for users whose choice cannot work well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from planvec.envs import BatchEnv

_NUM_ACTIONS = 8
_NUM_SEEDS = 8


def planner_hint(env: BatchEnv) -> str:
    """Return the advice to take tree search if steps are random, since swarms take luck for skill."""
    from planvec.rows import action_masks, draw_legal, uniform_actions

    is_discrete = getattr(env.action_space, "n", None) is not None
    if not env.is_stochastic or not is_discrete or env.state_dtype.hasobject:
        return ""
    generator = np.random.default_rng(0)
    actions = uniform_actions(env.action_space, generator, _NUM_ACTIONS)
    masks = action_masks(env.action_space, np.repeat(env.get_state(), len(actions)))
    if masks is not None:
        actions = draw_legal(env.action_space, masks, generator.random(actions.shape))
    actions = np.repeat(actions, _NUM_SEEDS)
    states = np.repeat(env.get_state(), len(actions))
    out = env.step_batch(actions, states, seeds=np.arange(len(actions)), blocking=True)
    outcomes = np.asarray(out.observations).reshape(_NUM_ACTIONS, _NUM_SEEDS, -1)
    if (outcomes == outcomes[:, :1]).all():
        return ""
    return (
        "planvec: hint: steps are random here, and a swarm takes luck for skill: try --planner mcts, which "
        "averages over chance"
    )
