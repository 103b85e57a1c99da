"""The stepping loop: checked rows in, rows out. It is written once, here.

Letters: B rows, H horizon.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.codecs.base import Rows, StateCodec
from planvec.errors import EnvError, UnsupportedEnvError
from planvec.rows import space_arrays
from planvec.rows.checks import Batch
from planvec.rows.infos import Columns, stack_columns
from planvec.rows.outputs import Errors, Outputs
from planvec.rows.results import Rollouts, Transitions
from planvec.rows.rollouts import RolloutPlan
from planvec.rows.space_arrays import own_copy
from planvec.stepping.found import Found

__all__ = ["ROW", "STEP", "TICKET", "RowStepper", "new_progress"]

_UNLIMITED = 2**62
TICKET, ROW, STEP = range(3)
"""Places in `RowStepper.progress`."""


def new_progress() -> memoryview:
    """Cells for `RowStepper.progress`. A view: writing to one costs 20 ns, to an array's element 30."""
    return memoryview(np.full(3, -1, np.int64))  # type: ignore[arg-type]


class RowStepper:
    """Steps, rolls out and observes rows with one environment.

    Args:
        codec: Of the environment.
        action_space: The space of one action.
        observation_space: The space of one observation.
        info_keys: The info keys to keep; None keeps all.

    Attributes:
        lock: Held while rows are stepped: there is one environment, and perhaps several threads.
        progress: `[3]` int64 (`TICKET`, `ROW`, `STEP`), which row of a batch is at work and which step
            of its rollout; -1 before the first row and after the last. A worker's lies in shared
            memory, and tells the parent where the worker was when it died.
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
        self.progress = new_progress()

    def transitions(self, batch: Batch, return_state: bool, mask_errors: bool) -> Transitions:
        """Step checked rows into fresh arrays; the user's form of `step`."""
        dtype, space = self._codec.format.dtype, self._observation_space
        out = Outputs.empty(len(batch), dtype, space, return_state)
        errors: Errors | None = {} if mask_errors else None
        columns = self.step(batch, out, errors)
        return out.transitions(space, columns, errors)

    def rollouts(self, plan: RolloutPlan, mask_errors: bool) -> Rollouts:
        """Roll out checked rows into fresh arrays; the user's form of `rollout`."""
        out = Outputs.empty(len(plan), self._codec.format.dtype, None)
        errors: Errors | None = {} if mask_errors else None
        self.rollout(plan, out, errors)
        return out.rollouts(errors)

    def step(self, batch: Batch, out: Outputs, errors: Errors | None = None) -> Columns:
        """Step checked rows and write what comes out into `out`.

        Args:
            batch: The rows.
            out: Filled.
            errors: Takes the errors of rows that fail, which are flagged in `out`; None raises them.

        Returns:
            The infos, as columns.

        Raises:
            EnvError: The environment raised, or returned what its observation space does not allow.
        """
        if not len(batch):
            return {}
        actions = space_arrays.list_rows(self._action_space, batch.actions)
        repeats, seeds = batch.dt.tolist(), None if batch.seeds is None else batch.seeds.tolist()

        def step_from(start: int) -> None:
            try:
                self._step_each(found, start, actions, repeats, seeds)
            except BaseException as error:
                row = self.progress[ROW]
                raise self.env_error(error, row, actions[row]) from error

        with self.lock:
            self.progress[ROW] = -1
            found = Found(self._codec.load(batch.states), want_values=out.new_states is not None)
            self._run(found, step_from, errors)
            self.progress[ROW] = -1
        try:
            self._write(found, out, errors)
            infos = stack_columns(found.infos, self._info_keys)
        except BaseException as error:
            named = self.env_error(error, None)
            if isinstance(named, EnvError) and named.row is not None:
                named.action = actions[named.row]
            raise named from error
        if errors:
            for row, masked in errors.items():
                if isinstance(masked, EnvError):
                    masked.action = actions[row]
            self.write_off(batch.states, out, list(errors))
        return infos

    def _run(self, found: Found, run_from: Callable[[int], None], errors: Errors | None) -> None:
        """Run over all rows; where errors are masked, go on behind each row that raised."""
        start = 0
        while True:
            try:
                run_from(start)
                return
            except EnvError as error:
                if errors is None or error.row is None:
                    raise
                errors[error.row] = error
                found.skip(error.row, space_arrays.blank(self._observation_space))
                start = error.row + 1

    def _write(self, found: Found, out: Outputs, errors: Errors | None) -> None:
        """Fill `out`; where errors are masked, leave out what does not fit."""
        try:
            found.write(self._codec, self._observation_space, out)
        except EnvError:
            if errors is None:
                raise
            blank = space_arrays.blank(self._observation_space)
            for row, error in found.unfit(self._observation_space):
                errors[row] = error
                found.observations[row], found.rewards[row] = blank, 0.0
                if self._info_keys != ():
                    found.infos[row] = None
            found.write(self._codec, self._observation_space, out)

    def _step_each(
        self, found: Found, start: int, actions: list[Any], repeats: list[int], seeds: list[int] | None
    ) -> None:
        """The stepping loop. Columns of Python lists go in and come out: see `Found`."""
        codec, fresh, keys, progress = self._codec, self._codec.fresh_results, self._info_keys, self.progress
        limit, want_infos = codec.time_limit or _UNLIMITED, keys != ()
        set_state, step = codec.set, codec.step if want_infos else codec.step_without_info
        get_state = codec.get if found.want_values else None
        values, elapsed, was_terminated, was_truncated = found.before
        for row, value in enumerate(islice(values, start, None), start):
            progress[ROW] = row
            set_state(value)
            if was_terminated[row] or was_truncated[row]:
                found.stay(row, codec.observe())
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

    def rollout(self, plan: RolloutPlan, out: Outputs, errors: Errors | None = None) -> None:
        """Roll out checked rows and write what comes out into `out`.

        Args:
            plan: The rows.
            out: Filled.
            errors: As in `step`.

        Raises:
            EnvError: The environment raised.
        """
        if not len(plan.states):
            return
        with self.lock:
            self.progress[ROW] = -1
            found = Found(self._codec.load(plan.states), want_values=True)
            sequences = plan.sequences(self._action_space)
            self._run(found, lambda start: self._roll_each(found, start, plan, sequences), errors)
            self.progress[ROW] = -1
        found.write(self._codec, self._observation_space, out)
        if errors:
            self.write_off(plan.states, out, list(errors))

    def _roll_each(
        self, found: Found, start: int, plan: RolloutPlan, sequences: Callable[[int], Iterable[Any]]
    ) -> None:
        """The rollout loop: as `_step_each`, with the states in between left where they are."""
        codec, fresh, progress = self._codec, self._codec.fresh_results, self.progress
        set_state, step, discount = codec.set, codec.step_without_info, plan.discount
        limit = codec.time_limit or _UNLIMITED
        values, elapsed, was_terminated, was_truncated = found.before
        row, count, action = start, 0, None
        try:
            for row, value in enumerate(islice(values, start, None), start):
                progress[ROW], progress[STEP] = row, 0
                set_state(value)
                if was_terminated[row] or was_truncated[row]:
                    found.stay(row, None)
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
                    progress[STEP] = count
                    if terminated or truncated or count >= wanted:
                        break
                found.values.append(codec.get(observation if fresh else own_copy(observation)))
                found.terminated.append(terminated)
                found.truncated.append(truncated or count >= left)
                found.num_steps.append(count)
                found.rewards.append(total)
        except BaseException as error:
            raise self.env_error(error, row, action, f"step {count} of the rollout: ") from error

    def write_off(self, states: NDArray[Any], out: Outputs, rows: Sequence[int]) -> None:
        """Fill in rows that failed: they stay where they are, but terminated, with NaN for a reward.

        Args:
            states: `[B]`, where the rows began.
            out: Of all B rows.
            rows: Which of them.
        """
        space, num_rows = self._observation_space, len(rows)
        if out.new_states is not None:
            values, elapsed, *_ = self._codec.load(states[rows])
            flagged = np.zeros(num_rows, self._codec.format.dtype)
            self._codec.dump(Rows(values, elapsed, [True] * num_rows, [False] * num_rows), flagged)
            out.new_states[rows] = flagged
        if out.observations is not None:
            blank = space_arrays.blank(space)
            for row in rows:
                space_arrays.put_row(space, blank, out.observations, row)
        out.rewards[rows] = np.nan
        out.terminated[rows], out.truncated[rows], out.num_steps[rows] = True, False, 0

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
        detail = f"{type(error).__name__}: {_text_of(error)}"
        if isinstance(error, EnvError):
            detail, row = error.detail, row if error.row is None else error.row
        return EnvError(where + detail, row=row, action=action)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:
        return f"(its text cannot be had: {type(another).__name__})"


def _ignores_interrupts() -> bool:
    """Whether Ctrl-C cannot reach this process, as in workers: the environment raised it then."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN
