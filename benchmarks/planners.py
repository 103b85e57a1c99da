"""Measure tree search beside its peers, in one run.

    pip install -e ".[benchmark]"
    python benchmarks/planners.py                     # all of it, about three minutes
    python benchmarks/planners.py --only tree

    tree       the tree alone, with a model that costs nothing and 7 actions: planvec with K simulations in
               flight, its kernels called from a compiled loop, and mctx on the CPU (jit; 1 and 32 roots).
               `mcts` is planvec's whole search, with Python between the kernels and an instant stepper
    openspiel  the game of catch, from OpenSpiel: its own MCTS in Python on its own states, and planvec on the
               same states wrapped as a Gymnasium environment, with and without workers. A random rollout each
    atari      MsPacman with two workers: env steps per second of `step_batch` on random states, and of a plan
    swarm      share of a plan that the swarm's own arithmetic takes, for CartPole and MsPacman

Contenders take turns; medians and their ratios are printed.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numba
import numpy as np
from figures import Figures, add_plain

import planvec
from planvec.kernels import Pointer, compile_loop, jit, value_at
from planvec.planners.mcts.setup import SCALE_BY_TREE, Rules
from planvec.planners.mcts.simulations import (
    NONE,
    PERFORM,
    Steps,
    add_steps,
    begin,
    go_on,
    init,
    mix,
    new_shared,
    new_steps,
    no_halving,
    search_code,
)
from planvec.planners.mcts.tree import NUM_NODES, SINGLE, Tree, TreeKind, empty_arrays
from planvec.rows import Completed

NUM_ACTIONS = 7
ROUNDS = 7


def in_turn(contenders: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the median figure of each, measured in turns; a first round warms up."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(ROUNDS + 1):
        for name, measure in contenders.items():
            figure = measure()
            if turn:
                figures[name].append(figure)
    return {name: statistics.median(values) for name, values in figures.items()}


# -- the tree alone --------------------------------------------------------------------------------


@jit()
def _search(code: Any, memory: Any, steps: Any) -> int:
    """Search; the reward of a step is a hash of the number of the new node."""
    shared = value_at(memory)
    while True:
        status = begin(code, memory, 0)
        if status == NONE:
            return 0
        while status == PERFORM:
            count, first = shared.halves[0].num_rows, shared.tree.counters[NUM_NODES]
            for row in range(count):
                steps.rewards[row] = (mix(5, first + row) % 1024) / 1024.0
            answer = Steps(
                steps.new_states[: 8 * count],
                steps.rewards[:count],
                steps.terminated[:count],
                steps.truncated[:count],
                steps.num_steps[:count],
            )
            add_steps(code, memory, answer, answer.new_states, 0)
            status = go_on(code, memory, 0)


def tree_alone(num_in_flight: int, num_simulations: int) -> Callable[[], float]:
    """Return a measurement of the simulations per second of the selection."""
    config = planvec.MCTS(batch_size=2 * num_in_flight, max_depth=100)  # one of the halves is used
    kind = TreeKind(*[False] * 4, SINGLE, 1.0, 1)
    rules = Rules(
        kind,
        value_scale=SCALE_BY_TREE,
        max_depth=100,
        num_simulations=num_simulations,
        state_bytes=8,
        action_bytes=8,
    )
    capacity, steps = num_simulations + 2 * num_in_flight + 1, new_steps(num_in_flight, 8)
    steps.num_steps[:] = 1
    states = np.zeros(capacity, Instant.state_dtype)
    repeats = max(1, 200_000 // num_simulations)

    def measure() -> float:
        seconds = 0.0
        for _ in range(repeats):
            arrays = empty_arrays(capacity, NUM_ACTIONS, 100, kind)
            init(arrays, rules)
            tree = Tree(arrays, states, np.arange(NUM_ACTIONS), kind)
            memory = Pointer(new_shared(config, rules, tree, states[:1], no_halving(), []))
            search = compile_loop(_search, search_code(), numba.typeof(memory), numba.typeof(steps))
            started = time.perf_counter()
            search(None, memory, steps)
            seconds += time.perf_counter() - started
        return repeats * num_simulations / seconds

    return measure


class Instant:
    """Steps at no cost: the state counts up, the reward is a hash of it."""

    observation_space = gymnasium.spaces.Discrete(1)
    action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
    state_dtype = np.dtype([("number", "<i8")])
    is_stochastic = False

    def step_batch(self, actions: Any, states: Any, dt: Any = 1, **options: Any) -> Any:
        count = len(states)
        after = np.empty(count, self.state_dtype)
        after["number"] = states["number"] * NUM_ACTIONS + actions
        rewards = (after["number"] * 2654435761 % 1024) / 1024.0
        flags = np.zeros(count, bool)
        infos = {"num_steps": np.ones(count, np.int64)}
        out = planvec.Transitions(after, np.zeros(count, np.int64), rewards, flags, flags, infos)
        return Completed(out)


def whole_search(num_in_flight: int, num_simulations: int) -> Callable[[], float]:
    """Return a measurement of the simulations per second of `MCTS` on a stepper that costs nothing."""
    planner = planvec.MCTS(num_simulations=num_simulations, batch_size=num_in_flight, rollout_horizon=0)
    state = np.zeros(1, Instant.state_dtype)

    def measure() -> float:
        return num_simulations / planner.plan(Instant(), state, seed=0).elapsed  # type: ignore[arg-type]

    return measure


def mctx_search(num_roots: int, num_simulations: int) -> Callable[[], float]:
    """Return a measurement of the simulations per second of mctx, compiled as a whole."""
    import jax
    import jax.numpy as jnp
    import mctx

    def recurrent(parameters: Any, key: Any, action: Any, embedding: Any) -> Any:
        after = embedding * NUM_ACTIONS + action
        value = (after * 40503 % 1024) / 1024.0
        out = mctx.RecurrentFnOutput(
            reward=jnp.zeros(num_roots),
            discount=jnp.ones(num_roots),
            prior_logits=jnp.zeros((num_roots, NUM_ACTIONS)),
            value=value.astype(jnp.float32),
        )
        return out, after

    @jax.jit
    def search(key: Any) -> Any:
        root = mctx.RootFnOutput(
            prior_logits=jnp.zeros((num_roots, NUM_ACTIONS)),
            value=jnp.zeros(num_roots),
            embedding=jnp.ones(num_roots, jnp.int32),
        )
        return mctx.muzero_policy(
            (), key, root, recurrent, num_simulations, dirichlet_fraction=0.0
        ).action_weights

    key = jax.random.PRNGKey(0)

    def measure() -> float:
        started = time.perf_counter()
        search(key).block_until_ready()
        return num_roots * num_simulations / (time.perf_counter() - started)

    return measure


def show_tree(figures: Figures) -> None:
    for num_simulations in (1_000, 10_000):
        contenders = {f"planvec, tree alone, K = {k}": tree_alone(k, num_simulations) for k in (1, 8, 64)}
        contenders |= {f"planvec, MCTS, K = {k}": whole_search(k, num_simulations) for k in (1, 64, 512)}
        if importlib.util.find_spec("mctx"):
            for num_roots in (1, 32):
                if num_simulations == 1_000 or num_roots == 1:  # more would take it minutes
                    contenders[f"mctx, {num_roots} roots"] = mctx_search(num_roots, num_simulations)
        medians = in_turn(contenders)
        best = max((figure for name, figure in medians.items() if name.startswith("mctx")), default=None)
        figures.text(
            f"\nTree with a model that costs nothing, {NUM_ACTIONS} actions, {num_simulations:,} simulations"
        )
        for name, figure in medians.items():
            ratio = f", {figure / best:.1f} times mctx's best" if best and name.startswith("planvec") else ""
            figures.text(f"  {name:<28} {figure:>12,.0f} simulations/s{ratio}")
            figures.figure(f"tree/{num_simulations}/{name}/per_s", figure)


# -- OpenSpiel -------------------------------------------------------------------------------------

GAME = "catch(rows=10,columns=5)"


class Catch(gymnasium.Env[Any, Any]):
    """Plays OpenSpiel's catch: where the ball falls is drawn by `reset`, the rest is deterministic."""

    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self) -> None:
        import pyspiel

        self.game = pyspiel.load_game(GAME)
        self.state: Any = None
        shape = tuple(self.game.observation_tensor_shape())
        self.observation_space = gymnasium.spaces.Box(0, 1, shape, np.float32)

    def seen(self) -> Any:
        return np.array(self.state.observation_tensor(0), np.float32).reshape(self.observation_space.shape)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.state = self.game.new_initial_state()
        self.state.apply_action(int(self.np_random.integers(5)))
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.state.apply_action(int(action))
        return self.seen(), self.state.returns()[0], self.state.is_terminal(), False, {}


