"""Rollouts of sequences of which only legal actions are taken. Letters: B sequences, L actions of one."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.planners.search import StepRequest
from planvec.planners.shooting.distributions import Distribution
from planvec.rows import BatchStepper, action_masks, are_legal


def take_legal(
    env: BatchStepper,
    distribution: Distribution,
    generator: np.random.Generator,
    discount: float,
    num_repeats: NDArray[np.int64],
    sequences: NDArray[Any],  # `[B, L, *action shape]`, written
    states: NDArray[Any],  # `[B]`
    seeds: NDArray[np.uint64] | None,  # `[B]`, of the first steps; None where a step has one outcome
) -> Generator[StepRequest, Any, tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Take the actions of sequences one after another, and replace illegal ones by legal ones."""
    # What is legal is known only where a sequence has led. Rewards within the steps of one action are not
    # discounted against each other.
    # `num_repeats`: `[L]`, environment steps for which each action is repeated, as long as it is legal.
    # Returns the returns `[B]`, and the environment steps of each action, `[B, L]`.
    space, num_rows = env.action_space, len(sequences)
    returns, counts = np.zeros(num_rows), np.zeros(sequences.shape[:2], np.int64)
    weights, ended = np.ones(num_rows), np.zeros(num_rows, np.bool_)
    for index in np.flatnonzero(num_repeats).tolist():
        masks = action_masks(space, states)
        if masks is not None:
            drawn = distribution.sample_legal(generator, index, masks)
            illegal = ~(ended | are_legal(space, masks, sequences[:, index]))
            sequences[illegal, index] = drawn[illegal]
        out = yield StepRequest(sequences[:, index], states, int(num_repeats[index]), seeds)
        returns += weights * out.rewards
        counts[:, index] = out.infos["num_steps"]
        weights *= float(discount) ** counts[:, index]
        states, ended = out.new_states, out.terminated | out.truncated
        if ended.all():
            break
        if seeds is not None:
            seeds = generator.integers(0, 2**64, num_rows, dtype=np.uint64)
    return returns, counts
