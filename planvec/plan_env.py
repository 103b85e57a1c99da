"""`PlanEnv`: one environment in this process, stepped from any of its states.

It is the only place that steps an environment. Worker processes run it over rows in shared memory;
`num_workers=0` is it. Letters: B rows, H horizon.
"""

from __future__ import annotations

import copy
import secrets
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from planvec import space_arrays
from planvec.arrays import Batch, StateFormat, check_batch, check_seed, check_states, one_action
from planvec.codecs import codec_for
from planvec.codecs.base import Rows, StateCodec
from planvec.codecs.registry import CodecChoice
from planvec.errors import ClosedError, EnvError, InvalidBatchError, UnsupportedEnvError
from planvec.infos import Columns, stack_columns, vector_infos
from planvec.promise import Completed
from planvec.rollouts import RolloutOutputs, RolloutPlan, check_rollouts
from planvec.space_arrays import own_copy
from planvec.transitions import Start, Transitions

__all__ = ["EnvDescription", "Outputs", "PlanEnv", "make_env"]

_UNLIMITED = 2**62

EnvSource = str | EnvSpec | Callable[[], Any] | gymnasium.Env[Any, Any]


def make_env(source: EnvSource, **make_kwargs: Any) -> gymnasium.Env[Any, Any]:
    """The environment behind an id, a spec or a factory; an environment is handed back as it is.

    Raises:
        TypeError: `source` is none of these, or the factory returned something else.
    """
    if isinstance(source, (str, EnvSpec)):
        return gymnasium.make(source, **make_kwargs)
    if make_kwargs:
        raise TypeError(
            f"{sorted(make_kwargs)}: expected no arguments for gymnasium.make, since env is not an "
            "id but a factory or an environment; give them to the factory"
        )
    env = source() if callable(source) and not isinstance(source, gymnasium.Env) else source
    if not isinstance(env, gymnasium.Env):
        raise TypeError(
            "env: expected a Gymnasium id, an EnvSpec, a gymnasium.Env, or a factory that returns "
            f"one, got {type(env).__name__} from {source!r}"
        )
    return env


@dataclass(slots=True)
class Outputs:
    """Where the rows of a batch go: arrays `[B, ...]`, perhaps in shared memory.

    Attributes:
        new_states: Of the state dtype, or None where they are not wanted.
        observations: What `space_arrays.empty_rows` gives.
        rewards: float64.
        terminated: bool.
        truncated: bool.
        num_steps: int64.
    """

    new_states: NDArray[Any] | None
    observations: Any
    rewards: NDArray[np.float64]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    num_steps: NDArray[np.int64]

    @classmethod
    def empty(
        cls,
        num_rows: int,
        state_dtype: np.dtype[Any],
        observation_space: gymnasium.Space[Any],
        return_state: bool = True,
    ) -> Outputs:
        """Fresh arrays for `num_rows` rows."""
        return cls(
            new_states=np.empty(num_rows, state_dtype) if return_state else None,
            observations=space_arrays.empty_rows(observation_space, num_rows),
            rewards=np.empty(num_rows),
            terminated=np.empty(num_rows, bool),
            truncated=np.empty(num_rows, bool),
            num_steps=np.empty(num_rows, np.int64),
        )

    def transitions(self, space: gymnasium.Space[Any], columns: Columns) -> Transitions:
        """The user's form."""
        return Transitions(
            self.new_states,
            space_arrays.finish_rows(space, self.observations),
            self.rewards,
            self.terminated,
            self.truncated,
            {**vector_infos(columns), "num_steps": self.num_steps},
        )


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


