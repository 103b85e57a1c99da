"""Environments that depend on hashes of texts are refused: workers would differ from the caller's process."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from marks import slow_after
from nasty import Nasty

import planvec
from planvec.codecs import verify

NAMES = {f"name {number}" for number in range(20)}


@pytest.fixture(autouse=True)
def _random_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)


class Goes(Nasty):
    """Goes through a set that it makes, late."""

    def extra(self, action: int) -> float:
        names = {f"name {number}" for number in range(20)}
        return float(next(iter(names)).split()[1]) if self.time > 40 else 0.0


class Hashes(Nasty):
    def extra(self, action: int) -> float:
        return float(hash(f"action {action}") % 7) if self.time > 40 else 0.0


class Orders(Nasty):
    """Keeps an order that matters after the random walk."""

    def begin(self) -> None:
        self.order = list({"red", "green", "blue", "yellow", "black"})

    def extra(self, action: int) -> float:
        return float(len(self.order[action])) if self.time > 1000 else 0.0


def first_name() -> str:
    return next(iter(NAMES))


class CallsAFunction(Nasty):
    """Calls a function that reads a set of its module."""

    def extra(self, action: int) -> float:
        return float(first_name().split()[1])


class FillsADict(Nasty):
    """Fills a dict from a set that never changes."""

    def begin(self) -> None:
        self.number_of = {name: len(name) for name in {"red", "green", "blue", "yellow", "black"}}

    def extra(self, action: int) -> float:
        return float(next(iter(self.number_of.values()))) if self.time > 1000 else 0.0


@pytest.mark.parametrize("make", slow_after(1, [Goes, Hashes, Orders, CallsAFunction, FillsADict]))
@pytest.mark.parametrize("num_workers", slow_after(1, [0, 2]))
def test_an_environment_that_depends_on_hashes_of_texts_is_refused(make: Any, num_workers: int) -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="depends on hashes or addresses.*PYTHONHASHSEED=0"):
        planvec.make(make, num_workers=num_workers)


def test_it_is_refused_by_replay_too() -> None:
    with pytest.raises(planvec.UnsupportedEnvError, match="depends on hashes or addresses"):
        planvec.make(Goes, num_workers=0, codec="replay")


def test_it_works_where_all_processes_have_one_hash_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    with planvec.make(Goes, num_workers=1) as env:
        assert env.step_batch([0], dt=50).rewards[0] > 0


class Counts(Nasty):
    """Uses sets of texts in ways in which their order has no influence."""

    def begin(self) -> None:
        self.seen: set[str] = set()

    def extra(self, action: int) -> float:
        self.seen.add(f"action {action}")
        return float(len(self.seen) + len({"a", f"{action}"}) + (action in {0, 1}))


class DrawsItsMap(Nasty):
    """Is another one in each process."""

    def __init__(self) -> None:
        self.map = np.frombuffer(os.urandom(4), np.uint8).copy()
        self.seen: set[int] = set()

    def extra(self, action: int) -> float:
        return float(self.map[action])


@pytest.mark.parametrize(
    ("make", "num_workers"),
    [
        (Counts, 0),
        pytest.param(Counts, 2, marks=pytest.mark.slow),
        pytest.param(DrawsItsMap, 0, marks=pytest.mark.slow),
    ],
)
def test_an_environment_that_does_not_is_accepted(make: Any, num_workers: int) -> None:
    with planvec.make(make, num_workers=num_workers) as env:
        assert env.step_batch([0, 1]).rewards.shape == (2,)


def test_an_environment_of_which_there_can_be_only_one_is_not_checked(tmp_path: Any) -> None:
    class Locks(Counts):
        def __init__(self) -> None:
            os.close(os.open(tmp_path / "lock", os.O_CREAT | os.O_EXCL))

    with planvec.make(Locks, num_workers=0) as env:
        assert env.step_batch([0]).rewards.tolist() == [4.0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "env_id",
    [
        *("BabyAI-BossLevel-v0", "BabyAI-SynthSeq-v0", "MiniGrid-DoorKey-8x8-v0"),
        *("MiniGrid-MultiRoom-N6-v0", "MiniGrid-ObstructedMaze-Full-v1"),
        *("highway-fast-v0", "intersection-v1", "racetrack-v0"),
    ],
)
def test_environments_that_are_known_not_to_depend_on_them_do_not(
    env_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_CHECKED", set())
    planvec.make(env_id, num_workers=0).close()
