"""The stepping loop: checked rows in, rows out. It is written once, here.

Letters: B rows, H horizon.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec import space_arrays
from planvec.arrays import Batch
from planvec.codecs.base import Outcome, Rows, StateCodec
from planvec.errors import EnvError, UnsupportedEnvError
from planvec.infos import Columns, stack_columns, vector_infos
from planvec.rollouts import RolloutOutputs, RolloutPlan
from planvec.space_arrays import own_copy
from planvec.transitions import Rollouts, Transitions

__all__ = ["Outputs", "RowStepper"]

_UNLIMITED = 2**62


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
            {**_without_mask(vector_infos(columns)), "num_steps": self.num_steps},
        )


def _without_mask(infos: dict[str, Any]) -> dict[str, Any]:
    """An environment's own "num_steps" gives way to planvec's, which every row has."""
    infos.pop("_num_steps", None)
    return infos


class RowStepper:
    """Steps, rolls out and observes rows with one environment.

    Args:
        codec: Of the environment.
        action_space: The space of one action.
        observation_space: The space of one observation.
        info_keys: The info keys to keep; None keeps all.

    Attributes:
        lock: Held while rows are stepped: there is one environment, and perhaps several threads.
    """

    def __init__(
        self,
        codec: StateCodec,
        action_space: gymnasium.Space[Any],
        observation_space: gymnasium.Space[Any],
        info_keys: Sequence[str] | None,
    ) -> None:
        self._codec = codec
        self._action_space = action_space
        self._observation_space = observation_space
        self._info_keys = None if info_keys is None else tuple(info_keys)
        self.lock = threading.RLock()

    def transitions(self, batch: Batch, return_state: bool) -> Transitions:
        """Step checked rows into fresh arrays; the user's form of `step`."""
        dtype, space = self._codec.format.dtype, self._observation_space
        out = Outputs.empty(len(batch), dtype, space, return_state)
        columns = self.step(batch, out)
        return out.transitions(space, columns)

    def rollouts(self, plan: RolloutPlan) -> Rollouts:
        """Roll out checked rows into fresh arrays; the user's form of `rollout`."""
        out = RolloutOutputs.empty(len(plan), self._codec.format.dtype)
        self.rollout(plan, out)
        return out.rollouts()

    def step(self, batch: Batch, out: Outputs) -> Columns:
        """Step checked rows and write what comes out into `out`.

        Returns:
            The infos, as columns.

        Raises:
            EnvError: The environment raised, or returned what its observation space does not allow.
        """
        if not len(batch):
            return {}
        actions = space_arrays.list_rows(self._action_space, batch.actions)
        seeds = None if batch.seeds is None else batch.seeds.tolist()
        found = _Found(self._codec.load(batch.states), want_values=out.new_states is not None)
        try:
            with self.lock:
                self._step_each(found, actions, batch.dt.tolist(), seeds)
            found.write(self._codec, self._observation_space, out)
            return stack_columns(found.infos, self._info_keys)
        except BaseException as error:
            row = getattr(error, "row", None)  # set where a row came out wrong
            row = found.row if row is None else row
            raise self.env_error(error, row, actions[row]) from error

    def _step_each(
        self, found: _Found, actions: list[Any], repeats: list[int], seeds: list[int] | None
    ) -> None:
        """The stepping loop. Columns of Python lists go in and come out: see `_Found`."""
        codec, fresh, keys = self._codec, self._codec.fresh_results, self._info_keys
        limit, want_infos = codec.time_limit or _UNLIMITED, keys != ()
        set_state, step = codec.set, codec.step if want_infos else _without_info(codec.step)
        get_state = codec.get if found.want_values else None
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
                observation = own_copy(observation)
                info = own_copy(info if keys is None else {k: info[k] for k in keys if k in info})
            if get_state is not None:
                found.values.append(get_state(observation))
            found.observations.append(observation)
            found.rewards.append(reward)
            found.terminated.append(terminated)
            found.truncated.append(truncated or count >= left)
            found.num_steps.append(count)
            if want_infos:
                found.infos.append(info)

    def rollout(self, plan: RolloutPlan, out: RolloutOutputs) -> None:
        """Roll out checked rows and write what comes out into `out`.

        Raises:
            EnvError: The environment raised.
        """
        if not len(plan.states):
            return
        found = _Found(self._codec.load(plan.states), want_values=True)
        returns: list[float] = []
        with self.lock:
            self._roll_each(found, plan, returns)
        self._codec.dump(found.after(), out.final_states)
        out.returns[:], out.num_steps[:] = returns, found.num_steps
        out.terminated[:], out.truncated[:] = found.terminated, found.truncated

    def _roll_each(self, found: _Found, plan: RolloutPlan, returns: list[float]) -> None:
        """The rollout loop: as `_step_each`, with the states in between left where they are."""
        codec, fresh = self._codec, self._codec.fresh_results
        set_state, step, discount = codec.set, _without_info(codec.step), plan.discount
        limit = codec.time_limit or _UNLIMITED
        sequences = plan.sequences(self._action_space)
        values, elapsed, was_terminated, was_truncated = found.before
        row, count, action = 0, 0, None
        try:
            for row, value in enumerate(values):
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
                found.values.append(codec.get(observation if fresh else own_copy(observation)))
                found.terminated.append(terminated)
                found.truncated.append(truncated or count >= left)
                found.num_steps.append(count)
                returns.append(total)
        except BaseException as error:
            raise self.env_error(error, row, action, f"step {count} of the rollout: ") from error

    def observe(self, states: NDArray[Any], out: Any) -> None:
        """Write the observations of checked states into `out`.

        Raises:
            EnvError: The environment raised.
        """
        observations: list[Any] = []
        try:
            with self.lock:
                for value in self._codec.load(states).values:
                    self._codec.set(value)
                    observations.append(own_copy(self._codec.observe()))
            space_arrays.stack_rows(self._observation_space, observations, out)
        except BaseException as error:
            raise self.env_error(error, len(observations)) from error

    def env_error(
        self, error: BaseException, row: int | None, action: Any = None, where: str = ""
    ) -> BaseException:
        """What to raise for an error in a row: one that is the environment's becomes an `EnvError`."""
        if isinstance(error, KeyboardInterrupt) and not _ignores_interrupts():
            return error  # the user's Ctrl-C
        if isinstance(error, UnsupportedEnvError):
            return error
        detail = f"{type(error).__name__}: {error}"
        if isinstance(error, EnvError):
            detail, row = error.detail, row if error.row is None else error.row
        return EnvError(where + detail, row=row, action=action)


def _without_info(step: Callable[[Any], Outcome]) -> Callable[[Any], Outcome]:
    """The same step, for those who do not look at its info; see `StateCodec.step`."""
    found: Callable[[Any], Outcome] = getattr(step, "without_info", step)
    return found


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
        try:
            out.rewards[:] = self.rewards
        except (TypeError, ValueError):
            _check_rewards(self.rewards)
            raise
        out.terminated[:], out.truncated[:] = self.terminated, self.truncated
        out.num_steps[:] = self.num_steps


def _check_rewards(rewards: list[Any]) -> None:
    for row, reward in enumerate(rewards):
        if np.ndim(reward) or not np.can_cast(np.asarray(reward).dtype, np.float64):
            raise EnvError(f"reward: expected a number, got {reward!r}", row=row)


def _ignores_interrupts() -> bool:
    """Whether Ctrl-C cannot reach this process, as in workers: the environment raised it then."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
