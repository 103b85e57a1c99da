"""`planvec check` and `planvec.check_env`: what is exact is called so, and nothing else."""

from __future__ import annotations

import json
import random
import textwrap
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from environments import Momentum, Unpicklable, Warehouse
from gymnasium import spaces, wrappers
from nasty import CountsOnItsClass, View

import planvec
from planvec.backends import audit
from planvec.cli.entry import main
from planvec.codecs.compare import same
from planvec.codecs.family_report import markdown_table, measured
from planvec.codecs.selection import FAMILIES

FEW: dict[str, Any] = {"num_steps": 60, "num_restores": 5, "num_children": 8, "replay_seconds": 0.5}
FEW_ARGUMENTS = ["--steps", "60", "--restores", "5"]
ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.usefixtures("quick_checks")


class Drifting(gymnasium.Env):
    """Remembers, outside of its attributes, how often it was stepped."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)
    steps: ClassVar[list[int]] = [0]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = 0.0
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        self.steps[0] += 1
        self.x += float(action)
        return np.array([self.x, 1e-3 * self.steps[0]]), self.x, False, self.x > 20, {}


class Noisy(gymnasium.Wrapper):
    """Adds noise to rewards, from the module `random`."""

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, float(reward) + random.random(), *rest


@pytest.mark.parametrize("source", [Warehouse, lambda: Momentum(gymnasium.make("Pendulum-v1"))])
def test_an_exact_environment_is_called_exact(source: Any) -> None:
    report = planvec.check_env(source, **FEW)
    assert report.exact, report
    assert report.num_steps == 60
    assert (report.num_restores, report.num_children) == (5, 8)
    assert report.num_replayed >= 1
    assert set(report.differences) == {
        "same instance",
        "other instance",
        "other process",
        "branches",
        "replay",
    }
    assert set(report.microseconds) == {"get", "set", "step", "observe"}
    assert str(report).endswith("\nexact")


def test_a_hidden_counter_is_found_and_measured() -> None:
    report = planvec.check_env(Drifting, **FEW)
    assert not report.exact
    difference = report.differences["other instance"]["observation"]
    assert difference.num_different > 30
    assert 1e-3 <= difference.largest < 10
    assert difference.first.startswith("step ")
    assert not report.differences["other instance"]["reward"].num_different
    text = " ".join(str(report).split())
    assert "NOT exact: observation" in text
    assert "its steps change test_check.Drifting.steps" in text


@pytest.mark.parametrize("make", [CountsOnItsClass, View])
def test_what_make_refuses_is_not_called_exact(make: Any) -> None:
    with pytest.raises(planvec.UnsupportedEnvError) as refusal:
        planvec.PlanEnv(make)
    report = planvec.check_env(make, **FEW)  # too short to see a difference
    assert not any(one.num_different for fields in report.differences.values() for one in fields.values())
    assert not report.exact
    assert report.error == str(refusal.value)
    assert str(report).endswith(textwrap.fill(f"NOT exact: {refusal.value}", 100))


class Slippery(gymnasium.Wrapper):
    """Every reset draws what the state does not hold; a second reset with its seed draws it again."""

    drawn: ClassVar[list[float]] = [0.0]

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.drawn[0] = float(self.unwrapped.np_random.uniform())
        return result

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, float(reward) + self.drawn[0], *rest


def test_what_only_resets_draw_is_found_though_episodes_are_long() -> None:
    report = planvec.check_env(lambda: Slippery(gymnasium.make("Pendulum-v1")), **FEW)
    assert report.differences["other process"]["reward"].num_different
    assert report.differences["other instance"]["reward"].num_different


@pytest.mark.slow
def test_states_of_another_size_of_the_same_world_are_refused() -> None:
    small, large = (planvec.PlanEnv(f"MiniGrid-Empty-{size}-v0") for size in ("5x5", "8x8"))
    with small, large, pytest.raises(planvec.InvalidBatchError, match="EmptyEnv"):
        large.step_batch([2], small.reset(seed=0).state)


def test_noise_in_a_wrapper_is_found_and_no_audit_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_OVERHEAD_SECONDS", 0.0)  # one would be due at every other step
    report = planvec.check_env(lambda: Noisy(gymnasium.make("CartPole-v1")), **FEW)
    assert report.differences["same instance"]["reward"].num_different > 50
    assert not report.differences["same instance"]["observation"].num_different


def test_what_cannot_be_opened_is_not_exact_and_says_what_to_do() -> None:
    report = planvec.check_env(Unpicklable, **FEW)
    assert not report.exact
    assert 'codec="replay"' in report.error
    assert planvec.check_env(Unpicklable, codec="replay", **FEW).exact


@pytest.mark.parametrize(
    "wrap",
    [
        lambda env: wrappers.RecordEpisodeStatistics(env),
        lambda env: wrappers.NormalizeReward(wrappers.FrameStackObservation(env, 3)),
    ],
)
def test_wrappers_are_checked_with_their_environment(wrap: Any) -> None:
    report = planvec.check_env(lambda: wrap(gymnasium.make("FrozenLake-v1")), **FEW)
    assert report.exact, report


def test_a_zero_of_the_other_sign_is_not_the_same() -> None:
    assert same(np.array([0.0, np.nan]), np.array([0.0, np.nan]))
    assert not same(np.array([0.0, 1.0]), np.array([-0.0, 1.0]))
    assert not same(0.0, -0.0)


# -- the command line -----------------------------------------------------------------------------------


def test_the_exit_status_says_whether_all_is_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_envs.py").write_text(
        "import gymnasium, random\n"
        "class Mine(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Discrete(1000)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        self.x = int(self.np_random.integers(9))\n"
        "        return self.x, {}\n"
        "    def step(self, action):\n"
        "        self.x += int(action)\n"
        "        return self.x, 1.0, self.x > 30, False, {}\n"
        "class Bad(Mine):\n"
        "    def step(self, action):\n"
        "        return super().step(action * (random.random() < 0.5))\n"
        "def make_bad():\n"
        "    return Bad()\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["check", "my_envs:Mine", *FEW_ARGUMENTS]) == 0
    assert capsys.readouterr().out.startswith("my_envs:Mine\n")
    assert main(["check", "my_envs:make_bad", *FEW_ARGUMENTS]) == 1
    assert "NOT exact" in capsys.readouterr().out


def test_json_is_all_that_a_check_prints(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--wrappers", "TimeLimit=9", "FrameStackObservation=2", "--make", "is_slippery=False"]
    assert main(["check", "FrozenLake-v1", "--json", *FEW_ARGUMENTS, *arguments]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["exact"] is True
    assert report["name"] == "FrozenLake-v1"
    assert report["differences"]["branches"]["observation"]["num_different"] == 0
    assert report["num_episodes"] >= 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Nope-v1"], "Environment `Nope` doesn't exist"),
        (["no_such_module:Nope-v1"], "No module named 'no_such_module'"),
        (["CartPole-v1", "--make", "gravty=3"], "--make: expected arguments of CartPole-v1"),
    ],
)
def test_wrong_arguments_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--wrappers", "Nope"], "gymnasium.wrappers has no wrapper 'Nope'"),
        (["--make", "gravity"], "expected KEY=VALUE, got 'gravity'"),
        (["--steps", "0"], "expected an integer of at least 1"),
    ],
)
def test_arguments_that_mean_nothing_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "CartPole-v1", *arguments]) == 2
    assert message in capsys.readouterr().err


# -- the table ------------------------------------------------------------------------------------------


def test_the_table_of_families_is_measured_and_in_the_docs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert set(measured()) == {family.name for family in FAMILIES if family.ids}
    assert markdown_table() in (ROOT / "docs" / "families.md").read_text()
    assert main(["envs"]) == 0
    said = capsys.readouterr().out
    for name in measured():
        assert name in said
    assert main(["envs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == measured()


class RandomResetInfo(gymnasium.Env[Any, Any]):
    """Puts an action that nobody seeds into the info of a reset, as highway-env does."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1), {"action": int(np.random.default_rng().integers(5))}

    def step(self, action: Any) -> Any:
        return np.zeros(1), 0.0, bool(self.np_random.random() < 0.2), False, {}


