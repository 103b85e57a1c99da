"""Defines `EnvCalls`, the methods that `PlanEnv` and `BatchEnv` share. Letters: B rows, H horizon.

Each call checks its arguments, passes a request to a `Backend`, and waits for the promise or returns it.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Self, Unpack, overload

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.backends import Backend
from planvec.errors import ClosedError, InvalidBatchError
from planvec.rows import (
    CheckBatch,
    EnvDescription,
    KernelUse,
    ObserveBatch,
    OnError,
    Perform,
    Promise,
    ReadBatch,
    RenderBatch,
    ResetRequest,
    RolloutOptions,
    Rollouts,
    Start,
    StepOptions,
    Transitions,
    check_rollout,
    check_seed,
    check_state,
    check_states,
    check_step,
    one_action,
    wait_for,
)

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # the default of `blocking`; `Blocking` is inferred from an argument, so that one signature tells all
    Mode = TypeVar("Mode", bound=bool, default=Literal[True])
    Blocking = TypeVar("Blocking", Literal[True], Literal[False], bool, default=Literal[True])
else:
    from typing import TypeVar

    Mode, Blocking = TypeVar("Mode"), TypeVar("Blocking")

T = TypeVar("T")


_NOT_AT_A_STATE = ("close", "reset", "step", "set_wrapper_attr", "__setattr__", "__delattr__")


class EnvCalls(Generic[Mode]):
    """Steps, rolls out and reads saved states of one environment. Base class of `PlanEnv` and `BatchEnv`.

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

    @overload
    def step_batch(
        self: EnvCalls[Literal[True]],
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        blocking: None = None,
        **options: Unpack[StepOptions],
    ) -> Transitions: ...

    @overload
    def step_batch(
        self: EnvCalls[Literal[False]],
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        blocking: None = None,
        **options: Unpack[StepOptions],
    ) -> Promise[Transitions]: ...

    @overload
    def step_batch(
        self,
        actions: Any,
        states: Any = None,
        dt: Any = 1,
        *,
        blocking: bool | None = None,
        **options: Unpack[StepOptions],
    ) -> Transitions | Promise[Transitions]: ...

    def step_batch(
        self,
        actions: object,
        states: object = None,
        dt: object = 1,
        *,
        seeds: object = None,
        return_state: bool = True,
        on_error: OnError = "raise",
        deadline: float | None = None,
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
            deadline: `time.perf_counter()` at which stepping ends. Rows that are not complete by then keep
                their states and have `num_steps` -1, reward 0 and an observation of zeros. None: no limit.
                (Ray's actors, whose clocks differ, step all rows.)
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
        request = check_step(self._about, actions, states, dt, seeds, return_state, on_error, deadline)
        blocking = self._blocking if blocking is None else blocking
        promise = self._backend.run(request, keep=not blocking)
        return wait_for(promise) if blocking else promise

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

    @overload
    def rollout_batch(
        self: EnvCalls[Literal[True]],
        states: Any = None,
        horizon: int | None = None,
        *,
        blocking: None = None,
        **options: Unpack[RolloutOptions],
    ) -> Rollouts: ...

    @overload
    def rollout_batch(
        self: EnvCalls[Literal[False]],
        states: Any = None,
        horizon: int | None = None,
        *,
        blocking: None = None,
        **options: Unpack[RolloutOptions],
    ) -> Promise[Rollouts]: ...

    @overload
    def rollout_batch(
        self,
        states: Any = None,
        horizon: int | None = None,
        *,
        blocking: bool | None = None,
        **options: Unpack[RolloutOptions],
    ) -> Rollouts | Promise[Rollouts]: ...

    def rollout_batch(
        self,
        states: object = None,
        horizon: int | None = None,
        *,
        actions: object = None,
        action_seed: int | None = None,
        seeds: object = None,
        discount: float = 1.0,
        on_error: OnError = "raise",
        deadline: float | None = None,
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
            deadline: As in `step_batch`. A row that is not complete has `num_steps` -1 and return 0.
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
        request = check_rollout(
            self._about, states, horizon, actions, action_seed, seeds, discount, on_error, deadline
        )
        blocking = self._blocking if blocking is None else blocking
        promise = self._backend.run(request, keep=not blocking)
        return wait_for(promise) if blocking else promise

    # -- the environment ----------------------------------------------------------------------------

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of one observation."""
        return self._about.observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one action."""
        return self._about.action_space

    @property
    def state_dtype(self) -> np.dtype:
        """The dtype of one state: structured, or object for `SavedState`s."""
        return self._about.state_dtype

    @property
    def is_stochastic(self) -> bool:
        """False only if every step is known to have one outcome, whatever its seed."""
        return self._about.is_stochastic

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digits: equal for the same kind of environment, constants, time limit and states."""
        about = self._about
        limit = None if about.spec is None else about.spec.max_episode_steps
        texts = f"{about.state_format.origin} {about.state_dtype!r} {limit}"
        parts = (texts.encode(), about.fingerprint)
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's spec of the environment."""
        return self._about.spec

    @property
    def metadata(self) -> dict[str, Any]:
        """Gymnasium's metadata of the environment (render modes, frames per second)."""
        return self._about.metadata

    def kernel_use(self, num_steps: int) -> KernelUse | None:
        """Return what planners need to step with the kernel in this process, in loops of their own.

        Args:
            num_steps: Number of steps that are to be taken; loading a kernel pays off for many.

        Returns:
            None if there is no kernel here, or none yet.
        """
        self._check_open()
        return self._backend.kernel_use(num_steps) if self._has_own_batches() else None

    def row_use(self) -> Perform | None:
        """Return what planners need to step in this process, in loops of their own.

        Returns:
            `perform(request, outputs)`; None if workers step.
        """
        self._check_open()
        return self._backend.row_use() if self._has_own_batches() else None

    @property
    def has_deadlines(self) -> bool:
        """Whether planners may pass `deadline`: a subclass, or what replaced a method, may not know it."""
        return self._has_own_batches()

    def _has_own_batches(self) -> bool:
        """Return whether batches are planvec's: a subclass, or what replaced a method, may do more."""
        methods = ((self.step_batch, EnvCalls.step_batch), (self.rollout_batch, EnvCalls.rollout_batch))
        return all(getattr(method, "__func__", None) is own for method, own in methods)

    # -- the base state -----------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        """Start an episode and make its state the base state.

        Args:
            seed: Seed of the reset, which gives the same start in every worker; None draws a new one.
            options: The argument `options` of the reset.

        Returns:
            `Start`: the state, the first observation, the info.

        Raises:
            InvalidBatchError: The seed is out of range.
            EnvError: The environment raised.
        """
        self._check_open()
        seed = secrets.randbits(31) if seed is None else check_seed(seed)
        start = wait_for(self._backend.run(ResetRequest(seed, options)))
        self._backend.base_state = start.state
        return start

    def get_state(self) -> Any:
        """Return the base state, from which rows start if no states are given."""
        return self._backend.base_state

    def set_state(self, state: object) -> None:
        """Make a state the base state.

        Args:
            state: One state.

        Raises:
            InvalidBatchError: It is not one state of this environment.
        """
        self._check_open()
        self._backend.base_state = check_state(self._about.state_format, state)

    def step(self, action: object, dt: int = 1) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step from the base state and make the new state the base state.

        Args:
            action: One action.
            dt: How often the action is repeated, at least 1.

        Returns:
            The 5-tuple of `gymnasium.Env.step`.

        Raises:
            InvalidBatchError: An argument is wrong.
            EnvError: The environment raised.
        """
        actions = one_action(self.action_space, action)
        out = self.step_batch(actions, None, dt, blocking=True)
        self._backend.base_state = out.new_states[0]
        return out.row(self.observation_space, 0)

    # -- reading states -----------------------------------------------------------------------------

    def observe(self, states: object) -> Any:
        """Return the observations of states, without stepping.

        Args:
            states: `[B]`.

        Returns:
            Observations `[B, ...]`, stacked as in `gymnasium.vector`.

        Raises:
            InvalidBatchError: `states` are not states of this environment.
            EnvError: The environment raised.
        """
        return wait_for(self._backend.run(ObserveBatch(self._checked(states))))

    def render(self, states: object) -> list[Any]:
        """Return the frame that the environment renders at each state.

        Args:
            states: `[B]`.

        Returns:
            A list of B frames: `[height, width, 3]` uint8 for the render mode "rgb_array".

        Raises:
            InvalidBatchError: `states` are not states of this environment.
            EnvError: The environment raised, or was made without a `render_mode`.
        """
        return wait_for(self._backend.run(RenderBatch(self._checked(states))))

    def get_attr(self, name: str, states: object = None) -> np.ndarray:
        """Read an attribute of the environment at each state.

        Args:
            name: A dotted name, such as "gravity" or "data.time". The first part is read from
                the outermost wrapper that has it, or else from the environment.
            states: `[B]`; None reads the base state, as one row.

        Returns:
            `[B, ...]` if the values are numbers or arrays of one shape; otherwise `[B]` of dtype object.

        Raises:
            InvalidBatchError: `states` are not states of this environment.
            EnvError: There is no such attribute, or its value cannot be copied.
        """
        return wait_for(self._backend.run(ReadBatch(self._checked(states), name)))

    def call(self, name: str, states: object = None, /, *args: object, **kwargs: object) -> np.ndarray:
        """Call a method of the environment at each state.

        The method must only read. What it changes of the saved state is not kept, since every call restores
        a state first; what it changes elsewhere would stay in one worker and make its later rows differ.

        Args:
            name: A dotted name, such as "ale.getRAM".
            states: `[B]`; None calls the method at the base state, as one row.
            args: Positional arguments of the method, the same for every state.
            kwargs: Keyword arguments of the method, the same for every state.

        Returns:
            `[B, ...]` if the results are numbers or arrays of one shape; otherwise `[B]` of dtype object.

        Raises:
            InvalidBatchError: The method is one that changes the environment, such as `reset` or
                `set_wrapper_attr`, or `states` are not states of this environment.
            EnvError: The environment raised.
        """
        if name.rpartition(".")[2] in _NOT_AT_A_STATE:
            raise InvalidBatchError(
                f"name: expected a method that only reads the state, got {name!r}; use reset, step_batch or "
                f"close of this {type(self).__name__}, and set attributes in the factory of the environment"
            )
        return wait_for(self._backend.run(ReadBatch(self._checked(states), name, (args, kwargs))))

    def check_states(self, states: object) -> None:
        """Check that states, which come from a file, are states of this environment.

        Call this before you use states that others may have written: a state of variable size holds pickles,
        which could run code when they are restored. Each state is restored once, in a worker, and may name
        only data of known libraries and the classes of the packages that define the environment.

        Args:
            states: `[B]`.

        Raises:
            InvalidBatchError: They are not; the message says which name is not allowed.
            EnvError: A state is damaged.
        """
        wait_for(self._backend.run(CheckBatch(self._checked(states))))

    def _checked(self, states: object) -> np.ndarray:
        self._check_open()
        states = self._backend.base_state if states is None else states
        return check_states(self._about.state_format, states)

    # -- closing ------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the environment and its workers. Closing again does nothing.

        Promises that are still pending raise `ClosedError`, and so do later calls.
        """
        self._closed = True
        self._backend.close()  # every time, because the first one may have been interrupted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled, because it owns a running environment; "
            "clone() opens another one, and states can be copied and pickled"
        )
