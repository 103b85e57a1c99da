"""A faster step of Atari environments, with the same results bit for bit.

`AtariEnv.step` calls the emulator once for every frame. The step here runs the frames in one call. It is
installed only if it gives the results of the environment's own step.
"""

from __future__ import annotations

import functools
import inspect
import logging
from types import FunctionType
from typing import Any
from weakref import WeakSet

from ale_py.env import AtariEnv

from planvec.codecs.atari.emulator import Emulator
from planvec.codecs.base import Outcome, Step

__all__ = ["install_fast_step"]

_log = logging.getLogger("planvec")
_installed: WeakSet[Step] = WeakSet()
"""The steps that `install_fast_step` has installed."""


def install_fast_step(env: Any) -> None:
    """Replace `env.step` by a faster one, if the environment is exactly ale-py's, with discrete actions.

    An environment whose step was replaced by somebody else keeps it.

    Args:
        env: The unwrapped environment, whose emulator is an `Emulator`.
    """
    if isinstance(env.step, FunctionType) and env.step in _installed:
        del env.step  # it steps the emulator that the environment had before
    is_plain = type(env) is AtariEnv and isinstance(env._frameskip, int) and not env.continuous
    if is_plain and inspect.ismethod(env.step) and _gives_the_same(env._game):
        env.step = _make_step(env)
        _installed.add(env.step)


def _make_step(env: Any) -> Step:
    emulator: Emulator = env.ale

    def step(action: Any) -> Outcome:
        reward = float(emulator.act_repeatedly(env._action_set[action], env._frameskip))
        is_over = emulator.game_over(with_truncation=False)
        return env._get_obs(), reward, is_over, emulator.game_truncated(), env._get_info()

    return step


@functools.cache
def _gives_the_same(game: str) -> bool:
    """Return whether the faster step gives the results of ale-py's step, in a few steps of a game."""
    outcomes = []
    try:
        for is_fast in (False, True):
            env: Any = AtariEnv(game)  # its actions stick
            env.ale = Emulator(env)
            step = _make_step(env) if is_fast else env.step
            env.reset(seed=0)
            actions = [number % env.action_space.n for number in range(20)]
            outcomes.append([_bits(step(action)) for action in actions])
            env.close()
    except Exception:  # another ale-py may have other attributes: its own step is used then
        _log.debug("%s keeps its own step: the faster one failed", game, exc_info=True)
        return False
    return outcomes[0] == outcomes[1]


def _bits(outcome: Outcome) -> tuple[Any, ...]:
    """Return a form of an outcome that compares bit for bit, with the types."""
    observation, *results, info = outcome
    return observation.shape, observation.tobytes(), [(type(value), value) for value in results], info
