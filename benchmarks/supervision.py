"""What it costs to watch over workers: the same batches with and without supervision.

    python benchmarks/supervision.py

With: `planvec.make` with everything on (`timeout`, `max_restarts`, `max_worker_rss`). Without: the same
workers, slabs and messages driven by a dozen lines that know of no death, no deadline and no second try, and
whose workers do not even note which row they have come to. Both run in turn in one process, and medians are
compared.
"""

from __future__ import annotations

import argparse
import gc
import inspect
import pickle
import select
import statistics
import textwrap
import time
from typing import Any

import cloudpickle
import numpy as np
from planvec.backends.processes.row_jobs import Sink, StepJob

import planvec
from planvec.backends.processes.starting.launch import Child
from planvec.backends.processes.wire.channel import SPIN_SECONDS, Frame, yield_core
from planvec.backends.processes.wire.slab import Slab
from planvec.rows.checks import check_batch, split
from planvec.rows.infos import merge_columns
from planvec.rows.outputs import Outputs
from planvec.stepping.row_loop import RowStepper
from planvec.stepping.row_loop import row_loop as stepping


def heedless_env(env_id: str) -> Any:
    """A `PlanEnv` whose loop does not note which row is at work; called in the worker."""
    source = textwrap.dedent(inspect.getsource(RowStepper._step_each))
    mark = "progress[ROW] = row"
    assert source.count(mark) == 1
    scope = dict(vars(stepping))
    exec(source.replace(mark, "pass"), scope)
    env = planvec.PlanEnv(env_id, info_keys=())
    env.rows._step_each = scope["_step_each"].__get__(env.rows)  # type: ignore[method-assign]
    return env


class Unsupervised:
    """Two workers and nobody who looks after them."""

    def __init__(self, env_id: str, num_workers: int) -> None:
        factory = cloudpickle.dumps(lambda: heedless_env(env_id))
        self.children = [Child(factory, "spawn", f"worker-{index}") for index in range(num_workers)]
        self.slabs = []
        for child in self.children:
            child.channel.wait()
            frame = child.channel.receive()
            assert frame is not None
            self.description = pickle.loads(frame.payload)
            self.slabs.append(Slab(self.description, child.memory))
        self.poll = select.poll()
        self.numbers = {child.channel.fileno(): number for number, child in enumerate(self.children)}
        for fd in self.numbers:
            self.poll.register(fd, select.POLLIN)

    def _wait(self) -> list[int]:
        """Which workers have answered: look for a moment, then sleep."""
        give_up = time.perf_counter() + SPIN_SECONDS
        while not (events := self.poll.poll(0)):
            if time.perf_counter() > give_up:
                events = self.poll.poll()
                break
            yield_core()
        return [self.numbers[fd] for fd, _ in events]

    def step_batch(self, actions: Any, states: Any) -> Any:
        """As `BatchEnv.step_batch`, for batches of one chunk a worker."""
        about = self.description
        batch = check_batch(about.action_space, about.state_format, actions, states, 1, None)
        num_rows, dtype, space = len(batch), about.state_format.dtype, about.observation_space
        sink = Sink(lambda: Outputs.empty(num_rows, dtype, space))
        jobs = []
        for child, slab, rows in zip(
            self.children, self.slabs, split(num_rows, len(self.children)), strict=True
        ):
            job = StepJob(batch.part(rows), rows.start, True, False, sink)
            payload = job.write(slab.slots[0])
            child.channel.send(Frame(0, job.verb, 0, job.num_rows, payload))
            jobs.append(job)
        out = sink.get()
        missing = len(jobs)
        while missing:
            for number in self._wait():
                frame = self.children[number].channel.receive()
                assert frame is not None
                jobs[number].read(self.slabs[number].slots[0], frame.payload)
                missing -= 1
        return out.transitions(space, merge_columns([(job.columns, job.num_rows) for job in jobs]), None)

    def close(self) -> None:
        """End the workers."""
        for child in self.children:
            child.end()


def seconds(stepper: Any, actions: Any, states: Any, calls: int) -> float:
    """Of one call."""
    stepper.step_batch(actions, states)
    started = time.perf_counter()
    for _ in range(calls):
        stepper.step_batch(actions, states)
    return (time.perf_counter() - started) / calls


def compare(num_rows: int, rounds: int) -> tuple[float, float]:
    """Median seconds of a call with and without; in new processes, in turn."""
    bare = Unsupervised("CartPole-v1", 2)
    with planvec.make(
        "CartPole-v1", num_workers=2, info_keys=(), timeout=60.0, max_worker_rss=8 << 30
    ) as env:
        actions = np.random.default_rng(0).integers(2, size=num_rows)
        states = np.repeat(env.reset(seed=0).state, num_rows)
        one, other = env.step_batch(actions, states), bare.step_batch(actions, states)
        assert one.new_states.tobytes() == other.new_states.tobytes()
        runs: dict[str, Any] = {"with": env, "without": bare}
        times: dict[str, list[float]] = {name: [] for name in runs}
        gc.disable()
        for number in range(rounds):
            for name in runs if number % 2 else reversed(runs):
                times[name].append(seconds(runs[name], actions, states, max(1, 40_000 // num_rows)))
        gc.enable()
    bare.close()
    return statistics.median(times["with"]), statistics.median(times["without"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--openings", type=int, default=12, help="new processes: each has its own luck")
    parser.add_argument("--rounds", type=int, default=12, help="per opening")
    parser.add_argument("--rows", type=int, nargs="+", default=[4096])
    arguments = parser.parse_args()
    for num_rows in arguments.rows:
        pairs = [compare(num_rows, arguments.rounds) for _ in range(arguments.openings)]
        ratios = [one / other for one, other in pairs]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{num_rows} rows: {statistics.median(one for one, _ in pairs) * 1e6:,.0f} us with supervision, "
            f"{statistics.median(other for _, other in pairs) * 1e6:,.0f} us without; "
            f"ratio {middle:.4f} (quartiles {low:.4f} to {high:.4f} over {len(pairs)} openings)"
        )


if __name__ == "__main__":
    main()
