"""mctx on environments: its searches against value iteration, and the same results with workers."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mctx
import numpy as np
import pytest
from mctx._src.seq_halving import get_sequence_of_considered_visits
from own_environments import Stones, StonesCodec
from tabular import TABULAR, Optimum
from test_gumbel import Bandit

import planvec
import planvec.mctx
from planvec.planners.mcts.simulations import considered_visits

DISCOUNT = 0.95


def oracle(values: Any, num_actions: int) -> Any:
    """Return a network that knows the optimal values of cells, and has no preferences."""
    table = jnp.asarray(values, jnp.float32)

    def network(params: Any, observations: Any) -> tuple[Any, Any]:
        return jnp.zeros((len(observations), num_actions)), table[observations]

    return network


@pytest.mark.parametrize("name", ["Taxi", "FrozenLake 8x8", "CliffWalking"])
def test_each_action_is_worth_what_value_iteration_says(name: str) -> None:
    env_id, options = TABULAR[name]
    optimum = Optimum(name, DISCOUNT)
    num_actions = optimum.action_values.shape[1]
    network = oracle(optimum.values, num_actions)
    with planvec.make(env_id, num_workers=0, env_kwargs=options) as env:
        starts = [env.reset(seed=seed) for seed in range(6)]
        root = planvec.mctx.root(env, network, None, np.array([start.state for start in starts]))
        # As many simulations as actions, so that each is tried once.
        policy = mctx.gumbel_muzero_policy(
            None,
            jax.random.key(0),
            root,
            planvec.mctx.recurrent_fn(env, network, discount=DISCOUNT),
            num_simulations=num_actions,
            max_num_considered_actions=num_actions,
            gumbel_scale=0.0,  # of equal priors, the best action
        )
    expected = optimum.action_values[[start.observation for start in starts]]
    got = policy.search_tree.summary()
    assert (np.asarray(got.visit_counts) == 1).all()
    np.testing.assert_allclose(got.qvalues, expected, atol=2e-6)
    best = expected.max(axis=1, keepdims=True)
    chosen = np.take_along_axis(expected, np.asarray(policy.action)[:, None], axis=1)
    np.testing.assert_allclose(chosen, best, atol=2e-6)


def test_random_steps_are_sampled_by_the_key() -> None:
    optimum = Optimum("FrozenLake 4x4 slippery", DISCOUNT)
    network = oracle(optimum.values, 4)
    with planvec.make("FrozenLake-v1", num_workers=0) as env:
        start = env.reset(seed=0)
        states = np.repeat(start.state, 4000)
        root = planvec.mctx.root(env, network, None, states)
        step = planvec.mctx.recurrent_fn(env, network, discount=DISCOUNT)
        for action in range(4):
            actions = jnp.full(len(states), action)
            output, _ = step(None, jax.random.key(action), actions, root.embedding)
            again, _ = step(None, jax.random.key(action), actions, root.embedding)
            assert (output.value == again.value).all()
            returns = np.asarray(output.reward + output.discount * output.value, np.float64)
            error = returns.std() / np.sqrt(len(states))
            expected = optimum.action_values[start.observation, action]
            assert abs(returns.mean() - expected) < 5 * error + 1e-6


@pytest.mark.parametrize("policy", ["gumbel_muzero_policy", "muzero_policy"])
def test_the_number_of_workers_changes_nothing(policy: str) -> None:
    def network(params: Any, observations: Any) -> tuple[Any, Any]:
        return observations @ params, -jnp.abs(observations).sum(axis=1)

    params = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)), jnp.float32)
    weights = []
    for num_workers in (0, 2):
        with planvec.make("CartPole-v1", num_workers=num_workers) as env:
            states = np.array([env.reset(seed=seed).state for seed in range(5)])
            model = planvec.mctx.recurrent_fn(env, network, discount=0.99, dt=2)
            search = functools.partial(getattr(mctx, policy), recurrent_fn=model, num_simulations=24)
            root = planvec.mctx.root(env, network, params, states)
            weights.append(jax.jit(search)(params, jax.random.key(3), root).action_weights)
    assert (np.asarray(weights[0]) == np.asarray(weights[1])).all()


def test_states_become_bytes_and_states_again() -> None:
    with planvec.make("Pendulum-v1", num_workers=0) as env:
        states = np.array([env.reset(seed=seed).state for seed in range(3)])
        data = planvec.mctx.embed(states)
        assert data.shape == (3, states.dtype.itemsize)
        assert (planvec.mctx.states_of(env, jnp.asarray(data)) == states).all()


def test_the_example_of_the_documentation_runs() -> None:
    text = (Path(__file__).parents[1] / "docs" / "planning.md").read_text()
    (block,) = re.findall(r"^```py\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(block, {})


def test_what_cannot_be_searched_is_named() -> None:
    network = oracle(np.zeros(3), 2)
    with (
        planvec.make("Pendulum-v1", num_workers=0) as env,
        pytest.raises(planvec.UnsupportedEnvError, match="action_space: expected Discrete, got Box"),
    ):
        planvec.mctx.recurrent_fn(env, network)
    with (
        planvec.make("CartPole-v1", num_workers=0) as env,
        pytest.raises(planvec.InvalidBatchError, match="states: expected an array"),
    ):
        planvec.mctx.root(env, network, None, env.reset(seed=0))  # type: ignore[arg-type]
    with (
        planvec.make(Stones, codec=StonesCodec, num_workers=0) as env,
        pytest.raises(planvec.UnsupportedEnvError, match="got a game of two"),
    ):
        planvec.mctx.recurrent_fn(env, network)
    with (
        planvec.make("CartPole-v1", num_workers=0, codec="replay") as env,
        pytest.raises(planvec.UnsupportedEnvError, match="env: expected states of a fixed size"),
    ):
        planvec.mctx.recurrent_fn(env, network)


# -- our own Gumbel root selection against that of mctx ----------------------------------------------


@pytest.mark.parametrize("num_considered", [1, 2, 3, 5, 8, 16, 17])
def test_halving_visits_what_mctx_visits(num_considered: int) -> None:
    for num_simulations in range(1, 130, 4):
        expected = get_sequence_of_considered_visits(num_considered, num_simulations)
        assert considered_visits(num_considered, num_simulations).tolist() == list(expected)


@pytest.mark.parametrize(("num_considered", "num_simulations"), [(2, 16), (5, 7), (8, 50)])
def test_a_gumbel_root_visits_and_chooses_what_mctx_does(num_considered: int, num_simulations: int) -> None:
    generator = np.random.default_rng(num_simulations)
    priors, rewards = generator.dirichlet(np.ones(8), size=6), generator.normal(size=(6, 8))
    values = generator.normal(size=6)

    def step(params: Any, key: Any, actions: Any, numbers: Any) -> Any:
        zeros = jnp.zeros(6)
        reward = jnp.asarray(rewards)[numbers, actions]
        logits = jnp.zeros((6, 8))
        output = mctx.RecurrentFnOutput(reward=reward, discount=zeros, prior_logits=logits, value=zeros)
        return output, numbers

    policy = mctx.gumbel_muzero_policy(
        None,
        jax.random.key(0),
        mctx.RootFnOutput(
            prior_logits=jnp.log(jnp.asarray(priors)),
            value=jnp.asarray(values),
            embedding=jnp.arange(6),
        ),
        step,
        num_simulations=num_simulations,
        max_num_considered_actions=num_considered,
        gumbel_scale=0.0,
    )
    for row in range(6):
        planner = planvec.MCTS(
            num_simulations=num_simulations,
            batch_size=1,
            root_selection="gumbel",
            num_considered=num_considered,
            gumbel_scale=0.0,
            selection="puct",
            prior_fn=lambda seen, row=row: np.tile(priors[row], (len(seen), 1)),
            value_fn=lambda seen, row=row: np.full(len(seen), values[row]),
        )
        with planvec.PlanEnv(lambda row=row: Bandit(rewards[row])) as env:
            plan = planner.plan(env, env.reset(seed=0).state, seed=0)
        assert plan.visit_counts.tolist() == policy.search_tree.summary().visit_counts[row].tolist()
        assert plan.action == policy.action[row]


def test_wrong_arguments_are_named() -> None:
    def zeros(params: Any, observations: Any) -> Any:
        return jnp.zeros((len(observations), 2)), jnp.zeros(len(observations))

    def three(params: Any, observations: Any) -> Any:
        return jnp.zeros((len(observations), 3)), jnp.zeros(len(observations))

    with planvec.make("CartPole-v1", num_workers=0) as env:
        state = env.reset(seed=0).state
        for discount in (2.0, -1.0, float("nan")):
            with pytest.raises(
                planvec.InvalidBatchError, match="discount: expected a number from 0 to 1, got"
            ):
                planvec.mctx.recurrent_fn(env, zeros, discount=discount)
        with pytest.raises(planvec.InvalidBatchError, match="dt: expected an integer of at least 1, got 0"):
            planvec.mctx.recurrent_fn(env, zeros, dt=0)
        with pytest.raises(
            TypeError, match="env: expected an environment that steps batches, got 'CartPole-v1'"
        ):
            planvec.mctx.root("CartPole-v1", zeros, None, np.array([state]))  # type: ignore[arg-type]
        with pytest.raises(
            planvec.InvalidBatchError, match=r"expected an array \[B\] of states, got shape \(1, 1\)"
        ):
            planvec.mctx.root(env, zeros, None, np.array([[state]]))
        message = r"network: expected logits \[1, 2\] and values \[1\], got shapes \[1, 3\] and \[1\]"
        with pytest.raises(planvec.InvalidBatchError, match=message):
            planvec.mctx.root(env, three, None, np.array([state]))
        states = np.array([state])
        while not states["terminated"][0]:
            states = env.step_batch([0], states).new_states
        with pytest.raises(planvec.InvalidBatchError, match="got one that has ended in row 1"):
            planvec.mctx.root(env, zeros, None, np.concatenate([[state], states]))


def test_integers_that_jax_cannot_hold_are_named() -> None:
    held = np.array([2**31 - 1, -(2**31)])
    assert planvec.mctx._observed(held).dtype == np.int32
    np.testing.assert_array_equal(planvec.mctx._observed(held), held)
    with pytest.raises(
        planvec.InvalidBatchError, match=r"fit into int32, .* got 34359738368; call jax\.config"
    ):
        planvec.mctx._observed(np.array([3, 2**35]))
