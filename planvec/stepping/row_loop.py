"""Steps rows one after another. Every backend uses this loop.

Letters: B rows, H horizon.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import add
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space

from planvec.codecs import RollOut, Rows, StateCodec
from planvec.errors import EnvError, UnsupportedEnvError, text_of
from planvec.rows import (
    UNLIMITED,
    Columns,
    Errors,
    Outputs,
    RolloutBatch,
    StepBatch,
    are_legal,
    blank,
    empty_rows,
    leaves,
    list_rows,
    mask_sizes,
    own_copy,
    put_row,
    stack_columns,
    stack_rows,
)

# -- Converts the exceptions of environments into planvec's errors -------------------------------------------

_LOOKS_ILLEGAL = re.compile(
    r"illegal|invalid|unavailable|occupied|forbidden|already|\b(action|move)s?\b|"
    r"not (an? )?(legal|valid|allowed|permitted|possible|available)",
    re.IGNORECASE,
)
_MASK_HINT = (
    ". If an action is not legal there: let reset and step report info['action_mask'], a 1 for each legal "
    "action and a 0 for each other one. Planners and random rollouts then take legal ones only"
)
_ALL_HINT = (
    ". The reset or step before reported info['action_mask'] with ones alone, or reported none, which allows "
    "all actions: report a mask each time"
)


def as_env_error(
    error: BaseException,
    row: int | None = None,
    action: object = None,
    where: str = "",
    *,
    stepped: tuple[StateCodec, Space[object]] | None = None,
) -> BaseException:
    """Return the error to raise for an exception that an environment raised."""
    if isinstance(error, KeyboardInterrupt) and not ignores_interrupts():
        return error
    if isinstance(error, UnsupportedEnvError):
        return error
    detail = f"{type(error).__name__}: {text_of(error)}"
    if isinstance(error, EnvError):
        detail, row = error.detail, row if error.row is None else error.row
    elif stepped is not None:
        codec, space = stepped
        if not codec.is_built_in and mask_sizes(space).size and _LOOKS_ILLEGAL.search(detail):
            if codec.current_mask is None:
                detail += _MASK_HINT
            elif codec.current_mask().all():
                detail += _ALL_HINT
    return EnvError(where + detail, row=row, action=without_numpy(action))


def without_numpy(action: object) -> Any:
    """Return an action as it is shown in messages: a NumPy scalar as a Python number."""
    return action.item() if isinstance(action, np.generic) else action


def ignores_interrupts() -> bool:
    """Return whether this process ignores Ctrl-C, as workers do. Then only the environment can raise it."""
    return signal.getsignal(signal.SIGINT) is signal.SIG_IGN


# -- Reports which row a stepping loop is working on, while it runs ------------------------------------------

# Indices of the progress: the number of the request, the row that is stepped (-1 before the first and after
# the last), and the step of its rollout. The progress of a worker lies in shared memory. If the worker
# crashes, the parent reads there on which row.
TICKET, ROW, STEP = range(3)


def new_progress() -> memoryview:
    """Return a progress in the memory of this process: 3 integers, indexed by `TICKET`, `ROW` and `STEP`."""
    # A memoryview, because writing an element costs 20 ns, and 30 ns in a NumPy array.
    return memoryview(np.full(3, -1, np.int64))  # type: ignore[arg-type]


class LateError(Exception):
    """Ends a batch at its deadline."""


class RowResults:
    """Collects the results of a batch while its rows are stepped one after another."""

    # The columns are Python lists, which become arrays once per batch. Reading and writing single elements of
    # arrays would cost as much as a step of a small environment.

    def __init__(self, before: Rows, want_values: bool) -> None:
        self.before = before
        self.want_values = want_values
        self.values: list[Any] = []
        self.observations: list[Any] = []
        self.rewards: list[Any] = []
        self.terminated: list[bool] = []
        self.truncated: list[bool] = []
        self.num_steps: list[int] = []
        self.infos: list[dict[str, Any] | None] = []
        flags = self.terminated, self.truncated
        self._columns = self.values, self.observations, self.rewards, *flags, self.num_steps, self.infos

    def add_unchanged(self, row: int, observation: object) -> None:
        """Add a row whose episode has ended: its state does not change, and its reward is 0."""
        self.values.append(self.before.values[row])
        self.observations.append(own_copy(observation))
        self.rewards.append(0.0)
        self.terminated.append(self.before.terminated[row])
        self.truncated.append(self.before.truncated[row])
        self.num_steps.append(0)
        self.infos.append(None)

    def add_late(self, blank: object) -> None:
        """Add the rows that were not complete at the deadline: their states do not change."""
        for row in range(len(self.num_steps), len(self.before.values)):
            self.replace_failed(row, blank)  # the first one is the row at work
            self.num_steps[row] = -1

    def replace_failed(self, row: int, blank: object) -> None:
        """Remove the incomplete results of a row that raised, and add it as an unchanged row."""
        for column in self._columns:
            del column[row:]
        self.add_unchanged(row, blank)

    def invalid_rows(self, space: gymnasium.Space[object]) -> Iterator[tuple[int, EnvError]]:
        """Yield each row whose observation or reward is invalid, with the error that says why."""
        scratch = empty_rows(space, 1)
        for row, (observation, reward) in enumerate(zip(self.observations, self.rewards, strict=True)):
            try:
                stack_rows(space, [observation], scratch)
                _check_rewards([reward])
            except EnvError as error:
                yield row, EnvError(error.detail, row=row)

    def write(self, codec: StateCodec, space: gymnasium.Space[object], out: Outputs) -> None:
        """Write the columns into the outputs of the batch."""
        rewards, terminated, truncated, num_steps = out.numbers
        if out.observations is not None:
            stack_rows(space, self.observations, out.observations)
        if out.new_states is not None:
            taken = [max(number, 0) for number in self.num_steps] if -1 in self.num_steps else self.num_steps
            elapsed = list(map(add, self.before.elapsed, taken))
            codec.dump(Rows(self.values, elapsed, self.terminated, self.truncated), out.new_states)
        if len(self.rewards) == 1:
            if isinstance(self.rewards[0], float):  # assigning elements is faster than converting lists
                rewards[0], num_steps[0] = self.rewards[0], self.num_steps[0]
                terminated[0], truncated[0] = self.terminated[0], self.truncated[0]
                return
            if np.ndim(self.rewards[0]):  # NumPy would broadcast it, but not in a batch of several rows
                _check_rewards(self.rewards)
        try:
            rewards[:] = self.rewards
        except (TypeError, ValueError):
            _check_rewards(self.rewards)
            raise
        terminated[:], truncated[:], num_steps[:] = self.terminated, self.truncated, self.num_steps


def _check_rewards(rewards: list[Any]) -> None:
    for row, reward in enumerate(rewards):
        if np.ndim(reward) or not np.can_cast(np.asarray(reward).dtype, np.float64):
            raise EnvError(f"reward: expected a number, got {reward!r}", row=row)


class RowLoop:
    """Steps and rolls out rows with one environment."""

    def __init__(
        self,
        codec: StateCodec,
        action_space: gymnasium.Space[object],
        observation_space: gymnasium.Space[object],
        info_keys: Sequence[str] | None,
    ) -> None:
        self._codec = codec
        self._action_space = action_space
        self._observation_space = observation_space
        self._info_keys = None if info_keys is None else tuple(info_keys)
        # The row at work, see `TICKET` above. A worker replaces it by shared memory.
        self.progress = new_progress()
        self.first_row = 0  # index in the request of the first row of a group, which the progress counts from

    def step(self, batch: StepBatch, out: Outputs, errors: Errors) -> Columns:
        """Step rows and write their results."""
        # `errors` is filled with the errors of rows that fail, if the batch masks errors; these are flagged
        # in `out`.
        # Returns the infos, as columns.
        if not len(batch.states):
            return {}
        actions = list_rows(self._action_space, batch.actions, self._codec.is_built_in)
        repeats, seeds = batch.dt.tolist(), None if batch.seeds is None else batch.seeds.tolist()

        self.progress[ROW] = -1
        results = RowResults(self._codec.load(batch.states), want_values=out.new_states is not None)
        self._run(
            results,
            lambda start: self._step_each(results, start, actions, repeats, seeds, batch.deadline),
            batch.mask_errors,
            errors,
        )
        self.progress[ROW] = -1
        try:
            self._write(results, out, batch.mask_errors, errors)
            infos = stack_columns(results.infos, self._info_keys)
        except BaseException as error:
            failed = error.row if isinstance(error, EnvError) else None
            raise as_env_error(error, action=None if failed is None else actions[failed]) from error
        if errors:
            for row, masked in errors.items():
                if isinstance(masked, EnvError):
                    masked.action = without_numpy(actions[row])
            self.flag(batch.states, out, list(errors))
        return infos

    def rollout(self, batch: RolloutBatch, out: Outputs, errors: Errors) -> None:
        """Roll out rows and write their results."""
        if not len(batch.states):
            return
        self.progress[ROW] = -1
        try:
            results = RowResults(self._codec.load(batch.states), want_values=True)
            roll_out = self._codec.roll_out if batch.actions is None else None
            sequences = batch.numbers()
            if roll_out is None:
                codec = self._codec
                sequences = batch.sequences(self._action_space, codec.is_built_in, codec.current_mask)
            self._run(
                results,
                lambda start: self._roll_each(results, start, batch, sequences, roll_out),
                batch.mask_errors,
                errors,
            )
            self.progress[ROW] = -1
            results.write(self._codec, self._observation_space, out)
        except EnvError:
            raise
        except BaseException as error:
            raise as_env_error(error) from error
        if errors:
            self.flag(batch.states, out, list(errors))

    def flag(self, states: np.ndarray, out: Outputs, rows: Sequence[int]) -> None:
        """Flag rows as failed: each keeps its state, terminated, with the reward NaN."""
        # `states`: `[B]`, the states from which the rows started.
        rewards, terminated, truncated, num_steps = out.numbers
        num_rows = len(rows)
        if out.new_states is not None:
            values, elapsed, *_ = self._codec.load(states[rows])
            flagged = np.zeros(num_rows, self._codec.format.dtype)
            self._codec.dump(Rows(values, elapsed, [True] * num_rows, [False] * num_rows), flagged)
            out.new_states[rows] = flagged
        if out.observations is not None:
            zeros = blank(self._observation_space)
            for row in rows:
                put_row(self._observation_space, zeros, out.observations, row)
        rewards[rows], terminated[rows], truncated[rows], num_steps[rows] = np.nan, True, False, 0

    def leave(self, states: np.ndarray, out: Outputs, rows: slice) -> None:
        """Mark rows as not stepped: each keeps its state, and has -1 as number of steps."""
        # `states`: `[B]`, the states from which the rows started.
        rewards, terminated, truncated, num_steps = out.numbers
        if states.dtype.names is None:
            before = self._codec.load(states[rows])
            terminated[rows], truncated[rows] = before.terminated, before.truncated
        else:  # in a thousandth of the time
            terminated[rows], truncated[rows] = states["terminated"][rows], states["truncated"][rows]
        if out.new_states is not None:
            out.new_states[rows] = states[rows]
        if isinstance(out.observations, list):
            out.observations[rows] = [blank(self._observation_space)] * (rows.stop - rows.start)
        elif out.observations is not None:
            for leaf in leaves(out.observations):
                leaf[rows] = 0
        rewards[rows], num_steps[rows] = 0.0, -1

    def _run(
        self, results: RowResults, run_from: Callable[[int], None], mask_errors: bool, errors: Errors
    ) -> None:
        """Run a loop over all rows. If errors are masked, continue after each row that raised."""
        start = 0
        while True:
            try:
                run_from(start)
                return
            except LateError:
                results.add_late(blank(self._observation_space))
                return
            except EnvError as error:
                if not mask_errors or error.row is None:
                    raise
                errors[error.row] = error
                results.replace_failed(error.row, blank(self._observation_space))
                start = error.row + 1

    def _write(self, results: RowResults, out: Outputs, mask_errors: bool, errors: Errors) -> None:
        """Write the results. If errors are masked, leave out rows whose results are invalid."""
        try:
            results.write(self._codec, self._observation_space, out)
        except EnvError:
            if not mask_errors:
                raise
            zeros = blank(self._observation_space)
            for row, error in results.invalid_rows(self._observation_space):
                errors[row] = error
                results.observations[row], results.rewards[row] = zeros, 0.0
                if self._info_keys != ():
                    results.infos[row] = None
            results.write(self._codec, self._observation_space, out)

    def _step_each(
        self,
        results: RowResults,
        start: int,
        actions: list[Any],
        repeats: list[int],
        seeds: list[int] | None,
        deadline: float | None,
    ) -> None:
        """Step the rows from `start` on. Arguments and results are lists; `RowResults` says why."""
        codec, fresh, keys, progress = self._codec, self._codec.is_built_in, self._info_keys, self.progress
        first_row = self.first_row
        limit, want_infos = codec.time_limit or UNLIMITED, keys != ()
        set_state, step = codec.set, codec.step if want_infos else codec.step_without_info
        get_state = codec.get if results.want_values else None
        space, current_mask = self._action_space, codec.current_mask
        values, elapsed, was_terminated, was_truncated = results.before
        row = start
        try:
            for row, value in enumerate(islice(values, start, None), start):
                if deadline is not None and time.perf_counter() >= deadline:
                    raise LateError
                progress[ROW] = first_row + row
                set_state(value)
                if was_terminated[row] or was_truncated[row]:
                    results.add_unchanged(row, codec.observe())
                    continue
                if seeds is not None:
                    codec.reseed(seeds[row])
                action, left = actions[row], limit - elapsed[row]
                wanted = repeats[row] if repeats[row] < left else left
                observation, reward, terminated, truncated, info = step(action)
                count = 1
                while count < wanted and not (terminated or truncated):
                    if current_mask is not None and not are_legal(space, current_mask(), action):
                        break  # repeating ends where it has become illegal
                    if deadline is not None and time.perf_counter() >= deadline:
                        raise LateError
                    observation, more, terminated, truncated, info = step(action)
                    reward = float(reward) + float(more)
                    count += 1
                if not fresh:
                    observation = own_copy(observation)
                    info = own_copy(info if keys is None else {k: info[k] for k in keys if k in info})
                if get_state is not None:
                    results.values.append(get_state(observation))
                results.observations.append(observation)
                results.rewards.append(reward)
                results.terminated.append(terminated)
                results.truncated.append(truncated or count >= left)
                results.num_steps.append(count)
                if want_infos:
                    results.infos.append(info)
        except LateError:
            raise
        except BaseException as error:
            stepped = codec, space
            raise as_env_error(error, row, actions[row], stepped=stepped) from error

    def _roll_each(
        self,
        results: RowResults,
        start: int,
        batch: RolloutBatch,
        sequences: Callable[[int], Iterable[Any]],
        roll_out: RollOut | None,
    ) -> None:
        """Roll out the rows from `start` on. Only the last state of each row is saved."""
        codec, fresh, progress = self._codec, self._codec.is_built_in, self.progress
        first_row = self.first_row
        set_state, step, discount = codec.set, codec.step_without_info, batch.discount
        limit = codec.time_limit or UNLIMITED
        values, elapsed, was_terminated, was_truncated = results.before
        row, count, action, observation, deadline = start, 0, None, None, batch.deadline
        try:
            for row, value in enumerate(islice(values, start, None), start):
                progress[ROW], progress[STEP] = first_row + row, 0
                set_state(value)
                if was_terminated[row] or was_truncated[row]:
                    results.add_unchanged(row, None)
                    continue
                if batch.seeds is not None:
                    codec.reseed(int(batch.seeds[row]))
                left = limit - elapsed[row]
                wanted = batch.horizon if batch.horizon < left else left
                total, weight, count = 0.0, 1.0, 0
                actions = sequences(row)
                if roll_out is not None:
                    total, count, terminated, truncated = roll_out(actions, wanted, discount)
                    actions = ()
                for action in actions:
                    if deadline is not None and time.perf_counter() >= deadline:
                        raise LateError
                    observation, reward, terminated, truncated, _ = step(action)
                    total += weight * float(reward)
                    weight *= discount
                    count += 1
                    progress[STEP] = count
                    if terminated or truncated or count >= wanted:
                        break
                results.values.append(codec.get(observation if fresh else own_copy(observation)))
                results.terminated.append(terminated)
                results.truncated.append(truncated or count >= left)
                results.num_steps.append(count)
                results.rewards.append(total)
        except LateError:
            raise
        except BaseException as error:
            where, stepped = f"step {count} of the rollout: ", (codec, self._action_space)
            raise as_env_error(error, row, action, where, stepped=stepped) from error
