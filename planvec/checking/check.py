"""Whether an environment is saved and restored exactly: `planvec.check_env`, `planvec check`.

    the environment by itself      reset(seed), step, step, ...                    what is true
    a PlanEnv, state by state      save, restore, step                             "stepped on"
    a second PlanEnv               all of those states, shuffled                   "other instance"
    a worker process               the same                                        "other process"
    both                           children of some states, four steps deep        "branches"
    the environment by itself      reset(seed) and all the way to such a child     "replayed"

An environment whose codec would be refused when it is opened is checked too: that is what the check is for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec
from numpy.typing import NDArray

from planvec.backends import ExternalProcess
from planvec.checking.reference import Alone, Outcome
from planvec.checking.report import ROUTES, CheckReport, Gap
from planvec.codecs import CodecChoice
from planvec.envs import BatchEnv, PlanEnv, find_spec, make_env
from planvec.errors import PlanvecError
from planvec.rows import BatchStepper, finish_rows, take_row

__all__ = ["CheckReport", "check_env"]

_DEPTH = 4
"""Steps that a child is followed for."""
_MIN_EPISODES = 4
_MAX_ROWS = 64
_NUM_TIMED = 40


class _Step(NamedTuple):
    """One step of the environment by itself.

    Attributes:
        episode: Seed of its reset.
        actions: All actions since that reset, this one the last.
        outcome: What came out.
    """

    episode: int
    actions: tuple[Any, ...]
    outcome: Outcome


class _Child(NamedTuple):
    """A branch: the way to its root, the state there, and the actions from there."""

    episode: int
    way: tuple[Any, ...]
    state: Any
    actions: list[Any]


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
) -> CheckReport:
    """Restore an environment's states in other instances and processes, and compare every bit.

    Args:
        env: A Gymnasium id, an `EnvSpec`, or a factory, as for `planvec.make`.
        num_steps: Random steps that are walked, saved and restored.
        seed: Of the resets (`seed`, `seed + 1`, ...), the actions and the order.
        num_restores: States that are branched from.
        num_children: Branches of each.
        codec: As for `planvec.make`.
        info_keys: The info keys that count; None: all.
        replay_seconds: How long branches are replayed by the environment itself, one at least.
        env_kwargs: For `gymnasium.make`, where `env` is an id or a spec.

    Raises:
        gymnasium.error.Error: Unknown id.
        ValueError: A number is too small.
    """
    for name, number in (
        ("num_steps", num_steps),
        ("num_restores", num_restores),
        ("num_children", num_children),
    ):
        if number < 1:
            raise ValueError(f"{name}: expected at least 1, got {number}")
    source = find_spec(env) if isinstance(env, str) else env
    name = env if isinstance(env, str) else getattr(source, "id", getattr(source, "__name__", repr(source)))
    options = {"codec": codec, "info_keys": info_keys, "trust": True, "env_kwargs": env_kwargs}
    try:
        with _Check(source, options, seed) as check:
            try:
                return check.run(str(name), num_steps, num_restores, num_children, replay_seconds)
            except Exception as error:  # the environment's own
                if isinstance(error, PlanvecError):
                    raise
                return CheckReport(str(name), error=f"it raised {type(error).__name__}: {error}")
    except PlanvecError as error:
        return CheckReport(str(name), error=str(error))


class _Check:
    """One check. Everything that it opens is closed with it."""

    def __init__(self, source: Any, options: dict[str, Any], seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._seed = seed
        self._info_keys = options["info_keys"]
        self._gaps: dict[str, dict[str, Gap]] = {}
        self._opened: list[Any] = []
        try:
            self._here = self._open(PlanEnv(source, **options))
            self._there = self._open(PlanEnv(source, **options))
            self._worker: BatchEnv = self._open(_in_a_process(source, options))
            changed = PlanEnv(source, **options) if self._here.codec.note else None
            self._alone = self._open(
                Alone(lambda: make_env(source, env_kwargs=options["env_kwargs"]), changed)
            )
        except BaseException:
            self.close()
            raise
        self._space = self._here.action_space
        self._space.seed(seed)

    def _open(self, thing: Any) -> Any:
        self._opened.append(thing)
        return thing

    def close(self) -> None:
        """Close what was opened."""
        for thing in self._opened:
            thing.close()

    def __enter__(self) -> _Check:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(
        self, name: str, num_steps: int, num_restores: int, num_children: int, replay_seconds: float
    ) -> CheckReport:
        """Take all routes."""
        self._repeats_infos = self._alone.repeats_infos(self._seed)
        walk = list(self._walk(num_steps))
        states, news = self._step_on(walk)
        self._restore("other instance", self._there, walk, states, news)
        self._restore("other process", self._worker, walk, states, news)
        children = list(self._children(walk, states, num_restores, num_children))
        here = self._branch(self._there, children, range(len(children)))
        other = self._branch(self._worker, children, self._rng.permutation(len(children)))
        for number, (expected, got) in enumerate(zip(here, other, strict=True)):
            for step, pair in enumerate(zip(expected, got, strict=True)):
                self._compare("branches", *pair, f"child {number}, step {step}")
        num_replayed = self._replay(children, here, replay_seconds)
        codec = self._here.codec
        return CheckReport(
            name=name,
            codec=codec.how,
            note=codec.note,
            num_steps=len(walk),
            num_episodes=len({step.episode for step in walk}),
            num_restores=min(num_restores, len(children) // num_children),
            num_children=num_children,
            num_replayed=num_replayed,
            state_bytes=_mean_size(states),
            microseconds=self._time(walk, states),
            gaps={route: self._gaps[route] for route in ROUTES if route in self._gaps},
        )

    # -- the routes -----------------------------------------------------------------------------------

    def _walk(self, num_steps: int) -> Iterator[_Step]:
        """Step the environment by itself, in several episodes: one reset might be right by accident."""
        seed, actions = self._seed, tuple[Any, ...]()
        self._alone.reset(seed)
        for _ in range(num_steps):
            actions = (*actions, self._space.sample())
            outcome = self._alone.step(actions[-1])
            yield _Step(seed, actions, outcome)
            if outcome[2] or outcome[3] or len(actions) * _MIN_EPISODES >= num_steps:
                seed, actions = seed + 1, ()
                self._alone.reset(seed)

    def _step_on(self, walk: list[_Step]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Step from each saved state to the next. Returns the states before and after each step."""
        env, space = self._here, self._here.observation_space
        states, news = (np.empty(len(walk), env.state_dtype) for _ in range(2))
        state: Any = None
        for number, step in enumerate(walk):
            if len(step.actions) == 1:
                start = env.reset(seed=step.episode)
                first = self._alone.starts[step.episode]
                where = f"the reset with seed {step.episode}"
                self._gap("stepped on", "reset").compare(first[0], start.observation, where)
                if self._repeats_infos:
                    one, other = _numbers(self._counted(first[1])), _numbers(self._counted(start.info))
                    self._gap("stepped on", "reset").compare(one, other, f"{where}, info")
                state = start.state
            out = env.step_batch(self._batch([step.actions[-1]]), state, blocking=True)
            self._compare("stepped on", step.outcome, out.row(space, 0), f"step {number}")
            states[number], news[number] = state, out.new_states[0]
            state = out.new_states[0]
        return states, news

    def _restore(
        self, route: str, env: BatchStepper, walk: list[_Step], states: NDArray[Any], news: NDArray[Any]
    ) -> None:
        """Take every step once more, in another order, in batches, from another episode."""
        space = env.observation_space
        first = env.reset(seed=walk[0].episode).state
        self._gap(route, "reset").compare(_bytes(states[0]), _bytes(first), "the state of a reset")
        env.reset(seed=self._seed + len(walk))
        for rows in _split(self._rng.permutation(len(walk))):
            out = env.step_batch(
                self._batch([walk[row].actions[-1] for row in rows]), states[rows], blocking=True
            )
            observed = env.observe(out.new_states)
            for place, row in enumerate(rows):
                where = f"step {row}"
                self._compare(route, walk[row].outcome, out.row(space, place), where)
                self._gap(route, "new state").compare(_bytes(news[row]), _bytes(out.new_states[place]), where)
                self._gap(route, "observe").compare(
                    walk[row].outcome[0], take_row(space, observed, place), where
                )

    def _children(
        self, walk: list[_Step], states: NDArray[Any], num_restores: int, num_children: int
    ) -> Iterator[_Child]:
        """Random branches of states spread over the walk."""
        for row in np.unique(np.linspace(0, len(walk) - 1, num_restores).astype(int)):
            for _ in range(num_children):
                actions = [self._space.sample() for _ in range(_DEPTH)]
                yield _Child(walk[row].episode, walk[row].actions[:-1], states[row], actions)

    def _branch(self, env: BatchStepper, children: list[_Child], order: Any) -> list[list[Outcome]]:
        """Step children, in an order, until they end. Returns their outcomes, in the order of `children`."""
        space, found = env.observation_space, [list[Outcome]() for _ in children]
        for rows in _split(np.asarray(order)):
            states = np.empty(len(rows), env.state_dtype)
            for place, row in enumerate(rows):
                states[place] = children[row].state
            ended = np.zeros(len(rows), bool)
            for depth in range(_DEPTH):
                out = env.step_batch(
                    self._batch([children[row].actions[depth] for row in rows]), states, blocking=True
                )
                for place, row in enumerate(rows):
                    if not ended[place]:
                        found[row].append(out.row(space, place))
                states, ended = out.new_states, out.terminated | out.truncated
        return found

    def _replay(self, children: list[_Child], found: list[list[Outcome]], seconds: float) -> int:
        """Go the whole way to children with the environment itself, for as long as there is time."""
        started, num_replayed = time.monotonic(), 0
        for row in self._rng.permutation(len(children)):
            child = children[row]
            self._alone.reset(child.episode)
            for action in child.way:
                self._alone.step(action)
            for depth, got in enumerate(found[row]):
                expected = self._alone.step(child.actions[depth])
                self._compare("replayed", expected, got, f"child {row}, step {depth}")
            num_replayed += 1
            if time.monotonic() - started > seconds:
                break
        return num_replayed

    # -- comparing and timing -------------------------------------------------------------------------

    def _gap(self, route: str, name: str) -> Gap:
        return self._gaps.setdefault(route, {}).setdefault(name, Gap())

    def _compare(self, route: str, expected: Outcome, got: Outcome, where: str) -> None:
        """Hold all fields of an outcome against what is true."""
        for name, one, other in zip(
            ("observation", "reward", "terminated", "truncated", "info"), expected, got, strict=True
        ):
            if name == "info":
                one, other = _numbers(self._counted(one)), _numbers(self._counted(other))
            if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys() and one:
                for key in one:
                    self._gap(route, name).compare(one[key], other[key], f"{where}, {name}[{key!r}]")
            else:
                self._gap(route, name).compare(one, other, where)

    def _counted(self, info: dict[str, Any]) -> dict[str, Any]:
        """The infos that count: not the time of day, which planvec leaves out."""
        statistics_of = {"r", "l", "t"}
        info = {
            key: {k: v for k, v in value.items() if k != "t"}
            if isinstance(value, dict) and statistics_of <= value.keys()
            else value
            for key, value in info.items()
            if key != "num_steps"
        }
        return info if self._info_keys is None else {k: v for k, v in info.items() if k in self._info_keys}

    def _batch(self, actions: list[Any]) -> Any:
        return finish_rows(self._space, actions)

    def _time(self, walk: list[_Step], states: NDArray[Any]) -> dict[str, float]:
        """Medians in microseconds, over states spread over the walk."""
        codec = self._here.codec
        rows = np.unique(np.linspace(0, len(walk) - 1, _NUM_TIMED).astype(int))
        found: dict[str, list[float]] = {"get": [], "set": [], "step": [], "observe": []}
        for row, value in zip(rows, codec.load(states[rows]).values, strict=True):
            clock = time.perf_counter
            times = [clock()]
            codec.set(value)
            times.append(clock())
            observation = codec.step(walk[row].actions[-1])[0]
            times.append(clock())
            codec.get(observation)
            times.append(clock())
            codec.set(value)
            times.append(clock())
            codec.observe()
            times.append(clock())
            for name, part in (("set", 0), ("step", 1), ("get", 2), ("observe", 4)):
                found[name].append(1e6 * (times[part + 1] - times[part]))
        return {name: statistics.median(values) for name, values in found.items()}


def _in_a_process(source: Any, options: dict[str, Any]) -> BatchEnv:
    """Open an environment in a worker process, without verifying its codec there."""
    return BatchEnv([ExternalProcess(lambda: PlanEnv(source, **options))])


def _numbers(info: Any) -> Any:
    """An info with all its numbers as floats: a column of a batch has one type, for ints and bools too."""
    if isinstance(info, dict):
        return {key: _numbers(value) for key, value in info.items()}
    if isinstance(info, (list, tuple)):
        return [_numbers(value) for value in info]
    if isinstance(info, (bool, int, float, np.ndarray, np.generic)) and np.asarray(info).dtype.kind in "biuf":
        return np.asarray(info, np.float64)
    return info


def _split(rows: NDArray[Any]) -> list[NDArray[Any]]:
    return np.array_split(rows, max(1, -(-len(rows) // _MAX_ROWS)))


def _bytes(state: Any) -> bytes:
    return bytes(state) if not isinstance(state, np.void) else state.tobytes()


def _mean_size(states: NDArray[Any]) -> float:
    if states.dtype.hasobject:
        return statistics.fmean(state.nbytes for state in states)
    return float(states.dtype.itemsize)
