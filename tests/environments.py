"""Environments for the tests: real ones in many wrappings, and a few written to go wrong."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces, wrappers
from gymnasium.utils import EzPickle

from planvec.envs import find_source


class Case(NamedTuple):
    """An environment to hold against Gymnasium's own stepping."""

    name: str
    make: Callable[[], Any]
    codec: Any = None
    num_steps: int = 220


def _of(env_id: str, wrap: Callable[[Any], Any] | None = None, **kwargs: Any) -> Callable[[], Any]:
    def make() -> Any:
        env = gymnasium.make(find_source(env_id), **kwargs)
        return env if wrap is None else wrap(env)

    return make


class Warehouse(gymnasium.Env):
    """Plain Python, nothing fixed in size: dicts, lists and text in the state and the observation."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "position": spaces.Box(-100, 100, (2,), np.float32),
                "load": spaces.Tuple((spaces.Discrete(50), spaces.MultiBinary(3))),
                "note": spaces.Text(8, charset="abcdefgh"),
            }
        )
        self.action_space = spaces.MultiDiscrete([3, 3, 2])

    def _observe(self) -> dict[str, Any]:
        return {
            "position": np.array(self.position, np.float32),
            "load": (len(self.crates) % 50, np.array(self.lamps, np.int8)),
            "note": self.note,
        }

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = [float(x) for x in self.np_random.integers(-3, 3, 2)]
        self.crates: list[dict[str, int]] = []
        self.lamps = [0, 1, 0]
        self.note = "a"
        self.time = 0
        return self._observe(), {"crates": 0}

    def step(self, action: Any) -> Any:
        self.time += 1
        self.position[0] += float(action[0]) - 1 + 0.1 * self.np_random.normal()
        self.position[1] += float(action[1]) - 1
        if action[2]:
            self.crates.append({"weight": int(self.np_random.integers(1, 9))})
            self.lamps[len(self.crates) % 3] ^= 1
            self.note = (self.note + "abcdefgh"[len(self.crates) % 8])[-8:]
        reward = -abs(self.position[0]) + sum(crate["weight"] for crate in self.crates)
        info: dict[str, Any] = {"crates": len(self.crates)}
        if action[2]:
            info["last"] = {"weight": self.crates[-1]["weight"], "note": self.note}
        return self._observe(), reward, len(self.crates) > 40, self.time >= 90, info

    def render(self) -> Any:
        return None


class Plane(gymnasium.Env):
    """Fixed-size Dict observations and Tuple actions, for the layout of nested spaces."""

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "xy": spaces.Box(-1e6, 1e6, (2,), np.float64),
                "inner": spaces.Dict({"bits": spaces.MultiBinary(4), "count": spaces.Discrete(1000)}),
            }
        )
        self.action_space = spaces.Tuple(
            (spaces.Box(-1, 1, (2,), np.float32), spaces.Dict({"jump": spaces.Discrete(2, start=1)}))
        )

    def _observe(self) -> dict[str, Any]:
        bits = np.array([(self.count >> k) & 1 for k in range(4)], np.int8)
        return {"xy": self.xy.copy(), "inner": {"bits": bits, "count": self.count}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.xy = self.np_random.normal(size=2)
        self.count = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        move, extra = action
        self.xy = self.xy + move.astype(np.float64) * int(extra["jump"])
        self.count += 1
        return self._observe(), float(self.xy.sum()), self.count >= 37, False, {"norm": self.xy.copy()}


class Momentum(gymnasium.Wrapper):
    """A wrapper that planvec has never heard of, with a memory."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.average = 0.0
        self.history: list[float] = []

    def reset(self, **kwargs: Any) -> Any:
        self.average, self.history = 0.0, []
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self.average = 0.9 * self.average + 0.1 * float(reward)
        self.history = [*self.history[-3:], float(reward)]
        return observation, self.average + sum(self.history), terminated, truncated, info


