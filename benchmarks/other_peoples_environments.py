"""Compare planvec with Gymnasium's own loop on environments of other people, and write the table of the docs.

    python benchmarks/other_peoples_environments.py --envs /tmp/envs              all groups: about two hours
    python benchmarks/other_peoples_environments.py --envs /tmp/envs --group robotics dm_control
    python benchmarks/other_peoples_environments.py --envs /tmp/envs --write      also write the table

The packages of one group may exclude those of another. So each group gets a virtual environment of its own
in the folder `--envs`, in which planvec is installed from this checkout. It is kept for the next time. So are
the results: the table is written from the last one of every environment (`--group` alone runs none).

Of each environment, an episode of 300 steps (or several) is played without planvec, twice, in two processes.
Then, with two worker processes:

- the same steps are taken one by one, each from the state before;
- all of them are taken in one batch, in another order;
- 40 other actions are taken from states on the way, and compared with Gymnasium alone, which is brought there
  by playing the episode again.

Observations, rewards and flags must be the same bits everywhere. The exit status is 1 if any environment was
accepted and gave another result.
"""

from __future__ import annotations

import argparse
import copy
import functools
import hashlib
import json
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from foreign_environments import GROUPS, make
from gymnasium.vector.utils import concatenate, create_empty_array

import planvec

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "environments.md"
MARKS = "<!-- other people's environments -->\n", "<!-- end -->\n"
GROUP_MARKS = "<!-- groups -->\n", "<!-- end of groups -->\n"
NUM_STEPS, NUM_BRANCHES = 300, 40
TIMEOUT = 900
"""Seconds for one environment."""

Outcome = tuple[Any, float, bool, bool]


# -- in the virtual environment of a group ------------------------------------------------------------


def play(factory: Any, num_steps: int) -> tuple[list[tuple[int, int]], list[Any], list[Outcome], list[Any]]:
    """Step an environment by Gymnasium's own loop. Every episode is played by a new one, as in planvec.

    Returns:
        For each step: the seed of its episode and the number of steps before; the action; the outcome. And
        the first observation of each episode.
    """
    env = factory()
    space = copy.deepcopy(env.action_space)
    space.seed(0)
    places, actions, outcomes, firsts = [], [], [], []
    seed, depth = 0, 0
    firsts.append(in_space(env.reset(seed=seed)[0], env.observation_space))
    for _ in range(num_steps):
        action = space.sample()
        places.append((seed, depth))
        actions.append(action)
        outcome = env.step(action)
        outcomes.append(plain(env, outcome))
        depth += 1
        if outcome[2] or outcome[3]:
            seed, depth = seed + 1, 0
            env.close()
            env = factory()
            firsts.append(in_space(env.reset(seed=seed)[0], env.observation_space))
    env.close()
    return places, actions, outcomes, firsts


def time_of_steps(factory: Any, played: Any) -> float:
    """Return the seconds that a step takes in Gymnasium's own loop, over the longest episode."""
    places, actions, *_ = played
    start = max(range(len(places)), key=lambda index: places[index][1])
    first = start - places[start][1]
    env = factory()
    env.reset(seed=places[start][0])
    started = time.perf_counter()
    for action in actions[first : start + 1]:
        env.step(action)
    seconds = (time.perf_counter() - started) / (start + 1 - first)
    env.close()
    return seconds


def plain(env: Any, outcome: Any) -> Outcome:
    """Return a copy of what a step returned, without the info."""
    observation = in_space(outcome[0], env.observation_space)
    return observation, float(outcome[1]), bool(outcome[2]), bool(outcome[3])


def bits(value: Any) -> Any:
    """Return something that is equal for equal bits."""
    if isinstance(value, dict):
        return tuple((key, bits(value[key])) for key in sorted(value))
    if isinstance(value, (tuple, list)):
        return tuple(map(bits, value))
    if isinstance(value, str):
        return value
    return np.asarray(value).tobytes()


def first_difference(expected: Sequence[Outcome], actual: Sequence[Outcome]) -> str:
    """Return a text on the first outcome that differs; "" if none does."""
    for number, (one, other) in enumerate(zip(expected, actual, strict=True)):
        for name, a, b in zip(("observation", "reward", "terminated", "truncated"), one, other, strict=True):
            if bits(a) != bits(b):
                return f"{name} of step {number}"
    return ""


def in_space(observation: Any, space: Any) -> Any:
    """Return an observation with the dtypes of its space, as in a batch."""
    return row_of(batch_of(space, [observation]), 0)


def outcomes_of(out: Any) -> list[Outcome]:
    """Return the outcomes of a batch, row by row, in the types of Gymnasium."""
    observations = [row_of(out.observations, row) for row in range(len(out.rewards))]
    flags = zip(out.terminated.tolist(), out.truncated.tolist(), strict=True)
    return [
        (observation, float(reward), *flag)
        for observation, reward, flag in zip(observations, out.rewards, flags, strict=True)
    ]


