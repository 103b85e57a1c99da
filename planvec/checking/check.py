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
import math
import statistics
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from planvec.backends import BackendName, ExternalProcess, ray_connection, ray_opener
from planvec.codecs import CodecChoice, Env, LegalActions, Positions, drawn_elsewhere, same, time_codec
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

# -- The report: what differs, by stage and field ------------------------------------------------------------

_ADVICE = (
    "The state lacks something on which the future depends. If you wrote the environment: keep everything in "
    "its attributes and draw random numbers only from self.np_random, or write a codec for it "
    '(planvec.Codec). If the environment restarts exactly from its seed, codec="replay" (--codec replay) is '
    "exact, but restoring a state repeats all steps since the reset"
)


@dataclasses.dataclass(slots=True)
class Difference:
    """Counts how many values of one field differ in one stage, and by how much."""

    num_compared: int = 0  # number of values that were compared
    num_different: int = 0  # number of values that differ in at least one bit
    # the largest absolute difference; infinite if the shape or the type of a value differs
    largest: float = 0.0
    first: str = ""  # where the first difference is, or ""

    def add(self, expected: object, got: object, where: str) -> None:
        """Compare one more value."""
        self.num_compared += 1
        if same(expected, got):
            return
        self.num_different += 1
        self.largest = max(self.largest, _distance(expected, got))
        self.first = self.first or where

    def __str__(self) -> str:
        if not self.num_compared:
            return "-"
        if not self.num_different:
            return "exact"
        size = "differs" if math.isinf(self.largest) else f"off by {self.largest:.2g}"
        return f"{size}, {self.num_different} of {self.num_compared}"