class EzRocket(gymnasium.Env, EzPickle):
    """Pickles itself as its constructor's arguments, as Box2D and MuJoCo environments do."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        EzPickle.__init__(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.height = float(self.np_random.normal())
        return np.array([self.height]), {}

    def step(self, action: Any) -> Any:
        self.height += action - 1 + 0.01 * float(self.np_random.normal())
        return np.array([self.height]), self.height, abs(self.height) > 6, False, {}


def _nested_limit(env: Any) -> Any:
    return wrappers.TransformReward(wrappers.TimeLimit(env, 17), lambda reward: 2 * reward)


PLAIN: list[Case] = [
    Case("CartPole", _of("CartPole-v1")),
    Case("CartPole-sutton", _of("CartPole-v1", sutton_barto_reward=True)),
    Case("Acrobot", _of("Acrobot-v1")),
    Case("MountainCar", _of("MountainCar-v0")),
    Case("MountainCarContinuous", _of("MountainCarContinuous-v0")),
    Case("Pendulum", _of("Pendulum-v1")),
    Case("FrozenLake", _of("FrozenLake-v1")),
    Case("FrozenLake-8x8-dry", _of("FrozenLake-v1", map_name="8x8", is_slippery=False)),
    Case("Taxi", _of("Taxi-v4")),
    Case("Taxi-rainy-fickle", _of("Taxi-v4", is_rainy=True, fickle_passenger=True)),
    Case("CliffWalking", _of("CliffWalking-v1")),
    Case("CliffWalking-slippery", _of("CliffWalking-v1", is_slippery=True)),
    Case("Blackjack", _of("Blackjack-v1")),
    Case("Blackjack-natural", _of("Blackjack-v1", natural=True)),
    Case("Blackjack-sab", _of("Blackjack-v1", sab=True)),
]

STATEFUL: dict[str, Callable[[Any], Any]] = {
    "TimeLimit": lambda env: wrappers.TimeLimit(env, 20),
    "nested-TimeLimit": _nested_limit,
    "OrderEnforcing": wrappers.OrderEnforcing,
    "PassiveEnvChecker": wrappers.PassiveEnvChecker,
    "Autoreset": wrappers.Autoreset,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "DelayObservation": lambda env: wrappers.DelayObservation(env, 3),
    "FrameStackObservation": lambda env: wrappers.FrameStackObservation(env, 4),
    "TimeAwareObservation": lambda env: wrappers.TimeAwareObservation(env),
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "StickyAction": lambda env: wrappers.StickyAction(env, 0.4, (1, 3)),
    "MaxAndSkipObservation": lambda env: wrappers.MaxAndSkipObservation(env, 3),
    "RepeatAction": lambda env: wrappers.RepeatAction(env, 2),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: 0.5 * reward + 1),
}

WRAPPED: list[Case] = [
    *(Case(f"CartPole-{name}", _of("CartPole-v1", wrap)) for name, wrap in STATEFUL.items()),
    Case("Pendulum-NormalizeObservation", _of("Pendulum-v1", wrappers.NormalizeObservation)),
    Case("Pendulum-StickyAction", _of("Pendulum-v1", lambda e: wrappers.StickyAction(e, 0.5))),
    Case("Pendulum-RescaleAction", _of("Pendulum-v1", lambda e: wrappers.RescaleAction(e, -1, 1))),
    Case("FrozenLake-DelayObservation", _of("FrozenLake-v1", lambda e: wrappers.DelayObservation(e, 2))),
    Case("FrozenLake-FrameStack", _of("FrozenLake-v1", lambda e: wrappers.FrameStackObservation(e, 3))),
    Case(
        "FrozenLake-TimeAware-dict",
        _of("FrozenLake-v1", lambda e: wrappers.TimeAwareObservation(e, flatten=False)),
    ),
    Case("Blackjack-DelayObservation", _of("Blackjack-v1", lambda e: wrappers.DelayObservation(e, 1))),
    Case("CartPole-unknown-wrapper", _of("CartPole-v1", Momentum)),
]

OTHER: list[Case] = [
    Case("Warehouse-copied", Warehouse),
    Case("Plane-copied", Plane),
    Case("Warehouse-TimeLimit-copied", lambda: wrappers.TimeLimit(Warehouse(), 30)),
    Case("CartPole-copied", _of("CartPole-v1"), "copied"),
    Case("CartPole-replay", _of("CartPole-v1", lambda e: wrappers.TimeLimit(e, 40)), "replay"),
    Case("EzRocket-replay", EzRocket, "replay"),
    Case("EzRocket-copied", EzRocket),
]

NOT_STICKY = {"frameskip": 4, "repeat_action_probability": 0.0}


def _preprocessed(env: Any) -> Any:
    return wrappers.FrameStackObservation(wrappers.AtariPreprocessing(env, frame_skip=2), 3)


_SIMULATED = [
    Case("HalfCheetah", _of("HalfCheetah-v5")),
    Case("Ant", _of("Ant-v5")),
    Case("Humanoid", _of("Humanoid-v5")),
    Case("Reacher-NormalizeObservation", _of("Reacher-v5", wrappers.NormalizeObservation)),
    Case("Hopper-unknown-wrapper", _of("Hopper-v5", Momentum)),
    Case("LunarLander", _of("LunarLander-v3")),
    Case("BipedalWalker-hardcore", _of("BipedalWalkerHardcore-v3")),
    Case("MsPacman-ram", _of("ALE/MsPacman-v5", obs_type="ram", **NOT_STICKY)),
    Case("Qbert-rgb", _of("ALE/Qbert-v5", **NOT_STICKY)),
    Case("Breakout-preprocessed", _of("ALE/Breakout-v5", _preprocessed, **{**NOT_STICKY, "frameskip": 1})),
    Case("MiniGrid-DoorKey", _of("MiniGrid-DoorKey-6x6-v0")),
    Case("BabyAI-PutNext", _of("BabyAI-PutNextLocal-v0")),
    Case("OpenSpiel-connect-four", _of("OpenSpiel/connect_four")),
    Case("OpenSpiel-backgammon", _of("OpenSpiel/backgammon")),
    Case("OpenSpiel-2048-NormalizeReward", _of("OpenSpiel/2048", wrappers.NormalizeReward)),
]
SIMULATED: list[Case] = [case._replace(num_steps=70) for case in _SIMULATED]

CASES: list[Case] = [*PLAIN, *WRAPPED, *OTHER, *SIMULATED]


# -- environments that go wrong -------------------------------------------------------------------


class HiddenGenerator(gymnasium.Env):
    """Draws from a generator that only a closure knows."""

    observation_space = spaces.Box(0, 1, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.draw = lambda: generator.random()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = 0.0
        return np.array([self.x]), {}

    def step(self, action: Any) -> Any:
        self.x = self.draw()
        return np.array([self.x]), self.x, False, False, {}


class GlobalRandomness(HiddenGenerator):
    """Draws from the module `random`."""

    def __init__(self) -> None:
        pass

    def draw(self) -> float:  # type: ignore[override]
        return random.random()


class Unpicklable(HiddenGenerator):
    """Holds what cannot be pickled."""

    def __init__(self) -> None:
        self.file = open(os.devnull)  # noqa: SIM115

    def draw(self) -> float:  # type: ignore[override]
        return float(self.np_random.random())

    def close(self) -> None:
        self.file.close()
