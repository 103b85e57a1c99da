"""Wrong invocations of the command line: one line with the cause and the fix, and the exit status."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from marks import slow_after

from planvec.cli import main

OWN = """
import gymnasium
def good():
    return gymnasium.make("CartPole-v1")
def raises():
    return 1 / 0
def nothing():
    return None
class Bad(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        raise KeyError("no data")
"""
MODULES = {
    "myenvs.py": OWN,
    "broken.py": "import gymnasium\nimport nowhere_to_be_found\n",
    "worse.py": "x = = 1\n",
    "wrong.toml": 'planer = "mcts"\n',
    "damaged.toml": "planner = [",
    "list.toml": 'env_id = "CartPole-v1"\nplanner = ["mcts"]\n',
    "option.toml": 'env_id = "CartPole-v1"\n[planner_options]\nnum_walker = 3\n',
    "number.json": '{"env_id": 3}',
    "options.json": '{"env_id": "CartPole-v1", "planner_options": 3}',
    "wrappers.json": '{"env_id": "CartPole-v1", "wrappers": [3]}',
    "file": "",
    "run/run.json": "{}",
    "explored/archive.npz": "",
}

CASES = r"""
$ planvec pln CartPole-v1
expected a command \(plan, explore, replay, check, bench, envs\), got 'pln'; did you mean 'plan'\?
$ planvec explore CartPole-v1
expected a limit: --max-env-steps, --max-rounds or --max-seconds
$ planvec explore CartPole-v1 --max-rounds 1 --cells 11x8
--cells: expected WIDTHxHEIGHTxLEVELS or module:function, got '11x8'
$ planvec explore CartPole-v1 --max-rounds 1 --cells myenvs.py:god
--cells: myenvs.py has no 'god'; did you mean 'good'\?
$ planvec explore CartPole-v1 --max-rounds 1 --cells nowhere:good
No module named 'nowhere': expected an installed module, one in the working directory
$ planvec explore CartPole-v1 --max-rounds 1 --out run
--out: expected a directory of planvec explore, got run, which holds a run of plan
$ planvec plan CartPole-v1 --max-steps 1 --out explored
--out: expected a directory of planvec plan, got explored, which holds an exploration
$ planvec plan --config number.json --preset
--preset: expected one of Acrobot, .*, got 3
$ planvec plan --config options.json --num-walkers 3
planner_options: expected a table of options, got 3
$ planvec plan --config wrappers.json
wrappers: expected a list of texts, got \[3\]
$ planvec plan CartPole-v1 --resume run
ENV_ID: --resume takes the settings of the run; leave ENV_ID out
$ planvec plan CartPole-v1 --resume explored
--resume: expected explored/run.json: .*; it holds an exploration, with which planvec explore goes on
$ planvec explore CartPole-v1 --max-rounds 1 --end-on-life-loss
got an info with nothing\. Where a game has no lives, take end_on_life_loss=False; otherwise open
$ planvec explore MiniGrid-Empty-5x5-v0 --max-rounds 1 --cells 11x8x8
cells: expected images, got a dict with direction, image, mission; write a function that takes them from it
$ planvec explore CartPole-v1 --max-rounds 1 --cells myenvs:good
TypeError: good\(\) takes 0 positional arguments
$ planvec explore CartPole-v1 --max-rounds 1 --repeat 3
repeat: expected a number from 0 to 1, got 3.0
$ planvec explore CartPole-v1 --max-rounds 1 --video best.mov
expected .*, got
$ planvec explore CartPole-v1 --max-rounds 1 --cells 11x8x8
cells: expected images
$ planvec CartPole-v1
got 'CartPole-v1'; to plan, type: planvec plan CartPole-v1
$ planvec plan CartPole-v1 --planner mcts --num-walkers 8
--num-walkers belongs to --planner swarm and swarm-wave, and the planner is mcts
$ planvec plan CartPole-v1 --num-simulations 8
--num-simulations belongs to --planner mcts, rollout-iw and iw, and the planner is swarm
$ planvec plan CartPole-v1 --planner mtcs
--planner: expected one of swarm, .*, got 'mtcs'; did you mean 'mcts'\?
$ planvec plan CartPole-v1 --num-worker-s 1
unknown option --num-worker-s; did you mean '--num-workers'\?
$ planvec --num-worker plan CartPole-v1
unknown option --num-worker; did you mean '--num-workers'\?
$ planvec plan CartPole-v1 --num-workers two
--num-workers: expected an integer of at least 0, got 'two'
$ planvec plan CartPole-v1 --backend cluster
--backend: expected one of processes, ray, got 'cluster'
$ planvec plan CartPole-v1 --codec fast
--codec: expected copied, copied:NAME,..., replay, or module:Codec with a planvec.Codec, got 'fast'
$ planvec plan CartPole-v1 extra
expected no further argument, got 'extra'
$ planvec plan
ENV_ID: expected the name of an environment, such as CartPole-v1
$ planvec plan CartPole-v1 --make gravity
--make: expected KEY=VALUE, got 'gravity'
$ planvec plan CartPole-v1 --wrappers TimeLimt=5
no wrapper 'TimeLimt'; did you mean 'TimeLimit'\?; those of other packages are module:Wrapper
$ planvec plan CartPole-v1 --wrappers gymnasium.wrappers:TimeLimt=5
--wrappers: gymnasium.wrappers has no 'TimeLimt'; did you mean 'TimeLimit'\?
$ planvec plan CartPole-v1 --wrappers myenvs:good
--wrappers: expected a gymnasium.Wrapper, got myenvs:good, which is <function good
$ planvec plan myenvs:good --video film.gif
--video: myenvs:good renders no frames here: .*; let your function make it with render_mode="rgb_array"
$ planvec plan CartPoel-v1
Environment `CartPoel` doesn't exist\. Did you mean: `CartPole`\?
$ planvec plan myenvs:god
myenvs has no 'god'; it has Bad, good, nothing, raises
$ planvec plan no_such_module:f
No module named 'no_such_module': expected an installed module
$ planvec plan ./no_such_file.py:f
No file ./no_such_file.py: expected the path of a Python file
$ planvec plan broken:f
while importing broken: ModuleNotFoundError: .*nowhere_to_be_found.*broken.py, line 2\)
$ planvec plan ./worse.py:f
while importing worse: SyntaxError: invalid syntax
$ planvec plan myenvs:raises
ZeroDivisionError: division by zero \(.*myenvs.py, line 6; --traceback shows more\)
$ planvec plan myenvs:nothing
expected .* a factory that returns one, got NoneType
$ planvec plan myenvs:Bad
KeyError: 'no data'
$ planvec plan CartPole-v1 --make gravty=3
--make: expected arguments of CartPole-v1 \(sutton_barto_reward, render_mode\) .* got gravty
$ planvec plan Pong-v5
Did you mean ALE/Pong-v5\?
$ planvec plan CartPole-v1 --planner MCTS
got 'MCTS'; did you mean 'mcts'\?
$ planvec plan CartPole-v1 --transposition
unknown option --transposition; did you mean '--transpositions'\?
$ planvec replay nowhere
RUN: expected the directory of a run, with a run.json, got nowhere, which does not exist
$ planvec check CartPole-v1 --codec copy
--codec: expected copied, copied:NAME,..., replay, or module:Codec with a planvec.Codec, got 'copy'
$ planvec check CartPole-v1 --codec myenvs:good
--codec: expected copied, .*, got 'myenvs:good'
$ planvec check CartPoel-v1
Did you mean: `CartPole`
$ planvec check myenvs:raises
ZeroDivisionError: division by zero \(.*myenvs.py, line 6
$ planvec bench CartPole-v1 --seconds 0
seconds: expected more than 0, got 0
$ planvec plan CartPole-v1 --planner icem
expected a Box, got Discrete\(2\); plan discrete actions with CEM
$ planvec plan CartPole-v1 --num-walkers 0
--num-walkers: expected an integer of at least 1, got 0
$ planvec plan Taxi-v4 --planner mcts --transpositions sell --max-steps 1 --num-workers 0 --no-progress
transpositions: expected fields of the states \(cell, .*\), got 'sell'
$ planvec plan CartPole-v1 --out file/run
--out: expected a directory to write to, got file/run: Not a directory
$ planvec plan CartPole-v1 --video film.avi
expected a path that ends with .gif or .mp4, got film.avi
$ planvec plan CartPole-v1 --video none/film.gif
--video: expected a path to write to, got none/film.gif: No such file
$ planvec plan CartPole-v1 --report page.txt
report: expected a path that ends with .html, got page.txt
$ planvec plan --config none.toml
--config: expected none.toml: No such file or directory
$ planvec plan --config wrong.toml
wrong.toml: expected some of env_id, .*, got planer
$ planvec plan --config list.toml
planner: expected a text, got \['mcts'\]
$ planvec plan --config damaged.toml
damaged.toml: expected TOML, got an error
$ planvec plan --config option.toml
num_walker: expected an option of the planner swarm: .*num_walkers
$ planvec plan --resume none
--resume: expected none/run.json: No such file or directory
$ planvec replay none
RUN: expected the directory of a run, .*got none
"""
"""A command, and a pattern of the error in the line below it."""

USAGE = dict(re.findall(r"^\$ planvec (.*)\n(.*)$", CASES, re.MULTILINE))


@pytest.fixture(autouse=True)
def in_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "myenvs", raising=False)  # of another test, in another directory


@pytest.mark.parametrize("line", USAGE)
def test_a_wrong_invocation_is_one_line_and_status_2(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("planvec: error: ")
    assert said.err.count("\n") == 1, said.err
    assert re.search(USAGE[line], said.err), said.err
    assert not list((tmp_path / "runs").glob("*"))  # nothing is left behind


def test_without_a_command_the_commands_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    usage, error, *others = capsys.readouterr().err.splitlines()
    assert usage == "usage: planvec [-h] [--version] COMMAND ..."
    assert (error, others) == (
        "planvec: error: expected a command (plan, explore, replay, check, bench, envs); see planvec --help",
        [],
    )


@pytest.mark.parametrize("line", ["plan CartPoel-v1", "plan CartPole-v1 --planner mtcs", "check broken:f"])
def test_errors_are_json_if_that_is_asked_for(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*line.split(), "--json"]) == 2
    said = capsys.readouterr()
    assert said.err == ""
    assert len(json.loads(said.out)["error"]) > 10


def test_the_traceback_is_shown_if_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "myenvs:raises", "--traceback"]) == 2
    said = capsys.readouterr().err
    assert "Traceback (most recent call last)" in said
    assert "return 1 / 0" in said


def test_a_check_that_fails_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    (Path.cwd() / "leaky.py").write_text(
        "import gymnasium\n"
        "TOTAL = [0]\n"
        "class Leaky(gymnasium.Env):\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    observation_space = gymnasium.spaces.Discrete(10**6)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return 0, {}\n"
        "    def step(self, action):\n"
        "        import time\n"
        "        return int(time.time_ns() % 10**6), 0.0, False, False, {}\n"
    )
    assert main(["check", "leaky:Leaky", "--steps", "60"]) == 1
    assert "NOT exact" in capsys.readouterr().out


def test_a_missing_package_is_not_checked_and_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.util

    import gymnasium

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "ale_py" else find(name, *rest)
    )
    monkeypatch.delitem(gymnasium.registry, "ALE/Pong-v5", raising=False)
    assert main(["check", "ALE/Pong-v5"]) == 2
    said = capsys.readouterr()
    assert "NOT exact" not in said.out
    assert re.search(r'needs the package ale_py, .*: pip install "ale-py>=', said.err)


def test_the_default_planner_is_not_for_random_steps(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--max-steps", "1", "--num-workers", "0", "--no-progress", "--num-iterations", "2"]
    for env_id, is_random in (("FrozenLake-v1", True), ("CartPole-v1", False), ("Taxi-v4", False)):
        assert main(["plan", env_id, *common]) == 0
        assert ("try --planner mcts" in capsys.readouterr().err) == is_random, env_id


RETURNS_AN_ARRAY = """
import ctypes
import os

import gymnasium
import numba
import numpy as np

kill = ctypes.CDLL(None).kill
kill.argtypes = (ctypes.c_int, ctypes.c_int)


@numba.njit
def interrupted(process):
    # As if the user pressed Ctrl-C during a long computation.
    kill(process, {number})
    return np.zeros(3)


class Env(gymnasium.Wrapper):
    num_steps = 0

    def step(self, action):
        self.num_steps += 1
        if self.num_steps == 5:
            interrupted(os.getpid())
        return self.env.step(action)


def make():
    return Env(gymnasium.make("CartPole-v1"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_compiled_function_that_returns_an_array_ends_the_command(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "returns.py").write_text(RETURNS_AN_ARRAY.format(number=int(number)))
    command = [sys.executable, "-m", "planvec", "check", "returns:make", "--steps", "1000000"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + number, done.stderr


INTERRUPTS_ITSELF = """
import os
import signal

import gymnasium


class Env(gymnasium.Wrapper):
    def step(self, action):
        if os.path.exists("out/archive.npz") and not os.path.exists("sent"):
            open("sent", "w").close()
            for number in {numbers}:
                os.kill(os.getpid(), number)
        return self.env.step(action)


def make():
    return Env(gymnasium.make("CartPole-v1"))
"""


@pytest.mark.parametrize("numbers", slow_after(1, ([signal.SIGINT], [signal.SIGTERM], [signal.SIGINT] * 2)))
def test_the_first_interrupt_of_an_exploration_waits_for_the_round(
    numbers: list[int], tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(INTERRUPTS_ITSELF.format(numbers=[int(number) for number in numbers]))
    size = ["--num-explorers", "2", "--num-steps", "10", "--num-workers", "0"]
    command = [sys.executable, "-m", "planvec", "explore", "own:make", "--max-rounds", "4", "--seed", "1"]
    command += [*size, "--out", "out", "--json", "--no-progress"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + numbers[0], done.stderr
    assert "planvec: ending after this round; once more: at once" in done.stderr
    if len(numbers) == 2:
        assert done.stdout == ""
        assert "out holds what was saved last, after 0 environment steps; the same command" in done.stderr
        return
    assert "planvec: interrupted; the same command with --out out goes on" in done.stderr
    result = json.loads(done.stdout)
    assert (result["interrupted"], result["num_env_steps"]) == (True, 20)
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (again.returncode, again.stderr) == (0, "")
    result = json.loads(again.stdout)
    assert (result["interrupted"], result["num_env_steps"]) == (False, 80)
