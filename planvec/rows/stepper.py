"""Defines the interfaces through which planners use an environment, and environments a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, Unpack, overload, runtime_checkable

import gymnasium
import numpy as np

from planvec.rows.infos import Columns
from planvec.rows.outputs import Outputs
from planvec.rows.promises import Promise
from planvec.rows.requests import Request, RolloutBatch, StepBatch
from planvec.rows.results import RolloutOptions, Rollouts, Start, StepOptions, Transitions


@runtime_checkable
class BatchStepper(Protocol):
    """Steps batches of states. `PlanEnv` and `BatchEnv` are batch steppers.

    Shapes, for B rows: `actions` `[B, *action shape]`, `states` `[B]` of `state_dtype`, `dt` an int or `[B]`
    integers, `seeds` `[B]` integers. `PlanEnv.step_batch` and `PlanEnv.rollout_batch` describe all arguments.
    A planner always passes `blocking`: with True a call returns the named tuple, with False a `Promise` of
    it.
    """

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of one observation."""
        ...

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one action."""
        ...

    @property
    def state_dtype(self) -> np.dtype:
        """The dtype of one state."""
        ...

    @property
    def is_stochastic(self) -> bool:
        """False only if every step is known to have one outcome, whatever its seed."""
        ...

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        """Start an episode and make its state the base state."""
        ...

    def get_state(self) -> Any:
        """Return the base state: one state."""
        ...

    @overload
    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        blocking: Literal[True],
        **options: Unpack[StepOptions],
    ) -> Transitions: ...

    @overload
    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        blocking: Literal[False],
        **options: Unpack[StepOptions],
    ) -> Promise[Transitions]: ...

    def step_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Step B rows, each from its own state."""
        ...

    @overload
    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        blocking: Literal[True],
        **options: Unpack[RolloutOptions],
    ) -> Rollouts: ...

    @overload
    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        blocking: Literal[False],
        **options: Unpack[RolloutOptions],
    ) -> Promise[Rollouts]: ...

    def rollout_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Roll out B rows, each from its own state."""
        ...

    def observe(self, states: Any) -> Any:
        """Return the observations `[B, ...]` of states, without stepping."""
        ...


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

    def spread(self, states: np.ndarray, random: np.random.Generator) -> None:
        """Spread states over all that there are, for the proof."""
        ...

    def has_changed(self) -> bool:
        """Return whether the kernel has to be compared with the environment again."""
        ...


@dataclass(frozen=True, slots=True)
class KernelUse:
    """Lets a planner step with the kernel of an environment in a loop of its own, without batches."""

    kernel: Any  # the kernel, a `planvec.kernels.CompiledKernel`
    is_required: bool  # whether the user has asked for compiled steps, whatever time it takes to load them
    record: Callable[[int, int], None]  # counts rows and chunks that were stepped
    # `audit(request, outputs, seconds)` lets the environment step a row again if it is time for an audit
    audit: Callable[[Request[Any], Outputs, float], None]


# `perform(request, outputs)` performs a request in the calling thread and writes its results
Perform = Callable[[Request[Any], Outputs], object]


@runtime_checkable
class StepsHere(Protocol):
    """A `BatchStepper` that may step in this process, in loops of a planner instead of batches."""

    def kernel_use(self, num_steps: int) -> KernelUse | None:
        """Return the use of the kernel, if a request for so many steps would be performed with it."""
        ...

    def row_use(self) -> Perform | None:
        """Return a function that performs requests here; None if workers perform them."""
        ...
