"""Environments of users, with the kernels that users might declare for them."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

import planvec


class Integrator(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """A double integrator: a force moves a mass, which must not leave a strip."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, force: Any = 3.0, offset: float = 0.0) -> None:
        self.force = force
        self.limit = 5.0
        self.offset = offset

    def _observation(self) -> NDArray[np.float32]:
        return np.array([self.position, self.velocity], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1.0, 1.0)
        self.velocity = 0.0
        return self._observation(), {}

    def step(self, action: NDArray[np.float32]) -> Any:
        self.velocity += 0.1 * (self.force * float(action[0]) + self.offset)
        self.position += 0.1 * self.velocity
        reward = -abs(self.position) - 0.01 * self.velocity * self.velocity
        return self._observation(), reward, abs(self.position) > self.limit, False, {}


def integrate(state: Any, action: Any, constants: Any) -> Any:
    """The step of `Integrator`."""
    position, velocity = state
    force, limit, offset = constants
    velocity = velocity + 0.1 * (force * np.float64(action[0]) + offset)
    position = position + 0.1 * velocity
    reward = -abs(position) - 0.01 * velocity * velocity
    return (position, velocity), reward, abs(position) > limit


def integrate_batch(state: Any, action: Any, constants: Any) -> Any:
    """The steps of many `Integrator`s."""
    position, velocity = state
    force, limit, offset = constants
    velocity = velocity + 0.1 * (force * action[:, 0].astype(np.float64) + offset)
    position = position + 0.1 * velocity
    reward = -np.abs(position) - 0.01 * velocity * velocity
    return (position, velocity), reward, np.abs(position) > limit


INTEGRATOR: dict[str, Any] = {
    "state": ("position", "velocity"),
    "constants": ("force", "limit", "offset"),
}
planvec.kernel(Integrator, **INTEGRATOR)(integrate)


class BatchIntegrator(Integrator):
    """The same, with a kernel for whole batches."""


planvec.batch_kernel(BatchIntegrator, **INTEGRATOR)(integrate_batch)


