"""Environments that hold sets of objects, and data of Python's libraries, are restored exactly or refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import held
import numpy as np
import pytest
from backends import HERE, PROCESSES, Backend, quick_or_slow
from gymnasium import spaces
from held import LIBRARIES, SETS
from marks import slow_after
from walks import shuffled_steps

import planvec
from planvec.codecs.compare import digest, same
from planvec.planners import load_plan, save_plan

EACH = quick_or_slow([HERE[0], *(backend for backend in PROCESSES if backend.name != "fork")], PROCESSES[:1])
"""What matters here is whether an environment is saved and restored by processes with other addresses."""


@pytest.fixture(scope="module", params=EACH)
def backend(request: pytest.FixtureRequest) -> Backend:
    opened: Backend = request.param
    return opened


def check_exact(backend: Backend, make: Callable[[], Any], num_steps: int = 60) -> None:
    with backend.open(make) as env:
        out, expected, states, actions = shuffled_steps(env, make, seed=7, num_steps=num_steps)
        assert out.rewards.tolist() == [float(outcome[1]) for outcome in expected]
        again = env.step_batch(actions, np.array(states, env.state_dtype))
        assert [bytes(state) for state in again.new_states[:-1]] == [bytes(state) for state in states[1:]]
        env.check_states(out.new_states)


@pytest.fixture
def _same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the walks in processes with other hash seeds, which are tested by themselves."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")


@pytest.mark.usefixtures("_same_hashes")
@pytest.mark.parametrize("name", slow_after(1, SETS))
def test_a_set_of_objects_is_restored_exactly(backend: Backend, name: str) -> None:
    check_exact(backend, SETS[name])


@pytest.mark.usefixtures("_same_hashes")
@pytest.mark.parametrize("name", slow_after(1, LIBRARIES))
def test_data_of_libraries_is_restored_exactly(backend: Backend, name: str) -> None:
    check_exact(backend, LIBRARIES[name])


@pytest.mark.parametrize("make", [held.PopsThings, held.NumbersThings])
def test_where_the_order_of_a_set_of_objects_matters_replay_is_advised(
    make: Any,
) -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match='The order of a set .*codec="replay"') as raised:
        planvec.PlanEnv(make)
    assert "Copied" not in str(raised.value)
    with planvec.PlanEnv(make, codec="replay") as env:
        out, expected, *_ = shuffled_steps(env, make, seed=7, num_steps=30)
        assert out.rewards.tolist() == [float(outcome[1]) for outcome in expected]


@pytest.mark.parametrize("make", [held.BytesSeenAsNumbers, held.ArraySeenAsArray, held.ColumnSeenAsArray])
def test_an_array_in_the_memory_of_another_object_is_refused(make: Any) -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match=r"\(arrays that share memory\)"):
        planvec.PlanEnv(make)


def test_records_with_other_fields_are_other_records() -> None:
    one, other = np.ones(2, [("p", "f8"), ("q", "f8")]), np.ones(2, [("q", "f8"), ("p", "f8")])
    assert not same(one, other)
    assert not same(one[0], other[0])
    assert same(one, one.copy())
    assert digest(one) != digest(other)
    one["p"] = np.nan
    assert same(one, one.copy())


# -- observations of variable size --------------------------------------------------------------------

GRAPH = spaces.Graph(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
OBSERVATION_SPACES: dict[str, gymnasium.Space[Any]] = {
    "Graph": GRAPH,
    "Graph without edges": spaces.Graph(spaces.Discrete(5), None),
    "Sequence": spaces.Sequence(spaces.Box(-1, 1, (2,))),
    "Sequence of Graphs": spaces.Sequence(GRAPH),
    "Text": spaces.Text(5),
    "OneOf": spaces.OneOf((GRAPH, spaces.Discrete(3))),
    "Dict": spaces.Dict(graph=GRAPH, text=spaces.Text(4)),
    "Tuple": spaces.Tuple((GRAPH, spaces.Text(4))),
}


class Shows(gymnasium.Env[Any, Any]):
    """Shows one of some samples of its space."""

    action_space = spaces.Discrete(2)

    def __init__(self, name: str) -> None:
        self.observation_space = OBSERVATION_SPACES[name]
        self.observation_space.seed(0)
        self.samples = [self.observation_space.sample() for _ in range(9)]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(9))
        return self.samples[self.number], {}

    def step(self, action: Any) -> Any:
        self.number = (self.number + int(action)) % 9
        return self.samples[self.number], float(action * self.number), False, False, {}


@pytest.mark.parametrize("name", OBSERVATION_SPACES)
def test_states_and_plans_of_an_environment_pass_its_own_checks(name: str, tmp_path: Path) -> None:
    with planvec.PlanEnv(lambda: Shows(name)) as env:
        state = env.reset(seed=1).state
        env.check_states(env.step_batch([0, 1], np.repeat(state, 2)).new_states)
        plan = planvec.MCTS(num_simulations=8).plan(env, state, seed=0)
        save_plan(tmp_path / "plan.npz", plan, env)
        assert load_plan(tmp_path / "plan.npz", env).action == plan.action
