"""Proves that a kernel gives the bits of the environment, before it is used.

    starts of episodes --> step, step, ... with random actions, repeats and seeds:  by rows, and by the kernel
                       --> rollouts:                                                by rows, and by the kernel

Sines and powers may round differently with another C library or another version of NumPy. So the proof is
made on the machine on which the kernel will run. Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.codecs import Rows, StateCodec, describe_difference
from planvec.rows import (
    Columns,
    EnvDescription,
    RolloutBatch,
    StepBatch,
    own_copy,
    uniform_actions,
    vector_infos,
)
from planvec.stepping.output_differences import output_difference
from planvec.stepping.row_loop import RowLoop

if TYPE_CHECKING:
    from planvec.kernels import CompiledKernel

__all__ = ["NUM_PROVED", "find_difference"]

_NUM_STARTS, _NUM_BATCHES, _HORIZON = 64, 24, 40
NUM_PROVED = _NUM_STARTS * (_NUM_BATCHES + 2)
"""Number of rows that the proof compares."""


def find_difference(
    kernel: CompiledKernel,
    rows: RowLoop,
    codec: StateCodec,
    about: EnvDescription,
    info_keys: tuple[str, ...] | None,
) -> str:
    """Compare a kernel with the environment on random transitions and rollouts.

    Args:
        kernel: The kernel.
        rows: Steps the environment, which is left in an arbitrary state.
        codec: The codec of the environment.
        about: Describes the environment.
        info_keys: The info keys to compare; None compares all.

    Returns:
        The first difference, or that the kernel refuses a batch; "" if all bits are the same.
    """
    random = np.random.default_rng(0)
    starts = _start_states(codec)
    states = starts
    for number, batch in enumerate(_step_batches(about.action_space, random)):
        batch.states = states
        expected, got = batch.new_outputs(about), batch.new_outputs(about)
        columns = rows.step(batch, expected, {})
        infos = kernel.step(batch, got, info_keys)
        if infos is None:  # then nothing was compared
            return f"it refuses the states of step {number}"
        difference = output_difference(expected, got) or _info_difference(columns, infos)
        if difference:
            return f"in step {number}, {difference}"
        assert expected.new_states is not None
        assert expected.terminated is not None
        restarts = expected.terminated & (random.random(_NUM_STARTS) < 0.5)  # others stay ended
        states = np.where(restarts, random.permutation(starts), expected.new_states)
    for actions in (None, uniform_actions(about.action_space, random, _NUM_STARTS * _HORIZON)):
        request = RolloutBatch(starts, _HORIZON, actions, action_seed=7, first_row=3, discount=0.97)
        expected, got = request.new_outputs(about), request.new_outputs(about)
        rows.rollout(request, expected, {})
        if not kernel.rollout(request, got):
            return "it refuses rollouts"
        difference = output_difference(expected, got)
        if difference:
            return f"in a rollout, {difference}"
    return ""


def _start_states(codec: StateCodec) -> NDArray[Any]:
    """Return the states of the starts of some episodes."""
    values = [codec.get(own_copy(codec.reset(seed, None)[0])) for seed in range(_NUM_STARTS)]
    states = np.zeros(_NUM_STARTS, codec.format.dtype)
    flags = [False] * _NUM_STARTS
    codec.dump(Rows(values, [0] * _NUM_STARTS, flags, flags), states)
    return states


def _step_batches(space: Space[Any], random: np.random.Generator) -> Iterator[StepBatch]:
    """Yield requests for steps, without states: with and without repeats and seeds."""
    none = np.zeros(_NUM_STARTS)
    for number in range(_NUM_BATCHES):
        repeats = random.integers(1, 5, _NUM_STARTS) if number % 2 else np.ones(_NUM_STARTS, np.int64)
        seeds = random.integers(0, 2**64, _NUM_STARTS, dtype=np.uint64) if number % 3 == 1 else None
        actions = uniform_actions(space, random, _NUM_STARTS)
        yield StepBatch(none, actions, repeats, seeds, same_dt=None if number % 2 else 1)


def _info_difference(expected: Columns, got: Columns) -> str | None:
    """Return how infos differ; None if they are the same."""
    return describe_difference("infos", vector_infos(expected), vector_infos(got))
