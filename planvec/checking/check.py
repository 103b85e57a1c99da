"""Checks whether an environment is saved and restored exactly: `planvec.check_env`, `planvec check`.

    the reference (no planvec)     reset(seed), step, step, ...                the correct results
    a PlanEnv                      save, restore and step each state           stage "same instance"
    a second PlanEnv               all these states, shuffled                  stage "other instance"
    a worker process               all these states, shuffled                  stage "other process"
    the kernel, if there is one    all these states, shuffled                  stage "kernel"
    the last two                   several branches from some states           stage "branches"
    the reference                  reset(seed) and all steps of a branch       stage "replay"

An environment is also checked if `planvec.make` refuses it: the report then says what is wrong, and what
`planvec.make` says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from planvec.backends import Backend, ExternalProcess, ray_connection, ray_opener
from planvec.checking.report import STAGES, CheckReport, Difference
from planvec.codecs import CodecChoice, LegalActions, same, time_codec
from planvec.envs import BatchEnv, PlanEnv, find_source, make_env
from planvec.errors import PlanvecError
from planvec.rows import (
    BatchStepper,
    action_masks,
    are_legal,
    draw_legal,
    empty_rows,
    finish_rows,
    own_copy,
    stack_rows,
    take_row,
)

# -- Opens the environment of a check in another process -----------------------------------------------------


def open_in_worker(
    over_ray: Callable[..., Backend] | None, ray_address: str | None, factory: Callable[[], PlanEnv]
) -> BatchEnv:
    """Open an environment in a worker process, or in an actor of a Ray cluster."""
    if over_ray is None:
        return BatchEnv([ExternalProcess(factory)], audit=0.0)
    return BatchEnv(
        over_ray(
            factory,
            num_workers=1,
            address=ray_address,
            actor_options=None,
            timeout=None,
            max_restarts=3,
            audit=0.0,
            max_worker_rss=None,
        )
    )


# -- Steps an environment without planvec. Its results are the reference of the exactness check --------------

# the result of `gymnasium.Env.step`, with the types that a row of a batch has
Outcome = tuple[Any, float, bool, bool, dict[str, Any]]

_MIN_EPISODES = 4
_NUM_REPEATED_RESETS = 10


class ReferenceEnv:
    """Steps an environment without planvec. Every episode gets a new environment."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], changed: PlanEnv | None) -> None:
        self._make = make
        self._changed = changed
        self._env: gymnasium.Env[Any, Any] | None = None
        # seed of a reset -> its first observation and info
        self.starts: dict[int, tuple[Any, dict[str, Any]]] = {}

    def reset(self, seed: int) -> None:
        """Start an episode."""
        if self._changed is not None:
            self._env = self._changed.env
            start = self._changed.codec.reset(seed, None)
        else:
            self.close()
            self._env = self._make()
            start = self._env.reset(seed=seed)
        self.starts.setdefault(seed, (self._converted(start[0]), own_copy(start[1])))

    def repeats_infos(self, seed: int) -> bool:
        """Return whether resets with a seed always give the same info. Some infos contain random values."""
        # A random value from a small set (an action) may be the same by chance, so there are ten resets.
        infos = []
        for _ in range(_NUM_REPEATED_RESETS):
            self.starts.clear()
            self.reset(seed)
            infos.append(self.starts[seed][1])
        return all(same(infos[0], info) for info in infos[1:])

    def step(self, action: Any) -> Outcome:
        """Step once and return a copy of the result."""
        assert self._env is not None
        observation, reward, terminated, truncated, info = self._env.step(own_copy(action))
        return self._converted(observation), float(reward), bool(terminated), bool(truncated), own_copy(info)

    def close(self) -> None:
        """Close the environment of the current episode."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _converted(self, observation: Any) -> Any:
        """Return an observation in the form that a batch has. Some environments return lists for arrays."""
        assert self._env is not None
        space = self._env.observation_space
        rows = empty_rows(space, 1)
        stack_rows(space, [own_copy(observation)], rows)
        return take_row(space, finish_rows(space, rows), 0)


class ReferenceStep(NamedTuple):
    """Records one step of a `ReferenceEnv`."""

    seed: int  # seed of the reset that began the episode
    actions: tuple[Any, ...]  # All actions since that reset. The last one is the action of this step.
    outcome: Outcome  # the result of the step


def random_steps(
    env: ReferenceEnv, action_space: gymnasium.Space[Any], num_steps: int, seed: int
) -> Iterator[ReferenceStep]:
    """Take random steps and yield them."""
    # There are at least four episodes if there are enough steps, because one reset might be correct by
    # accident.
    actions, drawn = tuple[Any, ...](), LegalActions(action_space)
    env.reset(seed)
    drawn.note(*env.starts[seed])
    for _ in range(num_steps):
        actions = (*actions, drawn.sample())
        outcome = env.step(actions[-1])
        drawn.note(outcome[0], outcome[4])
        yield ReferenceStep(seed, actions, outcome)
        if outcome[2] or outcome[3] or len(actions) * _MIN_EPISODES >= num_steps:
            seed, actions = seed + 1, ()
            env.reset(seed)
            drawn.note(*env.starts[seed])


# -- Steps several branches from each of some states, and replays some of them from their resets -------------

_DEPTH = 4  # number of steps of a branch
_MAX_ROWS = 64  # largest number of rows in a batch


class Branch(NamedTuple):
    """Describes a branch: random actions from the state before a step."""

    step: int  # index of the step
    actions: list[Any]


def random_branches(
    num_steps: int, action_space: gymnasium.Space[Any], num_restores: int, num_children: int
) -> list[Branch]:
    """Return random branches from states that are spread evenly over the steps."""
    steps = np.unique(np.linspace(0, num_steps - 1, num_restores).astype(int)).tolist()
    return [
        Branch(step, [action_space.sample() for _ in range(_DEPTH)])
        for step in steps
        for _ in range(num_children)
    ]


def step_branches(
    env: BatchStepper,
    states: NDArray[Any],  # `[B]`, the state before each step
    branches: Sequence[Branch],
    order: NDArray[np.integer[Any]],
) -> list[list[Outcome]]:
    """Step each branch to its end, or to the end of its episode."""
    # Returns the results of the steps of each branch, in the order of `branches`.
    space = env.observation_space
    outcomes = [list[Outcome]() for _ in branches]
    for rows in split_rows(order):
        current, ended = states[[branches[row].step for row in rows]], np.zeros(len(rows), bool)
        for depth in range(_DEPTH):
            _make_legal(env.action_space, current, ended, branches, rows, depth)
            actions = finish_rows(env.action_space, [branches[row].actions[depth] for row in rows])
            out = env.step_batch(actions, current, blocking=True)
            for index, row in enumerate(rows):
                if not ended[index]:
                    outcomes[row].append(out.row(space, index))
            current, ended = out.new_states, out.terminated | out.truncated
    return outcomes


def _make_legal(
    space: gymnasium.Space[Any],
    states: NDArray[Any],
    ended: NDArray[np.bool_],
    branches: Sequence[Branch],
    rows: NDArray[Any],
    depth: int,
) -> None:
    """Replace the actions of branches that are not legal where they have led."""
    masks = action_masks(space, states)
    if masks is None:
        return
    actions = np.array([branches[row].actions[depth] for row in rows])
    legal = draw_legal(space, masks, np.random.default_rng(depth).random(actions.shape))
    for index in np.flatnonzero(~(are_legal(space, masks, actions) | ended)).tolist():
        branches[rows[index]].actions[depth] = legal[index]


def replay_branches(
    env: ReferenceEnv,
    steps: Sequence[ReferenceStep],
    branches: Sequence[Branch],
    outcomes: Sequence[Sequence[Outcome]],
    order: NDArray[np.integer[Any]],
    seconds: float,
    compare: Callable[[Outcome, Outcome, str], None],
) -> int:
    """Replay branches from their resets with the reference, and compare each step. Stop when time is up."""
    # Returns the number of branches that were replayed, at least 1.
    started = time.monotonic()
    for num_replayed, row in enumerate(order, 1):
        branch = branches[row]
        env.reset(steps[branch.step].seed)
        for action in steps[branch.step].actions[:-1]:
            env.step(action)
        for depth, got in enumerate(outcomes[row]):
            compare(env.step(branch.actions[depth]), got, f"child {row}, step {depth}")
        if time.monotonic() - started > seconds:
            return num_replayed
    return len(order)


def split_rows(rows: NDArray[Any]) -> list[NDArray[Any]]:
    """Split row numbers into batches of bounded size."""
    return np.array_split(rows, max(1, -(-len(rows) // _MAX_ROWS)))


# -- Compares results with the reference, and collects the differences by stage and field --------------------

# Keys of the info that `RecordEpisodeStatistics` adds. "t" is a wall-clock time, which is not compared.
_EPISODE_STATISTICS = {"r", "l", "t"}


class Comparison:
    """Compares results with the reference, and collects the differences."""

    def __init__(self, info_keys: Sequence[str] | None) -> None:
        self._info_keys = info_keys
        # stage -> field -> how its values differ
        self.differences: dict[str, dict[str, Difference]] = {}

    def compare(self, stage: str, field: str, expected: Any, got: Any, where: str) -> None:
        """Compare one value with the reference."""
        fields = self.differences.setdefault(stage, {})
        fields.setdefault(field, Difference()).add(expected, got, where)

    def compare_infos(
        self, stage: str, field: str, expected: dict[str, Any], got: dict[str, Any], where: str
    ) -> None:
        """Compare one info as a whole with the reference. The arguments are those of `compare`."""
        self.compare(stage, field, self._comparable(expected), self._comparable(got), where)

    def compare_outcomes(self, stage: str, expected: Outcome, got: Outcome, where: str) -> None:
        """Compare all fields of the result of a step, and each key of the info."""
        for number, field in enumerate(("observation", "reward", "terminated", "truncated")):
            self._compare_items(stage, field, expected[number], got[number], where)
        infos = self._comparable(expected[4]), self._comparable(got[4])
        self._compare_items(stage, "info", *infos, where)

    def _compare_items(self, stage: str, field: str, expected: Any, got: Any, where: str) -> None:
        """Compare two dicts key by key, and values of other types as a whole."""
        are_dicts = isinstance(expected, dict) and isinstance(got, dict)
        if are_dicts and expected and expected.keys() == got.keys():
            for key in expected:
                self.compare(stage, field, expected[key], got[key], f"{where}, {field}[{key!r}]")
        else:
            self.compare(stage, field, expected, got, where)

    def _comparable(self, info: dict[str, Any]) -> Any:
        """Return the part of an info that is compared."""
        without_time = {
            key: {name: item for name, item in value.items() if name != "t"}
            if isinstance(value, dict) and value.keys() >= _EPISODE_STATISTICS
            else value
            for key, value in info.items()
            if key != "num_steps"
        }
        if self._info_keys is not None:
            without_time = {key: value for key, value in without_time.items() if key in self._info_keys}
        return _with_floats(without_time)


def _with_floats(info: Any) -> Any:
    """Return an info with all numbers as floats, because a column of a batch has one type for all rows."""
    if isinstance(info, dict):
        return {key: _with_floats(value) for key, value in info.items()}
    if isinstance(info, (list, tuple)):
        return [_with_floats(value) for value in info]
    if isinstance(info, (bool, int, float, np.ndarray, np.generic)) and np.asarray(info).dtype.kind in "biuf":
        return np.asarray(info, np.float64)
    return info


# -- Runs the stages of a check, which `planvec.checking.check` describes ------------------------------------


class Check:
    """Runs one check of an environment. The environments that it opens are closed by `stack`."""

    def __init__(
        self,
        source: Any,
        options: dict[str, Any],
        seed: int,
        open_in_worker: Callable[[Callable[[], PlanEnv]], BatchEnv],
        stack: contextlib.ExitStack,
    ) -> None:
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._comparison = Comparison(options["info_keys"])
        open_env = partial(PlanEnv, source, **options)
        self._env = stack.enter_context(open_env())
        self._other_env = stack.enter_context(open_env())
        self._worker_env = stack.enter_context(open_in_worker(open_env))
        self._kernel_env: PlanEnv | None = None
        if self._env.stepper.kernel.exists:
            self._kernel_env = stack.enter_context(PlanEnv(source, **{**options, "compiled": None}))
            self._kernel_env.stepper.kernel.load()
        changed = open_env() if self._env.codec.note else None
        make = partial(make_env, source, env_kwargs=options["env_kwargs"])
        self._reference = stack.enter_context(contextlib.closing(ReferenceEnv(make, changed)))
        self._action_space = self._env.action_space
        self._action_space.seed(seed)

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
        branches = random_branches(len(steps), self._action_space, num_restores, num_children)
        outcomes = self._step_branches(states, branches)
        num_replayed = replay_branches(
            self._reference,
            steps,
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

    def _step_branches(self, states: NDArray[Any], branches: Sequence[Branch]) -> list[list[Outcome]]:
        """Step the branches here and in the worker, compare them, and return the results from here."""
        outcomes = step_branches(self._other_env, states, branches, np.arange(len(branches)))
        order = self._rng.permutation(len(branches))
        worker_outcomes = step_branches(self._worker_env, states, branches, order)
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


def check_env(
    env: str | EnvSpec | Callable[[], gymnasium.Env[Any, Any]],
    *,
    num_steps: int = 500,
    seed: int = 0,
    num_restores: int = 20,
    num_children: int = 8,
    codec: CodecChoice = None,
    info_keys: Sequence[str] | None = None,
    replay_seconds: float = 5.0,
    env_kwargs: Mapping[str, Any] | None = None,
    backend: Literal["processes", "ray"] = "processes",
    ray_address: str | None = None,
) -> CheckReport:
    """Restore states of an environment in other instances and processes, and compare every bit.

    Args:
        env: A Gymnasium id, an `EnvSpec`, or a factory, as for `planvec.make`.
        num_steps: Number of random steps to take, save and restore.
        seed: Seed of the resets (`seed`, `seed + 1`, ...), the actions and the order of the states.
        num_restores: Number of states from which to step several branches.
        num_children: Number of branches from each of these states.
        codec: How states are saved, as for `planvec.make`.
        info_keys: The info keys to compare; None compares all.
        replay_seconds: Seconds after which no further branch is replayed from its reset. At least one is
            replayed.
        env_kwargs: The arguments of `gymnasium.make`, if `env` is an id or a spec.
        backend: Where the other process runs, as for `planvec.make`.
        ray_address: The address of a Ray cluster, as for `planvec.make`.

    Returns:
        A report, also for an environment that raises or cannot be saved.

    Raises:
        gymnasium.error.Error: The id is unknown.
        UnsupportedEnvError: A package of the environment is not installed.
        Exception: What the factory of the environment raised.
        ValueError: One of the numbers is below 1.
        WorkerStartError: No Ray cluster answers at `ray_address`.
    """
    for name, number in (
        ("num_steps", num_steps),
        ("num_restores", num_restores),
        ("num_children", num_children),
    ):
        if number < 1:
            raise ValueError(f"{name}: expected at least 1, got {number}")
    source = find_source(env) if isinstance(env, str) else env
    name = env if isinstance(env, str) else getattr(source, "id", getattr(source, "__name__", repr(source)))
    make_env(source, env_kwargs=env_kwargs).close()  # what cannot be made is not checked, and not inexact
    over_ray = ray_opener(backend, 1, None, ray_address, None)
    options: dict[str, Any] = {
        "codec": codec,
        "info_keys": info_keys,
        "trust": True,
        "audit": 0.0,  # it would end the check with the first difference that it meets by chance
        "env_kwargs": env_kwargs,
        "compiled": False,
    }
    open_worker = partial(open_in_worker, over_ray, ray_address)
    with ray_connection(
        backend, ray_address
    ):  # a cluster that does not answer is no fault of the environment
        try:
            with contextlib.ExitStack() as stack:
                check = Check(source, options, seed, open_worker, stack)
                try:
                    report = check.run(str(name), num_steps, num_restores, num_children, replay_seconds)
                    return dataclasses.replace(report, error=_refusal(source, options))
                except Exception as error:
                    if isinstance(error, PlanvecError):
                        raise
                    text = f"the environment raised {type(error).__name__}: {error}"
                    return CheckReport(str(name), error=text)
        except PlanvecError as error:
            return CheckReport(str(name), error=str(error))


def _refusal(source: Any, options: dict[str, Any]) -> str:
    """Return why `planvec.make` refuses an environment, which it examines in other ways; or ""."""
    try:
        PlanEnv(source, **{**options, "trust": False}).close()
    except PlanvecError as error:
        return str(error)
    return ""
