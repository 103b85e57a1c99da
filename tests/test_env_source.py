"""Ids of installed packages work without an import, and missing packages are named."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec

import planvec
from planvec.codecs import verify
from planvec.envs import find_source, make_env
from planvec.lazy import lazy_names

FRESH = """
import planvec
for env_id in ("ALE/Pong-v5", "MiniGrid-Empty-5x5-v0", "BabyAI-GoToLocal-v0", "parking-v0"):
    with planvec.make(env_id, num_workers=1, start_method="spawn") as env:
        start = env.reset(seed=0)
        out = env.step_batch(env.action_space.sample()[None] if env_id == "parking-v0" else [0], start.state)
        print(env_id, out.terminated.shape)
import gymnasium
make = lambda: gymnasium.make("ALE/Pong-v5", obs_type="ram")
with planvec.make(make, num_workers=1, start_method="spawn") as env:
    print(env.observation_space.shape)
"""


@pytest.mark.slow
def test_ids_of_installed_packages_need_no_import_in_workers_either() -> None:
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("(1,)") == 4
    assert "(128,)" in done.stdout


def test_an_id_may_name_its_module() -> None:
    spec = find_source("minigrid:MiniGrid-Empty-5x5-v0")
    assert isinstance(spec, EnvSpec)
    assert spec.id == "MiniGrid-Empty-5x5-v0"
    with planvec.make("ale_py:ALE/Pong-v5", num_workers=1, env_kwargs={"obs_type": "ram"}) as env:
        assert env.observation_space.shape == (128,)


@pytest.mark.parametrize(
    ("env_id", "module", "package"),
    [
        ("ALE/Pong-v5", "ale_py", "ale-py"),
        ("MiniGrid-Empty-5x5-v0", "minigrid", "minigrid"),
        ("highway-v0", "highway_env", "highway-env"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    env_id: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == module else find(name, *rest)
    )
    monkeypatch.delitem(gymnasium.registry, env_id, raising=False)
    with pytest.raises(planvec.UnsupportedEnvError, match=rf'{module}, which .* pip install "{package}>='):
        find_source(env_id)


@pytest.mark.parametrize(
    ("env_id", "package"),
    [
        ("LunarLander-v3", r"box2d>=2[.\d]*"),
        ("Ant-v5", r"gymnasium\[mujoco\]"),
        ("CartPole-v1", r"gymnasium\[classic-control\]"),
    ],
)
def test_what_gymnasium_misses_is_named_with_the_command_that_installs_it(
    env_id: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled("something is not installed")

    monkeypatch.setattr(gymnasium, "make", missing)
    with pytest.raises(planvec.UnsupportedEnvError, match=rf'something .* pip install "{package}"'):
        make_env(env_id)


def test_an_unknown_id_is_gymnasiums_own_error() -> None:
    with pytest.raises(gymnasium.error.NameNotFound, match="Did you mean"):
        find_source("CartPol-v1")
    with pytest.raises(gymnasium.error.NamespaceNotFound):
        find_source("Nope/CartPole-v1")


def test_an_id_without_a_version_is_the_highest_one() -> None:
    with planvec.make("CartPole", num_workers=0) as env, planvec.PlanEnv("Taxi") as taxi:
        assert [one.spec and one.spec.id for one in (env, taxi)] == ["CartPole-v1", "Taxi-v4"]


OWN = """
import gymnasium
kind = "a string"
def make_env():
    return gymnasium.make("CartPole-v1", max_episode_steps=3)