def row_of(column: Any, row: int) -> Any:
    """Return one observation of a batch."""
    if isinstance(column, dict):
        return {key: row_of(inner, row) for key, inner in column.items()}
    if isinstance(column, tuple) and not (column and isinstance(column[0], str)):
        return tuple(row_of(inner, row) for inner in column)
    return column[row]


def batch_of(space: Any, actions: Sequence[Any]) -> Any:
    return concatenate(space, actions, create_empty_array(space, n=len(actions)))


def examine(group: str, name: str) -> dict[str, Any]:
    """Return what was found out about one environment. To be called in a process of its own."""
    kwargs = dict(GROUPS[group].environments[name])
    codec = kwargs.pop("codec", None)
    if codec == "in forks":
        codec = planvec.Replayed(resets_in_forks=True)
    factory = functools.partial(make, **kwargs)
    warnings.simplefilter("ignore")
    try:
        played = play(factory, NUM_STEPS)
        naive = time_of_steps(factory, played)
    except Exception as error:
        return {"verdict": "fails by itself", "note": f"{type(error).__name__}: {error}"[:300]}
    own = subprocess.run(
        [sys.executable, __file__, "--play", group, name], capture_output=True, timeout=TIMEOUT, check=False
    )
    digest = own.stdout.decode().strip().rpartition("\n")[2]
    result: dict[str, Any] = {"naive_us": naive * 1e6, "is_reproducible": digest == digest_of(played)}
    return {**result, **compare(factory, codec, *played)}


def digest_of(played: Any) -> str:
    return hashlib.sha256(repr(bits([[*outcome] for outcome in played[2]])).encode()).hexdigest()


def compare(
    factory: Any, codec: Any, places: Any, actions: Any, outcomes: Any, firsts: Any
) -> dict[str, Any]:
    """Compare planvec with what was played without it."""
    started = time.perf_counter()
    try:
        batch_env = planvec.make(factory, num_workers=2, codec=codec)
    except planvec.PlanvecError as error:
        return {"verdict": "refused", "note": str(error)[:600]}
    opening = time.perf_counter() - started
    with batch_env:
        states, walked = [], []
        try:
            state = None
            for (seed, depth), action in zip(places, actions, strict=True):
                if depth == 0:
                    start = batch_env.reset(seed=seed)
                    state = start.state
                    first = in_space(start.observation, batch_env.observation_space)
                    if bits(first) != bits(firsts[seed]):
                        return {"verdict": "WRONG", "note": f"first observation of seed {seed}"}
                states.append(state)
                out = batch_env.step_batch(batch_of(batch_env.action_space, [action]), state)
                walked += outcomes_of(out)
                state = out.new_states[0]
            difference = first_difference(outcomes, walked)
            if difference:
                return {"verdict": "WRONG", "note": f"one by one: {difference}"}
            rng = np.random.default_rng(0)
            order = rng.permutation(len(actions))
            stacked = np.array(states, batch_env.state_dtype) if states else None
            chosen = batch_of(batch_env.action_space, [actions[i] for i in order])
            times = []
            for _ in range(4):
                started = time.perf_counter()
                out = batch_env.step_batch(chosen, stacked[order])
                times.append(time.perf_counter() - started)
            batch_time = statistics.median(times[1:])
            difference = first_difference([outcomes[i] for i in order], outcomes_of(out))
            if difference:
                return {"verdict": "WRONG", "note": f"in another order: {difference}"}
            difference = branch(batch_env, factory, places, actions, stacked, rng)
            if difference:
                return {"verdict": "WRONG", "note": f"branches: {difference}"}
        except planvec.PlanvecError as error:
            return {"verdict": "refused in use", "note": str(error)[:600]}
        sizes = [state.nbytes for state in states]
        return {
            "verdict": "exact",
            "opening": opening,
            "bytes": int(np.median(sizes)),
            "planvec_us": batch_time / len(actions) * 1e6,
        }


def branch(batch_env: Any, factory: Any, places: Any, actions: Any, states: Any, rng: Any) -> str:
    """Take other actions from states on the way, with planvec and without."""
    space = copy.deepcopy(batch_env.action_space)
    space.seed(1)
    chosen = sorted(rng.choice(len(actions), min(NUM_BRANCHES, len(actions)), replace=False).tolist())
    others = [space.sample() for _ in chosen]
    out = batch_env.step_batch(batch_of(batch_env.action_space, others), states[chosen])
    expected = []
    for index, other in zip(chosen, others, strict=True):
        seed, depth = places[index]
        env = factory()
        env.reset(seed=seed)
        for action in actions[index - depth : index]:
            env.step(action)
        expected.append(plain(env, env.step(other)))
        env.close()
    return first_difference(expected, outcomes_of(out))


