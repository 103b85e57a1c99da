"""Measure what a call through the actors of a Ray cluster costs, and predict larger clusters from it.

    python benchmarks/cluster.py calls   # CartPole: actors, processes and plangym's Ray workers
    python benchmarks/cluster.py busy    # an environment that computes for 5 ms a step, two actors
    python benchmarks/cluster.py many    # up to 64 actors on this machine, whose environments sleep
    python benchmarks/cluster.py model   # the cost model, checked against `many`, for 100 and 1,000 workers

Ray is started on this machine. plangym is measured where it is installed with Ray.

The model
---------
A call of `N` rows through `W` workers is cut into chunks of `k` rows. A step takes `t`.

- The driver spends `c` seconds on each chunk (sending, receiving) and `r` on each row (merging), one after
  another.
- A worker spends `k (t + e) + a` on a chunk: `e` is the overhead of planvec for a row, `a` that of an actor
  call. The next chunk waits at the actor, so its way through the network is hidden, but for the first: `l`.

    seconds = max(W c + l + (k (t + e) + a) ceil(N / (k W)),  N (c / k + r) + l)

Assumptions: all workers are equally fast, rows take equally long, states and observations are small enough
that the network is not the limit (a state of 1 kB at 100,000 rows/s is 100 MB/s), and the driver has a core
of its own. On this machine the actors share the cores with the driver. For the measured points, the model
adds that all of them together cannot use more than these cores; switching between many processes on few
cores costs more than that.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import ray
from cart_pole_codec import CartPoleCodec
from gymnasium.envs.classic_control import CartPoleEnv
from timing import first_rows, measure

import planvec

SECONDS_A_STEP = (1e-3, 10e-3, 100e-3)
NUM_WORKERS = (100, 1000)
ROWS_PER_WORKER = 64
SLEEPS = {50e-3: (8,), 5e-3: (8, 64), 1e-3: (64,)}
"""Seconds that an environment sleeps -> rows per worker of the calls that are measured."""
LONGEST_CHUNK, LONGEST_PER_WORKER = 0.625, 5e-3
"""Seconds of work of the longest chunk of equal rows: at least so much for each actor."""


class TimedCartPole(CartPoleEnv):
    """Takes longer than CartPole: it sleeps, or it computes.

    Args:
        seconds: How much longer.
        computes: Whether it uses a core for so long.
    """

    def __init__(self, seconds: float, computes: bool) -> None:
        super().__init__()
        self._seconds, self._computes = seconds, computes

    def step(self, action: Any) -> Any:
        """Step, and take longer."""
        if self._computes:
            end = time.thread_time() + self._seconds  # not what the core does for others meanwhile
            while time.thread_time() < end:
                pass
        else:
            time.sleep(self._seconds)
        return super().step(action)


def timed(seconds: float, computes: bool = False) -> Callable[[], gymnasium.Env[Any, Any]]:
    """Return a factory of `TimedCartPole`."""
    return lambda: gymnasium.wrappers.TimeLimit(TimedCartPole(seconds, computes), 500)


def open_env(make: Any, num_workers: int, **options: Any) -> Any:
    codec = None if isinstance(make, str) else CartPoleCodec
    return planvec.make(make, num_workers=num_workers, codec=codec, **options)


def open_actors(make: Any, num_workers: int) -> Any:
    """Open actors that share the cores of this machine, as many as are wanted."""
    options = {"num_cpus": min(1.0, 2.0 / num_workers)}
    env = open_env(make, num_workers, backend="ray", ray_actor_options=options)
    workers = [record.worker for record in env._backend._records]
    while not all(worker.is_ready for worker in workers):
        env.step_batch([0] * num_workers)
    return env


# -- calls ------------------------------------------------------------------------------------------


def open_plangym() -> Any:
    """Open plangym's Ray environment with two workers; returns None where it is not installed."""
    try:
        import plangym
    except ImportError:
        return None
    peer = plangym.make(name="CartPole-v1", n_workers=2, ray=True)
    peer.reset()
    return peer


def calls(repeats: int) -> None:
    """Print the time of a call of 1, 256 and 4,096 CartPole rows."""
    envs = {
        "2 processes": open_env("CartPole-v1", 2),
        "2 actors": open_actors("CartPole-v1", 2),
    }
    peer = open_plangym()
    print("rows   contender            ms a call    rows/s")
    for num_rows in (1, 256, 4096):
        actions, states = first_rows(envs["2 processes"], num_rows)
        contenders = {
            name: lambda e=env, a=actions, s=states: e.step_batch(a, s) for name, env in envs.items()
        }
        if peer is not None:
            listed = [peer.get_state() for _ in range(num_rows)]
            contenders["plangym, 2 with Ray"] = lambda a=actions, s=listed: peer.step_batch(
                actions=a, states=s
            )
        for name, seconds in measure(contenders, repeats, 0.3).items():
            print(f"{num_rows:5}  {name:20} {seconds * 1e3:9.2f} {num_rows / seconds:10,.0f}", flush=True)
    for env in envs.values():
        env.close()