"""


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("is_path", [False, True])
def test_a_function_is_named_by_its_module_or_file(
    is_path: bool, num_workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"own_{is_path:d}_{num_workers}"
    (tmp_path / f"{module}.py").write_text(OWN)
    monkeypatch.setattr(sys, "path", [*sys.path] if is_path else [str(tmp_path), *sys.path])
    name = f"{tmp_path / module}.py:make_env" if is_path else f"{module}:make_env"
    with planvec.make(name, num_workers=num_workers, compiled=False) as env:
        out = env.step_batch([0], dt=9)
        assert (out.infos["num_steps"][0], out.truncated[0]) == (3, True)


@pytest.mark.parametrize(
    ("text", "name", "error", "message"),
    [
        (
            "import nowhere_at_all",
            "{}:f",
            planvec.UnsupportedEnvError,
            "while importing {}: .*nowhere_at_all",
        ),
        ("1 / 0", "{}:f", planvec.UnsupportedEnvError, r"while importing {}: Zero.*{}\.py, line 1\)"),
        ("def f(:", "{}:f", planvec.UnsupportedEnvError, r"while importing {}: SyntaxError"),
        ("x = 1\ndef g(): ...", "{}:x", planvec.UnsupportedEnvError, "{} has no 'x'; it has g"),
        ("", "{}:Env-v0", planvec.UnsupportedEnvError, "{} has no 'Env-v0'; it has no functions"),
        ("", "no_{}:f", ModuleNotFoundError, "No module named 'no_{}': expected an installed module"),
        ("", "./no_{}.py:f", ModuleNotFoundError, r"No file ./no_{}\.py: expected the path"),
    ],
)
def test_a_name_that_leads_nowhere_says_why(
    text: str, name: str, error: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"led_{abs(hash((text, name))):x}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(error, match=message.replace("{}", module)):
        planvec.make(name.replace("{}", module))


def test_a_file_named_like_a_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(OWN)
    with pytest.raises(planvec.UnsupportedEnvError, match="rename the file"):
        planvec.make(f"{tmp_path / 'json.py'}:make_env")


OF_A_SCRIPT = """
import gymnasium
import planvec
import planvec.vector

class Scaled(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = 0
        return 0, {}

    def step(self, action):
        self.position += int(action)
        return self.position, SCALE * self.position, self.position > 90, False, {}

    def itself(self):
        return type(self)

SCALE = 1.0
gymnasium.register("Scaled-v0", Scaled)
step = Scaled.step

def is_untouched():
    return Scaled.step is step and Scaled.step.__globals__ is globals()

gymnasium.register("Named-v0", "__main__:Scaled")
for source in ("Named-v0", "Scaled-v0", gymnasium.spec("Scaled-v0"), Scaled, lambda: Scaled()):
    with planvec.make(source, num_workers=2) as env:
        assert is_untouched(), source
        env.step_batch([0, 1])
        assert env.get_attr("spec") is not None
        assert env.call("itself") is not None
        assert is_untouched(), source
assert planvec.check_env("Scaled-v0", num_steps=20).exact
assert is_untouched(), "check_env"
envs = planvec.vector.AsyncVectorEnv([lambda: gymnasium.make("Scaled-v0")] * 2)
envs.reset(seed=0)
envs.call("itself")
envs.close()
assert is_untouched(), "AsyncVectorEnv"
SCALE = 3.0
env = Scaled()
env.reset(seed=0)
assert env.step(1)[1] == 3.0
"""


def test_what_workers_send_changes_no_class_of_the_script() -> None:
    done = subprocess.run([sys.executable, "-c", OF_A_SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_planvec_is_imported_beside_a_clone_too(tmp_path: Path) -> None:
    (tmp_path / "planvec").symlink_to(Path(planvec.__file__).parent.parent)
    code = "import planvec; print(planvec.Codec.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "Codec\n", done.stderr


def test_an_older_gymnasium_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.28.1")
    get, _ = lazy_names("planvec", {"Missing": "planvec.errors"})
    with pytest.raises(ImportError, match=r"planvec needs gymnasium>=1\.1, and 0\.28\.1 is installed"):
        get("Missing")


def test_a_warning_that_another_package_makes_an_error_does_not_end_make(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(verify, "warning_on_costs", lambda *_: "states are large")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pytest does the same
        with planvec.make("MiniGrid-Empty-5x5-v0", num_workers=0):
            pass
    assert "states are large" in caplog.text