class CatchCodec(planvec.Codec):
    """Saves the actions so far, and how many."""

    dtype = np.dtype([("actions", "i1", 16), ("count", "i1")])
    draws = False

    def get(self, env: Any) -> Any:
        history = env.state.history()
        return history + [0] * (16 - len(history)), len(history)

    def set(self, env: Any, value: Any) -> None:
        actions, count = value
        env.state = env.game.new_initial_state()
        for action in actions[:count]:
            env.state.apply_action(int(action))

    def observe(self, env: Any) -> Any:
        return env.seen()


def make_catch() -> Any:
    planvec.register_codec(Catch, CatchCodec)
    return Catch()


def show_openspiel(figures: Figures) -> None:
    import pyspiel
    from open_spiel.python.algorithms import mcts

    num_simulations = 2_000
    game = pyspiel.load_game(GAME)
    start = game.new_initial_state()
    start.apply_action(0)
    random = np.random.RandomState(0)
    rollouts = mcts.RandomRolloutEvaluator(1, random)
    bot = mcts.MCTSBot(game, 1.4, num_simulations, rollouts, random_state=random, solve=False)

    def openspiel() -> float:
        started = time.perf_counter()
        bot.mcts_search(start)
        return num_simulations / (time.perf_counter() - started)

    planner = planvec.MCTS(num_simulations=num_simulations, batch_size=128, rollout_horizon=10)
    with planvec.make(make_catch, num_workers=0) as alone, planvec.make(make_catch, num_workers=2) as two:
        seed = next(seed for seed in range(99) if alone.reset(seed=seed).state["actions"][0] == 0)
        state = alone.reset(seed=seed).state
        contenders = {
            "OpenSpiel, in Python": openspiel,
            "planvec, in this process": lambda: num_simulations / planner.plan(alone, state, seed=0).elapsed,
            "planvec, two workers": lambda: num_simulations / planner.plan(two, state, seed=0).elapsed,
        }
        medians = in_turn(contenders)
        ours, theirs = planner.plan(alone, state, seed=0), bot.mcts_search(start)
    figures.text(f"\nCatch, {num_simulations:,} simulations with a random rollout each")
    for name, figure in medians.items():
        figures.text(f"  {name:<28} {figure:>12,.0f} simulations/s")
        figures.figure(f"openspiel/{name}/per_s", figure)
    values = {child.action: round(child.total_reward / child.explore_count, 2) for child in theirs.children}
    figures.text(
        f"  values of the actions: planvec {ours.action_values.round(2).tolist()}, OpenSpiel {values}"
    )