@dataclasses.dataclass(frozen=True, slots=True)
class CheckReport:
    """Reports whether an environment is saved and restored exactly.

    Attributes:
        name: Name of the environment.
        codec: How its states are saved.
        note: What planvec changes in the environment, or "".
        kernel: Whether its compiled kernel is used, or "" if there is none.
        num_steps: Number of random steps.
        num_episodes: Number of episodes of these steps.
        num_restores: Number of states from which branches were stepped.
        num_children: Number of branches from each of these states.
        num_replayed: Number of branches that were replayed from the reset.
        state_bytes: Mean number of bytes of a state.
        microseconds: Median times of "get", "set", "step" and "observe".
        differences: Stage -> field -> how its values differ from those of the reference. The stages are "same
            instance", "other instance", "other process", "kernel" (if there is one), "branches", "replay".
        error: Why the check could not be completed, or why `planvec.make` refuses the environment; or "".
    """

    name: str
    codec: str = ""
    note: str = ""
    kernel: str = ""
    num_steps: int = 0
    num_episodes: int = 0
    num_restores: int = 0
    num_children: int = 0
    num_replayed: int = 0
    state_bytes: float = 0.0
    microseconds: dict[str, float] = dataclasses.field(default_factory=dict)
    differences: dict[str, dict[str, Difference]] = dataclasses.field(default_factory=dict)
    error: str = ""

    @property
    def exact(self) -> bool:
        """True if the check was completed, no bit differs in any stage, and `planvec.make` accepts it."""
        return not self.error and not any(
            difference.num_different for fields in self.differences.values() for difference in fields.values()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON. Infinite differences are None."""
        plain = {**dataclasses.asdict(self), "exact": self.exact}
        for fields in plain["differences"].values():
            for difference in fields.values():
                largest = difference["largest"]
                difference["largest"] = largest if math.isfinite(largest) else None
        return plain

    def __str__(self) -> str:
        lines = [self.name]
        if self.codec:
            lines += self._facts()
        if self.differences:
            lines += ["", *self._table()]
        verdict = "exact"
        if not self.exact:
            firsts = [
                f"{name} ({stage}), first at {difference.first}. "
                for stage, fields in self.differences.items()
                for name, difference in fields.items()
                if difference.num_different
            ]
            verdict = f"NOT exact: {firsts[0] if firsts else ''}{self.error or _ADVICE}"
        return "\n".join([*lines, "", textwrap.fill(verdict, 100)])

    def _facts(self) -> list[str]:
        facts = {"saved by": self.codec, "note": self.note, "kernel": self.kernel}
        if self.num_steps:
            facts["steps"] = f"{self.num_steps} in {self.num_episodes} episodes"
            facts["branches"] = (
                f"{self.num_children} from each of {self.num_restores} states; {self.num_replayed} of them "
                "replayed from the reset"
            )
        if self.microseconds:
            facts["size"] = f"{self.state_bytes:,.0f} bytes per state"
            times = [f"{name} {value:,.1f}" for name, value in self.microseconds.items()]
            facts["microseconds"] = ", ".join(times)
        return [f"  {name:<14}{text}" for name, text in facts.items() if text]

    def _table(self) -> list[str]:
        stages = self.differences.values()
        names = list(dict.fromkeys(name for fields in stages for name in fields))
        header = ["", *self.differences]
        rows = [[name, *(str(fields.get(name, Difference())) for fields in stages)] for name in names]
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        return [
            "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in [header, *rows]
        ]


def _distance(expected: object, got: object) -> float:
    """Return the largest absolute difference of two values; infinite if they cannot be subtracted."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        return max((_distance(expected[key], got[key]) for key in expected), default=0.0)
    if isinstance(expected, (tuple, list)) and isinstance(got, (tuple, list)) and len(expected) == len(got):
        return max((_distance(a, b) for a, b in zip(expected, got, strict=True)), default=0.0)
    try:
        a, b = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    except (TypeError, ValueError):
        return 0.0 if same(expected, got) else math.inf
    if a.shape != b.shape:
        return math.inf
    distance = float(np.max(np.abs(a - b), initial=0.0))
    return distance if math.isfinite(distance) else math.inf


# -- Steps an environment without planvec. Its results are the reference of the exactness check --------------

# the result of `gymnasium.Env.step`, with the types that a row of a batch has
Outcome = tuple[Any, float, bool, bool, dict[str, Any]]


class ReferenceEnv:
    """Steps an environment without planvec. Every episode gets a new environment."""

    def __init__(self, make: Callable[[], Env], changed: PlanEnv | None, watch: Positions | None) -> None:
        self._make = make
        self._changed = changed
        self._watch = watch
        self.refusal = ""  # names the generator beside the environment from which it has drawn
        self._env: Env | None = None
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

    def step(self, action: object) -> Outcome:
        """Step once and return a copy of the result."""
        assert self._env is not None
        before = None if self._watch is None else self._watch.now()
        observation, reward, terminated, truncated, info = self._env.step(own_copy(action))
        if self._watch is not None and before is not None:
            drawn = self._watch.moved(before)
            self.refusal = str(drawn_elsewhere(self._env, drawn)) if drawn else self.refusal
        return self._converted(observation), float(reward), bool(terminated), bool(truncated), own_copy(info)

    def close(self) -> None:
        """Close the environment of the current episode."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _converted(self, observation: object) -> Any:
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


class Branch(NamedTuple):
    """Describes a branch: random actions from the state before a step."""

    step: int  # index of the step
    actions: list[Any]


# -- Runs the stages of a check. Letters: B steps of the reference -------------------------------------------

# There are at least four episodes if there are enough steps, because one reset might be correct by accident.
_MIN_EPISODES = 4
_NUM_REPEATED_RESETS = 10
_DEPTH = 4  # number of steps of a branch
_MAX_ROWS = 64  # largest number of rows in a batch
# Keys of the info that `RecordEpisodeStatistics` adds. "t" is a wall-clock time, which is not compared.
_EPISODE_STATISTICS = {"r", "l", "t"}


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
        self._info_keys: Sequence[str] | None = options["info_keys"]
        # stage -> field -> how its values differ
        self._differences: dict[str, dict[str, Difference]] = {}
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
        self._reference = stack.enter_context(
            contextlib.closing(ReferenceEnv(make, changed, self._env.codec.watch))
        )
        self._action_space = self._env.action_space
        self._action_space.seed(seed)
        self._steps: list[ReferenceStep] = []
        # `[B]`, the states before and after each step
        self._states, self._new_states = (np.empty(0, self._env.state_dtype) for _ in range(2))

    def run(
        self, name: str, num_steps: int, num_restores: int, num_children: int, replay_seconds: float
    ) -> CheckReport:
        """Run all stages and return the report. The arguments are those of `check_env`."""
        repeats_infos = self._repeats_infos()
        steps = self._steps = list(self._random_steps(num_steps))
        self._save_and_step(repeats_infos)
        self._restore("other instance", self._other_env)
        self._restore("other process", self._worker_env)
        if self._kernel_env is not None and self._kernel_env.stepper.kernel.is_used:
            self._restore("kernel", self._kernel_env)
        rows = np.unique(np.linspace(0, len(steps) - 1, num_restores).astype(int)).tolist()
        branches = [
            Branch(row, [self._action_space.sample() for _ in range(_DEPTH)])
            for row in rows
            for _ in range(num_children)
        ]
        outcomes = self._step_branches(self._other_env, branches, np.arange(len(branches)))
        order = self._rng.permutation(len(branches))
        worker_outcomes = self._step_branches(self._worker_env, branches, order)
        for number, (expected, got) in enumerate(zip(outcomes, worker_outcomes, strict=True)):
            for depth, pair in enumerate(zip(expected, got, strict=True)):
                self._compare_outcomes("branches", *pair, f"child {number}, step {depth}")
        num_replayed = self._replay_branches(branches, outcomes, replay_seconds)
        codec, states = self._env.codec, self._states
        is_fixed = not states.dtype.hasobject
        report = CheckReport(
            name=name,
            codec=codec.how,
            note=codec.note,
            kernel="" if self._kernel_env is None else self._kernel_env.stepper.kernel.status,
            num_steps=len(steps),
            num_episodes=len({step.seed for step in steps}),
            num_restores=min(num_restores, len(rows)),
            num_children=num_children,
            num_replayed=num_replayed,
            state_bytes=float(
                states.dtype.itemsize if is_fixed else statistics.fmean(state.nbytes for state in states)
            ),
            microseconds=time_codec(codec, states, [step.actions[-1] for step in steps]),
            differences=self._differences,
        )
        # Draws are the cause of differences. Without these, the generator may have been seeded before.
        return report if report.exact else dataclasses.replace(report, error=self._reference.refusal)

    # -- the reference ------------------------------------------------------------------------------

    def _repeats_infos(self) -> bool:
        """Return whether resets with a seed always give the same info. Some infos contain random values."""
        # A random value from a small set (an action) may be the same by chance, so there are ten resets.
        infos = []
        for _ in range(_NUM_REPEATED_RESETS):
            self._reference.starts.clear()
            self._reference.reset(self._seed)
            infos.append(self._reference.starts[self._seed][1])
        return all(same(infos[0], info) for info in infos[1:])

    def _random_steps(self, num_steps: int) -> Iterator[ReferenceStep]:
        """Take random steps with the reference and yield them."""
        env, seed = self._reference, self._seed
        actions, drawn = tuple[Any, ...](), LegalActions(self._action_space)
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

    # -- the stages ---------------------------------------------------------------------------------

    def _save_and_step(self, compare_reset_infos: bool) -> None:
        """Save each state, restore it and step to the next, and keep the states."""
        env, stage = self._env, "same instance"
        self._states, self._new_states = (np.empty(len(self._steps), env.state_dtype) for _ in range(2))
        state: Any = None
        for number, step in enumerate(self._steps):
            if len(step.actions) == 1:
                start = env.reset(seed=step.seed)
                observation, info = self._reference.starts[step.seed]
                where = f"the reset with seed {step.seed}"
                self._compare(stage, "reset", observation, start.observation, where)
                if compare_reset_infos:
                    infos = self._comparable(info), self._comparable(start.info)
                    self._compare(stage, "reset", *infos, f"{where}, info")
                state = start.state
            out = env.step_batch(finish_rows(self._action_space, [step.actions[-1]]), state, blocking=True)
            row = out.row(env.observation_space, 0)
            self._compare_outcomes(stage, step.outcome, row, f"step {number}")
            self._states[number], self._new_states[number] = state, out.new_states[0]
            state = out.new_states[0]

    def _restore(self, stage: str, env: BatchStepper) -> None:
        """Repeat all steps in another order, in batches, after the reset of another episode."""
        space, steps, compare = env.observation_space, self._steps, partial(self._compare, stage)
        first = env.reset(seed=steps[0].seed).state
        compare("reset", _bytes(self._states[0]), _bytes(first), "the state of a reset")
        env.reset(seed=self._seed + len(steps))
        for rows in _batches(self._rng.permutation(len(steps))):
            actions = finish_rows(self._action_space, [steps[row].actions[-1] for row in rows])
            out = env.step_batch(actions, self._states[rows], blocking=True)
            observed = env.observe(out.new_states)
            for index, row in enumerate(rows):
                expected, where = steps[row].outcome, f"step {row}"
                self._compare_outcomes(stage, expected, out.row(space, index), where)
                compare("new state", _bytes(self._new_states[row]), _bytes(out.new_states[index]), where)
                compare("observe", expected[0], take_row(space, observed, index), where)

    def _step_branches(
        self, env: BatchStepper, branches: Sequence[Branch], order: NDArray[np.integer]
    ) -> list[list[Outcome]]:
        """Step each branch to its end, or to the end of its episode. Returns the results of each branch."""
        space = env.observation_space
        outcomes = [list[Outcome]() for _ in branches]
        for rows in _batches(order):
            taken = [branches[row] for row in rows]
            current, ended = self._states[[branch.step for branch in taken]], np.zeros(len(rows), bool)
            for depth in range(_DEPTH):
                _make_legal(env.action_space, current, ended, taken, depth)
                actions = finish_rows(env.action_space, [branch.actions[depth] for branch in taken])
                out = env.step_batch(actions, current, blocking=True)
                for index in np.flatnonzero(~ended).tolist():
                    outcomes[rows[index]].append(out.row(space, index))
                current, ended = out.new_states, out.terminated | out.truncated
        return outcomes

    def _replay_branches(
        self, branches: Sequence[Branch], outcomes: Sequence[Sequence[Outcome]], seconds: float
    ) -> int:
        """Replay branches from their resets with the reference. Returns their number when time is up."""
        env, started = self._reference, time.monotonic()
        for num_replayed, row in enumerate(self._rng.permutation(len(branches)), 1):
            branch = branches[row]
            env.reset(self._steps[branch.step].seed)
            for action in self._steps[branch.step].actions[:-1]:
                env.step(action)
            for depth, got in enumerate(outcomes[row]):
                expected = env.step(branch.actions[depth])
                self._compare_outcomes("replay", expected, got, f"child {row}, step {depth}")
            if time.monotonic() - started > seconds:
                return num_replayed
        return len(branches)

    # -- compares with the reference ----------------------------------------------------------------

    def _compare(self, stage: str, field: str, expected: object, got: object, where: str) -> None:
        """Compare one value."""
        fields = self._differences.setdefault(stage, {})
        fields.setdefault(field, Difference()).add(expected, got, where)

    def _compare_outcomes(self, stage: str, expected: Outcome, got: Outcome, where: str) -> None:
        """Compare all fields of the result of a step, those that are dicts key by key."""
        names = ("observation", "reward", "terminated", "truncated", "info")
        firsts = (*expected[:4], self._comparable(expected[4]))
        seconds = (*got[:4], self._comparable(got[4]))
        for field, first, second in zip(names, firsts, seconds, strict=True):
            are_dicts = isinstance(first, dict) and isinstance(second, dict)
            if are_dicts and first and first.keys() == second.keys():
                for key in first:
                    self._compare(stage, field, first[key], second[key], f"{where}, {field}[{key!r}]")
            else:
                self._compare(stage, field, first, second, where)

    def _comparable(self, info: dict[str, Any]) -> Any:
        """Return the part of an info that is compared."""
        return _with_floats(
            {
                key: {name: item for name, item in value.items() if name != "t"}
                if isinstance(value, dict) and value.keys() >= _EPISODE_STATISTICS
                else value
                for key, value in info.items()
                if key != "num_steps" and (self._info_keys is None or key in self._info_keys)
            }
        )


def _make_legal(
    space: gymnasium.Space[object],
    states: np.ndarray,
    ended: NDArray[np.bool_],
    branches: Sequence[Branch],
    depth: int,
) -> None:
    """Replace the actions of branches that are not legal where they have led."""
    masks = action_masks(space, states)
    if masks is not None:
        actions = np.array([branch.actions[depth] for branch in branches])
        legal = draw_legal(space, masks, np.random.default_rng(depth).random(actions.shape))
        for index in np.flatnonzero(~(are_legal(space, masks, actions) | ended)).tolist():
            branches[index].actions[depth] = legal[index]


def _batches(rows: np.ndarray) -> list[np.ndarray]:
    """Split row numbers into batches of bounded size."""
    return np.array_split(rows, max(1, -(-len(rows) // _MAX_ROWS)))


def _with_floats(info: object) -> Any:
    """Return an info with all numbers as floats, because a column of a batch has one type for all rows."""
    if isinstance(info, dict):
        return {key: _with_floats(value) for key, value in info.items()}
    if isinstance(info, (list, tuple)):
        return [_with_floats(value) for value in info]
    if isinstance(info, (bool, int, float, np.ndarray, np.generic)) and np.asarray(info).dtype.kind in "biuf":
        return np.asarray(info, np.float64)
    return info


def _bytes(state: Any) -> bytes:
    return bytes(state) if not isinstance(state, np.void) else state.tobytes()


def check_env(
    env: str | EnvSpec | Callable[[], Env],
    *,
    num_steps: int = 500,
    seed: int = 0,
    num_restores: int = 20,
    num_children: int = 8,
    codec: CodecChoice = None,
    info_keys: Sequence[str] | None = None,
    replay_seconds: float = 5.0,
    env_kwargs: Mapping[str, object] | None = None,
    backend: BackendName = "processes",
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

    def open_in_worker(factory: Callable[[], PlanEnv]) -> BatchEnv:
        if over_ray is None:
            return BatchEnv([ExternalProcess(factory)], audit=0.0)
        limits: dict[str, Any] = {"timeout": None, "max_restarts": 3, "audit": 0.0, "max_worker_rss": None}
        return BatchEnv(over_ray(factory, num_workers=1, address=ray_address, actor_options=None, **limits))

    options: dict[str, Any] = {
        "codec": codec,
        "info_keys": info_keys,
        "trust": True,
        "audit": 0.0,  # it would end the check with the first difference that it meets by chance
        "env_kwargs": env_kwargs,
        "compiled": False,
    }
    # A cluster that does not answer is no fault of the environment.
    with ray_connection(backend, ray_address):
        try:
            with contextlib.ExitStack() as stack:
                check = Check(source, options, seed, open_in_worker, stack)
                try:
                    report = check.run(str(name), num_steps, num_restores, num_children, replay_seconds)
                    refusal = report.error
                    try:  # `planvec.make` examines the environment in other ways, and may refuse it
                        PlanEnv(source, **{**options, "trust": False}).close()
                    except PlanvecError as error:
                        refusal = str(error)
                    return dataclasses.replace(report, error=refusal)
                except PlanvecError:
                    raise
                except Exception as error:
                    text = f"the environment raised {type(error).__name__}: {error}"
                    return CheckReport(str(name), error=text)
        except PlanvecError as error:
            return CheckReport(str(name), error=str(error))
