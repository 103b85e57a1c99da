"""Files of trees that are damaged, or that somebody has changed."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from array_files import changed_arrays

import planvec
from planvec.planners import MCTS
from planvec.planners.mcts.tree import Tree

CONFIG = MCTS(num_simulations=60, rollout_horizon=4)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a tree."""
    path = tmp_path_factory.mktemp("tree") / "tree.npz"
    with planvec.PlanEnv("FrozenLake-v1") as env:
        CONFIG.plan(env, env.reset(seed=0).state, seed=0).search_data.save(path)
    return path.read_bytes()


def with_arrays(data: bytes, change: Callable[[dict[str, Any]], None], path: Path) -> Path:
    """Write the file of a tree with other arrays."""
    path.write_bytes(data)
    with changed_arrays(path) as arrays:
        change(arrays)
    return path


def set_entry(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set the last entry of an array."""

    def change(arrays: dict[str, Any]) -> None:
        arrays[name].reshape(-1)[-1:] = value

    return change


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "a child beyond the nodes": (set_entry("outcome_nodes", 10**6), "outcome_nodes: expected indices"),
    "a negative child": (set_entry("outcome_nodes", -3), "outcome_nodes: expected indices"),
    "an outcome beyond the last": (set_entry("first_outcomes", 2**30), "first_outcomes: expected indices"),
    "a list that never ends": (
        lambda arrays: arrays["next_outcomes"].fill(0),
        "next_outcomes: expected chains that end",
    ),
    "outcomes without samples": (
        lambda arrays: arrays["outcome_counts"].fill(0),
        "outcome_counts: expected a sample of each outcome",
    ),
    "parents in a circle": (lambda arrays: arrays["parents"].fill(1), "parents: expected chains that end"),
    "an action beyond the last": (set_entry("parent_actions", 4), "parent_actions: expected indices"),
    "negative visits": (set_entry("edge_visits", -1), "edge_visits: expected no negative"),
    "simulations in flight": (set_entry("edge_unobserved", 1), "edge_unobserved: expected a tree without"),
    "more nodes than rows": (
        lambda arrays: arrays["counters"].__setitem__(0, 5000),
        "visits: expected int32",
    ),
    "other dtypes": (
        lambda arrays: arrays.update(parents=arrays["parents"].astype(float)),
        "parents: expected int32",
    ),
    "fewer states": (lambda arrays: arrays.update(states=arrays["states"][:3]), "states: expected shape"),
    "other actions": (lambda arrays: arrays.update(actions=arrays["actions"][:2]), "actions: expected shape"),
    "no array": (lambda arrays: arrays.pop("starts"), "KeyError"),
    "another kind": (lambda arrays: arrays.update(kind=np.array("[1, 2]")), "damaged"),
    "a deep kind": (lambda arrays: arrays.update(kind=np.array("[" * 100_000)), "damaged"),
    "objects": (lambda arrays: arrays.update(parents=np.array([None])), "damaged"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_tree_is_refused(saved: bytes, name: str, tmp_path: Path) -> None:
    change, message = TAMPERED[name]
    path = with_arrays(saved, change, tmp_path / "tree.npz")
    with pytest.raises(planvec.InvalidBatchError, match=message):
        Tree.load(path)


def test_an_outcome_that_leads_elsewhere_is_refused_where_steps_have_one_outcome(tmp_path: Path) -> None:
    """Searches of such trees take outcomes for nodes."""
    path = tmp_path / "tree.npz"
    with planvec.PlanEnv("CartPole-v1") as env:
        CONFIG.plan(env, env.reset(seed=0).state, seed=0).search_data.save(path)
    with_arrays(path.read_bytes(), set_entry("outcome_nodes", 1), path)
    with pytest.raises(planvec.InvalidBatchError, match="outcome_nodes: expected the index of each outcome"):
        Tree.load(path)


@pytest.mark.parametrize("size", [0, 1, 100, 0.5, 0.999])
def test_a_truncated_tree_is_refused(saved: bytes, size: float, tmp_path: Path) -> None:
    path = tmp_path / "tree.npz"
    path.write_bytes(saved[: int(size * len(saved)) if isinstance(size, float) else size])
    with pytest.raises(planvec.InvalidBatchError, match="expected a file that Tree.save wrote"):
        Tree.load(path)


def test_damaged_trees_are_refused_or_can_be_searched(saved: bytes, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    path = tmp_path / "tree.npz"
    with planvec.PlanEnv("FrozenLake-v1") as env:
        num_refused = 0
        for _ in range(150):
            data = bytearray(saved)
            for place in generator.integers(len(data), size=generator.integers(1, 30)):
                data[place] = generator.integers(256)
            path.write_bytes(data)
            try:
                CONFIG.resume(env, Tree.load(path), seed=0)
            except planvec.InvalidBatchError:
                num_refused += 1
    assert num_refused > 100


@pytest.mark.slow
def test_trees_with_random_numbers_are_refused_or_can_be_searched(saved: bytes, tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    with np.load(io.BytesIO(saved)) as archive:
        names = [name for name in archive if archive[name].dtype.kind in "if" and name != "states"]
    with planvec.PlanEnv("FrozenLake-v1") as env:
        for _ in range(100):

            def change(arrays: dict[str, Any]) -> None:
                array = arrays[generator.choice(names)].reshape(-1)
                if array.size:
                    array[generator.integers(array.size)] = generator.integers(-5, 80)

            path = with_arrays(saved, change, tmp_path / "tree.npz")
            with contextlib.suppress(planvec.InvalidBatchError):
                CONFIG.resume(env, Tree.load(path), seed=0)


def test_a_tree_of_an_open_loop_is_read_where_its_nodes_wait_for_an_evaluation(tmp_path: Path) -> None:
    """The episode of the first simulation of a node has ended there, so that nothing has evaluated it."""
    with planvec.PlanEnv("FrozenLake-v1") as env:
        planner = MCTS(num_simulations=200, rollout_horizon=4, chance="open_loop")
        tree = planner.plan(env, env.reset(seed=0).state, seed=0).search_data
    assert tree.arrays.used().pending.any()
    tree.save(tmp_path / "tree.npz")
    assert Tree.load(tmp_path / "tree.npz").num_nodes == tree.num_nodes


def test_another_archive_is_no_tree(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tree.npz", "w") as archive:
        archive.writestr("notes.txt", "hello")
    with pytest.raises(planvec.InvalidBatchError, match="expected a file that Tree.save wrote"):
        Tree.load(tmp_path / "tree.npz")
    with pytest.raises(FileNotFoundError):
        Tree.load(tmp_path / "missing.npz")
