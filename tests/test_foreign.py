"""Environments that other people might write: each is exact, or refused with advice that works."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from backends import BACKENDS, PROCESSES, Backend, quick_or_slow
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from marks import slow_after
from nasty import EXACT, REFUSED
from walks import shuffled_steps

import planvec

EACH = quick_or_slow(BACKENDS, PROCESSES[:1])


@pytest.fixture(scope="module", params=EACH)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param is not PROCESSES[0]:  # whether hashes of texts matter is the same over each backend
            patch.setenv("PYTHONHASHSEED", "0")
        yield request.param


# -- actions ------------------------------------------------------------------------------------------

ACTION_SPACES = [
    spaces.Discrete(8),
    spaces.Discrete(8, start=-3),
    spaces.Tuple((spaces.Discrete(3), spaces.Discrete(4))),
    spaces.Dict(a=spaces.Discrete(3), b=spaces.MultiDiscrete([2, 3])),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (2,)),
]


def types_in(action: Any) -> str:
    """Return the types of an action and of its parts."""
    if isinstance(action, dict):
        return repr({key: types_in(part) for key, part in action.items()})
    if isinstance(action, tuple):
        return repr([types_in(part) for part in action])
    return f"{type(action).__name__} {getattr(action, 'dtype', '')}"


class TellsTypes(gymnasium.Env[Any, Any]):
    """Puts the types of its actions into its infos, and into a number in single precision."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def __init__(self, number: int) -> None:
        self.action_space = ACTION_SPACES[number]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.x = np.float32(0.1)
        return np.array([self.x], float), {}

    def step(self, action: Any) -> Any:
        if isinstance(self.action_space, spaces.Discrete):
            # In single precision for a Python int, in double precision for a scalar of NumPy.
            self.x = self.x * np.float32(0.9) + np.float32(0.1) * action
        return np.array([self.x], float), float(self.x), False, False, {"types": types_in(action)}


@pytest.mark.parametrize(
    "number", slow_after(3, range(len(ACTION_SPACES))), ids=[str(space) for space in ACTION_SPACES]
)
@pytest.mark.parametrize("codec", slow_after(1, [None, "replay"]))
def test_actions_have_the_types_that_their_space_samples(backend: Backend, number: int, codec: Any) -> None:
    reference = TellsTypes(number)
    reference.reset(seed=0)
    reference.action_space.seed(0)
    actions = [reference.action_space.sample() for _ in range(10)]
    outcomes = [reference.step(action) for action in actions]
    with backend.open(lambda: TellsTypes(number), codec=codec) as env:
        state = env.reset(seed=0).state
        for action, (observation, reward, *_, info) in zip(actions, outcomes, strict=True):
            empty: Any = create_empty_array(env.action_space, n=1)
            out = env.step_batch(concatenate(env.action_space, [action], empty), state)
            assert out.infos["types"][0] == info["types"]
            assert out.observations[0] == observation
            assert out.rewards[0] == reward
            state = out.new_states[0]


@pytest.mark.parametrize("actions", slow_after(1, ["given", "random"]))
def test_actions_of_rollouts_have_the_types_that_their_space_samples(backend: Backend, actions: str) -> None:
    class Strict(TellsTypes):
        def step(self, action: Any) -> Any:
            assert type(action) is np.int64
            return super().step(action)

    with backend.open(lambda: Strict(0)) as env:
        states = np.repeat(env.reset(seed=0).state, 5)
        given = np.arange(35).reshape(5, 7) % 8 if actions == "given" else None
        out = env.rollout_batch(states, 7, actions=given, action_seed=0)
        assert out.num_steps.tolist() == [7] * 5


def test_an_action_is_shown_in_errors_as_a_number(backend: Backend) -> None:
    class Fails(TellsTypes):
        def step(self, action: Any) -> Any:
            if action == 5:
                raise ValueError("five")
            return super().step(action)

    with (
        backend.open(lambda: Fails(0)) as env,
        pytest.raises(planvec.EnvError, match="^row 1, action 5: ValueError: five$"),
    ):
        env.step_batch([4, 5])


class ChangesItsAction(gymnasium.Env[Any, Any]):
    """Scales its action in place, as many controllers do."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: Any = spaces.Dict({"force": spaces.Box(-1, 1, (2,), np.float32)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.position = np.zeros(2, np.float32)
        return self.position.copy(), {}

    def step(self, action: Any) -> Any:
        action["force"] *= 2
        self.position = self.position + action["force"]
        return self.position.copy(), float(action["force"].sum()), False, False, {}


@pytest.mark.parametrize("codec", [None, "replay"])
def test_an_environment_may_change_its_action_in_place(backend: Backend, codec: Any) -> None:
    force = np.array([[0.25, 0.5], [-0.5, 1.0]], np.float32)
    with backend.open(ChangesItsAction, codec=codec) as env:
        start = env.reset(seed=0).state
        out = env.step_batch({"force": force}, np.repeat(start, 2), dt=3)
        assert np.array_equal(out.observations, 6 * force)
        assert np.array_equal(out.rewards, 6 * force.sum(axis=1))
        plan = np.repeat(force[:, None], 4, axis=1)
        ends = env.rollout_batch(np.repeat(start, 2), 4, actions={"force": plan})
        assert np.array_equal(ends.returns, 8 * force.sum(axis=1))
        assert np.array_equal(env.observe(ends.final_states), 8 * force)
    assert force.tolist() == [[0.25, 0.5], [-0.5, 1.0]]


# -- environments that a careless copy restores wrongly -------------------------------------------------


@pytest.mark.parametrize("name", slow_after(3, EXACT))
def test_an_environment_is_restored_exactly(backend: Backend, name: str) -> None:
    with backend.open(EXACT[name]) as env:
        out, expected, states, actions = shuffled_steps(env, EXACT[name], seed=7, num_steps=80)
        assert out.rewards.tolist() == [float(outcome[1]) for outcome in expected]
        assert all(np.array_equal(out.observations[i], outcome[0]) for i, outcome in enumerate(expected))
        held = env.step_batch([actions[30]], np.repeat(states[30], 1), dt=3)
        again = env.step_batch([actions[30]], np.repeat(states[30], 1), dt=3)
        assert bytes(held.new_states[0]) == bytes(again.new_states[0])


@pytest.mark.parametrize("name", REFUSED)
def test_an_environment_that_cannot_be_saved_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(planvec.UnsupportedEnvError, match=message):
        planvec.PlanEnv(make)


# -- behaviour that depends on the process --------------------------------------------------------------


class ByProcess(gymnasium.Env[Any, Any]):
    """Behaves differently in each process, from the 31st step on."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        value = float(os.getpid() if self.time > 30 else 0)
        return np.array([value]), 0.0, False, False, {}


def test_workers_that_behave_differently_later_on_are_refused() -> None:
    with pytest.raises(planvec.WorkerStartError, match="step 31 of the same random walk"):
        planvec.make(ByProcess, num_workers=2)
