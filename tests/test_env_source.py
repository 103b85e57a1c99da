"""Ids of installed packages work without an import, and missing packages are named."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from typing import Any

import gymnasium
import pytest

import planvec
from planvec.envs import find_spec, make_env

FRESH = """
import planvec
for env_id in ("ALE/Pong-v5", "MiniGrid-Empty-5x5-v0", "BabyAI-GoToLocal-v0", "parking-v0"):
    with planvec.make(env_id, num_workers=1, start_method="forkserver") as env:
        start = env.reset(seed=0)
        out = env.step_batch(env.action_space.sample()[None] if env_id == "parking-v0" else [0], start.state)
        print(env_id, out.terminated.shape)
import gymnasium
make = lambda: gymnasium.make("ALE/Pong-v5", obs_type="ram")
with planvec.make(make, num_workers=1, start_method="forkserver") as env:
    print(env.observation_space.shape)
"""


@pytest.mark.slow
def test_ids_of_installed_packages_need_no_import_in_workers_either() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(1,)") == 4
    assert "(128,)" in done.stdout


def test_an_id_may_name_its_module() -> None:
    assert find_spec("minigrid:MiniGrid-Empty-5x5-v0").id == "MiniGrid-Empty-5x5-v0"
    with planvec.make("ale_py:ALE/Pong-v5", num_workers=1, env_kwargs={"obs_type": "ram"}) as env:
        assert env.observation_space.shape == (128,)


@pytest.mark.parametrize(
    ("env_id", "module", "extra"),
    [
        ("ALE/Pong-v5", "ale_py", "atari"),
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("highway-v0", "highway_env", "highway"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    env_id: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == module else find(name, *rest)
    )
    monkeypatch.delitem(gymnasium.registry, env_id, raising=False)
    with pytest.raises(planvec.UnsupportedEnvError, match=rf'pip install "planvec\[{extra}\]"'):
        find_spec(env_id)


@pytest.mark.parametrize(
    ("env_id", "extra"),
    [("LunarLander-v3", "box2d"), ("Ant-v5", "mujoco"), ("CartPole-v1", "classic-control")],
)
def test_what_gymnasium_misses_is_named_with_the_extra(
    env_id: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled("something is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(planvec.UnsupportedEnvError, match=rf'pip install "planvec\[{extra}\]"'):
        make_env(env_id)


def test_an_unknown_id_is_gymnasiums_own_error() -> None:
    with pytest.raises(gymnasium.error.NameNotFound, match="Did you mean"):
        find_spec("CartPol-v1")
    with pytest.raises(gymnasium.error.NamespaceNotFound):
        find_spec("Nope/CartPole-v1")
