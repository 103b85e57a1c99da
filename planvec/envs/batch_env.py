"""`BatchEnv`: many transitions at once, spread over worker processes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.backends.in_process import InProcess
from planvec.backends.processes.external_process import ExternalProcess
from planvec.backends.processes.pool import Pool
from planvec.backends.stats import Stats
from planvec.envs.plan_env import PlanEnv
from planvec.errors import ClosedError, InvalidBatchError, PlanvecError
from planvec.rows.checks import check_batch, check_mask, check_seed, check_state, check_states, one_action
from planvec.rows.promises import Promise
from planvec.rows.results import OnError, Start
from planvec.rows.rollouts import check_rollouts

__all__ = ["BatchEnv"]


class BatchEnv:
    """Steps batches of states; the same bits with any number of workers. Letters: B rows, H horizon.

    With workers this process holds no environment of its own: one that crashes cannot take it along.

    Args:
        workers: Processes that each host a `PlanEnv` of the same environment, which this then owns
            and closes; or one `PlanEnv`, to step in this process.
        blocking: Whether batch calls wait for their result by default, or return a `Promise`.
        timeout: Seconds that one chunk of a batch may take before its worker is killed; None: for ever.
        max_restarts: How often a row is tried again after a worker died over it; then
            `WorkerCrashedError` names it. Workers are replaced in any case.
        max_worker_rss: Bytes of memory (resident) above which a worker is replaced between two chunks,
            for environments that leak; None: no limit.

    Raises:
        WorkerStartError: A worker did not come up; none is left.
        UnsupportedEnvError: The environment cannot be saved faithfully; says what to do.
    """

    def __init__(
        self,
        workers: Sequence[ExternalProcess] | PlanEnv,
        *,
        blocking: bool = True,
        timeout: float | None = None,
        max_restarts: int = 3,
        max_worker_rss: int | None = None,
    ) -> None:
        if not isinstance(workers, PlanEnv) and not len(workers):
            raise InvalidBatchError("workers: expected at least one ExternalProcess, or a PlanEnv, got none")
        _check_limits(blocking, timeout, max_restarts, max_worker_rss)
        self._blocking = blocking
        self._closed = False
        self._backend: Pool | InProcess = (
            InProcess(workers)
            if isinstance(workers, PlanEnv)
            else Pool(workers, timeout, max_restarts, max_worker_rss)
        )
        self._description = self._backend.description
        self._state = self._description.base_state

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of one observation."""
        return self._description.observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one action."""
        return self._description.action_space

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """The dtype of one state: structured, or object for `SavedState`s."""
        return self._description.state_format.dtype

    @property
    def is_stochastic(self) -> bool:
        """False only where it is known that a step has one outcome, whatever its seed."""
        return self._description.is_stochastic

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's spec of the environment."""
        return self._description.spec

    @property
    def metadata(self) -> dict[str, Any]:
        """Gymnasium's metadata of the environment (render modes, frames per second)."""
        return self._description.metadata

    @property
    def num_workers(self) -> int:
        """Worker processes; 0 steps in this process."""
        return self._backend.num_workers

    @property
    def workers(self) -> tuple[ExternalProcess, ...]:
        """The worker processes."""
        return tuple(self._backend.processes) if isinstance(self._backend, Pool) else ()

    @property
    def stats(self) -> Stats:
        """Rows stepped, chunks, workers replaced (and why) and retries since it was opened."""
        return self._backend.stats

    # -- the base state -----------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        """Start an episode; its state becomes the base state.

        Args:
            seed: Fixes the start, whichever worker makes it; None takes a fresh one.
            options: For the environment's own reset.

        Raises:
            EnvError: The environment raised.
        """
        self._check_open()
        seed = secrets.randbits(32) if seed is None else check_seed(seed)
        start: Start = self._backend.call("reset", seed=seed, options=options)
        self._state = start.state
        return start

    def get_state(self) -> Any:
        """The base state: one record, from which rows start when no states are given."""
        return self._state

    def set_state(self, state: Any) -> None:
        """Make a state the base state.

        Raises:
            InvalidBatchError: Not one state of this environment.
        """
        self._check_open()
        self._state = check_state(self._description.state_format, state)

    def sync_states(self, state: Any) -> None:
        """Make a state the base state here and in every worker, and wait until it is.

        Batch calls need no such round: they send the states that rows start at. It is for those who
        go on with the workers one by one.

        Raises:
            InvalidBatchError: Not one state of this environment.
        """
        self.set_state(state)
        self._backend.sync(self._state)

    def step(self, action: Any, dt: int = 1) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step from the base state and move it; returns Gymnasium's 5-tuple.

        Args:
            action: One action.
            dt: How many times it is repeated, at least 1.

        Raises:
            InvalidBatchError: A wrong argument.
            EnvError: The environment raised.
        """
        actions = one_action(self.action_space, action)
        out = self.step_batch(actions, None, dt, blocking=True)
        self._state = out.new_states[0]
        first: tuple[Any, float, bool, bool, dict[str, Any]] = out.row(self.observation_space, 0)
        return first

    # -- batches ------------------------------------------------------------------------------

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
    ) -> Any:
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
        mask_errors = check_mask(on_error)
        states = self._state if states is None else states
        batch = check_batch(self.action_space, self._description.state_format, actions, states, dt, seeds)
        blocking = self._blocking if blocking is None else blocking
        promise = self._backend.step(batch, return_state, mask_errors, keep=not blocking)
        return _wait_for(promise) if blocking else promise

    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        actions: Any = None,
        seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        blocking: bool | None = None,
    ) -> Any:
        """Roll out B rows inside the workers, each for `horizon` steps or to the end of its episode.

        Args:
            states: `[B]`; None takes the base state (B from `actions`, else one row).
            horizon: H, at least 1; None takes that of the actions.
            actions: `[B, H, *action shape]`; None draws them uniformly from the action space, row `i`
                from the stream `(seed, i)`.
            seed: Of the random actions, in [0, 2**64); None takes a fresh one.
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
        mask_errors = check_mask(on_error)
        plan = check_rollouts(
            self.action_space,
            self._description.state_format,
            self._state if states is None else states,
            horizon,
            actions,
            seed,
            seeds,
            discount,
        )
        blocking = self._blocking if blocking is None else blocking
        promise = self._backend.rollout(plan, mask_errors, keep=not blocking)
        return _wait_for(promise) if blocking else promise

    def observe(self, states: Any) -> Any:
        """The observations of states, without stepping.

        Args:
            states: `[B]`.

        Returns:
            Observations `[B, ...]` stacked by the observation space.
        """
        self._check_open()
        return self._backend.observe(check_states(self._description.state_format, states))

    def render(self, states: Any) -> list[Any]:
        """What the environment's `render` gives for each state: `[H, W, 3]` uint8 for "rgb_array".

        Args:
            states: `[B]`.

        Raises:
            EnvError: The environment raised, or was made without a `render_mode`.
        """
        self._check_open()
        return self._backend.render(check_states(self._description.state_format, states))

    # -- life ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End the workers. Closing again does nothing; promises still open raise `ClosedError`."""
        self._closed = True
        self._backend.close()  # again, too: the first time may have been interrupted

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this BatchEnv was closed")

    def __enter__(self) -> BatchEnv:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        name = self.spec.id if self.spec is not None else self._description.state_format.origin
        workers = "closed" if self._closed else f"num_workers={self.num_workers}"
        return f"<BatchEnv of {name}, {workers}>"


def _wait_for(promise: Promise[Any]) -> Any:
    try:
        return promise.result()
    except PlanvecError:
        raise
    except BaseException:  # Ctrl-C, or a signal handler of the user's
        promise.abandon()
        raise


def _check_limits(blocking: Any, timeout: Any, max_restarts: Any, max_worker_rss: Any) -> None:
    if not isinstance(blocking, bool):
        raise InvalidBatchError(f"blocking: expected True or False, got {blocking!r}")
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise InvalidBatchError(f"timeout: expected seconds above 0, or None, got {timeout!r}")
    if isinstance(max_restarts, bool) or not isinstance(max_restarts, int) or max_restarts < 0:
        raise InvalidBatchError(f"max_restarts: expected an integer of at least 0, got {max_restarts!r}")
    is_bytes = isinstance(max_worker_rss, int) and not isinstance(max_worker_rss, bool)
    if max_worker_rss is not None and not (is_bytes and max_worker_rss > 0):
        raise InvalidBatchError(f"max_worker_rss: expected bytes above 0, or None, got {max_worker_rss!r}")
