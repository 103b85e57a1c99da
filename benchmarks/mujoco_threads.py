"""Compare planvec's steps of MuJoCo with MuJoCo's own threads, and their bits with Gymnasium's.

    python benchmarks/mujoco_threads.py speed                       # shares of mujoco.rollout, 3 minutes
    python benchmarks/mujoco_threads.py speed --env Ant-v5 --rows 4096 --rounds 40
    python benchmarks/mujoco_threads.py bits                        # 100,000 transitions of each environment
    python benchmarks/mujoco_threads.py bits --rows 1000000 --env HalfCheetah-v5

`speed`: both sides step the same rows, from the states of a random walk, with as many threads. They take
turns, A, B, B, A, ..., so that a machine whose speed changes slows both alike; a round gives one ratio of the
times by the clock, and one of the processor times of all threads, which other processes disturb less. The
rows that `mujoco.rollout` returns are the physics alone; planvec's have rewards, observations, flags and new
states.

`bits`: Gymnasium's own step takes the same steps, row by row from restored states, with random actions,
repeats, ends and time limits. Every result and every byte of the new states is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from fast_path import random_walk
from figures import Figures, add_plain
from kernels import random_actions
from numpy.typing import NDArray

import planvec
from planvec.rows import leaves

WANTED = {
    "HalfCheetah-v5": 0.95,
    "Hopper-v5": 0.95,
    "Walker2d-v5": 0.95,
    "Swimmer-v5": 0.95,
    "Ant-v5": 0.92,
    "Humanoid-v5": 0.92,
}
"""Environment -> the share of the speed of `mujoco.rollout` that planvec is to reach."""
ROWS = (256, 4096)
SECONDS_PER_TURN = 0.15
FIELDS = ("new_states", "observations", "rewards", "terminated", "truncated")
NUM_COMPARED = 1000
"""Rows of a batch whose bits are compared."""


@contextlib.contextmanager
def contenders(env_id: str, num_rows: int, num_threads: int) -> Iterator[list[Callable[[], Any]]]:
    """Open planvec and `mujoco.rollout`, each as a call that steps all rows."""
    import gymnasium
    import mujoco
    from mujoco import rollout

    states, actions = random_walk(env_id, num_rows)
    base: Any = gymnasium.make(env_id).unwrapped
    model, data = base.model, [mujoco.MjData(base.model) for _ in range(num_threads)]
    saved, full = (int(getattr(mujoco.mjtState, f"mjSTATE_{n}")) for n in ("INTEGRATION", "FULLPHYSICS"))
    physics = np.empty((num_rows, mujoco.mj_stateSize(model, full)))
    warm = np.empty((num_rows, model.nv))
    for row, record in enumerate(states):
        vector = record["physics"][: mujoco.mj_stateSize(model, saved)].copy()
        mujoco.mj_setState(model, data[0], vector, saved)
        mujoco.mj_getState(model, data[0], physics[row], full)
        warm[row] = data[0].qacc_warmstart
    controls = np.repeat(actions.astype(float)[:, None], base.frame_skip, axis=1)
    models = [model] * num_rows
    env = planvec.PlanEnv(env_id, info_keys=(), compiled=True, num_threads=num_threads)
    with env, rollout.Rollout(nthread=num_threads) as threads:
        yield [
            lambda: env.step_batch(actions, states),
            lambda: threads.rollout(models, data, physics, controls, initial_warmstart=warm),
        ]


def seconds_per_call(call: Callable[[], Any]) -> NDArray[np.float64]:
    """Return the seconds per call by the clock and of the processor, after a call that is not counted.

    Threads that have slept change cores.
    """
    call()
    started, busy = time.perf_counter(), time.process_time()
    calls = 0
    while (passed := time.perf_counter() - started) < SECONDS_PER_TURN:
        call()
        calls += 1
    return np.array([passed, time.process_time() - busy]) / calls


def compare_speed(
    env_ids: list[str], rows: list[int], rounds: int, num_threads: int, figures: Figures
) -> None:
    """Print the share of the speed of `mujoco.rollout` for each environment and number of rows."""
    figures.text(
        f"{num_threads} threads, {len(os.sched_getaffinity(0))} cores; rows/s of planvec / mujoco.rollout"
    )
    names = f"{'rows':>22s}{'planvec':>9s}{'rollout':>9s}{'by the clock':>26s}"
    figures.text(names + f"{'of the processor':>28s}{'wanted':>8s}")
    for env_id in env_ids:
        for num_rows in rows:
            with contenders(env_id, num_rows, num_threads) as calls:
                times = measure(calls, rounds)
            clock, processor = (times[:, 1] / times[:, 0]).T
            own, other = num_rows / np.median(times[:, :, 0], axis=0)
            figures.text(
                f"{env_id:16s}{num_rows:6d}{own:9.0f}{other:9.0f}{text_of(clock):>26s}{text_of(processor):>28s}"
                f"{WANTED.get(env_id, 0):8.0%}"
            )
            figures.figure(f"{env_id}/{num_rows}/clock/share", float(np.median(clock)))
            figures.figure(f"{env_id}/{num_rows}/processor/share", float(np.median(processor)))


def text_of(ratios: NDArray[np.float64]) -> str:
    """Return the median and the quartiles of ratios in words."""
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return f"{middle:.1%} ({low:.1%}, {high:.1%})"


def measure(calls: list[Callable[[], Any]], rounds: int) -> NDArray[np.float64]:
    """Return the seconds per call `[rounds, side, 2]`, by the clock and of the processor."""
    times = []
    gc.collect()
    gc.disable()
    try:
        for number in range(rounds + 1):
            order = (0, 1) if number % 2 else (1, 0)
            seconds = {index: seconds_per_call(calls[index]) for index in order}
            times.append([seconds[0], seconds[1]])
    finally:
        gc.enable()
    return np.array(times[1:])


def walk(env: Any, rng: np.random.Generator, num_rows: int) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the arguments of batches of random steps, and the results of the environment."""
    starts = np.empty(NUM_COMPARED, env.state_dtype)
    for row in range(NUM_COMPARED):
        starts[row] = env.reset(seed=int(rng.integers(2**32))).state
    states = starts
    for number in range(-(-num_rows // NUM_COMPARED)):
        arguments = {
            "actions": random_actions(env, rng, NUM_COMPARED),
            "states": states,
            "dt": rng.integers(1, 4, NUM_COMPARED) if number % 3 == 0 else 1,
        }
        out = env.step_batch(**arguments)
        yield arguments, out
        ended = out.terminated | out.truncated
        restarts = (ended & (rng.random(NUM_COMPARED) < 0.9)) | (rng.random(NUM_COMPARED) < 0.01)
        states = np.where(restarts, rng.permutation(starts), out.new_states)


def num_different(expected: Any, got: Any) -> int:
    """Return the number of values whose bits differ."""
    count = 0
    for field in FIELDS:
        pairs = zip(leaves(getattr(expected, field)), leaves(getattr(got, field)), strict=True)
        count += sum(max(1, int((a != b).sum())) for a, b in pairs if a.tobytes() != b.tobytes())
    for key, value in expected.infos.items():
        other: NDArray[Any] = got.infos[key]
        count += value.tobytes() != other.tobytes() or value.dtype != other.dtype
    return count


def compare_bits(env_ids: list[str], num_rows: int, num_threads: int) -> None:
    """Print the number of differing values of each environment."""
    print(f"{'':20s} {'transitions':>12s} {'steps':>12s} {'ends':>8s} {'differing':>10s}")
    for env_id in env_ids:
        plain = planvec.PlanEnv(env_id, compiled=False)
        compiled = planvec.PlanEnv(env_id, compiled=True, num_threads=num_threads)
        counts = np.zeros(4, np.int64)
        for arguments, expected in walk(plain, np.random.default_rng(0), num_rows):
            got = compiled.step_batch(**arguments)
            ends = int((expected.terminated | expected.truncated).sum())
            steps = int(expected.infos["num_steps"].sum())
            counts += [NUM_COMPARED, steps, ends, num_different(expected, got)]
        print(f"{env_id:20s} {counts[0]:12,} {counts[1]:12,} {counts[2]:8,} {counts[3]:10,}", flush=True)


def main() -> None:
    """Run one of the two comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["bits", "speed"])
    parser.add_argument("--env", action="append", help="only this one; may be repeated")
    parser.add_argument("--rows", type=int, action="append", help="of a batch; for bits: transitions")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    add_plain(parser)
    arguments = parser.parse_args()
    env_ids = arguments.env or list(WANTED)
    if arguments.what == "bits":
        compare_bits(env_ids, (arguments.rows or [100_000])[0], arguments.threads)
    else:
        rows, figures = arguments.rows or list(ROWS), Figures(arguments.plain)
        compare_speed(env_ids, rows, arguments.rounds, arguments.threads, figures)


if __name__ == "__main__":
    main()
