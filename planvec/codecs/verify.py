"""Gives an environment a codec (`codec_for`), and verifies it by replay before it is used.

    the environment alone      reset, step, step, ...                                "reference"
    the same with the codec    reset, step, save, step, step, save, ...              a random walk
    the codec alone            restore the saved points, take the same steps from each

The steps from a restored point must have the same outcomes as on the walk, and the environment must hold the
same objects and values as on the walk. The walk must begin as the reference does. Codecs that planvec ships
for exactly the classes at hand are used without this check.
"""

from __future__ import annotations

import copy
import itertools
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from planvec.codecs.base import (
    Codec,
    Env,
    Outcome,
    StateCodec,
    Step,
    WrapperCodec,
    is_of_user,
    layers_of,
    select_infos,
)
from planvec.codecs.budget import Budget, steps_within
from planvec.codecs.compare import describe_difference, digest, same
from planvec.codecs.generic.copied import ObjectGraph
from planvec.codecs.generic.replay import ReplayCodec, Replayed
from planvec.codecs.generic.shared_code import CodeReader
from planvec.codecs.generic.structure import SHARED_MEMORY
from planvec.codecs.generic.survey import Beside, own_classes
from planvec.codecs.positions import Positions, seeded_by
from planvec.codecs.reported import LegalActions
from planvec.codecs.selection import CodecChoice, FamilyCodec, Layer, select, wrapper_layers
from planvec.codecs.stack import LayerCodecs, StackCodec, make_wrapper_codec
from planvec.errors import PlanvecError, UnsupportedEnvError

# -- Random walks through an environment, which `verify` repeats from saved states ---------------------------

MIN_STEPS = 12  # number of steps that a walk takes, however slow the environment is
_MAX_STEPS = 256
_WALK_SECONDS = 0.3
_REFERENCE_SECONDS = 0.1
_MAX_EPISODES = 8
_DENSE_STEPS, _DENSE_INTERVAL, _INTERVAL = 64, 4, 16  # A state is saved every 4 steps at first, then every 16


class Reference(NamedTuple):
    """Holds the first steps of an environment that no codec has touched."""

    observation: Any  # the first observation
    outcomes: list[Outcome]  # the outcomes of the following steps, until the episode ends
    drawn_spaces: list[str]  # paths of the spaces from which the environment draws
    reports_masks: bool = False  # whether a reset or a step has reported legal actions


class SavedPoint(NamedTuple):
    """Holds a state that was saved on a random walk."""

    value: Any  # what the codec saved
    observation: Any  # the observation of the state
    digests: dict[str, bytes]  # digests of what the environment held, see `StateCodec.digests`
    next_step: int  # index of the step that was taken next


def reference_walk(env: Env, info_keys: Sequence[str] | None, beside: Beside | None) -> Reference:
    """Walk through some episodes without any codec, and record the first one."""
    actions = LegalActions.seeded(env.action_space)
    step = actions.noted(env.step)
    indices = steps_within(_REFERENCE_SECONDS, MIN_STEPS, _MAX_STEPS)
    first: Any = None
    outcomes: list[Outcome] = []
    drawn_spaces: dict[str, None] = {}
    for episode in range(_MAX_EPISODES):
        observation, info = check_reset(env.reset(seed=episode))
        actions.note(observation, info)
        if beside is not None:
            beside.begin()
        if episode == 0:
            first = copy.deepcopy(observation)
        has_ended = False
        for _ in indices:
            outcome = _try_step(step, actions.sample(), info_keys)
            has_ended = outcome is None or outcome[2] or outcome[3]
            if episode == 0 and outcome is not None:
                outcomes.append(outcome)
            if has_ended:
                break
        if beside is not None:
            drawn_spaces |= dict.fromkeys(beside.check())
        if not has_ended:
            break
    return Reference(first, outcomes, [*drawn_spaces], actions.are_reported)


