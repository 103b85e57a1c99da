"""Proves that a kernel gives the bits of the environment, before it is used. Letters: B rows.

    starts of episodes, and states from anywhere
        --> step, step, ... with random actions, repeats and seeds:  by rows, and by the kernel
        --> rollouts, of random and of repeated actions:             by rows, and by the kernel
    a kernel whose results may depend on the number of rows:         all numbers of rows, in other orders

Sines and powers may round differently with another C library or another version of NumPy. So the proof is
made on the machine on which the kernel will run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box

from planvec.codecs import StateCodec, describe_difference
from planvec.rows import (
    BatchKernel,
    Columns,
    EnvDescription,
    Outputs,
    RolloutBatch,
    StepBatch,
    is_uniform,
    own_copy,
    take_rows,
    uniform_actions,
    vector_infos,
)
from planvec.stepping.row_loop import RowLoop

# -- Compares the results of rows that were stepped twice, bit for bit ---------------------------------------


def output_difference(
    expected: Outputs, got: Outputs, infos: tuple[Columns | None, Columns | None] = (None, None)
) -> str | None:
    """Return how the results of the same rows differ, and their infos; None if they are the same."""
    for name in ("new_states", "observations", "rewards", "terminated", "truncated", "num_steps"):
        first, second = getattr(expected, name), getattr(got, name)
        if first is None or second is None:
            continue
        if name != "new_states":
            difference = describe_difference(name, first, second)
        elif first.dtype.hasobject:
            difference = None if (first == second).all() else "the new states differ"
        elif first.tobytes() == second.tobytes():
            difference = None
        else:
            row = next(row for row in range(len(first)) if first[row].tobytes() != second[row].tobytes())
            difference = describe_difference("state", first[row], second[row]) or "the new states differ"
        if difference is not None:
            return difference
    return describe_difference("infos", *(vector_infos(columns or {}) for columns in infos))


# -- The proof -----------------------------------------------------------------------------------------------

_NUM_BATCHES = 24
_MIN_SHARE = 0.25  # smallest share of rows that must take a step; rows whose episode has ended prove little
_LONG, _LATE = 80, 2_100  # horizon of kernels of fast environments, and that of two further rollouts of these
_UNBOUNDED = 8.0  # largest action of a Box without bounds


class KernelProof(NamedTuple):
    """Holds the result of a proof."""

    difference: str  # why the kernel cannot be used; "" if all bits were the same
    num_stepped: int  # number of rows that took a step, in batches of steps


def prove(
    kernel: BatchKernel,
    rows: RowLoop,
    codec: StateCodec,
    about: EnvDescription,
    info_keys: tuple[str, ...] | None,
) -> KernelProof:
    """Compare a kernel with the environment on random transitions and rollouts."""
    # `rows` steps the environment, which is left in an arbitrary state.
    random = np.random.default_rng(0)
    episodes = (own_copy(codec.reset(seed, None)[0]) for seed in range(kernel.num_proved))
    starts = codec.states_of([codec.get(first) for first in episodes])
    digests = _digests_at(codec, starts)
    states, num_rows, num_stepped, has_masks = starts, len(starts), 0, codec.current_mask is not None
    for number in range(_NUM_BATCHES):
        # with and without repeats and seeds. Where there are masks of legal actions, the environment repeats
        # actions itself.
        repeats = number % 2 == 1 and not has_masks
        dt = random.integers(1, 5, num_rows) if repeats else np.ones(num_rows, np.int64)
        seeds = random.integers(0, 2**64, num_rows, dtype=np.uint64) if number % 3 == 1 else None
        actions = _random_actions(about.action_space, random, num_rows)
        batch = StepBatch(states, actions, dt, seeds, same_dt=None if repeats else 1)
        expected, got = batch.new_outputs(about), batch.new_outputs(about)
        columns = rows.step(batch, expected, {})
        infos = kernel.step(batch, got, info_keys)
        if infos is None:  # then nothing was compared
            return KernelProof(f"it refuses the states of step {number}", num_stepped)
        difference = output_difference(expected, got, (columns, infos))
        if difference:
            return KernelProof(f"in step {number}, {difference}", num_stepped)
        difference = _block_difference(kernel, batch, expected, about, random) if number == 0 else ""
        if difference:
            return KernelProof(difference, num_stepped)
        _, terminated, truncated, num_steps = expected.numbers
        num_stepped += int(np.count_nonzero(num_steps))
        # The next states are those that were reached, starts, and some from anywhere.
        restarts = (terminated | truncated) & (random.random(num_rows) < 0.7)  # others stay ended
        assert expected.new_states is not None
        states = np.where(restarts, random.permutation(starts), expected.new_states)
        anywhere = starts.copy()
        kernel.spread(anywhere, random)
        states = np.where(random.random(num_rows) < 0.3, anywhere, states)
    if num_stepped < _MIN_SHARE * _NUM_BATCHES * num_rows:
        return KernelProof(f"only {num_stepped} of its steps could be compared", num_stepped)
    difference = _rollout_difference(kernel, rows, about, starts, states, random, has_masks)
    changed = [name for name, digest in _digests_at(codec, starts).items() if digests.get(name) != digest]
    if changed and not difference:
        difference = f"steps of the environment change {changed[0]}, which is no part of its state"
    return KernelProof(difference, num_stepped)


def _digests_at(codec: StateCodec, states: np.ndarray) -> dict[str, bytes]:
    """Return digests of what the environment holds in the first state."""
    codec.set(codec.load(states[:1]).values[0])
    return codec.digests()


def _block_difference(
    kernel: BatchKernel,
    batch: StepBatch,
    expected: Outputs,
    about: EnvDescription,
    random: np.random.Generator,
) -> str:
    """Return how results differ in batches of other sizes and orders; "" if they are the same."""
    for size in kernel.block_sizes:
        rows = random.permutation(np.resize(np.arange(len(batch.states)), size))
        actions = take_rows(batch.actions, rows)
        other = StepBatch(batch.states[rows], actions, batch.dt[rows], same_dt=batch.same_dt)
        got = other.new_outputs(about)
        if kernel.step(other, got, ()) is None:
            return f"it refuses a batch of {size} rows"
        difference = output_difference(expected.part(rows), got)
        if difference:
            return f"in a batch of {size} rows, {difference}"
    return ""


def _rollout_difference(
    kernel: BatchKernel,
    rows: RowLoop,
    about: EnvDescription,
    starts: np.ndarray,
    states: np.ndarray,
    random: np.random.Generator,
    has_masks: bool,
) -> str:
    """Return the first difference of rollouts from starts and from other states; "" if there is none."""
    states, horizon = states[: len(states) // 2], kernel.proved_horizon
    space = about.action_space
    given = _random_actions(space, random, len(states) * horizon)
    seeds = random.integers(0, 2**64, len(states), dtype=np.uint64)
    # Repeated actions lead far away, to ends of episodes that random ones hardly reach.
    num_long, long_horizon = len(starts) // 8, 6 * horizon
    repeated = np.repeat(_random_actions(space, random, num_long), long_horizon, axis=0)
    requests = [
        RolloutBatch(states, horizon, given, 7, first_row=3, discount=0.97),
        RolloutBatch(starts[:num_long], long_horizon, repeated, 7),
    ]
    if is_uniform(space) and not has_masks:
        requests.append(RolloutBatch(states, horizon, None, 7, first_row=3, seeds=seeds, discount=0.97))
    if horizon >= _LONG:  # the steps are fast: look for what happens late, such as ends by a count of steps
        late = _random_actions(space, random, 2 * _LATE)
        requests.append(RolloutBatch(starts[:2], _LATE, late, 7))
    for request in requests:
        expected, got = request.new_outputs(about), request.new_outputs(about)
        rows.rollout(request, expected, {})
        if not kernel.rollout(request, got):
            return "it refuses rollouts"
        difference = output_difference(expected, got)
        if difference:
            return f"in a rollout, {difference}"
    return ""


def _random_actions(space: Space[object], random: np.random.Generator, count: int) -> Any:
    """Return random actions. Those of a Box are often at a bound or 0, and finite where there is no bound."""
    if not isinstance(space, Box) or space.dtype.kind != "f":
        return uniform_actions(space, random, count)
    low, high = np.broadcast_to(space.low, space.shape), np.broadcast_to(space.high, space.shape)
    lowest, highest = np.maximum(low, -_UNBOUNDED), np.minimum(high, _UNBOUNDED)
    shape = (count, *space.shape)
    drawn = np.where(
        np.isfinite(low) & np.isfinite(high),
        random.uniform(lowest, highest, shape),
        np.clip(random.normal(0.0, 2.0, shape), lowest, highest),
    )
    kind = random.random(shape)
    drawn = np.where(kind < 0.1, lowest, np.where(kind > 0.9, highest, drawn))
    drawn = np.where((kind > 0.45) & (kind < 0.5), np.clip(0.0, lowest, highest), drawn)
    return np.clip(drawn.astype(space.dtype), space.low, space.high)
