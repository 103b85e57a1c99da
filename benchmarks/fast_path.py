"""Measure how near planvec's steps come to the fastest known way to step the same simulator.

    python benchmarks/fast_path.py                      # every contest, about 15 seconds each
    python benchmarks/fast_path.py --env Ant-v5 --seconds 30

Each contest has several contenders for the same work: `NUM_ROWS` rows per call, from the states of a random
walk. They run in one process tree and in turn (A, B, A, B, ...), since the speed of a machine drifts; each
round gives one ratio, and medians are quoted.

    mujoco.rollout   MuJoCo's own thread pool, from the same states, with the same warm starts and controls.
                     It returns the physics alone; planvec gives rewards, observations, flags and new states
    naive loop       restore, step and save by hand in one process, times the number of workers: what workers
                     could reach if crossing a process boundary cost nothing
    plangym          its parallel environments, with the same number of emulated frames per row (its
                     `frameskip=2` emulates 4); measured where it is installed: pip install plangym
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import os
import pickle
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from figures import Figures, add_plain
from names import open_env, open_plan_env

NUM_ROWS = 256
NUM_CORES = 2
SECONDS_PER_TURN = 0.25
RAM = {"obs_type": "ram"}


class Contender(NamedTuple):
    """Steps the rows in one way.

    Attributes:
        run: One call, which steps all rows.
        wanted: The share of this rival's speed that planvec is to reach.
        times: What the rival's speed is multiplied by: the workers that a loop in one process could have.
    """

    run: Callable[[], Any]
    wanted: float = 0.0
    times: int = 1


Contenders = dict[str, Contender]
"""planvec comes first; each other one is a rival."""


class Contest(NamedTuple):
    """Names the work, and opens its contenders.

    Attributes:
        env_id: The environment.
        enter: Makes the contenders; ends their processes and threads.
        num_rows: Per call.
    """

    env_id: str
    enter: Callable[[str, int], contextlib.AbstractContextManager[Contenders]]
    num_rows: int = NUM_ROWS


def random_walk(env_id: str, num_rows: int, env_kwargs: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """Return the states of a random walk and the actions taken there, in random order as in a search."""
    with open_plan_env(env_id, env_kwargs) as env:
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
def mujoco_contenders(env_id: str, num_rows: int) -> Iterator[Contenders]:
    """Open two workers of planvec and two threads of `mujoco.rollout`."""
    import gymnasium
    import mujoco
    from mujoco import rollout

    states, actions = random_walk(env_id, num_rows)
    base: Any = gymnasium.make(env_id).unwrapped
    model, data = base.model, [mujoco.MjData(base.model) for _ in range(NUM_CORES)]
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
    with (
        open_env(env_id, num_workers=NUM_CORES, info_keys=()) as env,
        rollout.Rollout(nthread=NUM_CORES) as threads,
    ):
        yield {
            f"planvec, {NUM_CORES} workers": Contender(lambda: env.step_batch(actions, states)),
            f"mujoco.rollout, {NUM_CORES} threads": Contender(
                lambda: threads.rollout(models, data, physics, controls, initial_warmstart=warm),
                wanted=0.75 if env_id == "HalfCheetah-v5" else 0.85,
            ),
        }


@contextlib.contextmanager
def atari_contenders(env_id: str, num_rows: int) -> Iterator[Contenders]:
    """Open two workers, a loop that clones, restores and acts by hand, and plangym: 4 frames, RAM."""
    import gymnasium

    states, actions = random_walk(env_id, num_rows, RAM)
    base: Any = gymnasium.make(env_id, **RAM).unwrapped
    base.reset(seed=0)
    saved = []
    for action in np.random.default_rng(0).integers(base.action_space.n, size=num_rows):
        saved.append(base.ale.cloneState(include_rng=True))
        base.step(action)
    chosen = actions.tolist()

    def naive() -> Any:
        news, observations = [], np.empty((num_rows, 128), np.uint8)
        for row, state in enumerate(saved):
            base.ale.restoreState(state)
            observations[row] = base.step(chosen[row])[0]
            news.append(base.ale.cloneState(include_rng=True))
        return news, observations

    with contextlib.ExitStack() as stack:
        env = stack.enter_context(open_env(env_id, env_kwargs=RAM, num_workers=NUM_CORES, info_keys=()))
        contenders = {
            f"planvec, {NUM_CORES} workers": Contender(lambda: env.step_batch(actions, states)),
            f"naive loop, times {NUM_CORES}": Contender(naive, 0.94, NUM_CORES),
        }
        if importlib.util.find_spec("plangym") is not None:
            import plangym

            options = {**RAM, "frameskip": 2, "repeat_action_probability": 0.25}
            rival = plangym.make(env_id, n_workers=NUM_CORES, **options)
            stack.callback(rival.close)
            walker = plangym.make(env_id, **options)
            starts = [walker.reset(return_state=True)[0]]
            while len(starts) < num_rows:
                starts.append(walker.step(chosen[len(starts)], state=starts[-1], return_state=True)[0])
            contenders[f"plangym, {NUM_CORES} workers"] = Contender(
                lambda: rival.step_batch(actions, states=starts, return_state=True), 1.3
            )
        yield contenders


@contextlib.contextmanager
def python_contenders(env_id: str, num_rows: int) -> Iterator[Contenders]:
    """Open two workers, and a loop that pickles the attributes by hand, except those that never change."""
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

    states, actions = random_walk(env_id, num_rows)  # which also registers the id
    base: Any = gymnasium.make(env_id).unwrapped
    base.reset(seed=0)
    attributes = vars(base)
    kinds = (gymnasium.Space, EnvSpec, type)
    constants = {name for name, value in attributes.items() if isinstance(value, kinds) or callable(value)}

    def save() -> bytes:
        return pickle.dumps({name: attributes[name] for name in attributes if name not in constants}, 5)

    saved = []
    for action in actions:
        saved.append(save())
        if base.step(action)[2]:
            base.reset()

    def naive() -> Any:
        outcomes = []
        for state, action in zip(saved, actions, strict=True):
            attributes.update(pickle.loads(state))
            outcomes.append((base.step(action), save()))
        return outcomes

    with open_env(env_id, num_workers=NUM_CORES, info_keys=()) as env:
        yield {
            f"planvec, {NUM_CORES} workers": Contender(lambda: env.step_batch(actions, states)),
            f"naive loop, times {NUM_CORES}": Contender(naive, 0.94, NUM_CORES),
        }


CONTESTS = (
    Contest("HalfCheetah-v5", mujoco_contenders),
    Contest("Ant-v5", mujoco_contenders),
    Contest("Humanoid-v5", mujoco_contenders),
    Contest("ALE/MsPacman-v5", atari_contenders),
    Contest("MiniGrid-DoorKey-8x8-v0", python_contenders),
    Contest("BabyAI-GoToLocal-v0", python_contenders),
    Contest("highway-fast-v0", python_contenders, 32),
)


def run_for(run: Callable[[], Any], seconds: float) -> float:
    """Return the seconds per call, after one that is not counted: processes that have slept change cores."""
    run()
    started = time.perf_counter()
    calls = 0
    while (passed := time.perf_counter() - started) < seconds:
        run()
        calls += 1
    return passed / calls


def compete(contenders: Contenders, seconds: float) -> dict[str, list[float]]:
    """Return the seconds per call of each contender, one entry per round."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for contender in contenders.values():
        run_for(contender.run, SECONDS_PER_TURN)
    gc.collect()
    gc.disable()
    try:
        num_rounds = max(3, round(seconds / (SECONDS_PER_TURN * len(contenders))))
        for _ in range(num_rounds):
            for name, contender in contenders.items():
                times[name].append(run_for(contender.run, SECONDS_PER_TURN))
    finally:
        gc.enable()
    return times


