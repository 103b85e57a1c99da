"""Walks by nothing but `gymnasium.Env`, to hold planvec against."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Step(NamedTuple):
    """One step of Gymnasium's own loop; `seed` is set where a new episode begins with it."""

    seed: int | None
    first_observation: Any
    action: Any
    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


def gymnasium_walk(
    make: Callable[[], Any], num_steps: int, *, seed: int, action_seed: int
) -> tuple[Any, Any, list[Step]]:
    """Spaces and steps. Every episode is in a new environment: some wrappers remember earlier ones."""
    env = make()
    action_space = env.action_space
    action_space.seed(action_seed)
    walk: list[Step] = []
    episode: int | None = seed
    first = None
    while len(walk) < num_steps:
        if episode is not None:
            env.close()
            env = make()
            first, _ = env.reset(seed=episode)
        action = action_space.sample()
        # Copied: an info may hold a view into the simulation.
        walk.append(copy.deepcopy(Step(episode, first, action, *env.step(action))))
        ended = walk[-1].terminated or walk[-1].truncated
        episode = seed + len(walk) if ended else None
    env.close()
    return env.observation_space, action_space, walk


class Shuffled(NamedTuple):
    """Steps of an episode that planvec took in another order, and what Gymnasium's own loop gave for each.

    `out` has one row per step of `expected`. `states` and `actions` are in the order of the episode.
    """

    out: Any
    expected: list[Any]
    states: list[Any]
    actions: list[int]


def shuffled_steps(env: Any, make: Callable[[], Any], *, seed: int, num_steps: int) -> Shuffled:
    """Play an episode of discrete actions with and without planvec, then take its steps in another order."""
    reference = make()
    reference.reset(seed=seed)
    space = copy.deepcopy(reference.action_space)
    space.seed(seed)
    actions = [int(space.sample()) for _ in range(num_steps)]
    outcomes = [copy.deepcopy(reference.step(action)) for action in actions]
    states = [env.reset(seed=seed).state]
    for action in actions[:-1]:
        states.append(env.step_batch([action], np.repeat(states[-1], 1)).new_states[0])
    order = np.random.default_rng(0).permutation(num_steps)
    out = env.step_batch(np.array(actions)[order], np.array(states, env.state_dtype)[order])
    return Shuffled(out, [outcomes[row] for row in order], states, actions)
