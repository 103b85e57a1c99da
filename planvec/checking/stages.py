"""Runs the stages of a check, which `planvec.checking.check` describes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from planvec.checking.branches import (
    Branch,
    random_branches,
    replay_branches,
    split_rows,
    step_branches,
)
from planvec.checking.comparison import Comparison
from planvec.checking.reference import Outcome, ReferenceEnv, ReferenceStep, random_steps
from planvec.checking.report import STAGES, CheckReport
from planvec.codecs import time_codec
from planvec.envs import BatchEnv, PlanEnv, make_env
from planvec.rows import BatchStepper, finish_rows, take_row


class Check:
    """Runs one check of an environment. Closing it closes all environments that it has opened."""

    def __init__(
        self,
        source: Any,
        options: dict[str, Any],
        seed: int,
        open_in_worker: Callable[[Callable[[], PlanEnv]], BatchEnv],
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._comparison = Comparison(options["info_keys"])
        self._opened: list[Any] = []
        try:
            self._env: PlanEnv = self._open(PlanEnv(source, **options))
            self._other_env: PlanEnv = self._open(PlanEnv(source, **options))
            self._worker_env: BatchEnv = self._open(open_in_worker(lambda: PlanEnv(source, **options)))
            self._kernel_env = self._open_kernel(source, options)
            changed = PlanEnv(source, **options) if self._env.codec.note else None
            make = partial(make_env, source, env_kwargs=options["env_kwargs"])
            self._reference: ReferenceEnv = self._open(ReferenceEnv(make, changed))
        except BaseException:
            self.close()
            raise
        self._action_space = self._env.action_space
        self._action_space.seed(seed)

    def _open(self, env: Any) -> Any:
        """Remember an environment that has to be closed, and return it."""
        self._opened.append(env)
        return env

    def _open_kernel(self, source: Any, options: dict[str, Any]) -> PlanEnv | None:
        """Open the environment with its kernel; None if there is none."""
        if not self._env.stepper.kernel.exists:
            return None
        env: PlanEnv = self._open(PlanEnv(source, **{**options, "compiled": None}))
        env.stepper.kernel.load()
        return env

    def close(self) -> None:
        """Close all environments."""
        for env in self._opened:
            env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(
        self, name: str, num_steps: int, num_restores: int, num_children: int, replay_seconds: float
    ) -> CheckReport:
        """Run all stages and return the report. The arguments are those of `check_env`."""
        repeats_infos = self._reference.repeats_infos(self._seed)
        steps = list(random_steps(self._reference, self._action_space, num_steps, self._seed))
        states, new_states = self._save_and_step(steps, repeats_infos)
        self._restore("other instance", self._other_env, steps, states, new_states)
        self._restore("other process", self._worker_env, steps, states, new_states)
        if self._kernel_env is not None and self._kernel_env.stepper.kernel.is_used:
            self._restore("kernel", self._kernel_env, steps, states, new_states)
        branches = list(random_branches(steps, states, self._action_space, num_restores, num_children))
        outcomes = self._step_branches(branches)
        num_replayed = replay_branches(
            self._reference,
            branches,
            outcomes,
            self._rng.permutation(len(branches)),
            replay_seconds,
            partial(self._comparison.compare_outcomes, "replay"),
        )
        codec = self._env.codec
        return CheckReport(
            name=name,
            codec=codec.how,
            note=codec.note,
            kernel="" if self._kernel_env is None else self._kernel_env.stepper.kernel.status,
            num_steps=len(steps),
            num_episodes=len({step.seed for step in steps}),
            num_restores=min(num_restores, len(branches) // num_children),
            num_children=num_children,
            num_replayed=num_replayed,
            state_bytes=_mean_size(states),
            microseconds=time_codec(codec, states, [step.actions[-1] for step in steps]),
            differences={
                stage: self._comparison.differences[stage]
                for stage in STAGES
                if stage in self._comparison.differences
            },
        )

    def _save_and_step(
        self, steps: Sequence[ReferenceStep], compare_reset_infos: bool
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Save each state, restore it and step to the next. Returns the states before and after each step."""
        env = self._env
        states, new_states = (np.empty(len(steps), env.state_dtype) for _ in range(2))
        state: Any = None
        for number, step in enumerate(steps):
            if len(step.actions) == 1:
                state = self._compare_reset(step.seed, compare_reset_infos)
            out = env.step_batch(self._batch([step.actions[-1]]), state, blocking=True)
            row = out.row(env.observation_space, 0)
            self._comparison.compare_outcomes("same instance", step.outcome, row, f"step {number}")
            states[number], new_states[number] = state, out.new_states[0]
            state = out.new_states[0]
        return states, new_states

    def _compare_reset(self, seed: int, compare_info: bool) -> Any:
        """Reset, compare the results with those of the reference, and return the state."""
        start = self._env.reset(seed=seed)
        observation, info = self._reference.starts[seed]
        field, where = ("same instance", "reset"), f"the reset with seed {seed}"
        self._comparison.compare(*field, observation, start.observation, where)
        if compare_info:
            self._comparison.compare_infos(*field, info, start.info, f"{where}, info")
        return start.state

    def _restore(
        self,
        stage: str,
        env: BatchStepper,
        steps: Sequence[ReferenceStep],
        states: NDArray[Any],
        new_states: NDArray[Any],
    ) -> None:
        """Repeat all steps in another order, in batches, after the reset of another episode."""
        space, compare = env.observation_space, partial(self._comparison.compare, stage)
        first = env.reset(seed=steps[0].seed).state
        compare("reset", _bytes(states[0]), _bytes(first), "the state of a reset")
        env.reset(seed=self._seed + len(steps))
        for rows in split_rows(self._rng.permutation(len(steps))):
            actions = self._batch([steps[row].actions[-1] for row in rows])
            out = env.step_batch(actions, states[rows], blocking=True)
            observed = env.observe(out.new_states)
            for index, row in enumerate(rows):
                expected, where = steps[row].outcome, f"step {row}"
                self._comparison.compare_outcomes(stage, expected, out.row(space, index), where)
                compare("new state", _bytes(new_states[row]), _bytes(out.new_states[index]), where)
                compare("observe", expected[0], take_row(space, observed, index), where)

    def _step_branches(self, branches: Sequence[Branch]) -> list[list[Outcome]]:
        """Step the branches here and in the worker, compare them, and return the results from here."""
        outcomes = step_branches(self._other_env, branches, np.arange(len(branches)))
        order = self._rng.permutation(len(branches))
        worker_outcomes = step_branches(self._worker_env, branches, order)
        for number, (expected, got) in enumerate(zip(outcomes, worker_outcomes, strict=True)):
            for depth, pair in enumerate(zip(expected, got, strict=True)):
                self._comparison.compare_outcomes("branches", *pair, f"child {number}, step {depth}")
        return outcomes

    def _batch(self, actions: list[Any]) -> Any:
        return finish_rows(self._action_space, actions)


def _bytes(state: Any) -> bytes:
    return bytes(state) if not isinstance(state, np.void) else state.tobytes()


def _mean_size(states: NDArray[Any]) -> float:
    """Return the mean number of bytes of a state."""
    if states.dtype.hasobject:
        return statistics.fmean(state.nbytes for state in states)
    return float(states.dtype.itemsize)