def report(contest: Contest, contenders: Contenders, times: dict[str, list[float]], figures: Figures) -> None:
    """Print one line per contender, and one per rival."""
    ours, *rivals = times
    for name, seconds in times.items():
        median = statistics.median(seconds) / contest.num_rows / contenders[name].times
        figures.text(f"{contest.env_id:24s} {name:28s} {1 / median:10.0f} rows/s {median * 1e6:9.2f} us/row")
        figures.figure(f"{contest.env_id}/{name}/us", median * 1e6)
    for rival in rivals:
        scale = contenders[rival].times
        pairs = zip(times[ours], times[rival], strict=True)
        ratios = sorted(other / scale / own for own, other in pairs)
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        figures.text(
            f"{contest.env_id:24s} {statistics.median(ratios):.1%} of {rival} "
            f"(rounds {low:.0%} to {high:.0%}; wanted {contenders[rival].wanted:.0%})"
        )
        figures.figure(f"{contest.env_id}/of {rival}/share", statistics.median(ratios))


def main() -> None:
    """Run the contests."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = [contest.env_id for contest in CONTESTS]
    parser.add_argument("--env", action="append", choices=known, help="only this one; may be repeated")
    parser.add_argument("--seconds", type=float, default=15.0, help="per contest (default: %(default)s)")
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    figures.text(f"{len(os.sched_getaffinity(0))} cores")
    for contest in CONTESTS:
        if contest.env_id in (arguments.env or known):
            with contest.enter(contest.env_id, contest.num_rows) as contenders:
                report(contest, contenders, compete(contenders, arguments.seconds), figures)


if __name__ == "__main__":
    main()
