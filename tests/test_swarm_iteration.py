"""The compiled iteration of a swarm equals its twin in plain Python."""

from __future__ import annotations

from typing import Any

import naive_swarm
import numpy as np
import pytest
from gymnasium import spaces
from naive_swarm import NaiveWalker

from planvec.planners.swarm.iteration import (
    WALKER_DTYPE,
    Features,
    Outcomes,
    Rules,
    iterate,
    observation_features,
)
from planvec.planners.swarm.search import Lineage

ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
OBSERVATIONS = {
    "float32": spaces.Box(-9, 9, (4,), np.float32),
    "float64": spaces.Box(-9, 9, (3, 2), np.float64),
    "bytes": spaces.Box(0, 255, (5, 3), np.uint8),
    "label": spaces.Discrete(3),
    "dict": spaces.Dict(
        {
            "cell": spaces.MultiDiscrete([2, 3]),
            "x": spaces.Box(-9, 9, (2,), np.float32),
            "y": spaces.Box(-9, 9, (1,), np.float64),
            "z": spaces.Tuple((spaces.MultiBinary(2), spaces.Text(3))),
        }
    ),
}


def stacked(space: Any, generator: np.random.Generator, num_rows: int) -> Any:
    """Return random observations of a space, some of them equal."""
    if isinstance(space, spaces.Dict):
        return {key: stacked(child, generator, num_rows) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(child, generator, num_rows) for child in space)
    if isinstance(space, spaces.Text):
        return ("a",) * num_rows
    space.seed(int(generator.integers(1000)))
    rows = np.stack([np.asarray(space.sample()) for _ in range(num_rows)])
    return rows[generator.integers(num_rows, size=num_rows)]


def random_outcomes(generator: np.random.Generator, num_walkers: int, ended: float) -> Outcomes:
    num_steps = generator.integers(0 if generator.random() < 0.3 else 1, 9, num_walkers)
    num_steps[generator.integers(num_walkers)] = 1
    rewards = num_steps * generator.choice([1.0, -1.0, 0.1]) + (generator.random() < 0.5) * generator.normal(
        size=num_walkers
    )
    terminated, truncated = generator.random((2, num_walkers)) < ended
    return Outcomes(rewards, num_steps, terminated, truncated)


@pytest.mark.parametrize("kind", OBSERVATIONS)
@pytest.mark.parametrize("seed", range(8))
def test_an_iteration_equals_that_of_plain_python(kind: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    num_walkers, size, space = int(generator.integers(1, 60)), 11, OBSERVATIONS[kind]
    ended = generator.choice([0.0, 0.1, 0.6, 1.0])
    rules = Rules(*generator.choice([0.0, 0.5, 1.0, 2.0], 3), int(generator.integers(0, 5)))
    table, lineage = np.zeros(num_walkers, WALKER_DTYPE), Lineage(ACTIONS, num_walkers)
    naive = [NaiveWalker(0.0, 0, (), b"") for _ in range(num_walkers)]
    for _ in range(20):
        outcomes = random_outcomes(generator, num_walkers, ended)
        features = observation_features(space, stacked(space, generator, num_walkers), num_walkers)
        actions = generator.random((num_walkers, 2), np.float32)
        states = generator.integers(256, size=num_walkers * size).astype(np.uint8)
        uniforms, is_guided = generator.random((3, num_walkers)), bool(generator.random() < 0.5)
        novelty = generator.integers(9, size=num_walkers * int(seed % 2)).astype(np.float64)
        lineage.make_room(table)
        copies = np.empty_like(states)
        lineage.num_nodes, num_ended, first_was_dead = iterate(
            *(table, lineage.moves, lineage.num_nodes, outcomes, features),
            *(actions.view(np.uint8), states, copies, uniforms, novelty, rules, is_guided),
        )
        rows = [row.tobytes() for row in states.reshape(num_walkers, size)]
        naive, expected = naive_swarm.iterate(
            naive, outcomes, features, actions, rows, uniforms, novelty, rules, is_guided
        )
        assert first_was_dead == expected
        assert num_ended == sum(walker.terminated or walker.truncated for walker in naive)
        assert [row.tobytes() for row in copies.reshape(num_walkers, size)] == [w.state for w in naive]
        check(table, naive)
    for node, walker in zip(table["node"], naive, strict=True):
        branch, num_steps = lineage.sequence(int(node))
        assert [action.tobytes() for action in branch] == [made[0] for made in walker.moves]
        assert num_steps.tolist() == [made[1] for made in walker.moves]


def check(table: Any, naive: list[NaiveWalker]) -> None:
    """Compare all walkers, bit for bit."""
    for field in ("total", "num_steps", "source", "terminated", "truncated"):
        assert table[field].tolist() == [getattr(walker, field) for walker in naive], field


def test_features_need_no_copy_where_observations_are_numbers_in_a_row() -> None:
    numbers = np.ones((5, 4), np.float32)
    assert observation_features(OBSERVATIONS["float32"], numbers, 5).singles is numbers
    assert isinstance(
        observation_features(
            OBSERVATIONS["dict"], stacked(OBSERVATIONS["dict"], np.random.default_rng(0), 5), 5
        ),
        Features,
    )
