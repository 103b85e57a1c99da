"""Defines `BatchStepper`, the interface through which a planner uses an environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, Unpack, overload, runtime_checkable

import gymnasium
import numpy as np

from planvec.rows.outputs import Outputs
from planvec.rows.promises import Promise
from planvec.rows.requests import Request
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
    def state_dtype(self) -> np.dtype[Any]:
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


class KernelUse(Protocol):
    """Lets a planner step with the kernel of an environment in a loop of its own, without batches."""

    kernel: Any  # the kernel, a `planvec.kernels.CompiledKernel`
    is_required: bool  # whether the user has asked for compiled steps, whatever time it takes to load them

    def record(self, num_rows: int, num_chunks: int) -> None:
        """Count rows and chunks that were stepped."""
        ...

    def audit(self, request: Request[Any], outputs: Outputs, seconds: float) -> None:
        """Let the environment step a row again if it is time for an audit."""
        ...


# `perform(request, outputs)` performs a request in the calling thread and writes its results
Perform = Callable[[Request[Any], Outputs], None]


@runtime_checkable
class StepsHere(Protocol):
    """A `BatchStepper` that may step in this process, in loops of a planner instead of batches."""

    def kernel_use(self, num_steps: int) -> KernelUse | None:
        """Return the use of the kernel, if a request for so many steps would be performed with it."""
        ...

    def row_use(self) -> Perform | None:
        """Return a function that performs requests here; None if workers perform them."""
        ...
