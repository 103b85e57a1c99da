"""The command line, as a user types it."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import inspect
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import planvec
from planvec.backends.processes import worker as worker_module
from planvec.cli import main, plan
from planvec.cli.plan import add_planner
from planvec.planners import (
    PLANNERS,
    EpisodeRecorder,
    Plan,
    Planner,
    Search,
    StepRequest,
    Swarm,
    on_command_line,
    option,
)
from planvec.runs import RunConfig

QUICK = ["--num-walkers", "8", "--num-iterations", "5", "--max-steps", "6", "--seed", "3"]


def run(out: Path, *arguments: str, env_id: str = "CartPole-v1", num_workers: int = 0) -> int:
    workers = ["--num-workers", str(num_workers)]
    return main(["plan", env_id, *QUICK, *workers, "--out", str(out), *arguments])


def arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as saved:
        return {name: saved[name] for name in saved}


def test_a_run_is_replaced_only_once_another_can_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, "--no-progress") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    for wrong in (["--tensorboard"], ["--codec", "copied:nothing"]):
        assert run(tmp_path, "--no-progress", "--overwrite", *wrong) == 2
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(tmp_path, "--no-progress", "--overwrite", "--max-steps", "2") == 0
    assert len(arrays(tmp_path / "trajectory.npz")["rewards"]) == 2


def test_a_run_is_summarised_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "out", "--no-progress") == 0
    said = capsys.readouterr()
    assert said.err == ""
    for text in ("CartPole-v1", "swarm (num_walkers=8, num_iterations=5", "6.00", "stopped at --max-steps"):
        assert text in said.out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["return"], summary["num_steps"], summary["seed"]) == (6.0, 6, 3)
    assert summary["versions"]["planvec"] == planvec.__version__
    assert summary["planner_options"]["num_walkers"] == 8
    saved = arrays(tmp_path / "out" / "trajectory.npz")
    assert saved["actions"].shape == (6,)
    assert saved["observations"].shape == (7, 4)
    assert (saved["rewards"].sum(), saved["seed"]) == (6.0, 3)
    assert (saved["terminated"], saved["truncated"]) == (False, False)


def test_json_is_all_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--json") == 0
    said = capsys.readouterr()
    printed = json.loads(said.out)
    assert "step" in said.err  # the progress bar
    names = ("summary.json", "trajectory.npz", "steps.csv", "run.json")
    assert printed.pop("files") == [str(tmp_path / name) for name in names]
    assert printed == json.loads((tmp_path / "summary.json").read_text())


@pytest.mark.slow
def test_a_trajectory_does_not_depend_on_workers_that_are_killed() -> None:
    script = Path(__file__).parent.parent / "benchmarks" / "plan_under_fire.py"
    command = [sys.executable, str(script), "--every", "0.5", "--max-kills", "4", "--max-steps", "30"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same bytes" in done.stdout
    assert "with 0 kills" not in done.stdout


def test_replaced_workers_are_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = EpisodeRecorder.begin

    def begin_and_kill(recorder: Any, *arguments: Any) -> None:
        begin(recorder, *arguments)
        for worker in list(worker_module._live):
            worker.kill()

    monkeypatch.setattr(EpisodeRecorder, "begin", begin_and_kill)
    assert run(tmp_path, num_workers=1) == 0
    said = capsys.readouterr()
    assert "workers:     1; 1 replaced, which changes no result" in said.out
    assert "was killed by SIGKILL" in said.err
    assert json.loads((tmp_path / "summary.json").read_text())["workers_replaced"] == 1


def test_a_trajectory_does_not_depend_on_the_number_of_workers(tmp_path: Path) -> None:
    for num_workers in (0, 2):
        run(tmp_path / str(num_workers), env_id="FrozenLake-v1", num_workers=num_workers)
    one, other = (tmp_path / name / "trajectory.npz" for name in ("0", "2"))
    assert {name: array.tobytes() for name, array in arrays(one).items()} == {
        name: array.tobytes() for name, array in arrays(other).items()
    }
    assert one.read_bytes() == other.read_bytes()


def test_gymnasium_replays_the_trajectory(tmp_path: Path) -> None:
    run(tmp_path, env_id="Pendulum-v1")
    saved = arrays(tmp_path / "trajectory.npz")
    env = gymnasium.make("Pendulum-v1")
    observation, _ = env.reset(seed=int(saved["seed"]))
    observations = [observation, *(env.step(action)[0] for action in saved["actions"])]
    assert np.array_equal(saved["observations"], observations)
    env.close()


def test_the_default_directory_names_environment_planner_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "CartPole-v1", *QUICK, "--num-workers", "0", "--no-progress"]) == 0
    assert (tmp_path / "runs" / "CartPole-v1-swarm-seed3" / "summary.json").is_file()


def test_a_seed_is_drawn_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--num-walkers", "4", "--num-iterations", "2", "--max-steps", "1", "--num-workers", "0"]
    assert main(["plan", "CartPole-v1", *arguments, "--out", str(tmp_path)]) == 0
    seed = json.loads((tmp_path / "summary.json").read_text())["seed"]
    assert f"seed:        {seed}\n" in capsys.readouterr().out


@pytest.mark.parametrize("env_id", ["CartPoel-v1", "nowhere:CartPole-v1", "Blackjack-v99"])
def test_an_unknown_environment_is_one_line_and_status_2(
    env_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path / "out", env_id=env_id) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("planvec: error: ")
    assert said.err.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        ["--num-walkers", "many"],
        ["--num-workers", "-1"],
        ["--seed", "x"],
        ["--seed", str(2**64)],
        ["--planner", "y"],
    ],
)
def test_a_wrong_argument_is_named(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "CartPole-v1", *wrong]) == 2
    assert f"argument {wrong[0]}:" in capsys.readouterr().err


@pytest.mark.parametrize(("after", "written"), [(0, False), (3, True)])
def test_an_interrupt_is_status_130_and_keeps_what_was_played(
    after: int,
    written: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan, calls = Swarm.plan, []

    def interrupted(*arguments: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > after:
            raise KeyboardInterrupt
        return plan(*arguments, **kwargs)

    monkeypatch.setattr(Swarm, "plan", interrupted)
    assert run(tmp_path / "out", "--no-progress") == 130
    assert capsys.readouterr().err.startswith("planvec: interrupted")
    assert (tmp_path / "out").exists() is written
    if written:
        assert len(arrays(tmp_path / "out" / "trajectory.npz")["actions"]) == after


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_status:
        main(["--version"])
    assert exit_status.value.code == 0
    assert capsys.readouterr().out == f"planvec {planvec.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [(["--help"], {"numpy", "gymnasium", "tqdm", "numba"}), (["plan", "--help"], {"tqdm", "numba"})],
)
def test_help_imports_nothing_heavy(arguments: list[str], heavy: set[str]) -> None:
    code = (
        "import sys\nfrom planvec.cli import main\n"
        f"try: main({arguments})\nexcept SystemExit: pass\n"
        f"assert not {heavy} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


# -- every planner ----------------------------------------------------------------------------------

OPTIONS = {
    "swarm": ["--num-walkers", "8", "--num-iterations", "4", "--dt", "1,3"],
    "swarm-wave": ["--num-walkers", "8", "--num-iterations", "4"],
    "mcts": ["--num-simulations", "20", "--value-scale", "3.5", "--widening", "2,0.5"],
    "random-shooting": ["--num-trajectories", "8", "--horizon", "5"],
    "cem": ["--num-trajectories", "8", "--num-elites", "3", "--max-env-steps", "100"],
    "icem": ["--num-trajectories", "8", "--num-elites", "3", "--noise-beta", "1"],
    "mppi": ["--num-trajectories", "8", "--temperature", "0.5"],
}


@pytest.mark.parametrize(
    "name",  # the search of mcts takes long to compile
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "mcts")) for name in PLANNERS],
)
def test_every_planner_is_on_the_command_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--num-workers", "0", "--max-steps", "2", "--seed", "1", "--out", str(tmp_path)]
    options = OPTIONS.get(name, ["--max-env-steps", "100"])
    env_id = "CartPole-v1" if name in ("iw", "rollout-iw") else "Pendulum-v1"
    assert main(["plan", env_id, "--planner", name, *options, *common]) == 0
    said = capsys.readouterr()
    field, value = options[0].strip("-").replace("-", "_"), options[1]
    line = next(line for line in said.out.splitlines() if line.startswith("planner:"))
    assert f" {name} (" in line
    assert f"{field}={value}" in line
    assert json.loads((tmp_path / "summary.json").read_text())["planner_options"][field] == int(value)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("mcts", "--num-simulations"),
        ("swarm", "--num-walkers"),
        ("mppi", "--temperature"),
        ("cem", "--num-elites"),
    ],
)
def test_the_help_lists_the_options_of_the_planner(
    name: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["plan", "--planner", name, "--help"])
    said = capsys.readouterr().out
    assert f"--planner {name}:" in said
    assert flag in said
    assert all(other in said for other in PLANNERS)  # and where to find those of the others
    assert len(said.splitlines()) < 160


class ConstantSearch(Search):
    def __init__(self, env: Any, state: Any, action: int) -> None:
        self.request = StepRequest(np.array([action], env.action_space.dtype), state)

    def simulate(self) -> Any:
        self.out = yield self.request
        self.num_simulations, self.stop_reason = 1, "num_simulations"

    def plan(self) -> Plan:
        return Plan(action=self.request.actions[0], value=float(self.out.rewards[0]))


@dataclasses.dataclass(frozen=True)
class Constant(Planner):
    """Takes the same action at every state.

    Args:
        constant: The action.
        max_env_steps: Environment steps per decision; see `Planner`.
        max_seconds: Seconds per decision; see `Planner`.
    """

    constant: int = option(1, "the action to take")

    def begin(self, env: Any, state: Any, *_: Any, **__: Any) -> Search:
        return ConstantSearch(env, state, self.constant)


def test_a_planner_is_added_by_one_entry_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PLANNERS, "constant", Constant)
    arguments = ["--planner", "constant", "--constant", "0", "--num-workers", "0", "--max-steps", "4"]
    assert main(["plan", "CartPole-v1", *arguments, "--out", str(tmp_path)]) == 0
    assert arrays(tmp_path / "trajectory.npz")["actions"].tolist() == [0, 0, 0, 0]
    assert "constant (constant=0)" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["plan", "--planner", "constant", "--help"])
    assert "the action to take (default: 1)" in capsys.readouterr().out


@pytest.mark.parametrize("name", PLANNERS)
def test_every_option_has_a_help_text(name: str) -> None:
    parser = argparse.ArgumentParser()
    add_planner(parser, name)
    actions = [action for action in parser._actions if action.dest not in ("help", "planner")]
    planner_class = PLANNERS[name]
    offered = {field.name for field in dataclasses.fields(planner_class) if on_command_line(field)}
    assert {action.dest for action in actions} == offered >= {"max_env_steps", "max_seconds"}
    for action in actions:
        assert len((action.help or "").partition(" (default:")[0]) > 8, action.dest


@pytest.mark.parametrize("name", PLANNERS)
def test_the_docstring_of_a_planner_names_every_field(name: str) -> None:
    planner_class = PLANNERS[name]
    arguments = (inspect.getdoc(planner_class) or "").partition("\nArgs:\n")[2].partition("\nRaises:")[0]
    names = ", ".join(re.findall(r"^    (\w+(?:, \w+)*): ", arguments, re.MULTILINE)).split(", ")
    assert sorted(names) == sorted(field.name for field in dataclasses.fields(planner_class))


@pytest.mark.parametrize("name", PLANNERS)
def test_only_functions_are_not_options(name: str) -> None:
    for field in dataclasses.fields(PLANNERS[name]):
        assert on_command_line(field) or "Function" in str(field.type), field.name


def test_the_planner_says_which_infos_it_reads() -> None:
    assert planvec.Swarm().info_keys == planvec.MCTS().info_keys == ()
    assert planvec.MCTS(legal_actions="action_mask").info_keys == ("action_mask",)


def test_options_of_another_planner_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "CartPole-v1", "--planner", "mcts", "--num-walkers", "8"]) == 2
    assert "--num-walkers belongs to --planner swarm and swarm-wave, and the planner is mcts" in (
        capsys.readouterr().err
    )


def test_an_option_out_of_range_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "CartPole-v1", "--planner", "mcts", "--discount", "2"]) == 2
    assert capsys.readouterr().err == "planvec: error: --discount: expected a number from 0 to 1, got 2\n"
    assert main(["plan", "CartPole-v1", "--num-walkers", "0"]) == 2
    assert "--num-walkers: expected an integer of at least 1, got 0" in capsys.readouterr().err


def test_that_kernels_are_compiled_is_said_on_the_progress_bar(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path) == 0
    assert "compiled" in capsys.readouterr().err


def test_python_m_planvec_is_the_command_line() -> None:
    command = [sys.executable, "-m", "planvec", "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == f"planvec {planvec.__version__}\n"


def test_runs_at_the_same_time_get_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = RunConfig(env_id="CartPole-v1", planner="swarm", seed=0)
    with ThreadPoolExecutor(8) as pool:
        directories = list(pool.map(lambda _: plan._new_directory(config), range(40)))
    assert len(set(directories)) == 40
    assert all(made.is_dir() for made in directories)


def test_a_run_is_replaced_only_if_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--no-progress") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(tmp_path, "--no-progress", "--max-steps", "3") == 2
    assert "or replace it with --overwrite" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(tmp_path, "--no-progress", "--max-steps", "3", "--overwrite") == 0
    assert len(arrays(tmp_path / "trajectory.npz")["actions"]) == 3


def test_a_full_disk_loses_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, *_: Any) -> None:
        path.write_bytes(b"half a traj")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("planvec.runs.play.save_trajectory", full)
        assert run(tmp_path / "out", "--no-progress") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not [path for path in (tmp_path / "out").iterdir() if "traj" in path.name]
    assert main(["plan", "--resume", str(tmp_path / "out"), "--num-workers", "0", "--no-progress"]) == 0
    run(tmp_path / "whole", "--no-progress")
    paths = [tmp_path / name / "trajectory.npz" for name in ("out", "whole")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_run_that_fails_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise planvec.PlanvecError("no plan")

    monkeypatch.setattr(Swarm, "plan", fails)
    assert run(tmp_path / "out", "--no-progress") == 2
    assert "no plan" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_with_a_closed_error_stream_is_written(tmp_path: Path) -> None:
    command = (
        f"{sys.executable} -m planvec plan CartPole-v1 --planner swarm --num-walkers 8 --max-steps 2 "
        f"--num-workers 0 --seed 0 --out {tmp_path / 'out'} 2>&-"
    )
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert "return:" in done.stdout
    names = {"summary.json", "trajectory.npz", "steps.csv", "run.json"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names


def test_explore_goes_on_with_an_archive_and_makes_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = ["explore", "CartPole-v1", "--num-explorers", "4", "--num-steps", "10", "--num-workers", "0"]
    assert main([*quick, "--max-rounds", "2", "--seed", "3", "--plot", "--video", "best.gif"]) == 0
    said = capsys.readouterr()
    assert "80 steps, " in said.err
    assert "CartPole-v1, seed 3: " in said.out
    directory = Path("runs/CartPole-v1-explore-seed3")
    assert (directory / "exploration.png").stat().st_size > 5000
    assert Path("best.gif").stat().st_size > 1000
    assert main([*quick, "--max-rounds", "5", "--out", str(directory), "--json", "--no-progress"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    result = json.loads(said.out)
    assert (result["seed"], result["num_env_steps"]) == (3, 200)
    with planvec.make("CartPole-v1", num_workers=0) as env:
        archive = planvec.Explorer(num_explorers=4, num_steps=10).run(env, seed=3, max_rounds=5)
    assert (archive.num_cells, archive.scores.max()) == (result["num_cells"], result["best_score"])


def test_bounds_below_zero_need_no_equals_sign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    game = ["plan", "OpenSpiel/tic_tac_toe", "--planner", "mcts", "--num-simulations", "20"]
    given = [
        "--max-steps",
        "1",
        "--value-bounds",
        "-1,1",
        "--num-workers",
        "0",
        "--no-progress",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main([*game, *given]) == 0
    assert "value_bounds=(-1, 1)" in capsys.readouterr().out


def test_wrappers_of_other_packages_are_named_by_their_modules(tmp_path: Path) -> None:
    out = tmp_path / "out"
    grid = ["plan", "MiniGrid-Empty-5x5-v0", "--planner", "iw", "--num-simulations", "20", "--max-steps", "1"]
    given = ["--wrappers", "minigrid.wrappers:FullyObsWrapper", "--num-workers", "0", "--no-progress"]
    assert main([*grid, *given, "--out", str(out)]) == 0
    with np.load(out / "trajectory.npz") as trajectory:
        images = [trajectory[name] for name in trajectory if name.endswith("image")]
    assert images[0].shape[1:] == (5, 5, 3)
    assert main(["replay", str(out)]) == 0


def test_many_trajectories_are_listed_shortly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = ["--max-steps", "1", "--num-iterations", "2", "--num-workers", "0", "--no-progress"]
    assert main(["plan", "CartPole-v1", "--episodes", "5", *short, "--out", str(tmp_path / "out")]) == 0
    assert "trajectory.npz to trajectory-5.npz, " in capsys.readouterr().out


def test_bench_compares_workers_with_independent_processes_and_draws_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bench.png"
    arguments = ["bench", "Pendulum-v1", "--seconds", "0.5", "--rows", "8", "--workers", "2"]
    assert main([*arguments, "--plot", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ("in this process", "2 workers", "2 processes alone")
    assert [line.split("  ")[0] for line in lines if line.startswith(names)][:3] == [*names]
    assert any("of what as many independent processes do" in line for line in lines)
    assert path.stat().st_size > 10_000
    assert main([*arguments, "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert set(measured["shares"]) == {"2 workers"}
    assert measured["fastest"][0] != "2 processes alone"
