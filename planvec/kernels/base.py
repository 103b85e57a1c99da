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

__all__ = ["HAS_WEAK_SCALARS", "BatchKernel", "Kernel"]


def never(state: Any, ended: bool, constants: Any) -> bool:
    """Accept every state: the default of `Kernel.refuses`."""
    return False


@dataclass(frozen=True)
class Kernel:
    """Describes a compiled step of one class of environments.

    The functions are compiled by numba. They see the fields of a state as a tuple of numbers; a field of more
    than `layout.MAX_SCALARS` numbers is an array, which they change in place.

    Attributes:
        fields: Names of the fields of the state that the functions take, in order. Others never change.
        step: `step(state, action, constants, random) -> (state, reward, terminated, extra)`. The action is a
            number for a Discrete space, else a tuple of numbers. `random` is the generator of the state, see
            `planvec.kernels.random`. `extra` is a number for `columns`.
        observe: `observe(state, constants) -> tuple`: the numbers of the observation, in order.
        constants: `constants(env) -> tuple` of numbers and arrays that the functions take. Those of type
            bool are compiled in. It is called before every batch, and raises an error for an environment
            that the kernel does not know.
        refuses: `refuses(state, ended, constants) -> bool`: whether the environment itself has to step such
            a state, or to observe it if the episode has ended.
        spread: `spread(states, random, env)`: spreads states `[B]` over all that there are, for the proof.
            None: those that random steps reach are enough.
        columns: `columns(constants, extras, observations, stepped) -> Columns`: the infos of a batch, from
            arrays `[B, ...]`. None: there are none.
    """

    fields: tuple[str, ...]
    step: Callable[..., Any]
    observe: Callable[..., Any]
    constants: Callable[[Any], tuple[Any, ...]]
    refuses: Callable[[Any, bool, Any], bool] = never
    spread: Callable[[NDArray[Any], np.random.Generator, Any], None] | None = None
    columns: Callable[..., Columns] | None = None


class BatchKernel(Protocol):
    """Steps and rolls out batches of one environment, with the bits of its own steps.

    Attributes:
        num_proved: Number of rows of each batch of the proof.
        proved_horizon: Steps of the rollouts of the proof.
        block_sizes: Numbers of rows for which the results of a row may differ; () if it makes no difference.
    """

    num_proved: int
    proved_horizon: int
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


HAS_WEAK_SCALARS = int(np.__version__.partition(".")[0]) >= 2
"""Whether NumPy computes a float32 with a Python number in single precision, as it does since version 2."""
