"""Presets of the command line: a planner with settings that suit the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planvec.cli import main
from planvec.cli.plan import PRESETS, make_planner, preset_of


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_planner(name: str) -> None:
    preset = PRESETS[name]
    planner = make_planner(preset.planner, preset.options)
    assert all(getattr(planner, option) == value for option, value in preset.options.items())


@pytest.mark.parametrize("env_id", ["Acrobot", "Acrobot-v1", "gymnasium.envs:Acrobot-v1"])
def test_presets_are_found_without_module_and_version(env_id: str) -> None:
    assert preset_of(env_id) is PRESETS["Acrobot"]


def test_options_override_those_of_the_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "plan Acrobot-v1 --preset --num-walkers 16 --num-iterations 3 --max-steps 1 --seed 0 --no-progress"
    assert main([*line.split(), "--num-workers", "0", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    config = json.loads((tmp_path / "run" / "run.json").read_text())
    assert config["planner"] == "swarm-wave"
    assert config["planner_options"] == {
        **PRESETS["Acrobot"].options,
        "num_walkers": 16,
        "num_iterations": 3,
        "dt": [3, 6],
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("plan Blackjack-v1 --preset", "--preset: expected one of Acrobot, CartPole, "),
        ("plan --preset", "--preset: expected one of Acrobot, CartPole, "),
        ("plan Taxi-v4 --preset --planner swarm", "--preset: that of Taxi-v4 is of the planner mcts"),
        ("plan CartPole-v1 --preset --num-walkers 5", "and the planner is mcts"),
        ("plan --preset --out CartPole Pendulum-v1 --num-walkers 5", "and the planner is icem"),
        ("plan --out CartPole --no-progress Pendulum-v1 --preset --num-walkers 5", "the planner is icem"),
    ],
)
def test_a_preset_that_does_not_fit_is_one_line_and_status_2(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    assert message in capsys.readouterr().err


def test_the_settings_of_a_file_override_those_of_the_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"env_id": "Taxi-v4", "planner": "mcts", "planner_options": {"batch_size": 2}, "seed": 0}
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({**settings, "max_steps": 1}))
    line = f"plan --config {path} --preset --no-progress --num-workers 0 --out {tmp_path / 'run'}"
    assert main(line.split()) == 0
    config = json.loads((tmp_path / "run" / "run.json").read_text())
    assert config["planner_options"] == {"batch_size": 2, "max_env_steps": 1000}
    path.write_text(json.dumps({**settings, "planner": "swarm", "planner_options": {}}))
    assert main(line.split()) == 2
    assert "is of the planner mcts, got swarm as the planner of" in capsys.readouterr().err


def test_the_help_of_a_preset_shows_its_planner(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "Taxi-v4", "--preset", "--help"])
    assert "--transpositions" in capsys.readouterr().out