def test_infos_of_resets_that_are_random_by_nature_are_not_compared() -> None:
    for seed in range(4):
        report = planvec.check_env(RandomResetInfo, num_steps=20, num_restores=2, num_children=2, seed=seed)
        assert report.exact, str(report)


CODEC = """
import gymnasium
import numpy as np
import planvec


class Clocked(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(100)
    num_made = 0

    def __init__(self):
        Clocked.num_made += 1
        self.number = Clocked.num_made  # differs in each instance

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return 0, {}

    def step(self, action):
        self.place = (self.place + int(action)) % 100
        return self.place, float(action), False, False, {}


class ClockedCodec(planvec.Codec):
    dtype = np.dtype([("place", "i8")])
    draws = False

    def get(self, env):
        return (env.place,)

    def set(self, env, value):
        (env.place,) = value
"""


@pytest.mark.parametrize("codec", ["copied:number", "clocked:ClockedCodec", "replay"])
def test_the_command_line_names_codecs(
    codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "clocked.py").write_text(CODEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["check", "clocked:Clocked", "--codec", codec, "--steps", "40"]) == 0
    assert capsys.readouterr().out.endswith("\nexact\n")
    arguments = ["--codec", codec, "--num-walkers", "8", "--max-steps", "3", "--no-progress", "--out", "run"]
    assert main(["plan", "clocked:Clocked", *arguments, "--num-workers", "0"]) == 0
    assert main(["replay", "run"]) == 0
    if codec == "clocked:ClockedCodec":
        assert "place" in np.load("run/trajectory.npz")["states"].dtype.names
