"""What `copy.deepcopy(env)` gives: the same future, that of a freshly reset environment, or an error.

    python benchmarks/copies.py

Each environment takes 20 random steps and is copied. The original, the copy, and a freshly reset environment
then take the same 10 steps. The last column is the time of a copy in steps.
"""

from __future__ import annotations

import copy
import statistics
import time
from typing import Any

import ale_py
import gymnasium
import minigrid
import numpy as np

gymnasium.register_envs(ale_py)
gymnasium.register_envs(minigrid)
gymnasium.logger.min_level = gymnasium.logger.ERROR
NOT_STICKY = {"repeat_action_probability": 0.0}  # sticky actions hide that a copy has restarted
ENVIRONMENTS: dict[str, dict[str, Any]] = {
    "CartPole-v1": {},
    "Taxi-v4": {},
    "ALE/Pong-v5": NOT_STICKY,
    "ALE/MsPacman-v5": NOT_STICKY,
    "HalfCheetah-v5": {},
    "Ant-v5": {},
    "LunarLander-v3": {},
    "MiniGrid-DoorKey-8x8-v0": {},
    "BabyAI-GoToRedBall-v0": {},
}
NUM_BEFORE, NUM_AFTER, NUM_TIMED = 20, 10, 50


def observations(env: Any, actions: Any) -> list[Any]:
    """Return the observations of steps as bytes; an ended episode is stepped on."""
    return [np.asarray(flat(env.step(action)[0])).tobytes() for action in actions]


def flat(observation: Any) -> Any:
    """Return the image of a dictionary, or the observation."""
    return observation["image"] if isinstance(observation, dict) else observation


def seconds(call: Any) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(NUM_TIMED):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def row(env_id: str, options: dict[str, Any]) -> str:
    """Return the line of an environment."""
    env = gymnasium.make(env_id, **options)
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(NUM_BEFORE):
        action = env.action_space.sample()
        env.step(action)
    step = seconds(lambda: env.step(action))
    actions = [env.action_space.sample() for _ in range(NUM_AFTER)]
    try:
        cost = seconds(lambda: copy.deepcopy(env)) / step
        copied = observations(copy.deepcopy(env), actions)
    except Exception as error:
        return f"| {env_id} | raises {type(error).__name__} | |"
    fresh = gymnasium.make(env_id, **options)
    fresh.reset(seed=0)
    original, fresh_ones = observations(env, actions), observations(fresh, actions)
    same = sum(one == other for one, other in zip(original, copied, strict=True))
    restarted = sum(one == other for one, other in zip(fresh_ones, copied, strict=True))
    outcome = "is exact" if same == NUM_AFTER else f"differs in {NUM_AFTER - same} of {NUM_AFTER} steps"
    if same < NUM_AFTER and restarted == NUM_AFTER:
        outcome += ", and answers like a freshly reset one"
    return f"| {env_id} | {outcome} | {cost:,.1f} |"


def main() -> None:
    print("| environment | a copy after 20 steps | its time, in steps |\n| --- | --- | --- |")
    for env_id, options in ENVIRONMENTS.items():
        print(row(env_id, options), flush=True)


if __name__ == "__main__":
    main()
