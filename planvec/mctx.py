"""mctx on any environment: Gumbel MuZero, MuZero and AlphaZero policies of mctx on exact simulators.

mctx asks for a model that is a JAX function. `jax.pure_callback` makes one of an environment, and may call
it again, or not at all: that is right for planvec, whose transitions are pure functions.

    root = planvec.mctx.root(env, network, params, states)
    model = planvec.mctx.recurrent_fn(env, network)
    policy = mctx.gumbel_muzero_policy(params, key, root, model, num_simulations=32)

Letters: B rows, A actions, S bytes of a state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.extras import install_command
from planvec.rows import PLAYER_FIELD, BatchStepper, check_integer, check_number

__all__ = ["Network", "embed", "recurrent_fn", "root", "states_of"]

try:
    import jax
    import jax.numpy as jnp
    import mctx
except ModuleNotFoundError as error:
    raise ImportError(f"planvec.mctx needs JAX and mctx: {install_command('mctx')}") from error

Network = Callable[[Any, Any], tuple[Any, Any]]
"""`network(params, observations [B, ...]) -> (prior logits [B, A], values [B])`, a JAX function."""


def embed(states: np.ndarray) -> NDArray[np.uint8]:
    """Return states `[B]` as bytes `[B, S]`, which JAX can hold."""
    states = np.ascontiguousarray(states)
    return states.view(np.uint8).reshape(len(states), states.dtype.itemsize)


def states_of(env: BatchStepper, embedding: object) -> np.ndarray:
    """Return the states `[B]` of bytes `[B, S]`."""
    data = np.ascontiguousarray(np.asarray(embedding))
    states: np.ndarray = data.reshape(-1).view(env.state_dtype)
    return states


def root(env: BatchStepper, network: Network, params: object, states: np.ndarray) -> Any:
    """Return the root of a search at states.

    Args:
        env: The stepper.
        network: Evaluates observations.
        params: Its parameters.
        states: `[B]`.

    Returns:
        An `mctx.RootFnOutput`, whose embedding holds the states.

    Raises:
        InvalidBatchError: The states are no array `[B]`, an episode has ended in one, or the network returns
            other shapes.
        TypeError: `env` has no `step_batch`.
        UnsupportedEnvError: The states have no fixed size, the actions are not Discrete, or there are two
            players.
    """
    _check(env)
    if not isinstance(states, np.ndarray) or states.ndim != 1:
        got = f"shape {states.shape}" if isinstance(states, np.ndarray) else type(states).__name__
        raise InvalidBatchError(f"states: expected an array [B] of states, got {got}")
    names = states.dtype.names or ()
    ended = [
        row for name in ("terminated", "truncated") if name in names for row in np.flatnonzero(states[name])
    ]
    if ended:
        raise InvalidBatchError(
            f"states: expected episodes that go on, got one that has ended in row {ended[0]}"
        )
    logits, values = _evaluate(env, network, params, jnp.asarray(_observed(env.observe(states))))
    return mctx.RootFnOutput(prior_logits=logits, value=values, embedding=jnp.asarray(embed(states)))


def recurrent_fn(
    env: BatchStepper, network: Network, *, discount: float = 1.0, dt: int = 1
) -> Callable[[Any, Any, Any, Any], tuple[Any, Any]]:
    """Return the `recurrent_fn` of mctx: it steps the environment, and evaluates where that leads to.

    Where steps are random, each is sampled with a seed of the key that mctx gives, so that a search samples
    one outcome of each action that it takes, and goes on from that.

    Args:
        env: The stepper. It must not be closed while the function is in use.
        network: Evaluates observations.
        discount: Factor per action, in [0, 1]; 0 takes its place where an episode has ended.
        dt: Environment steps for which an action is repeated.

    Returns:
        `recurrent_fn(params, rng_key, action [B], embedding [B, S])`, which returns an
        `mctx.RecurrentFnOutput` and the embedding of the new states.

    Raises:
        InvalidBatchError: `discount` or `dt` is out of range; later, the network returns other shapes.
        TypeError: `env` has no `step_batch`.
        UnsupportedEnvError: The states have no fixed size, the actions are not Discrete, or there are two
            players.
    """
    _check(env)
    check_number("discount", discount, 0, 1)
    check_integer("dt", dt, 1)
    space: Any = env.action_space
    observed = env.observation_space
    if not isinstance(observed, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        raise UnsupportedEnvError(f"observation_space: expected one array of numbers, got {observed}")
    # JAX has no 64 bits by default.
    shape, dtype = observed.shape or (), jax.dtypes.canonicalize_dtype(observed.dtype)

    def step(action: object, embedding: object, seeds: object) -> tuple[Any, ...]:
        """Step rows outside of JAX."""
        actions = np.asarray(action).astype(space.dtype) + space.dtype.type(space.start)
        given = np.asarray(seeds).astype(np.uint64) if env.is_stochastic else None
        out = env.step_batch(actions, states_of(env, embedding), dt, seeds=given, blocking=True)
        assert out.new_states is not None
        going_on = ~(out.terminated | out.truncated)
        return (
            _observed(out.observations).astype(dtype, copy=False),
            out.rewards.astype(np.float32),
            (discount * going_on).astype(np.float32),
            embed(out.new_states),
        )

    def recurrent(params: object, rng_key: object, action: Any, embedding: Any) -> tuple[Any, Any]:
        size = action.shape[0]
        forms = (
            jax.ShapeDtypeStruct((size, *shape), dtype),
            jax.ShapeDtypeStruct((size,), np.float32),
            jax.ShapeDtypeStruct((size,), np.float32),
            jax.ShapeDtypeStruct(embedding.shape, np.uint8),
        )
        seeds = jax.random.bits(rng_key, (size,), np.uint32)
        observations, rewards, discounts, following = jax.pure_callback(step, forms, action, embedding, seeds)
        logits, values = _evaluate(env, network, params, observations)
        output = mctx.RecurrentFnOutput(
            reward=rewards, discount=discounts, prior_logits=logits, value=values * (discounts > 0)
        )
        return output, following

    return recurrent


def _evaluate(env: BatchStepper, network: Network, params: object, observations: Any) -> tuple[Any, Any]:
    """Return the logits `[B, A]` and the values `[B]` of a network."""
    logits, values = network(params, observations)
    space: Any = env.action_space
    num_rows, num_actions = len(observations), int(space.n)
    if logits.shape != (num_rows, num_actions) or values.shape != (num_rows,):
        raise InvalidBatchError(
            f"network: expected logits {[num_rows, num_actions]} and values {[num_rows]}, got shapes "
            f"{list(logits.shape)} and {list(values.shape)}"
        )
    return logits, values


def _check(env: BatchStepper) -> None:
    """Check that there is a stepper, and that JAX can hold the states, and mctx the actions."""
    if not hasattr(env, "step_batch"):
        raise TypeError(
            f"env: expected an environment that steps batches, got {env!r}; open it with planvec.make(...)"
        )
    if env.state_dtype.hasobject:
        raise UnsupportedEnvError(
            "env: expected states of a fixed size, since JAX holds their bytes; write a codec for the "
            "environment (planvec.Codec), or plan with planvec.MCTS"
        )
    if PLAYER_FIELD in (env.state_dtype.names or ()):
        raise UnsupportedEnvError(
            "env: expected an environment with one player, got a game of two; plan with planvec.MCTS"
        )
    if not isinstance(env.action_space, spaces.Discrete):
        raise UnsupportedEnvError(f"action_space: expected Discrete, got {env.action_space}")


def _observed(observations: object) -> np.ndarray:
    """Return observations as an array of a dtype that JAX has."""
    array = np.asarray(observations)
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    if array.dtype.kind in "iu" and dtype.itemsize < array.dtype.itemsize:
        limits = np.iinfo(dtype)
        wrong = array[(array < limits.min) | (array > limits.max)]
        if len(wrong):
            raise InvalidBatchError(
                f"observations: expected integers that fit into {dtype}, the largest that JAX has here, got "
                f"{wrong[0]}; call jax.config.update('jax_enable_x64', True) first"
            )
    return array.astype(dtype, copy=False)
