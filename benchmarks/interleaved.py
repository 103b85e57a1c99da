"""Compare the calls of two checkouts in slices of some milliseconds.

    python benchmarks/interleaved.py ../old . --openings 5
    python benchmarks/interleaved.py ../old . --case "16 rows" --case "4096 rows" --slices 200

Each checkout has an interpreter with all cases open. The two take turns within each case, a slice of
`--seconds` each, and the other one sleeps. A machine whose speed changes every second slows both alike, which
`paired.py` (whole benchmarks in turn) cannot ensure. Which process lies where in memory matters by 1 or 2
percent; therefore both are opened anew several times.

A line shows the ratios new/old of the times per call: of the medians of all slices, of the lower quartiles
(other processes can only make a slice longer), and the range of the medians' ratio over the openings. With
the same checkout twice, the ratios show the noise.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from figures import Figures, add_plain
from names import action_seed, open_env
from paired import check, environment
from timing import first_rows

import planvec

NUM_RUNS_BEFORE = 30
"""Calls of each case before the first slice: planvec measures the cost of rows in the first batches."""


class Case(NamedTuple):
    """Names one call.

    Attributes:
        env_id: The environment.
        num_workers: Number of workers; 0 steps in the process.
        num_rows: Of the batch, or of the vector environment; of MCTS: simulations in flight.
        horizon: Steps of a rollout; 0 for `step_batch`.
        kind: "batch", "kernel" (of the environment), "mcts", "compiled mcts" (with the kernel) or "vector".
    """

    env_id: str
    num_workers: int
    num_rows: int
    horizon: int = 0
    kind: str = "batch"

    def open(self, stack: ExitStack) -> Callable[[], Any]:
        """Open what the case calls, and return the call."""
        if self.kind == "vector":
            from planvec.vector import AsyncVectorEnv

            functions = [functools.partial(gymnasium.make, self.env_id)] * self.num_rows
            envs = AsyncVectorEnv(functions, num_workers=self.num_workers)
            stack.callback(envs.close)
            envs.reset(seed=0)
            envs.action_space.seed(0)
            actions = envs.action_space.sample()
            return lambda: envs.step(actions)
        options: dict[str, Any] = {"num_workers": self.num_workers}
        if self.kind in ("kernel", "compiled mcts"):
            env = stack.enter_context(planvec.make(self.env_id, compiled=True, **options))
        else:
            env = stack.enter_context(open_env(self.env_id, **options))
        if self.kind.endswith("mcts"):
            planner = planvec.MCTS(num_simulations=NUM_SIMULATIONS, batch_size=self.num_rows)
            state = env.reset(seed=0).state
            return lambda: planner.plan(env, state, seed=0)
        actions, states = first_rows(env, self.num_rows)
        if self.horizon:
            return lambda: env.rollout_batch(states, self.horizon, **action_seed(0))
        return lambda: env.step_batch(actions, states)


NUM_SIMULATIONS = 256

CASES = {
    "CartPole, 1 row, in process": Case("CartPole-v1", 0, 1),
    "CartPole, 256 rows, in process": Case("CartPole-v1", 0, 256),
    "CartPole, 1 row, 1 worker": Case("CartPole-v1", 1, 1),
    "CartPole, 1 row": Case("CartPole-v1", 2, 1),
    "CartPole, 16 rows": Case("CartPole-v1", 2, 16),
    "CartPole, 256 rows": Case("CartPole-v1", 2, 256),
    "CartPole, 4096 rows": Case("CartPole-v1", 2, 4096),
    "CartPole, 256 rollouts of 30": Case("CartPole-v1", 2, 256, 30),
    "FrozenLake, 256 rollouts of 30": Case("FrozenLake-v1", 2, 256, 30),
    "MiniGrid, 64 rows": Case("MiniGrid-Empty-8x8-v0", 2, 64),
    "Ant, 64 rows": Case("Ant-v5", 2, 64),
    "MsPacman, 64 rows": Case("ALE/MsPacman-v5", 2, 64),
    "kernel, CartPole, 1 row": Case("CartPole-v1", 0, 1, kind="kernel"),
    "kernel, CartPole, 4096 rows": Case("CartPole-v1", 0, 4096, kind="kernel"),
    "kernel, CartPole, 256 rollouts of 30": Case("CartPole-v1", 0, 256, 30, kind="kernel"),
    "kernel, Taxi, 4096 rows": Case("Taxi", 0, 4096, kind="kernel"),
    "kernel, HalfCheetah, 1 row": Case("HalfCheetah-v5", 0, 1, kind="kernel"),
    "kernel, HalfCheetah, 64 rows": Case("HalfCheetah-v5", 0, 64, kind="kernel"),
    **{f"compiled mcts, CartPole, {n}": Case("CartPole-v1", 0, n, kind="compiled mcts") for n in (1, 16, 64)},
    **{f"mcts, CartPole, {n}, in process": Case("CartPole-v1", 0, n, kind="mcts") for n in (1, 16, 64)},
    **{f"mcts, CartPole, {n}": Case("CartPole-v1", 2, n, kind="mcts") for n in (1, 16, 64)},
    "mcts, MiniGrid, 16": Case("MiniGrid-Empty-8x8-v0", 2, 16, kind="mcts"),
    **{f"vector, CartPole, {n}": Case("CartPole-v1", 2, n, kind="vector") for n in (2, 64, 512)},
    "vector, CartPole, 2, in process": Case("CartPole-v1", 0, 2, kind="vector"),
}
"""Two workers unless the name says otherwise. The number after MCTS is that of simulations in flight."""


def serve(names: list[str], seconds: float) -> None:
    """Run in each checkout: read the name of a case per line, run a slice of it, print seconds per call."""
    if any(CASES[name].env_id.startswith("ALE/") for name in names):
        import ale_py  # noqa: F401
    if any(CASES[name].env_id.startswith("MiniGrid") for name in names):
        import minigrid  # noqa: F401

    with ExitStack() as stack:
        runs = {name: CASES[name].open(stack) for name in names}
        numbers = {}
        for name, run in runs.items():
            times = []
            for _ in range(NUM_RUNS_BEFORE):
                started = time.perf_counter()
                run()
                times.append(time.perf_counter() - started)
            numbers[name] = max(1, int(seconds / statistics.median(times)))
        gc.collect()
        gc.disable()
        print("ready", flush=True)
        for line in sys.stdin:
            run, number = runs[line.strip()], numbers[line.strip()]
            run()  # not counted: processes that have slept are placed on cores anew
            started = time.perf_counter()
            for _ in range(number):
                run()
            print((time.perf_counter() - started) / number, flush=True)


@contextmanager
def opened(checkout: Path, names: list[str], seconds: float, cwd: str) -> Iterator[Callable[[str], str]]:
    """Start the interpreter of a checkout. The value sends a name, and returns the answer."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", json.dumps([names, seconds])]
    with subprocess.Popen(
        command,
        env=environment(checkout),
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines, requests = process.stdout, process.stdin
        if lines.readline().strip() != "ready":
            raise SystemExit(f"the cases could not be opened on {checkout}")

        def ask(name: str) -> str:
            requests.write(name + "\n")
            return lines.readline()

        yield ask
        requests.close()


def lower_quartile(values: list[float]) -> float:
    """Return the value below which a quarter of the values lie."""
    return float(np.quantile(values, 0.25))


def main() -> None:
    """Run all cases in turn, and print one line per case."""
    if sys.argv[1:2] == ["--serve"]:
        serve(*json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("old", type=Path, help="folder of a checkout")
    parser.add_argument("new", type=Path, help="folder of another")
    parser.add_argument(
        "--case", action="append", default=[], help="part of a name; repeatable; default: all"
    )
    parser.add_argument("--openings", type=int, default=3)
    parser.add_argument("--slices", type=int, default=60, help="of each case, checkout and opening")
    parser.add_argument("--seconds", type=float, default=0.06, help="length of a slice")
    add_plain(parser)
    arguments = parser.parse_args()
    names = [name for name in CASES if any(part in name for part in arguments.case or [""])]
    if not names:
        parser.error(f"--case: expected part of one of {', '.join(CASES)}, got {arguments.case}")
    checkouts = [arguments.old.resolve(), arguments.new.resolve()]
    times: dict[str, list[tuple[list[float], list[float]]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as cwd:
        for checkout in checkouts:
            check(checkout, cwd)
        for opening in range(arguments.openings):
            with ExitStack() as stack:
                order = (0, 1) if opening % 2 == 0 else (1, 0)
                asks = {
                    which: stack.enter_context(opened(checkouts[which], names, arguments.seconds, cwd))
                    for which in order
                }
                for name in names:
                    both: tuple[list[float], list[float]] = ([], [])
                    for number in range(arguments.slices):
                        for which in order if number % 2 == 0 else reversed(order):
                            both[which].append(float(asks[which](name)))
                    times[name].append(both)
            print(f"opening {opening + 1} of {arguments.openings}", file=sys.stderr)
    figures = Figures(arguments.plain)
    for name in names:
        old, new = ([t for both in times[name] for t in both[which]] for which in (0, 1))
        ratios = [statistics.median(after) / statistics.median(before) for before, after in times[name]]
        median = statistics.median(new) / statistics.median(old)
        quartile = lower_quartile(new) / lower_quartile(old)
        times_text = "  ".join(
            f"{which} {statistics.median(values) * 1e6:>9,.1f} us"
            for which, values in (("old", old), ("new", new))
        )
        figures.text(
            f"{name:<32} {times_text}  new/old: medians {median:.3f} "
            f"({min(ratios):.3f} to {max(ratios):.3f}), quartiles {quartile:.3f}"
        )
        figures.figure(f"{name}/medians/ratio", median)
        figures.figure(f"{name}/quartiles/ratio", quartile)


if __name__ == "__main__":
    main()
