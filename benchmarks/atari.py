"""Play the Atari games of the published table of Rollout-IW, and keep a record of each score.

    python benchmarks/atari.py                          # 58 games, one episode each: two hours on 2 cores
    python benchmarks/atari.py --only Alien Pong --seeds 100 101 --jobs 1
    python benchmarks/atari.py --all-actions            # the same with 18 actions in every game
    python benchmarks/atari.py --table                  # the table of docs/scores.md, from the records
    python benchmarks/atari.py --replay                 # play every record again, to the bit

Every game has the same planner and settings, and as many simulator calls per decision as the authors'
planner had on average at 0.5 s: frame skip 15, 18,000 frames, no sticky actions. Runs that are interrupted go
on where they were (`--runs`; remove them when the planner has changed). A run that is complete is played
again, and its record written to `benchmarks/records`. A game has the actions that do something in it, as
Gymnasium makes it; with `--all-actions` all 18 of the console, as the authors' planner had.

To see another planner in such a table: `planvec plan ALE/Alien-v5 --planner ...` with the settings of
`RULES`, then `planvec replay RUN --record DIR/Alien-100`, and `--table --records DIR`.

`atari_scores.csv` has the published scores, computed from the authors' data: Rollout-IW (Bandres, Bonet and
Geffner, AAAI 2018; means of five runs), UCT, IW(1) and 2BFS with 30,000 calls (Lipovetzky, Ramirez and
Geffner, IJCAI 2015), and human players (Mnih et al. 2015).
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from planvec.runs import RunConfig

HERE = Path(__file__).parent
FRAME_SKIP, MAX_FRAMES = 15, 18_000
MAX_STEPS = MAX_FRAMES // FRAME_SKIP
RULES: dict[str, Any] = {
    "frameskip": FRAME_SKIP,
    "repeat_action_probability": 0.0,
    "max_num_frames_per_episode": MAX_FRAMES,
}
PLANNER: dict[str, Any] = {"batch_size": 2, "horizon": 20, "subtables": False, "life_cost": 500}
"""The settings of `RolloutIW` for all games, chosen on other seeds (`width.py ideas`)."""
ALL_ACTIONS: dict[str, Any] = {"full_action_space": True}
ALL_RECORDS = "all_actions"  # folder of their records
NAMES = {"james_bond": "Jamesbond"}
CALLS = "calls.json"  # calls per decision of each record


def published() -> dict[str, dict[str, float | None]]:
    """Return the scores of each game, by column."""
    with (HERE / "atari_scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    games = {}
    for row in rows:
        name = NAMES.get(row["game"]) or row["game"].title().replace("_", "")
        numbers = {key: float(text) if text else None for key, text in row.items() if key != "game"}
        if numbers["riw_0.5s_score"] is not None:
            games[name] = numbers
    return games


def planvec_command(*arguments: str) -> str:
    """Run a command of planvec, and return what it says."""
    command = [sys.executable, "-m", "planvec", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


def calls_of(run: Path) -> float:
    """Return the environment steps of a decision, on average over a run."""
    with (run / "steps.csv").open() as file:
        return statistics.fmean(int(row["env_steps"]) for row in csv.DictReader(file))


def play(
    task: tuple[str, int], calls: dict[str, float], rules: dict[str, Any], runs: Path, records: Path
) -> str:
    """Play an episode, or go on with it, and write its record. Returns its line."""
    game, seed = task
    name = f"{game}-{seed}"
    run, record = runs / name, records / name
    settings = RunConfig(
        env_id=f"ALE/{game}-v5",
        make=rules,
        planner="rollout-iw",
        planner_options={"num_simulations": int(calls[game]), **PLANNER},
        seed=seed,
        max_steps=MAX_STEPS,
    )
    for path in (run / "run.json", record / "run.json"):
        if path.exists() and RunConfig.read(path) != settings:
            raise SystemExit(
                f"{path}: expected {settings}, got other settings; remove it, or choose another folder"
            )
    if (record / CALLS).exists():
        return f"{name}: there is a record already"
    common = ["--num-workers", "0", "--no-progress"]
    if (run / "run.json").exists():
        planvec_command("plan", "--resume", str(run), *common)
    else:
        runs.mkdir(parents=True, exist_ok=True)
        settings.write(runs / f"{name}.json")
        planvec_command("plan", "--config", str(runs / f"{name}.json"), "--out", str(run), *common)
    if not (record / "run.json").exists():
        planvec_command("replay", str(run), "--record", str(record))
    (record / CALLS).write_text(json.dumps(calls_of(run)) + "\n")
    (run / "trajectory.npz").unlink()  # which holds every screen
    return f"{name}: {score_of(record):,.0f}"


def score_of(record: Path) -> float:
    """Return the score of a record."""
    return float(np.load(record / "trajectory.npz")["rewards"].sum())


def table(games: dict[str, dict[str, float | None]], records: Path) -> None:
    """Print the table of all records, and the counts of games that are above the others."""
    columns = {"Rollout-IW": "riw_0.5s_score", "human": "human", "IW(1)": "iw1_ram_30000", "UCT": "uct_30000"}
    own = {"planvec": records, "planvec, 18 actions": records / ALL_RECORDS}
    own = {column: folder for column, folder in own.items() if folder.exists()}
    print("| game | calls, published | here | " + " | ".join((*own, *columns)) + " |")
    print("| --- |" + " --- |" * (2 + len(own) + len(columns)))
    above: dict[tuple[str, str], list[bool]] = {(one, other): [] for one in own for other in columns}
    for game, numbers in games.items():
        counts, cells = list[float](), []
        for column, folder in own.items():
            found = sorted(folder.glob(f"{game}-*"))
            counts += [json.loads((one / CALLS).read_text()) for one in found if (one / CALLS).exists()]
            scores = [score_of(one) for one in found]
            if not scores:
                cells.append("")
                continue
            score = statistics.fmean(scores)
            for other, key in columns.items():
                published_score = numbers[key]
                if published_score is not None:
                    above[column, other].append(score > published_score)
            cells.append(f"**{short(score)}**" if above[column, "Rollout-IW"][-1] else short(score))
            if len(scores) > 1:
                cells[-1] += f" ({min(scores):,.0f} to {max(scores):,.0f}, {len(scores)} episodes)"
        if not any(cells):
            continue
        calls = f"{statistics.fmean(counts):.0f}" if counts else ""
        cells += [short(numbers[key]) for key in columns.values()]
        print(f"| {game} | {numbers['riw_0.5s_calls']:.0f} | {calls} | {' | '.join(cells)} |")
    for (column, other), results in above.items():
        print(f"{column} above {other}: {sum(results)} of {len(results)}")


def short(score: float | None) -> str:
    """Return a score as text; "" where there is none."""
    return "" if score is None else f"{score:,.0f}" if abs(score) >= 100 else f"{score:,.1f}"


def replay(games: dict[str, Any], records: Path, jobs: int) -> int:
    """Play the records of games again. Returns how many differ."""
    folders = [records, records / ALL_RECORDS]
    paths = [path for game in games for folder in folders for path in sorted(folder.glob(f"{game}-*"))]

    def again(path: Path) -> tuple[int, str]:
        command = [sys.executable, "-m", "planvec", "replay", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout if done.stdout else done.stderr

    num_different = 0
    with ThreadPoolExecutor(jobs) as pool:
        for status, said in pool.map(again, paths):
            print(said, end="", flush=True)
            num_different += status != 0
    print(f"{len(paths)} records, {num_different} differ")
    return num_different


def main() -> None:
    """Play, replay or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    games: dict[str, Any] = published()
    parser.add_argument("--only", nargs="+", metavar="GAME", choices=list(games), help="such as MsPacman")
    parser.add_argument("--seeds", nargs="+", type=int, default=[100])
    parser.add_argument("--jobs", type=int, default=2, help="episodes at a time")
    parser.add_argument("--runs", type=Path, default=Path("runs/atari"), help="where runs are kept")
    parser.add_argument("--all-actions", action="store_true", help="18 actions in every game")
    parser.add_argument("--records", type=Path, default=HERE / "records")
    parser.add_argument("--table", action="store_true", help="print the table of the records")
    parser.add_argument("--replay", action="store_true", help="play the records again")
    arguments = parser.parse_args()
    if arguments.only:
        games = {game: games[game] for game in arguments.only}
    if arguments.table:
        table(games, arguments.records)
    elif arguments.replay:
        sys.exit(1 if replay(games, arguments.records, arguments.jobs) else 0)
    else:
        calls = {game: numbers["riw_0.5s_calls"] for game, numbers in games.items()}
        tasks = [(game, seed) for seed in arguments.seeds for game in games]
        more, folder = (ALL_ACTIONS, ALL_RECORDS) if arguments.all_actions else ({}, "")
        runs, records = arguments.runs / folder, arguments.records / folder
        one = partial(play, calls=calls, rules=RULES | more, runs=runs, records=records)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for line in pool.map(one, tasks):
                print(line, flush=True)


if __name__ == "__main__":
    main()