class PlanEnv:
    """One environment whose transitions are pure functions of (state, action, dt, seed).

    It is itself a `BatchStepper`: planners run on it without any worker.

    Args:
        env: A Gymnasium id, an `EnvSpec`, a factory, or a `gymnasium.Env` (which it then owns).
        codec: How states are saved; see `planvec.codecs.codec_for`.
        info_keys: The info keys to keep; None keeps all, `()` none.
        make_kwargs: For `gymnasium.make`, where `env` is an id or a spec.

    Raises:
        UnsupportedEnvError: The environment cannot be saved faithfully.
    """

    def __init__(
        self,
        env: EnvSource,
        *,
        codec: CodecChoice = None,
        info_keys: Sequence[str] | None = None,
        **make_kwargs: Any,
    ) -> None:
        self._env = make_env(env, **make_kwargs)
        self._closed = False
        self._info_keys = None if info_keys is None else tuple(info_keys)
        try:
            self._codec: StateCodec = codec_for(self._env, codec)
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
        return self._codec.format

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """The dtype of one state: structured, or object for `SavedState`s."""
        return self._codec.format.dtype

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
            observation, info = self._codec.reset(seed, copy.deepcopy(options))
            value = self._codec.get(own_copy(observation))
        except BaseException as error:
            raise self._env_error(error, None, None) from error
        states = np.zeros(1, self.state_dtype)
        self._codec.dump(Rows([value], [0], [False], [False]), states)
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
        states = check_states(self.state_format, state)
        if len(states) != 1:
            raise InvalidBatchError(f"state: expected one state, got {len(states)}")
        self._state = states.copy()[0]

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
        first: tuple[Any, float, bool, bool, dict[str, Any]] = out.first(self.observation_space)
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
            blocking: False returns a (kept) promise.

        Returns:
            `Transitions`.

        Raises:
            InvalidBatchError: A wrong argument; nothing was stepped.
            EnvError: The environment raised; `row` and `action` say where.
        """
        self._check_open()
        states = self._state if states is None else states
        batch = check_batch(self.action_space, self.state_format, actions, states, dt, seeds)
        out = Outputs.empty(len(batch), self.state_dtype, self.observation_space, return_state)
        infos = self.step_rows(batch, out)
        return _answer(out.transitions(self.observation_space, infos), blocking)

    def rollout_batch(
        self,
        states: Any = None,
        horizon: int = 1,
        *,
        actions: Any = None,
        seed: int | None = None,
        seeds: Any = None,
        discount: float = 1.0,
        blocking: bool | None = None,
    ) -> Any:
        """Roll out B rows, each for `horizon` steps or until its episode ends.

        Args:
            states: `[B]`; None takes the base state (B from `actions`, or one row).
            horizon: H, at least 1.
            actions: `[B, H, *action shape]`; None draws them uniformly from the action space, row `i`
                from the stream `(seed, i)`.
            seed: Of the random actions; None takes a fresh one.
            seeds: `[B]` uint64: reseeds the randomness of the environment, as in `step_batch`.
            discount: Factor per step.
            blocking: False returns a (kept) promise.

        Returns:
            `Rollouts`.

        Raises:
            InvalidBatchError: A wrong argument.
            EnvError: The environment raised.
        """
        self._check_open()
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
        out = RolloutOutputs.empty(len(plan.states), self.state_dtype)
        self.rollout_rows(plan, out)
        return _answer(out.rollouts(), blocking)

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
        self.observe_rows(states, out)
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
        for row, value in enumerate(self._codec.load(states).values):
            try:
                self._codec.set(value)
                frames.append(self._env.render())
            except BaseException as error:
                raise self._env_error(error, row, None) from error
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

    # -- rows: what workers call, with checked arguments ------------------------------------------

    def step_rows(self, batch: Batch, out: Outputs) -> Columns:
        """Step checked rows and write what comes out into `out`.

        Returns:
            The infos, as columns.

        Raises:
            EnvError: The environment raised, or returned what its observation space does not allow.
        """
        if not len(batch):
            return {}
        actions = space_arrays.list_rows(self.action_space, batch.actions)
        seeds = None if batch.seeds is None else batch.seeds.tolist()
        found = _Found(self._codec.load(batch.states), want_values=out.new_states is not None)
        try:
            self._step_each(found, actions, batch.dt.tolist(), seeds)
            found.write(self._codec, self.observation_space, out)
            return stack_columns(found.infos, self._info_keys)
        except BaseException as error:
            raise self._env_error(error, found.row, actions) from error

    def _step_each(
        self, found: _Found, actions: list[Any], repeats: list[int], seeds: list[int] | None
    ) -> None:
        """The stepping loop. Columns of Python lists go in and come out: see `_Found`."""
        codec, fresh = self._codec, self._codec.fresh_results
        set_state, step = codec.set, codec.step
        get_state = codec.get if found.want_values else None
        limit = codec.time_limit or _UNLIMITED
        values, elapsed, was_terminated, was_truncated = found.before
        for row, value in enumerate(values):
            found.row = row
            set_state(value)
            if was_terminated[row] or was_truncated[row]:
                found.stay(value, codec.observe(), row)
                continue
            if seeds is not None:
                codec.reseed(seeds[row])
            action, left = actions[row], limit - elapsed[row]
            wanted = repeats[row] if repeats[row] < left else left
            observation, reward, terminated, truncated, info = step(action)
            count = 1
            while count < wanted and not (terminated or truncated):
                observation, more, terminated, truncated, info = step(action)
                reward = float(reward) + float(more)
                count += 1
            if not fresh:
                observation, info = own_copy(observation), own_copy(info)
            if get_state is not None:
                found.values.append(get_state(observation))
            found.observations.append(observation)
            found.rewards.append(reward)
            found.terminated.append(terminated)
            found.truncated.append(truncated or count >= left)
            found.num_steps.append(count)
            found.infos.append(info)

    def rollout_rows(self, plan: RolloutPlan, out: RolloutOutputs) -> None:
        """Roll out checked rows and write what comes out into `out`.

        Raises:
            EnvError: The environment raised.
        """
        if not len(plan.states):
            return
        found = _Found(self._codec.load(plan.states), want_values=True)
        returns: list[float] = []
        try:
            self._roll_each(found, plan, returns)
            self._codec.dump(found.after(), out.final_states)
        except BaseException as error:
            raise self._env_error(error, found.row, None) from error
        out.returns[:], out.num_steps[:] = returns, found.num_steps
        out.terminated[:], out.truncated[:] = found.terminated, found.truncated

    def _roll_each(self, found: _Found, plan: RolloutPlan, returns: list[float]) -> None:
        """The rollout loop: as `_step_each`, with the states in between left where they are."""
        codec = self._codec
        set_state, step, discount = codec.set, codec.step, plan.discount
        limit = codec.time_limit or _UNLIMITED
        sequences = plan.sequences(self.action_space)
        values, elapsed, was_terminated, was_truncated = found.before
        for row, value in enumerate(values):
            found.row = row
            set_state(value)
            if was_terminated[row] or was_truncated[row]:
                found.stay(value, None, row)
                returns.append(0.0)
                continue
            if plan.seeds is not None:
                codec.reseed(int(plan.seeds[row]))
            left = limit - elapsed[row]
            wanted = plan.horizon if plan.horizon < left else left
            total, weight, count = 0.0, 1.0, 0
            for action in sequences(row):
                observation, reward, terminated, truncated, _ = step(action)
                total += weight * float(reward)
                weight *= discount
                count += 1
                if terminated or truncated or count >= wanted:
                    break
            found.values.append(codec.get(observation))
            found.terminated.append(terminated)
            found.truncated.append(truncated or count >= left)
            found.num_steps.append(count)
            returns.append(total)

    def observe_rows(self, states: NDArray[Any], out: Any) -> None:
        """Write the observations of checked states into `out`.

        Raises:
            EnvError: The environment raised.
        """
        observations: list[Any] = []
        try:
            for value in self._codec.load(states).values:
                self._codec.set(value)
                observations.append(own_copy(self._codec.observe()))
            space_arrays.stack_rows(self.observation_space, observations, out)
        except BaseException as error:
            raise self._env_error(error, len(observations), None) from error

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this PlanEnv was closed")

    def _env_error(self, error: BaseException, row: int | None, actions: list[Any] | None) -> BaseException:
        """What to raise for an error in a row."""
        if isinstance(error, KeyboardInterrupt) and not _ignores_interrupts():
            return error  # the user's Ctrl-C
        if isinstance(error, UnsupportedEnvError):
            return error
        detail = f"{type(error).__name__}: {error}"
        if isinstance(error, EnvError):
            detail, row = error.detail, row if error.row is None else error.row
        return EnvError(detail, row=row, action=None if actions is None or row is None else actions[row])


class _Found:
    """What stepping a batch has found so far, column by column.

    Columns of Python objects are turned into arrays once per batch: reading and writing array
    elements one by one would cost as much as a step of a small environment.
    """

    def __init__(self, before: Rows, want_values: bool) -> None:
        self.before = before
        self.want_values = want_values
        self.row = 0
        self.values: list[Any] = []
        self.observations: list[Any] = []
        self.rewards: list[Any] = []
        self.terminated: list[bool] = []
        self.truncated: list[bool] = []
        self.num_steps: list[int] = []
        self.infos: list[dict[str, Any] | None] = []

    def stay(self, value: Any, observation: Any, row: int) -> None:
        """An ended row stays where it is."""
        self.values.append(self.before.values[row])
        self.observations.append(own_copy(observation))
        self.rewards.append(0.0)
        self.terminated.append(self.before.terminated[row])
        self.truncated.append(self.before.truncated[row])
        self.num_steps.append(0)
        self.infos.append(None)

    def after(self) -> Rows:
        """The states that were reached."""
        elapsed = [before + steps for before, steps in zip(self.before.elapsed, self.num_steps, strict=True)]
        return Rows(self.values, elapsed, self.terminated, self.truncated)

    def write(self, codec: StateCodec, space: gymnasium.Space[Any], out: Outputs) -> None:
        """Fill `out`."""
        space_arrays.stack_rows(space, self.observations, out.observations)
        if out.new_states is not None:
            codec.dump(self.after(), out.new_states)
        out.rewards[:] = self.rewards
        out.terminated[:], out.truncated[:] = self.terminated, self.truncated
        out.num_steps[:] = self.num_steps


def _ignores_interrupts() -> bool:
    """Whether Ctrl-C cannot reach this process, as in workers: the environment raised it then."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def _answer(value: Any, blocking: bool | None) -> Any:
    return Completed(value) if blocking is False else value
