"""Defines the batch calls of `PlanEnv` and `BatchEnv`. Letters: B rows, H horizon.

Each call checks its arguments, passes a request to a `Backend`, and waits for the promise or returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from planvec.backends import Backend
from planvec.errors import ClosedError
from planvec.rows import (
    EnvDescription,
    OnError,
    Promise,
    Rollouts,
    Transitions,
    check_rollout,
    check_step,
    wait_for,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Mode = TypeVar("Mode", bound=bool, default=Literal[True])
else:
    from typing import TypeVar

    Mode = TypeVar("Mode")

T = TypeVar("T")


class BatchCalls(Generic[Mode]):
    """Steps and rolls out batches of saved states of one environment.

    The type argument is the default of `blocking`: batch calls wait (True) or return promises (False).

    Args:
        backend: Performs the requests.
        blocking: Whether batch calls wait for their result by default; otherwise they return a `Promise`.
    """

    def __init__(self, backend: Backend, blocking: bool) -> None:
        self._backend = backend
        self._blocking = blocking
        self._closed = False

    @property
    def _about(self) -> EnvDescription:
        return self._backend.description

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"this {type(self).__name__} is closed")

    @overload
    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        seeds: Any = None,
        return_state: bool = True,
        on_error: OnError = "raise",
        blocking: Literal[True],
    ) -> Transitions: ...

    @overload
    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        seeds: Any = None,
        return_state: bool = True,
        on_error: OnError = "raise",
        blocking: Literal[False],
    ) -> Promise[Transitions]: ...

    @overload
    def step_batch(
        self: BatchCalls[Literal[True]],
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        seeds: Any = None,
        return_state: bool = True,
        on_error: OnError = "raise",
        blocking: None = None,
    ) -> Transitions: ...

    @overload
    def step_batch(
        self: BatchCalls[Literal[False]],
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        seeds: Any = None,
        return_state: bool = True,
        on_error: OnError = "raise",
        blocking: None = None,
    ) -> Promise[Transitions]: ...

    @overload
    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        seeds: Any = None,
        return_state: bool = True,
        on_error: OnError = "raise",
        blocking: bool | None = None,
    ) -> Transitions | Promise[Transitions]: ...

    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        seeds: Any = None,
        return_state: bool = True,
        on_error: OnError = "raise",
        blocking: bool | None = None,
    ) -> Transitions | Promise[Transitions]:
        """Step B rows, each from its own state.

        Args:
            actions: `[B, *action shape]` of the dtype of the action space; nested for Dict and Tuple.
            states: `[B]` of `state_dtype`; None starts every row from the base state.
            dt: int or `[B]`, at least 1: how often the action of a row is repeated. The rewards are summed.
                The row stops at the end of its episode.
            seeds: `[B]` uint64: reseed the randomness of each row before its step, as `reset(seed=)` seeds
                `np_random`. With None the generator in the state decides, and a planner foresees chance.
            return_state: Whether to save and return the new states.
            on_error: "raise", or "mask": a row fails if the environment raises in it, or if its worker
                crashes or exceeds `timeout`. Failed rows are flagged, and the other rows complete. A flagged
                row has `infos["_error"]` True, the error in `infos["error"]`, reward NaN, `terminated` True,
                `num_steps` 0, an observation of zeros, and the state from which it started, marked as ended.
                (A state that its codec cannot read raises in any case.)
            blocking: Whether to wait for the result; False returns a `Promise`; None takes the default of
                this object.

        Returns:
            `Transitions`, every field `[B, ...]`, or a `Promise` of them. A row whose state has ended keeps
            this state and has reward 0.

        Raises:
            InvalidBatchError: An argument is wrong. Nothing was sent.
            EnvError: The environment raised in row `row` with action `action`.
            WorkerCrashedError: Workers crashed on row `row` more often than `max_restarts` allows. The
                message names the signal or the exit code.
            WorkerTimeoutError: A chunk exceeded `timeout` while row `row` was being stepped.
            WorkerStartError: A worker that had crashed could not be replaced.
        """
        self._check_open()
        states = self._backend.base_state if states is None else states
        request = check_step(self._about, actions, states, dt, seeds, return_state, on_error)
        blocking = self._blocking if blocking is None else blocking
        promise = self._backend.run(request, keep=not blocking)
        return wait_for(promise) if blocking else promise

    @overload
    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        actions: Any = None,
        action_seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        blocking: Literal[True],
    ) -> Rollouts: ...

    @overload
    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        actions: Any = None,
        action_seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        blocking: Literal[False],
    ) -> Promise[Rollouts]: ...

    @overload
    def rollout_batch(
        self: BatchCalls[Literal[True]],
        states: Any = None,
        horizon: int | None = None,
        *,
        actions: Any = None,
        action_seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        blocking: None = None,
    ) -> Rollouts: ...

    @overload
    def rollout_batch(
        self: BatchCalls[Literal[False]],
        states: Any = None,
        horizon: int | None = None,
        *,
        actions: Any = None,
        action_seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        blocking: None = None,
    ) -> Promise[Rollouts]: ...

    @overload
    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        actions: Any = None,
        action_seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        blocking: bool | None = None,
    ) -> Rollouts | Promise[Rollouts]: ...

    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        actions: Any = None,
        action_seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        blocking: bool | None = None,
    ) -> Rollouts | Promise[Rollouts]:
        """Roll out B rows inside the workers, each for `horizon` steps or to the end of its episode.

        Args:
            states: `[B]`; None starts every row from the base state (B rows of `actions`, else one row).
            horizon: H, at least 1; None takes the H of `actions`.
            actions: `[B, H, *action shape]`; None draws them uniformly from the action space. Row `i` takes
                the stream `(action_seed, i)`.
            action_seed: Seed of the random actions, in [0, 2**64); None draws a new one.
            seeds: `[B]` uint64: reseed the randomness of the environment before the first step of each row,
                as in `step_batch`.
            discount: Factor per step, in [0, 1].
            on_error: "raise" or "mask", as in `step_batch`. A flagged row has the return NaN.
            blocking: Whether to wait for the result; False returns a `Promise`; None takes the default of
                this object.

        Returns:
            `Rollouts`, every field `[B]`, or a `Promise` of them.

        Raises:
            InvalidBatchError: An argument is wrong. Nothing was sent.
            EnvError: The environment raised in row `row` with action `action`.
            WorkerCrashedError: Workers crashed on row `row` more often than `max_restarts` allows.
            WorkerTimeoutError: A chunk exceeded `timeout` while row `row` was being rolled out.
            WorkerStartError: A worker that had crashed could not be replaced.
        """
        self._check_open()
        states = self._backend.base_state if states is None else states
        request = check_rollout(self._about, states, horizon, actions, action_seed, seeds, discount, on_error)
        blocking = self._blocking if blocking is None else blocking
        promise = self._backend.run(request, keep=not blocking)
        return wait_for(promise) if blocking else promise
