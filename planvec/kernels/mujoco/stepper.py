"""Steps and rolls out batches of MuJoCo environments on the threads of this process.

    StepBatch --> constants of the environment    thread 0: MjData 0, rows 0, 2, 3, ...   --> Outputs, Columns
                  or None: it was changed         thread 1: MjData 1, rows 1, 4, 5, ...

All threads use the model of the environment itself, so that what the user changes in it counts.

Letters: B rows, A numbers of an action, K numbers for the infos of a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import gymnasium
import mujoco
import numba
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from planvec.codecs import saved_arrays
from planvec.kernels.base import UNLIMITED, ActionRange, bytes_of
from planvec.kernels.digests import check_originals
from planvec.kernels.kernel_type import compile_loop
from planvec.kernels.mujoco.loops import (
    DONE,
    MORE,
    REFUSED,
    ActionDraws,
    Results,
    SharedBatch,
    TaskType,
    records_of,
    roll_rows,
    step_rows,
)
from planvec.kernels.mujoco.simulation import Simulation, has_callbacks, has_valid_options, is_original
from planvec.kernels.mujoco.task import Task
from planvec.kernels.threads import Stop, run_together
from planvec.rows import Columns, Outputs, RolloutBatch, StepBatch

_log = logging.getLogger("planvec")

_STEPS_PER_THREAD = 4  # smallest number of steps that are worth waking a thread
_SLEEP = int(getattr(mujoco.mjtEnableBit, "mjENBL_SLEEP", 0))


class MujocoKernel:
    """Steps and rolls out batches with MuJoCo's C functions; see `planvec.kernels.base.BatchKernel`."""

    num_proved = 48
    proved_horizon = 40
    block_sizes: tuple[int, ...] = ()

    def __init__(
        self,
        task: Task,
        env: gymnasium.Env[Any, Any],
        dtype: np.dtype[Any],  # the dtype of one state
        time_limit: int | None,
        num_threads: int,
    ) -> None:
        self._task = task
        base: Any = env.unwrapped
        self._base = base
        self._model, self._data = base.model, base.data
        self._limit = time_limit or UNLIMITED
        space, observed = env.action_space, env.observation_space
        is_known = isinstance(space, spaces.Box) and space.shape == (self._model.nu,)
        if not is_known or space.dtype != np.float32 or observed.dtype != np.float64:
            raise ValueError(f"actions of {space}, observations of {observed}")
        assert observed.shape is not None
        self._num_observed = int(np.prod(observed.shape))
        check_originals(self._base)
        if not is_original():
            raise ValueError("a function of mujoco was replaced")
        self._simulations = [Simulation(self._model, saved_arrays(self._base)) for _ in range(num_threads)]
        self._records = records_of(dtype, self._simulations[0].size, self._num_observed)
        self._num_extras = sum(kind if isinstance(kind, int) else 1 for _, kind in task.infos(self._base))
        action_range = ActionRange.of(space)
        self._range = None if action_range is None else tuple(action_range)
        self._type = TaskType(task)
        self._compile(task.constants(self._base))

    def _compile(self, constants: Any) -> None:
        """Compile both loops, or load them from the cache on disk."""
        none, numbers = np.empty(0, np.uint8), np.zeros(self._model.nu)
        shared = SharedBatch(1, True, 1, 0, np.zeros(1, np.int64), none)
        results = self._results(0, none, np.empty(0), none, none, np.empty(0, np.int64), False)
        physics = self._simulations[0].physics
        head = (self._type, *map(numba.typeof, (physics, self._records, constants, shared, results)))
        actions = numba.typeof(np.empty((0, self._model.nu), np.float32))
        draws = numba.typeof(ActionDraws(np.uint64(0), 0, *[numbers] * 4))
        self._step_rows = compile_loop(step_rows, *head, actions, numba.typeof(np.empty(0, np.int64)))
        self._roll_rows = compile_loop(roll_rows, *head, actions, numba.int64, numba.float64, draws)

    def _results(
        self,
        num_rows: int,
        new_states: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        num_steps: Any,
        has_extras: bool,
        observations: Any = None,
    ) -> Results:
        if observations is None:
            observations = np.empty((0, self._num_observed))
        extras = np.empty((num_rows if has_extras else 0, self._num_extras))
        return Results(new_states, observations, rewards, terminated, truncated, num_steps, extras)

    def _results_of(self, out: Outputs, num_rows: int, has_extras: bool = False) -> Results:
        """Return the arrays that loops fill."""
        assert out.terminated is not None
        assert out.truncated is not None
        states = np.empty(0, np.uint8) if out.new_states is None else bytes_of(out.new_states)
        flags = (out.terminated.view(np.uint8), out.truncated.view(np.uint8))
        return self._results(
            num_rows, states, out.rewards, *flags, out.num_steps, has_extras, out.observations
        )

    def _constants(self) -> Any:
        """Return the present constants; None if the environment was changed so that it has to step itself."""
        base = self._base
        if base.model is not self._model or base.data is not self._data or has_callbacks():
            return None
        if not has_valid_options(self._model):
            return None
        if type(base.frame_skip) is not int or self._model.opt.enableflags & _SLEEP:
            return None
        try:
            return self._task.constants(base)
        except Exception:  # the user has changed or deleted an attribute; the environment says what is wrong
            _log.debug("%s steps itself", base, exc_info=True)
            return None

    def _run(self, loop: Callable[..., int], num_steps: int, *arguments: Any) -> bool:
        """Run a loop on all threads. Returns whether all rows were stepped."""
        statuses = [DONE] * len(self._simulations)

        def run(index: int, stop: Stop) -> None:
            physics, status = self._simulations[index].physics, MORE
            while status == MORE and not stop.is_set():
                status = loop(self._type, physics, self._records, *arguments)
            statuses[index] = status

        num_threads = min(len(self._simulations), max(1, num_steps // _STEPS_PER_THREAD))
        simulations = self._simulations[:num_threads]
        for simulation in simulations:
            simulation.prepare()
        run_together(run, num_threads)
        return REFUSED not in statuses and not any(one.has_exceeded_memory for one in simulations)

    def _shared(self, states: NDArray[Any]) -> SharedBatch:
        return SharedBatch(
            self._base.frame_skip,
            self._task.reads_forces,
            self._limit,
            len(states),
            np.zeros(1, np.int64),
            bytes_of(states),
        )

    def step(self, batch: StepBatch, out: Outputs, info_keys: tuple[str, ...] | None) -> Columns | None:
        """Step rows and write their results."""
        # Returns the infos; None if the environment itself has to step the batch.
        constants = self._constants()
        if constants is None:
            return None
        num_rows = len(batch.states)
        results = self._results_of(out, num_rows, info_keys != ())
        actions, dt = np.ascontiguousarray(batch.actions), np.ascontiguousarray(batch.dt)
        num_steps = num_rows * batch.same_dt if batch.same_dt is not None else int(dt.sum())
        shared = self._shared(batch.states)
        if not self._run(self._step_rows, num_steps, constants, shared, results, actions, dt):
            return None
        if info_keys == ():
            return {}
        assert out.num_steps is not None
        columns = self._task.columns(self._base, results.extras, out.num_steps > 0)
        return {name: columns[name] for name in info_keys or columns if name in columns}

    def rollout(self, batch: RolloutBatch, out: Outputs) -> bool:
        """Roll out rows and write their results."""
        # Returns False if the environment itself has to step the batch.
        constants = self._constants()
        if constants is None or (batch.actions is None and self._range is None):
            return False
        num_rows, num_controls = len(batch.states), self._model.nu
        results = self._results_of(out, num_rows)
        actions = np.empty((0, num_controls), np.float32)
        if batch.actions is not None:
            actions = np.ascontiguousarray(batch.actions).reshape(-1, num_controls)
        limits = self._range or [np.zeros(num_controls)] * 4
        draws = ActionDraws(np.uint64(batch.action_seed), batch.first_row, *limits)
        arguments = (constants, self._shared(batch.states), results, actions)
        num_steps = num_rows * batch.horizon
        rest = (batch.horizon, float(batch.discount), draws)
        return self._run(self._roll_rows, num_steps, *arguments, *rest)

    def has_changed(self) -> bool:
        """Return False: what is changed counts, or lets the environment step itself."""
        return False

    def spread(self, states: NDArray[Any], random: np.random.Generator) -> None:
        """Spread states for the proof: bodies lifted, pushed and bent, on the ground and falling."""
        # `states`: `[B]`, changed.
        num_positions, num_velocities = self._model.nq, self._model.nv
        positions = slice(1, 1 + num_positions)  # after the time
        velocities = slice(positions.stop, positions.stop + num_velocities)
        physics, num_rows = states["physics"], len(states)
        size = random.choice([0.02, 0.2], (num_rows, 1))
        physics[:, positions] += size * random.standard_normal((num_rows, num_positions))
        physics[:, velocities] += 10 * size * random.standard_normal((num_rows, num_velocities))
        if self._task.height >= 0:
            physics[:, 1 + self._task.height] += random.choice([0.0, 1.0, -0.2], num_rows)
        states["physics"] = physics
