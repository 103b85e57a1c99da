"""Let mctx search exact simulators through planvec: its values, its scores, and its speed.

    python benchmarks/mctx_search.py         # about two minutes; needs the extra "mctx"

- Taxi: Gumbel MuZero with the values of value iteration as its network. Its action values are compared with
  those of value iteration, where each action was tried once, and after deeper searches.
- CartPole: an episode by Gumbel MuZero, whose network knows nothing.
- Simulations per second beside `planvec.MCTS` without rollouts, in turn, on the same roots.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import mctx
import numpy as np
from numpy.typing import NDArray

import planvec
import planvec.mctx

DISCOUNT = 0.95
NUM_TURNS = 5


def optimal_values(env_id: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the optimal values `[S]` and action values `[S, A]` of a Gymnasium table, by value iteration."""
    with gymnasium.make(env_id) as env:
        table: Any = env.unwrapped
        num_states, num_actions = len(table.P), len(table.P[0])
        outcomes = [[table.P[state][action] for action in range(num_actions)] for state in range(num_states)]
    values = np.zeros(num_states)
    while True:
        action_values = np.array(
            [
                [
                    sum(p * (r + DISCOUNT * (0.0 if end else values[to])) for p, to, r, end in outcome)
                    for outcome in row
                ]
                for row in outcomes
            ]
        )
        new = action_values.max(axis=1)
        if np.abs(new - values).max() < 1e-12:
            return new, action_values
        values = new


def check_taxi() -> None:
    """Print how far the action values of searches are from those of value iteration."""
    values, action_values = optimal_values("Taxi-v4")
    table = jnp.asarray(values, jnp.float32)

    def network(params: Any, observations: Any) -> tuple[Any, Any]:
        return jnp.zeros((len(observations), 6)), table[observations]

    print("| Taxi, 64 roots: simulations | largest error of a visited action's value | optimal actions |")
    print("| --- | --- | --- |")
    with planvec.make("Taxi-v4", num_workers=0) as env:
        starts = [env.reset(seed=seed) for seed in range(64)]
        root = planvec.mctx.root(env, network, None, np.array([start.state for start in starts]))
        expected = action_values[[start.observation for start in starts]]
        for num_simulations in (6, 32, 128):
            policy = mctx.gumbel_muzero_policy(
                None,
                jax.random.key(0),
                root,
                planvec.mctx.recurrent_fn(env, network, discount=DISCOUNT),
                num_simulations=num_simulations,
                max_num_considered_actions=6,
                gumbel_scale=0.0,
            )
            summary = policy.search_tree.summary()
            visited = np.asarray(summary.visit_counts) > 0
            error = np.abs(np.asarray(summary.qvalues) - expected)[visited].max()
            chosen = np.take_along_axis(expected, np.asarray(policy.action)[:, None], axis=1)[:, 0]
            optimal = (chosen > expected.max(axis=1) - 1e-6).mean()
            print(f"| {num_simulations} | {error:.1e} | {optimal:.0%} |")


def nothing_known(num_actions: int) -> planvec.mctx.Network:
    """Return a network that knows nothing."""

    def network(params: Any, observations: Any) -> tuple[Any, Any]:
        return jnp.zeros((len(observations), num_actions)), jnp.zeros(len(observations))

    return network


def play_cart_pole(num_simulations: int, seed: int) -> float:
    """Return the return of an episode by Gumbel MuZero."""
    network, total = nothing_known(2), 0.0
    with planvec.make("CartPole-v1", num_workers=0) as env:
        model = planvec.mctx.recurrent_fn(env, network, discount=0.99, dt=8)

        @jax.jit
        def search(key: Any, root: Any) -> Any:
            return mctx.gumbel_muzero_policy(None, key, root, model, num_simulations=num_simulations).action

        state = np.array([env.reset(seed=seed).state])
        for step in range(500):
            root = planvec.mctx.root(env, network, None, state)
            action = search(jax.random.key(step), root)
            out = env.step_batch(np.asarray(action, np.int64), state)
            state, total = out.new_states, total + float(out.rewards[0])
            if out.terminated[0] or out.truncated[0]:
                break
    return total


def compare_speed(env_id: str, num_roots: int, num_simulations: int) -> None:
    """Print simulations per second of mctx through planvec and of planvec's own search."""
    own = planvec.MCTS(num_simulations=num_simulations, rollout_horizon=0)
    with planvec.make(env_id, num_workers=0) as env:
        num_actions = int(env.action_space.n)  # type: ignore[attr-defined]
        states = np.array([env.reset(seed=seed).state for seed in range(num_roots)])
        network = nothing_known(num_actions)
        model = planvec.mctx.recurrent_fn(env, network, discount=0.99)

        @jax.jit
        def search(key: Any, root: Any) -> Any:
            policy = mctx.gumbel_muzero_policy(None, key, root, model, num_simulations=num_simulations)
            return policy.action_weights

        def by_mctx() -> None:
            root = planvec.mctx.root(env, network, None, states)
            search(jax.random.key(0), root).block_until_ready()

        def by_planvec() -> None:
            own.plan_batch(env, states, seeds=range(num_roots))

        rates = measure([by_mctx, by_planvec], num_roots * num_simulations)
    print(f"| {env_id} | {num_roots} | {num_simulations} | {rates[0]:,.0f} | {rates[1]:,.0f} |", flush=True)


def measure(calls: list[Callable[[], None]], num_simulations: int) -> list[float]:
    """Return the median simulations per second of calls, which take turns."""
    seconds: list[list[float]] = [[] for _ in calls]
    for turn in range(NUM_TURNS + 1):
        for call, one in zip(calls, seconds, strict=True):
            started = time.perf_counter()
            call()
            if turn:  # the first turn compiles
                one.append(time.perf_counter() - started)
    return [num_simulations / statistics.median(one) for one in seconds]


def main() -> None:
    check_taxi()
    scores = [play_cart_pole(64, seed) for seed in range(3)]
    print(f"\nCartPole, 64 simulations of 8 steps an action, no knowledge: {scores}\n")
    print("| environment | roots | simulations | mctx through planvec, per s | planvec.MCTS, per s |")
    print("| --- | --- | --- | --- | --- |")
    for env_id in ("CartPole-v1", "Taxi-v4"):
        for num_roots in (1, 8, 64):
            compare_speed(env_id, num_roots, 200)


if __name__ == "__main__":
    main()
