"""Check every environment in planvec's table of families, and write the table of the documentation.

    python benchmarks/environments.py                      check all families: about half an hour
    python benchmarks/environments.py --only Box2D MuJoCo
    python benchmarks/environments.py --write              also write families.json and docs/families.md

Each check takes 500 random steps, restores every state in another instance and in another process, and
steps 8 children of each of 20 states; see `planvec check --help`. The exit status is 0 only if all results
are exact. The measurements are in planvec/codecs/families.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium import wrappers

from planvec import CheckReport, check_env
from planvec.codecs import FAMILIES, Family, markdown_table
from planvec.envs import make_env

ROOT = Path(__file__).resolve().parent.parent
MARKS = "<!-- planvec envs -->\n", "<!-- end -->\n"
WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "TimeLimit": lambda env: wrappers.TimeLimit(env, 20),
    "Autoreset": wrappers.Autoreset,
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "DelayObservation": lambda env: wrappers.DelayObservation(env, 3),
    "FrameStackObservation": lambda env: wrappers.FrameStackObservation(env, 4),
    "TimeAwareObservation": lambda env: wrappers.TimeAwareObservation(wrappers.TimeLimit(env, 200)),
    "NormalizeObservation": wrappers.NormalizeObservation,
    "NormalizeReward": wrappers.NormalizeReward,
    "StickyAction": lambda env: wrappers.StickyAction(env, 0.4, (1, 3)),
    "MaxAndSkipObservation": lambda env: wrappers.MaxAndSkipObservation(env, 3),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: 0.5 * reward + 1),
}
WRAPPED = {
    "CartPole-v1": {},
    "ALE/Breakout-v5": {"obs_type": "ram"},
    "Hopper-v5": {},
}


def wrapped(env_id: str, name: str) -> Any:
    """Make an environment in a wrapper."""
    return WRAPPERS[name](make_env(env_id, env_kwargs=WRAPPED[env_id]))


def atari(name: str) -> Any:
    """Make a game in the usual stack of wrappers."""
    env = make_env(name, env_kwargs={"frameskip": 1})
    return wrappers.FrameStackObservation(wrappers.AtariPreprocessing(env), 4)


def jobs(family: Family) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield the name, the source and the arguments of each check of a family."""
    for env_id in family.ids:
        if env_id == "ALE/*-v5":
            import ale_py

            gymnasium.register_envs(ale_py)
            games = sorted(name for name in gymnasium.registry if name.startswith("ALE/"))
            for game in games:
                yield game, game, {}
                yield f"{game} without stickiness", game, {"repeat_action_probability": 0.0}
        else:
            yield env_id, env_id, {}


def jobs_of_wrappers() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Yield checks of the stateful wrappers on three environments, and of a usual stack on three games."""
    for env_id in WRAPPED:
        for name in WRAPPERS:
            yield f"{name}({env_id})", partial(wrapped, env_id, name), {}
    for game in ("Breakout", "MsPacman", "Qbert"):
        yield f"FrameStack(AtariPreprocessing({game}))", partial(atari, f"ALE/{game}-v5"), {}


def check(job: tuple[str, Any, dict[str, Any]], steps: int) -> CheckReport:
    """Run one check and print its result."""
    name, source, kwargs = job
    report = check_env(source, num_steps=steps, replay_seconds=1.0, env_kwargs=kwargs)
    state = "exact" if report.exact else f"NOT EXACT\n{report}"
    times = " ".join(f"{key} {value:.0f}" for key, value in report.microseconds.items())
    print(f"{name:<50} {state}  {report.state_bytes:.0f} bytes  us: {times}", flush=True)
    return report


def summarise(names: list[str], reports: list[CheckReport], num_ids: int) -> dict[str, Any]:
    """Return one row of the table: medians over the ids."""
    good = [report for report in reports if report.microseconds]
    return {
        "num_ids": num_ids,
        "num_checked": len(reports),
        "num_exact": sum(report.exact for report in reports),
        "exceptions": [name for name, report in zip(names, reports, strict=True) if not report.exact],
        "how": statistics.mode(report.codec for report in good),
        "bytes": round(statistics.median(report.state_bytes for report in good)),
        "microseconds": {
            key: round(statistics.median(report.microseconds[key] for report in good), 1)
            for key in ("get", "set", "step", "observe")
        },
    }


def main() -> int:
    """Run the checks. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [family.name for family in FAMILIES]
    parser.add_argument("--only", nargs="+", choices=[*names, "wrappers"], default=[*names, "wrappers"])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=1, help="checks at a time (the times suffer)")
    parser.add_argument("--write", action="store_true", help="write families.json and docs/families.md")
    arguments = parser.parse_args()
    path = ROOT / "planvec" / "codecs" / "families.json"
    table = json.loads(path.read_text()) if path.exists() else {}
    started, num_wrong = time.monotonic(), 0
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for family in [*FAMILIES, None]:
            name = "wrappers" if family is None else family.name
            if name not in arguments.only:
                continue
            todo = list(jobs_of_wrappers() if family is None else jobs(family))
            reports = list(pool.map(partial(check, steps=arguments.steps), todo))
            num_wrong += sum(not report.exact for report in reports)
            if family is not None:
                num_ids = len({source for _, source, _ in todo})
                table[name] = summarise([job[0] for job in todo], reports, num_ids)
    print(f"{num_wrong} not exact, in {time.monotonic() - started:.0f} s")
    if arguments.write:
        path.write_text(json.dumps(table, indent=1) + "\n")
        before, rest = (ROOT / "docs" / "families.md").read_text().split(MARKS[0])
        _, after = rest.split(MARKS[1])
        (ROOT / "docs" / "families.md").write_text(f"{before}{MARKS[0]}{markdown_table()}\n{MARKS[1]}{after}")
    return int(num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