# -- outside ------------------------------------------------------------------------------------------


def python_of(group: str, folder: Path) -> Path:
    """Return the interpreter of a group's virtual environment, which is made if there is none."""
    path = folder / group
    python, complete = path / "bin" / "python", path / "complete"
    checkout = complete.read_text() if complete.exists() else None
    if checkout == str(ROOT):
        return python
    pip = [python, "-m", "pip", "install", "--quiet"]
    if checkout is None:
        print(f"{group}: install {' '.join(GROUPS[group].packages)}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", path], check=True)
        subprocess.run([*pip, "-e", ROOT], check=True)
        subprocess.run([*pip, *GROUPS[group].pip_options, *GROUPS[group].packages], check=True)
    else:  # it was made from another checkout
        subprocess.run([*pip, "--no-deps", "-e", ROOT], check=True)
    complete.write_text(str(ROOT))
    return python


def run(python: Path, group: str, name: str, timeout: int) -> dict[str, Any]:
    """Examine one environment in a process of its own."""
    try:
        done = subprocess.run(
            [python, __file__, "--examine", group, name], capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"verdict": "not finished", "note": f"after {timeout} s"}
    last = done.stdout.decode(errors="replace").strip().rpartition("\n")[2]
    try:
        result: dict[str, Any] = json.loads(last)
    except ValueError:
        text = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        return {"verdict": "crashed", "note": f"exit status {done.returncode}: {text}"[:300]}
    return result


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| environment | result | bytes of a state | planvec / Gymnasium alone, us a step | opened in |",
        "| --- | --- | --- | --- | --- |",
    ]
    for rows in results.values():
        for name, row in rows.items():
            verdict, note = row["verdict"], row.get("note", "").replace("\n", " ").replace("|", "\\|")
            if not row.get("is_reproducible", True) and verdict == "refused":
                note = f"it is not deterministic by itself. {note}"
            if verdict == "exact":
                cost = f"{row['planvec_us']:.0f} / {row['naive_us']:.0f}"
                lines.append(f"| {name} | exact | {row['bytes']:,} | {cost} | {row['opening']:.1f} s |")
            else:
                lines.append(f"| {name} | {verdict}: {note[:160]} | | | |")
    return "\n".join(lines) + "\n"


def replaced(text: str, marks: tuple[str, str], content: str) -> str:
    """Return a text with other content between two marks."""
    before, rest = text.split(marks[0])
    return before + marks[0] + content + marks[1] + rest.split(marks[1])[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--envs", type=Path, help="folder of the virtual environments")
    parser.add_argument("--group", nargs="*", help="groups (default: all)")
    parser.add_argument("--only", default="", help="a part of the names to examine")
    parser.add_argument("--timeout", type=int, default=TIMEOUT, help=f"seconds for each (default: {TIMEOUT})")
    parser.add_argument("--write", action="store_true", help=f"write the table to {TABLE.relative_to(ROOT)}")
    parser.add_argument("--examine", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--play", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.examine:
        print(json.dumps(examine(*arguments.examine)))
        return 0
    if arguments.play:
        group, name = arguments.play
        warnings.simplefilter("ignore")
        kwargs = {key: item for key, item in GROUPS[group].environments[name].items() if key != "codec"}
        print(digest_of(play(functools.partial(make, **kwargs), NUM_STEPS)))
        return 0
    if arguments.envs is None:
        parser.error("--envs: expected a folder for the virtual environments")
    kept = arguments.envs / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    chosen = [
        (group, name)
        for group in (GROUPS if arguments.group is None else arguments.group)
        for name in GROUPS[group].environments
        if arguments.only in name
    ]
    for group, name in chosen:
        result = run(python_of(group, arguments.envs), group, name, arguments.timeout)
        print(f"{name:45}{json.dumps(result)}", flush=True)
        results.setdefault(group, {})[name] = result
        kept.write_text(json.dumps(results, indent=1))
    # in the order of the groups, and without what is no longer in them
    results = {
        name: {key: results[name][key] for key in group.environments if key in results.get(name, {})}
        for name, group in GROUPS.items()
    }
    verdicts = [row["verdict"] for rows in results.values() for row in rows.values()]
    print({verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))})
    if arguments.write:
        text = replaced(TABLE.read_text(), MARKS, table(results))
        packages = "".join(
            f"| {name} | {' '.join(f'`{package}`' for package in group.packages)} |\n"
            for name, group in GROUPS.items()
        )
        groups = "| group | packages |\n| --- | --- |\n" + packages
        TABLE.write_text(replaced(text, GROUP_MARKS, groups))
    return int("WRONG" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
