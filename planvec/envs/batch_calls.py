"""The batch calls of `PlanEnv` and `BatchEnv`. Letters: B rows, H horizon.

Every call checks its arguments, asks a `Backend`, and waits for the promise, or returns it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from planvec.backends import Backend
from planvec.errors import ClosedError, PlanvecError
from planvec.rows import EnvDescription, OnError, Promise, Rollouts, Transitions, check_rollout, check_step

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Mode = TypeVar("Mode", bound=bool, default=Literal[True])
else:
    from typing import TypeVar

    Mode = TypeVar("Mode")

__all__ = ["BatchCalls", "Mode", "wait_for"]

T = TypeVar("T")


class BatchCalls(Generic[Mode]):
    """Steps and rolls out batches of saved states of one environment.

    The type argument says whether batch calls wait by default (True) or return promises (False).

    Args:
        backend: Does the work.
        blocking: Whether batch calls wait for their result by default, or return a `Promise`.
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
            raise ClosedError(f"this {type(self).__name__} was closed")

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
            actions: `[B, *action shape]` of the action space's dtype; nested for Dict and Tuple.
            states: `[B]` of `state_dtype`; None starts every row at the base state.
            dt: int or `[B]`, at least 1: how many times a row's action is repeated. Rewards add up,
                and the row stops at the end of its episode.
            seeds: `[B]` uint64: reseeds a row's randomness first, as `reset(seed=)` seeds
                `np_random`. Without it the generator in the state decides, and a planner foresees
                chance.
            return_state: Whether new states are saved and sent.
            on_error: "raise", or "mask": rows in which the environment raised, or over which its worker
                died or ran out of `timeout`, come back flagged, and the others complete. A flagged row
                has `infos["_error"]` True and the error in `infos["error"]`, reward NaN, `terminated`
                True, `num_steps` 0, an observation of zeros, and the state that it began at, ended. (A
                state that its codec cannot read raises still.)
            blocking: False returns a `Promise`; None takes the default of this object.

        Returns:
            `Transitions`, every field `[B, ...]`. Rows whose state has ended stay where they are,
            with reward 0.

        Raises:
            InvalidBatchError: A wrong argument; nothing was sent.
            EnvError: The environment raised; `row` and `action` say where.
            WorkerCrashedError: Workers died over a row, more often than `max_restarts`; `row` and
                `action` say which, the text how (signal or exit code).
            WorkerTimeoutError: A chunk took longer than `timeout`; `row` and `action` say where it was.
            WorkerStartError: A worker that had died could not be replaced.
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
            states: `[B]`; None takes the base state (B from `actions`, else one row).
            horizon: H, at least 1; None takes that of the actions.
            actions: `[B, H, *action shape]`; None draws them uniformly from the action space, row `i`
                from the stream `(action_seed, i)`.
            action_seed: Of the random actions, in [0, 2**64); None takes a fresh one.
            seeds: `[B]` uint64: reseeds the randomness of the environment, as in `step_batch`.
            discount: Factor per step, in [0, 1].
            on_error: As in `step_batch`; a flagged row's return is NaN.
            blocking: False returns a `Promise`; None takes the default of this object.

        Returns:
            `Rollouts`, every field `[B]`.

        Raises:
            The errors of `step_batch`.
        """
        self._check_open()
        states = self._backend.base_state if states is None else states
        request = check_rollout(self._about, states, horizon, actions, action_seed, seeds, discount, on_error)
        blocking = self._blocking if blocking is None else blocking
        promise = self._backend.run(request, keep=not blocking)
        return wait_for(promise) if blocking else promise


def wait_for(promise: Promise[T]) -> T:
    """Return the result of a promise, which is abandoned if the user interrupts the wait."""
    try:
        return promise.result()
    except PlanvecError:
        raise
    except BaseException:  # Ctrl-C, or a signal handler of the user's
        promise.abandon()
        raise