def check_reset(result: object) -> tuple[Any, dict[str, Any]]:
    """Return what a reset has returned."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result
    raise UnsupportedEnvError(f"reset: expected (observation, info), got {type(result).__name__}")


class RandomWalk:
    """Holds random steps and the states that were saved between them, and takes the steps again."""

    def __init__(
        self,
        codec: StateCodec,
        env: Env,
        info_keys: Sequence[str] | None,
        max_steps: int = _MAX_STEPS,
        max_seconds: float = _WALK_SECONDS,
    ) -> None:
        """Step at random, save every few steps, and reset whenever an episode ends."""
        self._codec, self._env, self._info_keys = codec, env, info_keys
        # Actions and outcomes. An outcome is None if the environment raised an error or was reset instead.
        self.steps: list[tuple[Any, Outcome | None]] = []
        self.points: list[SavedPoint] = []  # the saved states
        actions = LegalActions.seeded(env.action_space)
        step = actions.noted(codec.step)
        observation, info = codec.reset(0, None)
        actions.note(observation, info)
        next_save = 0
        for index in steps_within(max_seconds, MIN_STEPS, max_steps):
            if index >= next_save:
                next_save = index + (_DENSE_INTERVAL if index < _DENSE_STEPS else _INTERVAL)
                observation = copy.deepcopy(observation)
                point = SavedPoint(codec.get(observation), observation, codec.digests(), len(self.steps))
                self.points.append(point)
            action = actions.sample()
            outcome = _try_step(step, action, info_keys)
            self.steps.append((action, outcome))
            if outcome is None or outcome[2] or outcome[3]:
                self.steps.append((None, None))
                observation, info = codec.reset(index, None)
                actions.note(observation, info)
            else:
                observation = outcome[0]
        self._digests = {point.next_step: point.digests for point in self.points}

    def loaded(self) -> list[tuple[SavedPoint, Any]]:
        """Return the saved points with their values, after a conversion to states and back."""
        try:
            states = self._codec.states_of([point.value for point in self.points])
        except (ValueError, TypeError, KeyError) as error:
            raise UnsupportedEnvError(
                f"{self._env}: expected saved values that fit the codec's dtype {self._codec.format.dtype}, "
                f"got another: {error}. Change the dtype, or what get() returns"
            ) from error
        return list(zip(self.points, self._codec.load(states).values, strict=True))

    def repeat(self, point: SavedPoint, observation: object, comparison: Comparison, num_steps: int) -> None:
        """Take the steps after a saved point again, until the episode ends, and compare them."""
        comparison.check("observation", 0, point.observation, observation)
        comparison.check_digests(0, point.digests, self._codec.digests())
        first = point.next_step
        for number, (action, expected) in enumerate(self.steps[first : first + num_steps], 1):
            if expected is None:  # the walk was reset here
                return
            outcome = select_infos(self._codec.step(action), self._info_keys)
            comparison.check_outcome(number, expected, outcome)
            digests = self._digests.get(first + number)
            if digests is not None and not (expected[2] or expected[3]):
                comparison.check_digests(number, digests, self._codec.digests())


def _try_step(step: Step, action: object, info_keys: Sequence[str] | None) -> Outcome | None:
    """Step and return a copy of the outcome, or None if the environment raised an error."""
    # An error ends the episode of the walk. Users see it when they take that step in a batch.
    try:
        outcome = step(action)
    except UnsupportedEnvError:
        raise
    except Exception:
        return None
    if not isinstance(outcome, tuple) or len(outcome) != 5:
        got, cure = f"a {type(outcome).__name__}", "Return a tuple"
        if isinstance(outcome, tuple):
            got = f"{len(outcome)} values"
            cure = (
                "For the older interface with four values, return terminated and truncated apart, or wrap it "
                "with shimmy.GymV21"
            )
        raise UnsupportedEnvError(
            f"step: expected the tuple (observation, reward, terminated, truncated, info), got {got}. {cure}"
        )
    try:
        return copy.deepcopy(select_infos(outcome, info_keys))
    except Exception as error:
        raise UnsupportedEnvError(
            f"an observation or info cannot be copied ({type(error).__name__}: {error}). If it is an info, "
            "leave it out with info_keys="
        ) from error


# -- Compares the steps from restored states with those of the first time ------------------------------------

NUM_REPEATED = 6  # steps that are taken again from each saved point
OUTCOME = ("observation", "reward", "terminated", "truncated", "info")  # what a step returns


class InexactStateError(UnsupportedEnvError):
    """The verification has shown that a codec does not restore states exactly."""


class Comparison(NamedTuple):
    """Names a comparison in error messages."""

    situation: str  # what was compared
    advice: str  # how to fix a difference; it ends the message
    # Whether the order of a set may be the cause. Then leaving it out would make states wrong.
    has_sets: bool = False

    def check(self, name: str, num_steps: int, expected: object, actual: object) -> None:
        """Compare two values of one field."""
        text = describe_difference(name, expected, actual)
        if text is not None:
            raise self._error(num_steps, f"{text}. {self.advice}")

    def check_outcome(self, num_steps: int, expected: Outcome, actual: Outcome) -> None:
        """Compare all that a step returns."""
        for name, first, second in zip(OUTCOME, expected, actual, strict=True):
            self.check(name, num_steps, first, second)

    def check_digests(self, num_steps: int, expected: dict[str, bytes], actual: dict[str, bytes]) -> None:
        """Compare what the environment holds with what it held on the walk."""
        for name in {**expected, **actual}:
            if expected.get(name) != actual.get(name):
                _, is_attribute, attribute = name.rpartition(".")
                cure = ""
                if name == SHARED_MEMORY:
                    cure = (
                        "An attribute is a view of another one (self.row = self.grid[0]): take it where it "
                        "is used instead. Otherwise: "
                    )
                elif is_attribute and not self.has_sets:
                    cure = (
                        "If it has no influence on results (a clock, a cache), leave it out: "
                        f'codec=planvec.Copied(["{attribute}"]). Otherwise: '
                    )
                raise self._error(num_steps, f"{name} is not what it was on the walk. {cure}{self.advice}")

    def _error(self, num_steps: int, text: str) -> InexactStateError:
        when = f"{num_steps} step{'s' * (num_steps > 1)} later" if num_steps else "immediately"
        return InexactStateError(f"{self.situation}, {when}: {text}")


# -- Verifies that the order of the elements of sets has no influence on an environment ----------------------

# Steps of a walk for environments that hold sets, and the time for it. Repeating it takes at least twice as
# long.
_SETS_STEPS, _SETS_SECONDS = 1024, 0.5
_NUM_ORDERS = 8  # orders that are compared with each other where shuffled sets make a difference
SETS_ADVICE = (
    "The order of a set depends on how it was filled, and is not part of a state. If it has an influence, "
    'iterate over sorted(...), use a dict or a list instead of the set, or pass codec="replay"'
)


def check_set_orders(
    codec: StateCodec,
    env: Env,
    info_keys: Sequence[str] | None,
    graph: ObjectGraph,
) -> None:
    """Repeat a longer walk with sets in other orders, which must have no influence."""
    # All else that is copied is restored exactly, so that a shorter walk shows what is not. The order of a
    # set is not, and a difference may be rare and late.
    walk = RandomWalk(codec, env, info_keys, _SETS_STEPS, _SETS_SECONDS)
    points = walk.loaded()
    situation = f"{env}: after restoring a saved state with the elements of its sets in another order"
    comparison = Comparison(situation, SETS_ADVICE, has_sets=True)
    repeated = [(*point, NUM_REPEATED) for point in points]
    first = [(*point, len(walk.steps)) for point in points[:1] * 2] + repeated
    budget = Budget(2 * _SETS_SECONDS)
    for number, (point, value, num_steps) in enumerate(itertools.chain(first, itertools.cycle(repeated))):
        if number >= len(first) and budget.is_spent:
            return
        try:
            with graph.shuffled_sets(number):
                codec.set(value)
                walk.repeat(point, codec.observe(), comparison, num_steps)
        except Exception as error:
            taken = walk.steps[point.next_step : point.next_step + num_steps]
            actions = [action for action, _ in itertools.takewhile(lambda step: step[1] is not None, taken)]
            results: list[list[Any]] = []
            for order in range(number, number + _NUM_ORDERS):
                with graph.shuffled_sets(order):
                    results.append(_outcomes(codec, info_keys, value, actions))
            if all(same(results[0], outcomes) for outcomes in results):
                return  # it distinguishes shuffled sets from plain ones, whatever their order
            if isinstance(error, UnsupportedEnvError):
                raise
            text = f"{situation}: it raised {type(error).__name__}: {error}. {SETS_ADVICE}"
            raise InexactStateError(text) from error


def _outcomes(
    codec: StateCodec, info_keys: Sequence[str] | None, value: object, actions: Sequence[object]
) -> list[Any]:
    """Return what an environment holds and returns in steps from a saved state."""
    outcomes: list[Any] = []
    try:
        codec.set(value)
        outcomes += [codec.digests(), copy.deepcopy(codec.observe())]
        for action in actions:
            outcomes += [copy.deepcopy(select_infos(codec.step(action), info_keys))]
        outcomes += [codec.digests()]
    except Exception as error:
        outcomes += [repr(error)]
    return outcomes


# number of points that are followed to the ends of their episodes, and the time for it
_NUM_FOLLOWED, _FOLLOW_SECONDS = 6, 0.5
_REFERENCE_ADVICE = (
    "Either the seed does not determine a reset: begin reset with super().reset(seed=seed), and draw only "
    "from self.np_random. Or two attributes share an object in a way that a copy separates (a view of an "
    "array, a closure): register a codec for the environment (planvec.register_codec), or, if it restarts "
    'exactly from a seed, pass codec="replay"'
)
_RESET_ADVICE = (
    "The seed does not determine a reset: begin reset with super().reset(seed=seed), and draw only from "
    "self.np_random. If an info cannot be reproduced, leave it out with info_keys="
)


def verify_codec(
    codec: StateCodec,
    env: Env,
    reference: Reference,
    advice: str,
    info_keys: Sequence[str] | None = None,
    graph: ObjectGraph | None = None,
) -> tuple[bytes, ...]:
    """Check on a random walk that restored states behave like the original ones."""
    # `reference`: what `reference_walk` returned before the codec restored anything. `env` is left in an
    # arbitrary state.
    # Returns a digest of the outcome of each step of the walk.
    walk = RandomWalk(codec, env, info_keys)
    points = walk.loaded()
    codec.reset(1, None)
    has_sets = graph is not None and graph.has_sets
    if has_sets:
        advice = f"{SETS_ADVICE}. Otherwise: {advice}"
    comparison = Comparison(f"{env}: after restoring a saved state", advice, has_sets)
    for point, value in reversed(points):
        codec.set(value)
        walk.repeat(point, codec.observe(), comparison, NUM_REPEATED)
    if graph is not None and has_sets:
        check_set_orders(codec, env, info_keys, graph)
    budget = Budget(_FOLLOW_SECONDS)
    for point, value in points[:: max(1, len(points) // _NUM_FOLLOWED)]:
        if budget.is_spent:
            break
        codec.set(value)
        walk.repeat(point, codec.observe(), comparison, len(walk.steps))
    observation, _ = codec.reset(0, None)
    is_replayed = isinstance(codec, ReplayCodec)  # whose advice is about resets
    second = advice if is_replayed else _RESET_ADVICE
    comparison = Comparison(f"{env}: after a second reset with the same seed", second)
    walk.repeat(walk.points[0], observation, comparison, len(reference.outcomes))
    # The first steps of the walk are those of the environment alone. Truncations are not compared, since an
    # outer `TimeLimit` is left out of the walk. Neither are infos, which may contain the time of day.
    alone = advice if is_replayed else _REFERENCE_ADVICE
    comparison = Comparison(f"{env}: stepped by planvec instead of by itself", alone)
    comparison.check("observation", 0, reference.observation, walk.points[0].observation)
    for number, (expected, (_, outcome)) in enumerate(zip(reference.outcomes, walk.steps, strict=False), 1):
        for name, before, after in zip(OUTCOME[:3], expected, outcome or (), strict=False):
            comparison.check(name, number, before, after)
    return _digests_of(walk)


def _digests_of(walk: RandomWalk) -> tuple[bytes, ...]:
    """Return a digest of the outcome of each step of a walk."""
    return tuple(
        digest(None if outcome is None else (outcome[0], outcome[1], bool(outcome[2]), bool(outcome[3])))[:8]
        for _, outcome in walk.steps
    )


# -- Measures how long a codec takes to save, restore, step and observe --------------------------------------

_NUM_TIMED = 40


def time_codec(codec: StateCodec, states: np.ndarray, actions: Sequence[object]) -> dict[str, float]:
    """Time the methods of a codec at some of the states."""
    # `states`: `[B]`.
    # Returns medians in microseconds of "get", "set", "step" and "observe".
    rows = np.unique(np.linspace(0, len(states) - 1, _NUM_TIMED).astype(int))
    clock, seconds = time.perf_counter, []
    for row, value in zip(rows, codec.load(states[rows]).values, strict=True):
        ticks = [clock()]
        codec.set(value)
        ticks.append(clock())
        observation = codec.step(actions[row])[0]
        ticks.append(clock())
        codec.get(observation)
        ticks.append(clock())
        codec.set(value)
        ticks.append(clock())
        codec.observe()
        ticks.append(clock())
        seconds.append(np.diff(ticks))
    set_, step, get, _, observe = (1e6 * np.median(seconds, axis=0)).tolist()
    return {"get": get, "set": set_, "step": step, "observe": observe}


# -- Warns about copied states that are large, or slow to save and restore -----------------------------------

_MAX_BYTES = 1 << 20
_MAX_STEPS, _MIN_MICROSECONDS = 10, 1000
_REPEATS = 5


def warning_on_costs(codec: StateCodec, env: Env, graph: ObjectGraph) -> str:
    """Return a warning if states are larger than 1 MB, or cost more than 10 steps and 1 ms; else ""."""
    observation, _ = codec.reset(0, None)
    states = codec.states_of([codec.get(observation)] * _REPEATS)
    size, actions = states[0].nbytes, LegalActions.seeded(env.action_space)
    try:
        times = time_codec(codec, states, [actions.sample() for _ in range(_REPEATS)])
    except Exception:  # an action is not legal: steps cannot be timed
        times = {"get": 0.0, "set": 0.0, "step": 0.0}
    cost, step = times["get"] + times["set"], times["step"]
    if size > _MAX_BYTES:
        problem = f"a state takes {size / 1e6:,.1f} MB"
    elif cost > max(_MAX_STEPS * step, _MIN_MICROSECONDS):
        problem = f"saving and restoring a state takes {cost / 1e3:,.1f} ms, and a step {step / 1e3:,.2f} ms"
    else:
        return ""
    owner, name = graph.most_expensive_attribute()
    return (
        f"{env}: {problem}. The most expensive attribute is {owner}.{name}: if it never changes, pass "
        f'codec=planvec.Copied(["{name}"]). Otherwise write a codec for it (planvec.register_codec)'
    )


# packages with sets that were found not to depend on hashes (`tests/test_hash_seeds.py`), but a module
_CHECKED, _UNCHECKED = {"highway_env", "minigrid"}, "minigrid.envs.wfc"


# -- The choice of a codec -----------------------------------------------------------------------------------


def check_codec(codec: CodecChoice) -> None:
    """Check a choice of a codec before any environment is made."""
    if not (codec in (None, "copied", "replay") or isinstance(codec, Replayed) or callable(codec)):
        raise UnsupportedEnvError(
            'codec: expected None, "copied", "replay", planvec.Replayed(...), a planvec.Codec subclass or '
            f"planvec.Copied([...]), got {codec!r}"
        )


def codec_for(
    env: Env,
    codec: CodecChoice = None,
    *,
    info_keys: Sequence[str] | None = None,
    trust: bool = False,
    make_another: Callable[[], Env] | None = None,
) -> StateCodec:
    """Return a codec that saves and restores an environment. The environment is reset.

    Args:
        env: The environment, wrappers included.
        codec: None takes a codec that was registered for the class, else planvec's own, else "copied".
            "copied" saves the attributes of the environment. "replay" saves the seed and the actions, and
            replays them to restore a state, see `Replayed`. A `Codec` subclass, or `planvec.Copied([...])`,
            is used as given. Codecs that planvec does not ship for exactly these classes are verified by
            replay first.
        info_keys: The info keys that must be restored exactly; None: all.
        trust: Whether to skip the verification.
        make_another: Makes another one. A worker process needs it for an environment that is replayed and
            does not restart exactly: to see that it behaves alike.

    Raises:
        UnsupportedEnvError: The environment cannot be saved faithfully; the message says what to do.
    """
    check_codec(codec)
    if not isinstance(env.unwrapped, gymnasium.Env):
        raise UnsupportedEnvError(
            f"{env}.unwrapped: expected a gymnasium.Env, got {type(env.unwrapped).__name__}. Let the wrapper "
            "derive from gymnasium.Env instead of gymnasium.Wrapper if there is no such environment inside"
        )
    try:
        return _codec_for(env, codec, info_keys, trust, make_another)
    except InexactStateError as error:
        raise UnsupportedEnvError(str(error)) from None
    except PlanvecError:
        raise
    except Exception as error:
        method = ""  # of a codec of the user, such as "GridCodec.set", in which the error was raised
        for frame, _ in traceback.walk_tb(error.__traceback__):
            owner = frame.f_locals.get("self")
            if isinstance(owner, (Codec, WrapperCodec)) and is_of_user(owner):
                method = f"{type(owner).__name__}.{frame.f_code.co_name}"
        if method:
            raise UnsupportedEnvError(
                f"{env}: {method} raised {type(error).__name__}: {error} while planvec checked this codec"
            ) from error
        raise UnsupportedEnvError(
            f"{env}: it raised {type(error).__name__}: {error} while planvec checked how to save it. It must "
            "allow reset(seed=0) and steps with actions that its action_space samples, several times"
        ) from error


def _codec_for(
    env: Env,
    codec: CodecChoice,
    info_keys: Sequence[str] | None,
    trust: bool,
    make_another: Callable[[], Env] | None,
) -> StateCodec:
    layers = wrapper_layers(env)
    selection = select(env.unwrapped, codec, layers)
    if selection.make is None:
        limits = codec if isinstance(codec, Replayed) else Replayed()
        return _replay_codec(env, layers, selection.advice, limits, info_keys, trust, make_another)
    makers = (selection.make, *selection.alternatives)
    for make in makers[:-1]:
        try:
            return _stack_codec(env, layers, selection._replace(make=make), codec, info_keys, trust)
        except InexactStateError:
            continue
    return _stack_codec(env, layers, selection._replace(make=makers[-1]), codec, info_keys, trust)


def _replay_codec(
    env: Env,
    layers: Sequence[Layer],
    advice: str,
    limits: Replayed,
    info_keys: Sequence[str] | None,
    trust: bool,
    make_another: Callable[[], Env] | None,
) -> ReplayCodec:
    """Make a codec that replays actions, and verify it."""
    pairs = [(layer.wrapper, make_wrapper_codec(layer)) for layer in layers if layer.make is not None]
    classes, spaces = own_classes(layers_of(env)), _spaces_of(env)
    watch = Positions(Beside(env, classes, {}, spaces).generators().items())
    replay = ReplayCodec(env, pairs, limits, watch, info_keys)
    replay.uses_hashes = _uses_hashes(classes)
    if trust:
        return replay
    replay.forbids_draws = True
    if limits.resets_in_forks:
        _verify_in_forks(replay, env, advice, info_keys, make_another)
        return replay
    reference = reference_walk(env, info_keys, None)
    if reference.reports_masks:
        replay.keep_masks()
    watch.allowed = seeded_by(lambda: env.reset(seed=0), spaces)
    replay.branches = False
    replay.walk = verify_codec(replay, env, reference, advice, info_keys)
    if replay.has_snapshots:
        replay.branches = True
        try:
            verify_codec(replay, env, reference, advice, info_keys)
        except Exception as error:  # then the actions are replayed, which is exact
            replay.give_up_snapshots(f"its steps are others in a fork ({type(error).__name__}: {error})")
        replay.clear_snapshots()
    replay.branches = None
    return replay


def _verify_in_forks(
    replay: ReplayCodec,
    env: Env,
    advice: str,
    info_keys: Sequence[str] | None,
    make_another: Callable[[], Env] | None,
) -> None:
    """Verify a codec whose episodes begin in forks of the environment before its first reset."""
    if make_another is None:
        raise UnsupportedEnvError(
            f"{env}: resets_in_forks=True: expected an id or a factory, got an environment"
        )
    assert replay.watch is not None
    replay.watch.allowed = replay.look_at_start(_seeded_by_reset)
    reference = replay.look_at_start(partial(reference_walk, info_keys=info_keys, beside=None))
    if reference.reports_masks:
        replay.keep_masks()
    replay.walk = verify_codec(replay, env, reference, advice, info_keys)
    # What it has drawn when it was made is the same in all forks, but not in another worker.
    another = replay.call_in_fork(partial(_first_episode_of, make_another, info_keys))
    for number, (first, second) in enumerate(zip(replay.walk, another, strict=False)):
        if first != second:
            raise InexactStateError(
                f"{env}: another one has another result in step {number}, after a reset with the same seed. "
                f"{_RESET_ADVICE}"
            )


def _seeded_by_reset(env: Env) -> list[str]:
    return seeded_by(lambda: env.reset(seed=0), _spaces_of(env))


def _first_episode_of(make: Callable[[], Env], info_keys: Sequence[str] | None) -> tuple[bytes, ...]:
    """Make an environment, and return a digest of the outcome of each step of its first episode."""
    env = make()
    layers = [layer for layer in wrapper_layers(env) if layer.make is not None]
    pairs = [(layer.wrapper, make_wrapper_codec(layer)) for layer in layers]
    walk = RandomWalk(ReplayCodec(env, pairs, Replayed(0)), env, info_keys)
    digests = _digests_of(walk)
    ends = [number for number, (_, outcome) in enumerate(walk.steps) if outcome is None]
    return digests[: ends[0]] if ends else digests


def _spaces_of(env: Env) -> dict[str, gymnasium.Space[Any]]:
    """Return the spaces that the layers of an environment hold, by path."""
    found: dict[str, gymnasium.Space[Any]] = {}
    for layer in layers_of(env):
        for name in dict.fromkeys(("action_space", "observation_space", *vars(layer))):
            value = getattr(layer, name)
            if isinstance(value, gymnasium.Space) and all(value is not other for other in found.values()):
                found[f"{type(layer).__name__}.{name}"] = value
    return found


def _stack_codec(
    env: Env,
    layers: Sequence[Layer],
    selection: FamilyCodec,
    codec: CodecChoice,
    info_keys: Sequence[str] | None,
    trust: bool,
) -> StackCodec:
    """Make the codec of a selection, and verify it."""
    codecs = LayerCodecs(env, layers, selection, codec)
    graph = codecs.graph
    reference = None
    if not (codecs.is_verified or trust):
        if graph is not None:
            codecs.beside = graph.beside(env, codecs.caches)
        shared_memory = b"" if graph is None else graph.shared_memory()
        reference = reference_walk(env, info_keys, codecs.beside)
        if graph is not None:
            graph.check_addresses()
            codecs.before_reset()
            graph.check_shared_memory(shared_memory)
            codecs.save_generators_of(reference.drawn_spaces)
    observation, info = check_reset(env.reset(seed=0))
    if graph is not None:
        graph.find_numbered()
    if not codecs.is_verified:
        actions = LegalActions(env.action_space)
        actions.note(observation, info)
        codecs.reports_masks = actions.are_reported or (reference is not None and reference.reports_masks)
    stack = StackCodec(env, codecs, observation)
    if reference is not None:
        stack.walk = verify_codec(stack, env, reference, selection.advice, info_keys, graph)
        classes = own_classes(layers_of(env)) if graph is None else graph.classes
        stack.uses_hashes = _uses_hashes(classes, graph is not None and graph.has_sets)
    if graph is not None:
        graph.settle()
        stack.include(graph)
        stack.watch = Positions(codecs.generators_beside(env))
        stack.forbids_draws = not trust
        if codecs.beside is not None and reference is not None:
            stack.check_variables = codecs.beside.check_variables
        if reference is not None:
            stack.warning = stack.warning or warning_on_costs(stack, env, graph)
    return stack


def _uses_hashes(classes: Sequence[type], has_sets: bool = False) -> bool:
    """Return whether environments of classes may depend on hashes, which differ between processes."""
    packages = {cls.__module__.partition(".")[0] for cls in classes}
    if packages <= _CHECKED and not any(cls.__module__.startswith(_UNCHECKED) for cls in classes):
        return False
    return has_sets or CodeReader(classes, packages).uses_hashes
