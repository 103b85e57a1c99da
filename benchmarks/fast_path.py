"""How near planvec's steps come to the fastest known way to step the same simulator.

    python benchmarks/fast_path.py                      # every contest, about 15 seconds each
    python benchmarks/fast_path.py --env Ant-v5 --seconds 30

Each contest has several contenders for the same work: `NUM_ROWS` rows per call, from the states of a random
walk. They run in one process tree and in turn (A, B, A, B, ...), since the speed of a machine drifts; each
round gives one ratio, and medians are quoted.

`mujoco.rollout` is MuJoCo's own thread pool, from the same states, with the same warm starts and the same
controls. It returns the physics alone; planvec also gives the rewards, observations and flags of the
environment, and states that can be stepped on from.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import planvec

NUM_ROWS = 256
NUM_CORES = 2
SECONDS_PER_TURN = 0.25

Contenders = dict[str, Callable[[], Any]]
"""Name -> one call, which steps `NUM_ROWS` rows. Planvec comes first; each other one is a rival."""


class Contest(NamedTuple):
    """Contenders for the same work.

    Attributes:
        env_id: The environment.
        enter: Makes the contenders; ends their processes and threads.
        wanted: The share of the rival's speed that planvec is to reach.
    """

    env_id: str
    enter: Callable[[str], contextlib.AbstractContextManager[Contenders]]
    wanted: float


def random_walk(env_id: str, num_rows: int) -> tuple[Any, Any]:
    """States of a random walk and the actions taken there, in random order, as a planner's batches are."""
    with planvec.PlanEnv(env_id) as env:
        env.action_space.seed(0)
        states = np.empty(num_rows, env.state_dtype)
        actions = np.stack([env.action_space.sample() for _ in range(num_rows)])
        env.reset(seed=0)
        for row, action in enumerate(actions):
            states[row] = env.get_state()
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated or row % 50 == 49:
                env.reset(seed=row)
    order = np.random.default_rng(0).permutation(num_rows)
    return states[order], actions[order]


@contextlib.contextmanager
def mujoco_contenders(env_id: str) -> Iterator[Contenders]:
    """Two workers of planvec against two threads of `mujoco.rollout`."""
    import gymnasium
    import mujoco
    from mujoco import rollout

    states, actions = random_walk(env_id, NUM_ROWS)
    base: Any = gymnasium.make(env_id).unwrapped
    model, data = base.model, [mujoco.MjData(base.model) for _ in range(NUM_CORES)]
    saved, full = (int(getattr(mujoco.mjtState, f"mjSTATE_{n}")) for n in ("INTEGRATION", "FULLPHYSICS"))
    physics = np.empty((NUM_ROWS, mujoco.mj_stateSize(model, full)))
    warm = np.empty((NUM_ROWS, model.nv))
    for row, record in enumerate(states):
        vector = record["physics"][: mujoco.mj_stateSize(model, saved)].copy()
        mujoco.mj_setState(model, data[0], vector, saved)
        mujoco.mj_getState(model, data[0], physics[row], full)
        warm[row] = data[0].qacc_warmstart
    controls = np.repeat(actions.astype(float)[:, None], base.frame_skip, axis=1)
    models = [model] * NUM_ROWS
    with (
        planvec.make(env_id, num_workers=NUM_CORES, info_keys=()) as env,
        rollout.Rollout(nthread=NUM_CORES) as threads,
    ):
        yield {
            f"planvec, {NUM_CORES} workers": lambda: env.step_batch(actions, states),
            f"mujoco.rollout, {NUM_CORES} threads": lambda: threads.rollout(
                models, data, physics, controls, initial_warmstart=warm
            ),
        }


CONTESTS = (
    Contest("HalfCheetah-v5", mujoco_contenders, 0.75),
    Contest("Ant-v5", mujoco_contenders, 0.85),
    Contest("Humanoid-v5", mujoco_contenders, 0.85),
)


def run_for(run: Callable[[], Any], seconds: float) -> float:
    """Seconds per call, after one that is not counted: what has slept is placed on cores anew."""
    run()
    started = time.perf_counter()
    calls = 0
    while (passed := time.perf_counter() - started) < seconds:
        run()
        calls += 1
    return passed / calls


def compete(contenders: Contenders, seconds: float) -> dict[str, list[float]]:
    """Seconds per call of each contender, one entry per round."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for run in contenders.values():
        run_for(run, SECONDS_PER_TURN)
    gc.collect()
    gc.disable()
    try:
        num_rounds = max(3, round(seconds / (SECONDS_PER_TURN * len(contenders))))
        for _ in range(num_rounds):
            for name, run in contenders.items():
                times[name].append(run_for(run, SECONDS_PER_TURN))
    finally:
        gc.enable()
    return times


def report(contest: Contest, times: dict[str, list[float]]) -> None:
    """One line per contender, and one per rival."""
    ours, *rivals = times
    for name, seconds in times.items():
        median = statistics.median(seconds) / NUM_ROWS
        print(f"{contest.env_id:20s} {name:28s} {1 / median:10.0f} rows/s {median * 1e6:8.2f} us/row")
    for rival in rivals:
        ratios = sorted(other / own for own, other in zip(times[ours], times[rival], strict=True))
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        print(
            f"{contest.env_id:20s} {statistics.median(ratios):.1%} of {rival} "
            f"(rounds {low:.0%} to {high:.0%}; wanted {contest.wanted:.0%})",
            flush=True,
        )


def main() -> None:
    """Run the contests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [contest.env_id for contest in CONTESTS]
    parser.add_argument("--env", action="append", choices=known, help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=15.0, help="per contest (default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{NUM_ROWS} rows per call; {len(os.sched_getaffinity(0))} cores")
    for contest in CONTESTS:
        if contest.env_id in (arguments.env or known):
            with contest.enter(contest.env_id) as contenders:
                report(contest, compete(contenders, arguments.seconds))


if __name__ == "__main__":
    main()