class Gambler(gymnasium.Env[Any, int]):
    """A gambler stakes a part of his money, with all kinds of draws, infos and a Dict of observations."""

    observation_space = spaces.Dict(
        {"money": spaces.Box(0.0, np.inf, (), np.float64), "rolls": spaces.MultiDiscrete([7, 7, 100_000])}
    )
    action_space = spaces.Discrete(3, start=1)

    def __init__(self) -> None:
        self.odds = 0.48
        self.is_generous = False

    def _observation(self) -> Any:
        return {"money": np.array(self.money), "rolls": self.rolls.copy()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.money = 10.0
        self.rolls = np.zeros(3, np.int64)
        return self._observation(), {"is_rich": False}

    def step(self, action: int) -> Any:
        stake = self.money * float(action) / 4.0
        is_won = self.np_random.random() < self.odds
        self.money += stake * self.np_random.uniform(0.5, 1.5) if is_won else -stake
        self.money += 0.01 * self.np_random.normal() ** 2
        self.rolls[0] = self.np_random.integers(7)
        self.rolls[1] = self.np_random.integers(2, 6)
        self.rolls[2] += 1
        reward = 1.0 if self.is_generous else 0.5
        return (
            self._observation(),
            reward,
            bool(self.money < 1.0),
            False,
            {"is_rich": bool(self.money > 20.0)},
        )


@planvec.kernel(
    Gambler,
    state=("money", "rolls"),
    constants=("odds", "is_generous"),
    observe=lambda state: (state[0], state[1][0], state[1][1], state[1][2]),
    infos=lambda extras: {"is_rich": extras > 20.0},
)
def gamble(state: Any, action: Any, constants: Any, random: Any) -> Any:
    """The step of `Gambler`."""
    money, (_, _, count) = state
    odds, is_generous = constants
    stake = money * action / 4.0
    gain = stake * random.uniform(0.5, 1.5) if random.random() < odds else -stake
    money = money + gain
    drawn = random.normal()
    money = money + 0.01 * (drawn * drawn)
    rolls = (random.integers(7), random.integers(2, 6), count + 1)
    return (money, rolls), 1.0 if is_generous else 0.5, money < 1.0, money


class Walker(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Many angles in one array, of which few are observed, and a counter."""

    observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float64)

    def __init__(self) -> None:
        self.weights = np.linspace(0.5, 1.5, 20)
        self.last_action: Any = None

    def _observation(self) -> NDArray[np.float32]:
        return np.array([math.sin(self.angles[0]), math.cos(self.angles[19]), self.turns / 1000], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.angles = self.np_random.uniform(-1.0, 1.0, 20)
        self.turns = 0
        return self._observation(), {}

    def step(self, action: NDArray[np.float64]) -> Any:
        self.last_action = action
        for index in range(20):
            self.angles[index] += 0.1 * self.weights[index] * action[index % 2]
        self.turns += 1
        return self._observation(), math.sin(self.angles[3]), self.turns >= 60, False, {}


def observe_walker(state: Any) -> Any:
    angles, turns = state
    return math.sin(angles[0]), math.cos(angles[19]), turns / 1000


@planvec.kernel(
    Walker,
    state=("angles", "turns"),
    constants=lambda env: env.weights,
    observe=observe_walker,
    ignored="last_action",
)
def walk(state: Any, action: Any, constants: Any) -> Any:
    """The step of `Walker`."""
    angles, turns = state
    (weights,) = constants
    for index in range(20):
        angles[index] += 0.1 * weights[index] * action[index % 2]
    return (angles, turns + 1), math.sin(angles[3]), turns + 1 >= 60


class Swing(gymnasium.Env[NDArray[np.float64], int]):
    """A pendulum with a learned model of its dynamics: a small network on its angle and speed."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        self.weights = np.random.default_rng(0).normal(size=(3, 8))
        self.readout = np.random.default_rng(1).normal(size=8)

    def _observation(self) -> NDArray[np.float64]:
        return observe_swing((self.body[None],))[0]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.body = self.np_random.uniform(-1.0, 1.0, 2)
        return self._observation(), {}

    def step(self, action: int) -> Any:
        after, rewards, terminated = swing(
            (self.body[None],), np.array([action]), (self.weights, self.readout)
        )
        self.body = after[0][0]
        return self._observation(), rewards[0], bool(terminated[0]), False, {}


def observe_swing(state: Any) -> Any:
    (body,) = state
    return np.stack([np.cos(body[:, 0]), np.sin(body[:, 0]), body[:, 1]], axis=1)


def swing(state: Any, action: Any, constants: Any) -> Any:
    """The steps of many `Swing`s. Sums along an axis, unlike `@`, do not depend on the number of rows."""
    (body,) = state
    weights, readout = constants
    inputs = np.stack([body[:, 0], body[:, 1], action - 1.0], axis=1)
    hidden = np.maximum((inputs[:, :, None] * weights).sum(axis=1), 0.0)
    force = np.clip((hidden * readout).sum(axis=1), -2.0, 2.0)
    speed = np.clip(body[:, 1] + 0.1 * force, -4.0, 4.0)
    angle = body[:, 0] + 0.1 * speed
    return (np.stack([angle, speed], axis=1),), -np.abs(angle), np.abs(angle) > 3.0


planvec.batch_kernel(Swing, state="body", constants=("weights", "readout"), observe=observe_swing)(swing)

OWN = (Integrator, BatchIntegrator, Gambler, Walker, Swing)


class Stones(gymnasium.Env[NDArray[np.float32], np.int64]):
    """A game of two players: each takes 1 to 3 stones in turn, and who takes the last one wins.

    Args:
        num_stones: Stones at first.
        loss: The return of player 0 if he loses; 1 if he wins.
    """

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, num_stones: int = 10, loss: float = -1.0) -> None:
        self.num_stones, self.loss = num_stones, loss

    def _observation(self) -> NDArray[np.float32]:
        return np.array([self.left], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left, self.player = self.num_stones, 0
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self.left = max(0, self.left - 1 - int(action))
        reward = (1.0, self.loss)[self.player] if self.left == 0 else 0.0
        self.player = 1 - self.player
        return self._observation(), reward, self.left == 0, False, {}


class StonesCodec(planvec.Codec):
    """Tells planners who is to move, and what is legal."""

    dtype = np.dtype([("left", "i4"), ("current_player", "i1"), ("action_mask", "?", 3)])
    draws = False
    constants = ("num_stones", "loss")

    def get(self, env: Any) -> Any:
        return env.left, env.player, [env.left > action for action in range(3)]

    def set(self, env: Any, value: Any) -> None:
        env.left, env.player, _ = value

    def observe(self, env: Any) -> Any:
        return env._observation()


class Line(gymnasium.Env[Any, int]):
    """Places on a line, without any reward."""

    observation_space = spaces.Discrete(201, start=-100)
    action_space = spaces.Discrete(2)
    low, high = -100, 100

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action: int) -> Any:
        self.place = min(self.high, max(self.low, self.place + 2 * int(action) - 1))
        return self.place, 0.0, False, False, {}
