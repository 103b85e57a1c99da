"""Measure how long workers take to open, and to be replaced after a kill, by each start method.

    python benchmarks/opening.py
    python benchmarks/paired.py ../old . benchmarks/opening.py -- --methods default
    python benchmarks/paired.py ../old . benchmarks/opening.py -- --environments
    python benchmarks/paired.py ../old . benchmarks/opening.py -- --vector

With `--environments`, some environments of each family are opened in the same process and in a worker
instead. This shows what the verification costs: the environment is made, and its states are proved exact.
With `--vector`, vector environments of 8 are opened: known ones, and ones of a script, which are searched for
what they share.

Each figure comes from a new interpreter, so that helpers (the template, the fork server) are started anew
and their time counts; what an interpreter takes to import planvec does not. The start methods take turns. The
best of some rounds is shown, since other processes can only make it longer; for a kill, best and median.
"default" is the start method that `planvec.make` takes by itself.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence

from figures import Figures, add_plain

ENVIRONMENTS = (
    *("CartPole-v1", "FrozenLake-v1", "Ant-v5", "LunarLander-v3", "ALE/Breakout-v5"),
    *("MiniGrid-Empty-8x8-v0", "BabyAI-GoToRedBall-v0", "highway-fast-v0", "parking-v0"),
)
METHODS = ("default", "template", "spawn", "fork")

OPEN = """
import time
import planvec
planvec.make  # imports it
started = time.perf_counter()
with planvec.make("CartPole-v1", num_workers={num_workers}, start_method={method!r}):
    print(time.perf_counter() - started, flush=True)
"""

KILL = """
import logging, os, signal, time
import planvec
logging.disable()
with planvec.make("CartPole-v1", num_workers=1, start_method={method!r}) as env:
    for _ in range({times}):
        env.step_batch([0])
        started = time.perf_counter()
        os.kill(env.workers[0].pid, signal.SIGKILL)
        env.step_batch([0])
        print(time.perf_counter() - started, flush=True)
    assert env.stats.restarts == {times}
"""

OPEN_ENVIRONMENT = """
import time, warnings
warnings.simplefilter("ignore")
import planvec
from planvec.envs import make_env
make_env({env_id!r}).close()  # imports what it needs
started = time.perf_counter()
with planvec.make({env_id!r}, num_workers={num_workers}):
    print(time.perf_counter() - started, flush=True)
"""


OPEN_VECTOR = """
import time, warnings
warnings.simplefilter("ignore")
import gymnasium, numpy as np
from planvec.envs import make_env
from planvec.vector import EnvPool

PLACES = [3, 5, 8]

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = int(self.np_random.choice(PLACES))
        return np.array([float(self.x)]), dict()

    def step(self, action):
        self.x += int(action)
        return np.array([float(self.x)]), 1.0, self.x > 50, False, dict()

make = Walk if {env_id!r} == "a script's own" else lambda: make_env({env_id!r})
make().close()  # imports what it needs
started = time.perf_counter()
env = EnvPool([make] * 8, num_workers={num_workers})
print(time.perf_counter() - started, flush=True)
env.close()
"""
VECTOR = ("CartPole-v1", "a script's own", "ALE/Breakout-v5", "MiniGrid-Empty-8x8-v0", "highway-fast-v0")


def seconds(code: str, method: str = "default", **values: object) -> list[float]:
    """Run a script in a new interpreter; returns the seconds that it prints."""
    script = code.format(method=None if method == "default" else method, **values)
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def open_environments(
    code: str, env_ids: Sequence[str], num_workers: int, rounds: int, figures: Figures
) -> None:
    """Measure how long environments take to open in the same process, and in workers."""
    workers = "1 worker" if num_workers == 1 else f"{num_workers} workers"
    for env_id in env_ids:
        shown = []
        for number, where in ((0, "in process"), (num_workers, workers)):
            times: list[float] = []
            for _ in range(rounds):
                times += seconds(code, env_id=env_id, num_workers=number)
            shown.append(f"{where} {statistics.median(times):.2f} s (best {min(times):.2f})")
            figures.figure(f"open/{env_id.replace('/', ' ')}/{where}/s", statistics.median(times))
        figures.text(f"{env_id:<24} is open after  {'  '.join(shown)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--environments", action="store_true", help="open some environments of each family")
    parser.add_argument("--vector", action="store_true", help="open vector environments of 8")
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    if arguments.environments:
        open_environments(OPEN_ENVIRONMENT, ENVIRONMENTS, 1, arguments.rounds, figures)
        return
    if arguments.vector:
        open_environments(OPEN_VECTOR, VECTOR, 2, arguments.rounds, figures)
        return
    for num_workers in arguments.workers:
        times: dict[str, list[float]] = {method: [] for method in arguments.methods}
        for _ in range(arguments.rounds):
            for method in times:
                times[method] += seconds(OPEN, method, num_workers=num_workers)
        best = "  ".join(f"{method} {min(taken):.2f} s" for method, taken in times.items())
        figures.text(f"{num_workers:>2} workers are open after  {best}")
        for method, taken in times.items():
            figures.figure(f"open/{num_workers} workers/{method}/s", min(taken))
    kills = {
        method: [1000 * taken for taken in seconds(KILL, method, times=arguments.kills)]
        for method in arguments.methods
    }
    shown = "  ".join(
        f"{method} {statistics.median(taken):.0f} ms (best {min(taken):.0f})"
        for method, taken in kills.items()
    )
    figures.text(f"a killed worker is replaced after  {shown}")
    for method, taken in kills.items():
        figures.figure(f"replace/{method}/ms", statistics.median(taken))
        figures.figure(f"replace best/{method}/ms", min(taken))


if __name__ == "__main__":
    main()