# -- slow environments ------------------------------------------------------------------------------


def share_of_limit(make: Any, num_workers: int, num_rows: int, seconds: float, repeats: int) -> float:
    """Return the median share of `num_workers / seconds` that a blocking call reaches.

    Args:
        make: Makes the environment.
        num_workers: Number of actors.
        num_rows: Rows of a call.
        seconds: Time of a row in this process.
        repeats: Number of calls, after three that planvec learns the cost of a row from.
    """
    with open_actors(make, num_workers) as env:
        actions, states = first_rows(env, num_rows)
        times = [_timed(lambda: env.step_batch(actions, states)) for _ in range(repeats + 3)]
    return num_rows * seconds / num_workers / statistics.median(times[3:])


def _timed(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def row_seconds(make: Any, num_rows: int) -> tuple[float, float]:
    """Return the median time of a row in this process, and the CPU time of it."""
    with open_env(make, 0) as env:
        actions, states = first_rows(env, num_rows)
        used = time.process_time()
        times = [_timed(lambda: env.step_batch(actions, states)) for _ in range(5)]
        used = time.process_time() - used
    return statistics.median(times) / num_rows, used / (5 * num_rows)


def busy(repeats: int) -> None:
    """Print the share of the limit for an environment that computes for 5 ms, 512 rows, two actors."""
    make = timed(5e-3, computes=True)
    seconds, _ = row_seconds(make, 64)
    share = share_of_limit(make, 2, 512, seconds, repeats)
    print(
        f"5 ms of computing a step ({seconds * 1e3:.2f} ms a row), 512 rows, 2 actors: "
        f"{share:.1%} of the limit"
    )


@dataclass
class Point:
    """Is one measurement.

    Attributes:
        seconds: Of a step that sleeps.
        cpu: CPU seconds of such a step.
        num_workers: Number of actors.
        num_rows: Rows of a call.
        rate: Rows per second.
        driver: CPU seconds of this process per chunk.
        rows_per_chunk: Mean number of rows in a chunk.
    """

    seconds: float
    cpu: float
    num_workers: int
    num_rows: int
    rate: float
    driver: float
    rows_per_chunk: float

    def __str__(self) -> str:
        limit = self.num_workers / self.seconds
        return (
            f"{self.seconds * 1e3:6.2f} {self.num_workers:8} {self.num_rows:7} {self.rate:10,.0f} "
            f"{self.rate / limit:8.1%} {self.rows_per_chunk:11.1f} {self.driver * 1e3:14.2f}"
        )


HEADER = "ms/row  actors    rows     rows/s    limit  rows/chunk  driver ms/chunk"


def points(seconds: float, num_workers: int, rows_per_worker: Sequence[int], repeats: int) -> list[Point]:
    """Measure one number of actors whose environments sleep, for several sizes of calls."""
    make = timed(seconds)
    each, cpu = row_seconds(make, 16)
    measured = []
    with open_actors(make, num_workers) as env:
        for num_rows in (num_workers * rows for rows in rows_per_worker):
            actions, states = first_rows(env, num_rows)
            for _ in range(4):
                env.step_batch(actions, states)
            before, used = env.stats.num_chunks, time.process_time()
            times = [_timed(lambda a=actions, s=states: env.step_batch(a, s)) for _ in range(repeats)]
            used, num_chunks = time.process_time() - used, env.stats.num_chunks - before
            rate = num_rows / statistics.median(times)
            rows = num_rows * repeats / num_chunks
            measured.append(Point(each, cpu, num_workers, num_rows, rate, used / num_chunks, rows))
    return measured


def many(repeats: int) -> Iterator[Point]:
    """Measure what 2 to 64 actors reach whose environments sleep."""
    for seconds, rows_per_worker in SLEEPS.items():
        for num_workers in (2, 16, 64):
            yield from points(seconds, num_workers, rows_per_worker, repeats)


def print_many(repeats: int) -> None:
    """Print what 2 to 64 actors reach whose environments sleep."""
    print(HEADER)
    for measured in many(repeats):
        print(measured, flush=True)


# -- the model --------------------------------------------------------------------------------------


@dataclass
class Cost:
    """Holds the parameters of the model; see the top of this file.

    Attributes:
        chunk: Seconds of the driver per chunk.
        row: Seconds of the driver per row.
        actor: Seconds of an actor per chunk.
        overhead: Seconds of an actor per row, beyond the step.
        latency: Seconds that the first chunk and the last answer take on their way.
    """

    chunk: float
    row: float
    actor: float
    overhead: float
    latency: float

    def seconds(
        self, num_rows: int, num_workers: int, step: float, rows_per_chunk: float
    ) -> tuple[float, bool]:
        """Return the time of a call, and whether the driver is its limit."""
        rounds = math.ceil(num_rows / (rows_per_chunk * num_workers) - 1e-9)
        work = rows_per_chunk * (step + self.overhead) + self.actor
        workers = num_workers * self.chunk + self.latency + work * rounds
        driver = num_rows * (self.chunk / rows_per_chunk + self.row) + self.latency
        return max(workers, driver), driver > workers

    def machine_seconds(self, point: Point) -> float:
        """Return the time of a call if nothing counts but the cores, which all actors share."""
        chunks = point.num_rows / point.rows_per_chunk
        cpu = point.num_rows * (point.cpu + self.overhead) + chunks * (self.chunk + self.actor)
        return cpu / (os.cpu_count() or 1)


def fit(repeats: int) -> Cost:
    """Measure the parameters of the model with two actors and CartPole, whose steps take microseconds."""
    ms: dict[int, float] = {}
    cpu: dict[int, float] = {}
    with open_actors("CartPole-v1", 1) as env, open_env("CartPole-v1", 0) as here:
        for num_rows in (1, 2048):
            actions, states = first_rows(env, num_rows)
            for _ in range(20):
                env.step_batch(actions, states)
            before, used = env.stats.num_chunks, time.process_time()
            times = [_timed(lambda a=actions, s=states: env.step_batch(a, s)) for _ in range(20 * repeats)]
            cpu[num_rows] = (time.process_time() - used) / (env.stats.num_chunks - before)
            ms[num_rows] = statistics.median(times) * (20 * repeats) / (env.stats.num_chunks - before)
        local = statistics.median(_timed(lambda: here.step_batch(actions, states)) for _ in range(20)) / 2048
    row = max(0.0, (cpu[2048] - cpu[1]) / 2047)
    chunk = cpu[1] - row
    overhead = max(0.0, (ms[2048] - ms[1]) / 2047 - row - local) + local
    return Cost(chunk, row, max(0.0, ms[1] - chunk) / 2, overhead, max(0.0, ms[1] - chunk) / 2)


def model(repeats: int) -> None:
    """Fit the model, check it against the measured points, and print what it predicts."""
    cost = fit(repeats)
    print(
        f"driver {cost.chunk * 1e3:.2f} ms a chunk + {cost.row * 1e6:.1f} us a row; "
        f"actor {cost.actor * 1e3:.2f} ms a chunk + {cost.overhead * 1e6:.1f} us a row; "
        f"latency {cost.latency * 1e3:.2f} ms"
    )
    print(HEADER + "  predicted  measured/predicted")
    for each in many(repeats):
        predicted, _ = cost.seconds(each.num_rows, each.num_workers, each.seconds, each.rows_per_chunk)
        here = cost.machine_seconds(each)
        rate = each.num_rows / max(predicted, here)
        by = " (the cores of this machine)" if here > predicted else ""
        print(f"{each} {rate:11,.0f} {each.rate / rate:19.2f}{by}", flush=True)
    print(f"\n{ROWS_PER_WORKER} rows per worker:\nms/step  workers     rows/s    limit  limited by")
    for step in SECONDS_A_STEP:
        for num_workers in NUM_WORKERS:
            longest = max(LONGEST_CHUNK, num_workers * LONGEST_PER_WORKER)
            rows_per_chunk = ROWS_PER_WORKER / math.ceil(ROWS_PER_WORKER * step / longest)
            num_rows = num_workers * ROWS_PER_WORKER
            seconds, by_driver = cost.seconds(num_rows, num_workers, step, rows_per_chunk)
            rate = num_rows / seconds
            by = "the driver" if by_driver else "the workers"
            print(f"{step * 1e3:7.0f} {num_workers:8} {rate:10,.0f} {rate * step / num_workers:8.1%}  {by}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("calls", "busy", "many", "model"))
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    ray.init(num_cpus=64, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    {"calls": calls, "busy": busy, "many": print_many, "model": model}[arguments.part](arguments.repeats)


if __name__ == "__main__":
    main()
