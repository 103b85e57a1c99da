"""Runs: resumed after an interrupt at any step, and played again from their files."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupted import interrupt_at
from marks import slow_after

import planvec
from planvec.cli import main
from planvec.planners import load_plan, save_plan
from planvec.runs import play

PLANNERS = {
    "mcts": ["--planner", "mcts", "--num-simulations", "40", "--rollout-horizon", "5"],
    "swarm": ["--num-walkers", "8", "--num-iterations", "6"],
    "swarm-wave": ["--planner", "swarm-wave", "--num-walkers", "16", "--num-iterations", "60"],
    "cem": ["--planner", "cem", "--num-trajectories", "16", "--num-iterations", "2", "--dt", "2"],
    "rollout-iw": ["--planner", "rollout-iw", "--num-simulations", "40"],
    "iw": ["--planner", "iw", "--num-simulations", "40"],
    "random-shooting": ["--planner", "random-shooting", "--num-trajectories", "16"],
}
CASES = [
    *(("CartPole-v1", name) for name in PLANNERS),
    ("FrozenLake8x8-v1", "mcts"),
    ("MiniGrid-DoorKey-8x8-v0", "rollout-iw"),
    ("MiniGrid-Empty-5x5-v0", "mcts"),
    ("MiniGrid-Empty-5x5-v0", "swarm"),
]


def plan(*arguments: str, num_workers: int = 0) -> int:
    return main(["plan", *arguments, "--num-workers", str(num_workers), "--no-progress"])


def whole_run(directory: Path, env_id: str, planner: str, *arguments: str) -> None:
    common = ["--seed", "5", "--max-steps", "8", "--out", str(directory)]
    assert plan(env_id, *PLANNERS[planner], *common, *arguments) == 0


@pytest.mark.parametrize(("env_id", "planner"), slow_after(4, CASES, unpack=True))
def test_an_interrupted_run_ends_with_the_bytes_of_a_whole_one(
    env_id: str, planner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_run(tmp_path / "whole", env_id, planner)
    with monkeypatch.context() as patched:
        interrupt_at(patched, 5)
        common = ["--seed", "5", "--max-steps", "8", "--out", str(tmp_path / "run")]
        assert plan(env_id, *PLANNERS[planner], *common) == 130
    assert len(np.load(tmp_path / "run" / "trajectory.npz")["rewards"]) == 4
    assert plan("--resume", str(tmp_path / "run"), num_workers=1) == 0
    one, other = (tmp_path / name / "trajectory.npz" for name in ("whole", "run"))
    assert one.read_bytes() == other.read_bytes()
    assert not (tmp_path / "run" / "checkpoint.npz").exists()
    tables = []
    for name in ("whole", "run"):
        data = (tmp_path / name / "steps.csv").read_bytes()
        assert b"\r" not in data
        assert data.count(b"\n") == 9
        tables.append([row[:8] for row in csv.reader(data.decode().splitlines())])
    assert tables[0] == tables[1]


def test_a_checkpoint_that_is_some_steps_old_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_run(tmp_path / "whole", "CartPole-v1", "mcts")
    write, written = play._Player._write, []

    def write_once(player: Any) -> None:
        if not written:
            written.append(1)
            write(player)

    with monkeypatch.context() as patched:
        patched.setattr(play._Player, "_write", write_once)
        interrupt_at(patched, 6)
        common = ["--seed", "5", "--max-steps", "8", "--out", str(tmp_path / "run")]
        assert plan("CartPole-v1", *PLANNERS["mcts"], *common) == 130
    assert plan("--resume", str(tmp_path / "run")) == 0
    paths = [tmp_path / name / "trajectory.npz" for name in ("whole", "run")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len((tmp_path / "run" / "steps.csv").read_text().splitlines()) == 9


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    whole_run(tmp_path / "whole", "CartPole-v1", "swarm")
    whole_run(tmp_path / "run", "CartPole-v1", "swarm")
    for name in ("summary.json", "trajectory.npz"):
        (tmp_path / "run" / name).unlink()
    assert plan("--resume", str(tmp_path / "run")) == 0
    paths = [tmp_path / name / "trajectory.npz" for name in ("whole", "run")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len((tmp_path / "run" / "steps.csv").read_text().splitlines()) == 9


def test_several_episodes_are_resumed_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_run(tmp_path / "whole", "CartPole-v1", "swarm", "--episodes", "3")
    with monkeypatch.context() as patched:
        interrupt_at(patched, 13)
        common = ["--seed", "5", "--max-steps", "8", "--out", str(tmp_path / "run"), "--episodes", "3"]
        assert plan("CartPole-v1", *PLANNERS["swarm"], *common) == 130
    assert plan("--resume", str(tmp_path / "run")) == 0
    for name in ("trajectory.npz", "trajectory-2.npz", "trajectory-3.npz"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [(one["seed"], one["num_steps"]) for one in summary["episodes"]] == [(5, 8), (6, 8), (7, 8)]
    assert summary["ended"] == "stopped at --max-steps"
    capsys.readouterr()
    assert plan("--resume", str(tmp_path / "run")) == 0
    assert "is complete already" in capsys.readouterr().err


KILLED = ["--planner", "mcts", "--num-simulations", "200", "--max-steps", "40", "--seed", "2"]


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_moments_ends_with_the_same_bytes(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert plan("CartPole-v1", *KILLED, "--out", str(whole)) == 0
    command = [sys.executable, "-m", "planvec", "plan", "--num-workers", "0", "--no-progress"]
    arguments, rng, kills = ["CartPole-v1", *KILLED, "--out", str(killed)], np.random.default_rng(0), 0
    log = killed / "steps.csv"

    def num_lines() -> int:
        return log.read_bytes().count(b"\n") if log.exists() else 0

    for _ in range(60):
        before = num_lines()
        process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if kills < 6:
            wanted = before + rng.integers(2, 8)
            while num_lines() < wanted and process.poll() is None:
                time.sleep(rng.uniform(0, 0.003))
            process.send_signal(signal.SIGKILL)  # of a process that has ended, nothing happens
            kills += process.wait() == -signal.SIGKILL
        _, errors = process.communicate()
        arguments = ["--resume", str(killed)]
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, errors
    assert kills >= 3
    assert (whole / "trajectory.npz").read_bytes() == (killed / "trajectory.npz").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_leave_what_there_is(number: signal.Signals, tmp_path: Path) -> None:
    # Slow enough not to end before the signal.
    arguments = ["CartPole-v1", "--num-walkers", "512", "--num-iterations", "80"]
    arguments += ["--num-workers", "0", "--no-progress", "--seed", "1"]
    command = [sys.executable, "-m", "planvec", "plan", *arguments, "--out", str(tmp_path / "out")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ})
    while not (tmp_path / "out" / "checkpoint.npz").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "--resume" in errors
    assert (tmp_path / "out" / "trajectory.npz").exists()


def test_what_was_being_written_when_a_run_was_killed_is_removed(tmp_path: Path) -> None:
    whole_run(tmp_path / "run", "CartPole-v1", "swarm")
    names = [".checkpoint-0123abcd.npz", ".trajectory-2-0123abcd.npz", ".summary-0123abcd.json", ".planvec"]
    for name in names:
        (tmp_path / "run" / name).write_bytes(b"")
    (tmp_path / "run" / ".mine-0123abcd.npz").write_bytes(b"")
    assert plan("--resume", str(tmp_path / "run")) == 0
    assert [path.name for path in (tmp_path / "run").glob(".*")] == [".mine-0123abcd.npz"]


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("max_steps", "15", "run.json: max_steps: expected an integer, got '15'"),
        ("seed", "3", "run.json: seed: expected an integer, got '3'"),
        ("episodes", 0, "run.json: episodes: expected at least 1, got 0"),
        ("make", [], "run.json: make: expected a table of arguments, got []"),
    ],
)
def test_settings_of_a_wrong_type_are_named(
    setting: str, value: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_run(tmp_path / "run", "CartPole-v1", "swarm")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), setting: value}))
    capsys.readouterr()
    assert plan("--resume", str(tmp_path / "run")) == 2
    assert message in capsys.readouterr().err


def test_a_resumed_run_stays_in_its_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(tmp_path / "run", "CartPole-v1", "swarm")
    assert plan("--resume", str(tmp_path / "run"), "--out", str(tmp_path / "other")) == 2
    assert "--out: --resume writes into the directory of the run" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert plan("--resume", str(tmp_path / "empty")) == 2
    assert "nothing was played there yet: begin again" in capsys.readouterr().err


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Pendulum-v1", "MiniGrid-Empty-5x5-v0"])
def test_a_run_is_replayed_with_every_bit(
    env_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_run(tmp_path, env_id, "swarm", "--episodes", "2")
    assert main(["replay", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("every bit is the same") == 2


def test_a_sticky_game_is_replayed_with_every_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(tmp_path, "ALE/Pong-v5", "swarm", "--make", "obs_type=ram")
    assert main(["replay", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["exact"] is True


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MiniGrid-Empty-5x5-v0"])
def test_a_record_is_replayed_without_states_and_observations(
    env_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, record = tmp_path / "run", tmp_path / "record"
    whole_run(run, env_id, "swarm", "--episodes", "2")
    assert main(["replay", str(run), "--record", str(record)]) == 0
    assert sorted(path.name for path in record.iterdir()) == [
        "run.json",
        "trajectory-2.npz",
        "trajectory.npz",
    ]
    arrays = dict(np.load(record / "trajectory.npz"))
    assert not [name for name in arrays if name.startswith(("states", "observations", "values"))]
    capsys.readouterr()
    assert main(["replay", str(record)]) == 0
    assert capsys.readouterr().out.count("every bit is the same") == 2
    name = next(name for name in arrays if name.startswith("sha256.observations"))
    arrays["rewards"][2] += 1.0
    arrays[name] = np.array(str(arrays[name])[::-1])
    np.savez(record / "trajectory.npz", **arrays)
    assert main(["replay", str(record), "--record", str(tmp_path / "other")]) == 1
    said = capsys.readouterr().out
    assert "expected rewards[2]" in said
    assert f"expected {name}" in said
    assert not (tmp_path / "other").exists()


def test_a_record_does_not_replace_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(tmp_path, "CartPole-v1", "swarm")
    assert main(["replay", str(tmp_path), "--record", str(tmp_path / "..") + f"/{tmp_path.name}"]) == 2
    assert "--record: expected another directory" in capsys.readouterr().err
    assert "states" in np.load(tmp_path / "trajectory.npz")


def test_a_record_does_not_replace_another_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one", "other"):
        whole_run(tmp_path / name, "CartPole-v1", "swarm")
    before = {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}
    assert main(["replay", str(tmp_path / "one"), "--record", str(tmp_path / "other")]) == 2
    assert "without a run or a record" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()} == before


def test_a_replay_says_whether_it_wrote_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(tmp_path / "run", "CartPole-v1", "swarm")
    capsys.readouterr()
    for number, options in enumerate(([], ["--json"])):
        record = str(tmp_path / f"record-{number}")
        assert main(["replay", str(tmp_path / "run"), "--record", record, *options]) == 0
        said = capsys.readouterr().out.splitlines()[-1]
        assert (json.loads(said)["record"] if options else said.removeprefix("record: ")) == record


def test_a_replay_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole_run(tmp_path, "CartPole-v1", "swarm")
    path = tmp_path / "trajectory.npz"
    arrays = dict(np.load(path))
    arrays["observations"][3, 2] = np.nextafter(arrays["observations"][3, 2], 9, dtype=np.float32)
    arrays["terminated"] = np.array(True)
    np.savez(path, **arrays)
    capsys.readouterr()
    assert main(["replay", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "DIFFERS" in said
    assert "expected observations[3, 2] " in said
    assert "expected terminated True, got False" in said


def test_a_replay_names_the_field_of_a_state_that_differs_in_a_short_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole_run(tmp_path, "ALE/Pong-v5", "swarm", "--make", "obs_type=ram")
    path = tmp_path / "trajectory.npz"
    arrays = dict(np.load(path))
    block = arrays["states"]["emulator"][3].tobytes()
    arrays["states"]["emulator"][3] = np.void(block[:-1] + bytes([block[-1] ^ 1]))
    np.savez(path, **arrays)
    capsys.readouterr()
    assert main(["replay", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert re.search(r"expected states\['emulator'\]\[3\] of \|V\d+ with the same bits, got others of", said)
    assert max(map(len, said.splitlines())) < 500


def test_a_changed_environment_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        interrupt_at(patched, 5)
        common = ["--seed", "5", "--out", str(tmp_path), "--make", "sutton_barto_reward=False"]
        assert plan("CartPole-v1", *PLANNERS["swarm"], *common) == 130
    settings = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**settings, "env_id": "Acrobot-v1", "make": {}}))
    assert plan("--resume", str(tmp_path)) == 2
    settings["seed"] = 6
    (tmp_path / "run.json").write_text(json.dumps(settings))
    assert plan("--resume", str(tmp_path)) == 2
    assert "leads to another state than before" in capsys.readouterr().err


def test_settings_of_a_file_are_those_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        'env_id = "CartPole-v1"\nplanner = "mcts"\nseed = 5\nmax_steps = 3\nwrappers = ["TimeLimit=50"]\n'
        "[planner_options]\nnum_simulations = 20\nwidening = [1.0, 0.5]\n[make]\nsutton_barto_reward = true\n"
    )
    assert plan("--config", str(tmp_path / "run.toml"), "--out", str(tmp_path / "a")) == 0
    given = ["--planner", "mcts", "--num-simulations", "20", "--widening", "1.0,0.5"]
    given += ["--make", "sutton_barto_reward=True", "--wrappers", "TimeLimit=50", "--max-steps", "3"]
    assert plan("CartPole-v1", *given, "--seed", "5", "--out", str(tmp_path / "b")) == 0
    assert plan("--config", str(tmp_path / "a" / "run.json"), "--out", str(tmp_path / "c")) == 0
    files = [(tmp_path / name / "trajectory.npz").read_bytes() for name in "abc"]
    assert files[0] == files[1] == files[2]
    assert plan("--config", str(tmp_path / "run.toml"), "--out", str(tmp_path / "d"), "--max-steps", "2") == 0
    assert len(np.load(tmp_path / "d" / "trajectory.npz")["rewards"]) == 2


@pytest.mark.parametrize(
    ("env_id", "planner"),
    [
        ("CartPole-v1", planvec.MCTS(num_simulations=30, rollout_horizon=0)),
        ("MiniGrid-Empty-5x5-v0", planvec.MCTS(num_simulations=30, rollout_horizon=4)),
        ("Pendulum-v1", planvec.MCTS(num_simulations=30, rollout_horizon=4, max_actions=8)),
        ("Pendulum-v1", planvec.ICEM(num_trajectories=16, num_elites=4, horizon=8, dt=3)),
        ("CartPole-v1", planvec.CEM(num_trajectories=16, horizon=8)),
        ("CartPole-v1", planvec.Swarm(num_walkers=8, num_iterations=6)),
        ("MiniGrid-Empty-5x5-v0", planvec.SwarmWave(num_walkers=8, num_iterations=6)),
        ("CartPole-v1", planvec.RandomShooting(num_trajectories=16)),
    ],
)
def test_a_plan_from_a_file_is_continued_as_the_plan_itself(
    env_id: str, planner: planvec.Planner, tmp_path: Path
) -> None:
    with planvec.PlanEnv(env_id) as env:
        state = env.reset(seed=0).state
        first = planner.plan(env, state, seed=1)
        save_plan(tmp_path / "plan.npz", first, env)
        loaded = load_plan(tmp_path / "plan.npz", env)
        assert loaded.value == first.value
        assert type(loaded.search_data) is type(first.search_data)
        after = env.step_batch(np.array([first.action]), np.array([state])).new_states[0]
        plans = [planner.plan(env, after, seed=2, previous=previous) for previous in (first, loaded)]
    for name in ("action", "root_actions", "visit_counts", "action_values", "best_actions"):
        np.testing.assert_array_equal(getattr(plans[0], name), getattr(plans[1], name))
    assert plans[0].num_env_steps == plans[1].num_env_steps


def test_a_damaged_plan_is_refused(tmp_path: Path) -> None:
    with planvec.PlanEnv("CartPole-v1") as env:
        swarm = planvec.Swarm(num_walkers=8, num_iterations=6).plan(env, env.reset(seed=0).state, seed=0)
        save_plan(tmp_path / "plan.npz", swarm, env)
        arrays = dict(np.load(tmp_path / "plan.npz"))
        broken = []
        for name, change in (
            ("search_data.moves", lambda moves: moves["parent"].__setitem__(2, 10**6)),
            ("search_data.table", lambda table: table["node"].__setitem__(0, -3)),
        ):
            broken.append({**arrays, name: arrays[name].copy()})
            change(broken[-1][name])
        broken.append({**arrays, "search_data": np.array("Popen")})
        broken.append({name: array for name, array in arrays.items() if name != "value"})
        for wrong in broken:
            np.savez(tmp_path / "plan.npz", **wrong)
            with pytest.raises(planvec.InvalidBatchError, match="which is damaged"):
                load_plan(tmp_path / "plan.npz", env)


def test_a_checkpoint_with_a_damaged_plan_is_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    with planvec.PlanEnv("CartPole-v1") as env:
        state = np.array([env.reset(seed=0).state])
        plan = planvec.RandomShooting(num_trajectories=4, horizon=3).plan(env, state, seed=0)
        wrong = dataclasses.replace(plan, root_actions=np.array([5]))
        play.Checkpoint(0, np.array([0]), np.zeros((1, 3)), state, wrong, {}).write(path, env)
        with pytest.raises(planvec.InvalidBatchError, match=r"checkpoint\.npz: .* is damaged .*actions"):
            play.Checkpoint.read(path, env)


@pytest.mark.parametrize(
    "planner", [planvec.CEM(), planvec.RandomShooting(), planvec.Swarm(num_iterations=2)]
)
def test_a_plan_of_another_environment_is_refused(planner: planvec.Planner, tmp_path: Path) -> None:
    with planvec.PlanEnv("MountainCar-v0") as env:
        plan = planner.plan(env, env.reset(seed=0).state, seed=0)
        save_plan(tmp_path / "plan.npz", plan, env)
    with (
        planvec.PlanEnv("CartPole-v1") as other,
        pytest.raises(planvec.InvalidBatchError, match="damaged or of another environment"),
    ):
        load_plan(tmp_path / "plan.npz", other)


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "plan.npy", np.array({}), allow_pickle=True)
    message = r"expected a NumPy archive, got .*plan\.npy\)$"
    with planvec.PlanEnv("CartPole-v1") as env, pytest.raises(planvec.InvalidBatchError, match=message):
        load_plan(tmp_path / "plan.npy", env)


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return os.system, ("echo pwned",)


def test_states_of_a_file_run_no_code(tmp_path: Path) -> None:
    planner = planvec.MCTS(num_simulations=20, rollout_horizon=2)
    with planvec.make("MiniGrid-Empty-5x5-v0", num_workers=1) as env:
        tree = planner.plan(env, env.reset(seed=0).state, seed=0).search_data
        tree.save(tmp_path / "tree.npz")
        with pytest.raises(planvec.InvalidBatchError, match="env: expected the environment of the tree"):
            planvec.Tree.load(tmp_path / "tree.npz")
        loaded = planvec.Tree.load(tmp_path / "tree.npz", env)
        assert planner.resume(env, loaded, seed=1).value == planner.resume(env, tree, seed=1).value

        arrays = dict(np.load(tmp_path / "tree.npz"))
        size = int(arrays["states.generator_sizes"][0])
        first = arrays["states"][: arrays["states.sizes"][0]].tobytes()
        evil = pickle.dumps((Evil(), 0, False, False), protocol=5) + first[len(first) - size :]
        rest = arrays["states"][arrays["states.sizes"][0] :].tobytes()
        arrays["states"] = np.frombuffer(evil + rest, np.uint8)
        arrays["states.sizes"][0] = len(evil)
        np.savez(tmp_path / "tree.npz", **arrays)
        with pytest.raises(planvec.InvalidBatchError, match=r"names \w+\.system"):
            planvec.Tree.load(tmp_path / "tree.npz", env)
