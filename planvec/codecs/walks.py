"""Random walks through an environment, which `verify` repeats from saved states."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium

from planvec.codecs.base import Outcome, StateCodec, Step
from planvec.codecs.generic.beside import Beside
from planvec.codecs.reported_masks import LegalActions
from planvec.errors import UnsupportedEnvError

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


class RandomWalk(NamedTuple):
    """Holds random steps and the states that were saved between them."""

    # Actions and their outcomes. An outcome is None if the environment raised an error or was reset instead.
    steps: list[tuple[Any, Outcome | None]]
    points: list[SavedPoint]  # the saved states


def reference_walk(
    env: gymnasium.Env[Any, Any], info_keys: Sequence[str] | None, beside: Beside | None
) -> Reference:
    """Walk through some episodes without any codec, and record the first one."""
    actions = LegalActions.seeded(env.action_space)
    step = actions.noted(env.step)
    started = time.monotonic()
    first: Any = None
    outcomes: list[Outcome] = []
    drawn_spaces: dict[str, None] = {}
    num_steps = 0
    for episode in range(_MAX_EPISODES):
        observation, info = check_reset(env.reset(seed=episode))
        actions.note(observation, info)
        if beside is not None:
            beside.begin()
        if episode == 0:
            first = copy.deepcopy(observation)
        has_ended = False
        while not has_ended and num_steps < _MAX_STEPS:
            if num_steps >= MIN_STEPS and time.monotonic() - started > _REFERENCE_SECONDS:
                break
            outcome = _try_step(step, actions.sample(), info_keys)
            num_steps += 1
            has_ended = outcome is None or outcome[2] or outcome[3]
            if episode == 0 and outcome is not None:
                outcomes.append(outcome)
        if beside is not None:
            drawn_spaces |= dict.fromkeys(beside.check())
        if not has_ended:
            break
    return Reference(first, outcomes, [*drawn_spaces], actions.are_reported)


def check_reset(result: Any) -> tuple[Any, dict[str, Any]]:
    """Return what a reset has returned."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict):
        return result
    raise UnsupportedEnvError(f"reset: expected (observation, info), got {type(result).__name__}")


def random_walk(
    codec: StateCodec,
    env: gymnasium.Env[Any, Any],
    info_keys: Sequence[str] | None,
    max_steps: int = _MAX_STEPS,
    max_seconds: float = _WALK_SECONDS,
) -> RandomWalk:
    """Step at random, save every few steps, and reset whenever an episode ends."""
    actions = LegalActions.seeded(env.action_space)
    step = actions.noted(codec.step)
    walk = RandomWalk([], [])
    started = time.monotonic()
    observation, info = codec.reset(0, None)
    actions.note(observation, info)
    next_save = 0
    for index in range(max_steps):
        if index >= MIN_STEPS and time.monotonic() - started > max_seconds:
            break
        if index >= next_save:
            next_save = index + (_DENSE_INTERVAL if index < _DENSE_STEPS else _INTERVAL)
            observation = copy.deepcopy(observation)
            point = SavedPoint(codec.get(observation), observation, codec.digests(), len(walk.steps))
            walk.points.append(point)
        action = actions.sample()
        outcome = _try_step(step, action, info_keys)
        walk.steps.append((action, outcome))
        if outcome is None or outcome[2] or outcome[3]:
            walk.steps.append((None, None))
            observation, info = codec.reset(index, None)
            actions.note(observation, info)
        else:
            observation = outcome[0]
    return walk


def _try_step(step: Step, action: Any, info_keys: Sequence[str] | None) -> Outcome | None:
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


def select_infos(outcome: Outcome, info_keys: Sequence[str] | None) -> Outcome:
    """Return an outcome with the chosen infos."""
    observation, reward, terminated, truncated, info = outcome
    if info_keys is not None:
        info = {key: value for key, value in info.items() if key in info_keys}
    return observation, reward, terminated, truncated, info
