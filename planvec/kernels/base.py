"""Defines `Kernel`, a step that can be compiled, and knows the kernels of environment classes.

A kernel is written as functions of numbers. planvec compiles them into loops over whole batches of states::

    state, action, constants, random  --step-->  state, reward, terminated, extra
    state, constants                  --observe-->  the numbers of an observation

It must give every bit that the environment's own step gives. `planvec.stepping.kernel_proof` compares both
before a kernel is used.

Letters: B rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from planvec.rows import Columns, Outputs, RolloutBatch, StepBatch


def never(state: Any, ended: bool, constants: Any) -> bool:
    """Accept every state: the default of `Kernel.refuses`."""
    return False


@dataclass(frozen=True)
class Kernel:
    """Describes a compiled step of one class of environments."""

    # The functions are compiled by numba. They see the fields of a state as a tuple of numbers; a field of
    # more than `layout.MAX_SCALARS` numbers is an array, which they change in place.

    # Names of the fields of the state that the functions take, in order. Others never change.
    fields: tuple[str, ...]
    # `step(state, action, constants, random) -> (state, reward, terminated, extra)`. The action is a number
    # for a Discrete space, else a tuple of numbers. `random` is the generator of the state, see
    # `planvec.kernels.random`. `extra` is a number for `columns`.
    step: Callable[..., Any]
    # `observe(state, constants) -> tuple`: the numbers of the observation, in order
    observe: Callable[..., Any]
    # `constants(env) -> tuple` of numbers and arrays that the functions take. Those of type bool are compiled
    # in. It is called before every batch, and raises an error for an environment that the kernel does not
    # know.
    constants: Callable[[Any], tuple[Any, ...]]
    # `refuses(state, ended, constants) -> bool`: whether the environment itself has to step such a state, or
    # to observe it if the episode has ended
    refuses: Callable[[Any, bool, Any], bool] = never
    # `spread(states, random, env)`: spreads states `[B]` over all that there are, for the proof. None: those
    # that random steps reach are enough.
    spread: Callable[[NDArray[Any], np.random.Generator, Any], None] | None = None
    # `columns(constants, extras, observations, stepped) -> Columns`: the infos of a batch, from arrays `[B,
    # ...]`. None: there are none.
    columns: Callable[..., Columns] | None = None


class BatchKernel(Protocol):
    """Steps and rolls out batches of one environment, with the bits of its own steps."""

    num_proved: int  # number of rows of each batch of the proof
    proved_horizon: int  # steps of the rollouts of the proof
    # numbers of rows for which the results of a row may differ; () if it makes no difference
    block_sizes: tuple[int, ...]

    def step(self, batch: StepBatch, out: Outputs, info_keys: tuple[str, ...] | None) -> Columns | None:
        """Step rows. Returns their infos; None if the environment itself has to step the batch."""
        ...

    def rollout(self, batch: RolloutBatch, out: Outputs) -> bool:
        """Roll out rows. Returns False if the environment itself has to step the batch."""
        ...

    def spread(self, states: NDArray[Any], random: np.random.Generator) -> None:
        """Spread states over all that there are, for the proof."""
        ...

    def settle(self) -> None:
        """Prepare for batches, after the kernel was compared with the environment."""
        ...

    def has_changed(self) -> bool:
        """Return whether the kernel has to be compared with the environment again."""
        ...


# whether NumPy computes a float32 with a Python number in single precision, as it does since version 2
HAS_WEAK_SCALARS = int(np.__version__.partition(".")[0]) >= 2