# -- workers, swarm ------------------------------------------------------------------------------


def show_atari(figures: Figures) -> None:
    options = {"frameskip": 4, "repeat_action_probability": 0.0}
    with planvec.make("ALE/MsPacman-v5", num_workers=2, info_keys=(), env_kwargs=options) as env:
        state = env.reset(seed=0).state
        planner = planvec.MCTS(num_simulations=1_000, batch_size=64, rollout_horizon=0)
        rng = np.random.default_rng(0)

        def plan() -> float:
            decision = planner.plan(env, state, seed=0)
            return decision.num_env_steps / decision.elapsed

        # The states of a tree, so that both step the same kind of states.
        states = planner.plan(env, state, seed=0).search_data.states[:513]
        actions = rng.integers(env.action_space.n, size=len(states))

        def raw() -> float:
            started = time.perf_counter()
            out = env.step_batch(actions, states)
            return int(out.infos["num_steps"].sum()) / (time.perf_counter() - started)

        medians = in_turn({"step_batch, 513 rows": raw, "MCTS, K = 64": plan})
    ratio = medians["MCTS, K = 64"] / medians["step_batch, 513 rows"]
    figures.text("\nMsPacman, two workers, frame skip 4")
    for name, figure in medians.items():
        figures.text(f"  {name:<28} {figure:>12,.0f} env steps/s")
        figures.figure(f"atari/{name}/per_s", figure)
    figures.text(f"  the search keeps the workers stepping at {ratio:.0%} of raw step_batch")


class Timed:
    """Steps with another stepper, and counts the seconds spent in it: as much of one as the swarm needs.

    Args:
        env: The stepper.
    """

    def __init__(self, env: planvec.BatchEnv) -> None:
        self._env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.state_dtype, self.is_stochastic = env.state_dtype, env.is_stochastic
        self.seconds = 0.0

    def step_batch(self, *args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        out = self._env.step_batch(*args, **{**options, "blocking": True})
        self.seconds += time.perf_counter() - started
        return Completed(out)


def show_swarm(figures: Figures) -> None:
    figures.text("\nThe swarm's own arithmetic, share of a plan (two workers)")
    atari = {"frameskip": 15, "repeat_action_probability": 0.0, "obs_type": "grayscale"}
    for env_id, options in (("CartPole-v1", {}), ("ALE/MsPacman-v5", atari)):
        with planvec.make(env_id, num_workers=2, info_keys=(), env_kwargs=options) as env:
            state = env.reset(seed=0).state
            timed = Timed(env)

            def share(timed: Any = timed, state: Any = state) -> float:
                timed.seconds = 0.0
                plan = planvec.Swarm().plan(timed, state, seed=0)
                return 1 - timed.seconds / plan.elapsed

            median = in_turn({"share": share})["share"]
            figures.text(f"  {env_id:<28} {median:>12.1%}")
            figures.figure(f"swarm/{env_id}/share", median)


SECTIONS = {"tree": show_tree, "openspiel": show_openspiel, "atari": show_atari, "swarm": show_swarm}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    add_plain(parser)
    arguments = parser.parse_args()
    figures = Figures(arguments.plain)
    for name in arguments.only:
        SECTIONS[name](figures)


if __name__ == "__main__":
    main()
