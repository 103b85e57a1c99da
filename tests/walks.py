"""Walks by nothing but `gymnasium.Env`, to hold planvec against."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, NamedTuple


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
