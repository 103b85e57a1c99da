"""Infos keep their keys, their fields and their values on the way from the environment to the user."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sharing import OddInfo, SmallSeeds, StructInfo, Walk

import planvec


class OwnKeys(Walk):
    """Uses the keys that planvec uses, raises at 7, and has a key that looks like the mask of another."""

    def info(self) -> dict[str, Any]:
        if self.t == 7:
            raise ValueError("seven")
        return {"num_steps": self.t * 10, "error": f"e{self.t}", "_error": 0, "x": self.t}


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_keys_of_planvec_and_of_the_environment_are_apart(num_workers: int) -> None:
    with planvec.make(OwnKeys, num_workers=num_workers) as env:
        start = env.reset(seed=0)
        assert start.info == {"num_steps": 0, "error": "e0", "_error": 0, "x": 0}
        for t in (2, 4):
            *_, info = env.step(2)
            assert info == {"num_steps": 10 * t, "error": f"e{t}", "_error": 0, "x": t}
        states = np.repeat(env.get_state(), 3)
        out = env.step_batch([1, 3, 2], states, on_error="mask")
        assert out.infos["_error"].tolist() == [False, True, False]
        assert isinstance(out.infos["error"][1], planvec.EnvError)
        assert out.infos["error"][0] is None
        assert out.infos["num_steps"].tolist() == [1, 0, 1]
        assert out.infos["env_num_steps"].tolist() == [50, 0, 60]
        assert out.infos["_env_num_steps"].tolist() == [True, False, True]
        assert out.infos["env_error"].tolist() == ["e5", None, "e6"]
        space = env.observation_space
        assert out.row(space, 0)[4] == {"num_steps": 50, "error": "e5", "_error": 0, "x": 5}
        assert out.row(space, 1)[4] == {}


@pytest.mark.parametrize("num_workers", [0, 1])
def test_records_in_infos_keep_their_fields(num_workers: int) -> None:
    with planvec.make(StructInfo, num_workers=num_workers) as env:
        env.reset(seed=0)
        *_, info = env.step(3)
    assert info["struct"].dtype == np.dtype([("price", "f8"), ("n", "i4")])
    assert info["struct"]["n"].tolist() == [3, 3]
    assert info["when"] == np.datetime64("2026-01-04")
    assert info["text"] == np.array("t03")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_infos_of_many_kinds_are_those_of_the_environment(num_workers: int) -> None:
    plain = OddInfo()
    plain.reset(seed=0)
    with planvec.make(OddInfo, num_workers=num_workers) as env:
        env.reset(seed=0)
        for action in (1, 2, 1, 3):
            assert env.step(action)[4] == plain.step(action)[4]


def test_resets_without_a_seed_take_seeds_of_31_bits() -> None:
    with planvec.make(SmallSeeds, num_workers=0) as env:
        for _ in range(40):
            env.reset()
