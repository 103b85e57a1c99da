"""`PlanEnv`: one environment in this process, stepped from any of its states.

Worker processes run it over rows in shared memory; `num_workers=0` is it. Letters: B rows, H horizon.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.codecs import codec_for
from planvec.codecs.base import Rows, StateCodec
from planvec.codecs.registry import CodecChoice, check_codec
from planvec.envs.sources import EnvSource, make_env
from planvec.errors import ClosedError, EnvError
from planvec.rows import space_arrays
from planvec.rows.checks import (
    StateFormat,
    check_batch,
    check_mask,
    check_seed,
    check_state,
    check_states,
    one_action,
)
from planvec.rows.infos import check_info_keys
from planvec.rows.promises import Completed
from planvec.rows.results import OnError, Start
from planvec.rows.rollouts import check_rollouts
from planvec.rows.space_arrays import own_copy
from planvec.stepping.row_loop import RowStepper

__all__ = ["EnvDescription", "PlanEnv"]


@dataclass(slots=True)
class EnvDescription:
    """What the parent must know of an environment that lives in another process."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    state_format: StateFormat
    spec: EnvSpec | None
    render_mode: str | None
    metadata: dict[str, Any]
    base_state: Any
    fingerprint: bytes
    is_stochastic: bool


class PlanEnv:
    """One environment whose transitions are pure functions of (state, action, dt, seed).

    It is itself a `BatchStepper`: planners run on it without any worker.

    Args:
        env: A Gymnasium id, an `EnvSpec`, a factory, or a `gymnasium.Env` (which it then owns).
        codec: How states are saved; see `planvec.codecs.codec_for`.
        info_keys: The info keys to keep; None keeps all, `()` none.
        trust: Whether to use a codec that was not proved, as `planvec.check_env` does.
        make_kwargs: For `gymnasium.make`, where `env` is an id or a spec.

    Attributes:
        codec: Saves and restores the environment.
        rows: The stepping loop, for callers that have checked their arguments (workers).

    Raises:
        UnsupportedEnvError: The environment cannot be saved faithfully.
    """

    def __init__(
        self,
        env: EnvSource,
        *,
        codec: CodecChoice = None,
        info_keys: Sequence[str] | None = None,
        trust: bool = False,
        **make_kwargs: Any,
    ) -> None:
        check_info_keys(info_keys)
        check_codec(codec)
        self._env = make_env(env, **make_kwargs)
        self._closed = False
        try:
            self.codec: StateCodec = codec_for(self._env, codec, info_keys=info_keys, trust=trust)
            self.rows = RowStepper(self.codec, self._env.action_space, self._env.observation_space, info_keys)
            self._state = self.reset(seed=0).state
        except BaseException:
            self._env.close()
            raise

    @property
    def env(self) -> gymnasium.Env[Any, Any]:
        """The environment. Its own state is whatever row was stepped last."""
        return self._env

    @property
    def observation_space(self) -> gymnasium.Space[Any]:
        """The space of one observation."""
        return self._env.observation_space

    @property
    def action_space(self) -> gymnasium.Space[Any]:
        """The space of one action."""
        return self._env.action_space

    @property
    def state_format(self) -> StateFormat:
        """The dtype of one state, and the environment and codec that it belongs to."""
        return self.codec.format

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """The dtype of one state: structured, or object for `SavedState`s."""
        return self.codec.format.dtype

    @property
    def is_stochastic(self) -> bool:
        """False only where it is known that a step has one outcome, whatever its seed."""
        return self.codec.stochastic

    @property
    def spec(self) -> EnvSpec | None:
        """Gymnasium's spec of the environment."""
        return self._env.spec

    def describe(self) -> EnvDescription:
        """Spaces, state format and spec, for the other side of a process boundary."""
        return EnvDescription(
            self.observation_space,
            self.action_space,
            self.state_format,
            self.spec,
            self._env.render_mode,
            dict(self._env.metadata),
            self._state,
            self.codec.fingerprint,
            self.is_stochastic,
        )

    # -- the base state -----------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Start:
        """Start an episode; its state becomes the base state.

        Args:
            seed: Fixes the start; None takes a fresh one.
            options: Passed to the environment's own reset.

        Raises:
            EnvError: The environment raised.
        """
        self._check_open()
        seed = secrets.randbits(32) if seed is None else check_seed(seed)
        try:
            with self.rows.lock:
                observation, info = self.codec.reset(seed, copy.deepcopy(options))
                value = self.codec.get(own_copy(observation))
        except BaseException as error:
            raise self.rows.env_error(error, None) from error
        states = np.zeros(1, self.state_dtype)
        self.codec.dump(Rows([value], [0], [False], [False]), states)
        self._state = states[0]
        return Start(states[0], observation, info)

    def get_state(self) -> Any:
        """The base state: one record."""
        return self._state

    def set_state(self, state: Any) -> None:
        """Make a state the base state.

        Raises:
            InvalidBatchError: Not one state of this environment.
        """
        self._state = check_state(self.state_format, state)

    def step(self, action: Any, dt: int = 1) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step from the base state and move it; returns Gymnasium's 5-tuple.

        Args:
            action: One action.
            dt: How many times it is repeated, at least 1.

        Raises:
            InvalidBatchError: A wrong argument.
            EnvError: The environment raised.
        """
        out = self.step_batch(one_action(self.action_space, action), None, dt)
        self._state = out.new_states[0]
        row: tuple[Any, float, bool, bool, dict[str, Any]] = out.row(self.observation_space, 0)
        return row

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
            actions: `[B, *action shape]`.
            states: `[B]`; None starts every row at the base state.
            dt: int or `[B]`: how many times a row's action is repeated.
            seeds: `[B]` uint64: reseeds a row's randomness first, as `reset(seed=)` seeds
                `np_random`. Without it the generator in the state decides.
            return_state: Whether to save the new states.
            on_error: "raise", or "mask" to flag the rows in which the environment raised; see
                `BatchEnv.step_batch`.
            blocking: False returns a (kept) promise.

        Returns:
            `Transitions`.

        Raises:
            InvalidBatchError: A wrong argument; nothing was stepped.
            EnvError: The environment raised; `row` and `action` say where.
        """
        self._check_open()
        mask_errors = check_mask(on_error)
        states = self._state if states is None else states
        batch = check_batch(self.action_space, self.state_format, actions, states, dt, seeds)
        return _answer(self.rows.transitions(batch, return_state, mask_errors), blocking)

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
        """Roll out B rows, each for `horizon` steps or until its episode ends.

        Args:
            states: `[B]`; None takes the base state (B from `actions`, or one row).
            horizon: H, at least 1; None takes that of the actions.
            actions: `[B, H, *action shape]`; None draws them uniformly from the action space, row `i`
                from the stream `(seed, i)`.
            seed: Of the random actions; None takes a fresh one.
            seeds: `[B]` uint64: reseeds the randomness of the environment, as in `step_batch`.
            discount: Factor per step.
            on_error: As in `step_batch`.
            blocking: False returns a (kept) promise.

        Returns:
            `Rollouts`.

        Raises:
            InvalidBatchError: A wrong argument.
            EnvError: The environment raised.
        """
        self._check_open()
        mask_errors = check_mask(on_error)
        plan = check_rollouts(
            self.action_space,
            self.state_format,
            self._state if states is None else states,
            horizon,
            actions,
            seed,
            seeds,
            discount,
        )
        return _answer(self.rows.rollouts(plan, mask_errors), blocking)

    def observe(self, states: Any) -> Any:
        """The observations of states, without stepping.

        Args:
            states: `[B]`.

        Returns:
            Observations `[B, ...]` stacked by the observation space.
        """
        self._check_open()
        states = check_states(self.state_format, states)
        out = space_arrays.empty_rows(self.observation_space, len(states))
        self.rows.observe(states, out)
        return space_arrays.finish_rows(self.observation_space, out)

    def render(self, states: Any) -> list[Any]:
        """What the environment's `render` gives for each state (arrays for "rgb_array").

        Args:
            states: `[B]`.

        Raises:
            EnvError: The environment raised, or was made without a `render_mode`.
        """
        self._check_open()
        states = check_states(self.state_format, states)
        if self._env.render_mode is None:
            raise EnvError(
                'render: the environment was made without a render_mode; pass render_mode="rgb_array"'
            )
        frames = []
        for row, value in enumerate(self.codec.load(states).values):
            try:
                with self.rows.lock:
                    self.codec.set(value)
                    frames.append(self._env.render())
            except BaseException as error:
                raise self.rows.env_error(error, row) from error
        return frames

    def close(self) -> None:
        """Close the environment. Closing again does nothing."""
        if not self._closed:
            self._closed = True
            self._env.close()

    def __enter__(self) -> PlanEnv:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this PlanEnv was closed")


def _answer(value: Any, blocking: bool | None) -> Any:
    return Completed(value) if blocking is False else value
