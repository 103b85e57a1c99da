"""Defines `EnvRow`, one environment that is stepped on from where it stands: one class per autoreset mode.

The modes and their infos are those of Gymnasium (https://farama.org/Vector-Autoreset-Mode).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from planvec.codecs import Outcome, Step
from planvec.rows import own_copy
from planvec.vector.short_step import short_step

# the last observation of an episode, and the info of the reset that followed within the same step
Ending = tuple[Any, dict[str, Any]]


class EnvRow(ABC):
    """Steps one environment, and resets it when an episode has ended."""

    def __init__(self, env: gymnasium.Env[Any, Any], passes_options: bool) -> None:
        self.env = env
        self.observation: Any = None  # the current observation; None before the first reset
        # `terminated`: whether the last step has terminated the episode, and no reset followed. `truncated`:
        # whether the last step has truncated the episode, and no reset followed
        self.terminated = self.truncated = False
        # `needs_reset`: whether the next step resets the environment instead. `is_lost`: whether the episode
        # was lost with its worker: the next step reports a truncation
        self.needs_reset = self.is_lost = False
        # the end of an episode in the last step; None if it did not end, or if the mode has no such
        self.ending: Ending | None = None
        self._no_reward: Any = 0.0  # of the shape of others
        self._step: Step = self._first_step
        self._reset: Callable[..., tuple[Any, dict[str, Any]]] = env.reset
        self._takes_options = _takes_options(env.reset, passes_options)

    def watch_resets(self, before: Callable[[int | None], None], after: Callable[[], None]) -> None:
        """Call a function before every reset, with its seed, and another one after it."""

        def reset(**arguments: Any) -> tuple[Any, dict[str, Any]]:
            before(arguments.get("seed"))
            result: tuple[Any, dict[str, Any]] = self.env.reset(**arguments)
            after()
            return result

        self._reset = reset

    def _first_step(self, action: Any) -> Outcome:
        outcome: Outcome = self.env.step(action)
        self._step = self._second_step
        return outcome

    def _second_step(self, action: Any) -> Outcome:
        outcome: Outcome = self.env.step(action)
        self._step = short_step(self.env)  # the wrappers have done their checks
        return outcome

    def reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. Returns the observation and the info."""
        arguments: dict[str, Any] = {"seed": seed}
        if options is not None or self._takes_options:
            arguments["options"] = options
        observation, info = self._reset(**arguments)
        self.terminated = self.truncated = self.needs_reset = self.is_lost = False
        self.observation = observation
        return observation, info

    @abstractmethod
    def step(self, action: Any) -> Outcome:
        """Step the environment, or reset it."""

    def restore_flags(self, terminated: bool, truncated: bool) -> None:
        """Note the flags of the state that the environment was put into."""
        self.terminated, self.truncated = terminated, truncated
        self.needs_reset = self.is_lost = False

    def step_lost(self) -> Outcome:
        """Report that the episode was lost with its worker, as a truncation."""
        self.is_lost, self.truncated = False, True
        return self.observation, self._no_reward, False, True, {"worker_exited": True}


class _NextStepRow(EnvRow):
    """Resets the environment in the step after the end of an episode, and ignores the action of that step."""

    def step(self, action: Any) -> Outcome:
        if self.needs_reset:
            self.observation, info = self._reset()
            self.needs_reset = self.terminated = self.truncated = False
            return self.observation, self._no_reward, False, False, info
        outcome = self._step(action)
        self.observation, reward, self.terminated, self.truncated, _ = outcome
        if type(reward) is not float:
            self._no_reward = np.zeros(np.shape(reward)) if np.ndim(reward) else 0.0
        self.needs_reset = bool(self.terminated or self.truncated)
        return outcome

    def restore_flags(self, terminated: bool, truncated: bool) -> None:
        super().restore_flags(terminated, truncated)
        self.needs_reset = terminated or truncated

    def step_lost(self) -> Outcome:
        self.needs_reset = True
        return super().step_lost()


class _SameStepRow(EnvRow):
    """Resets the environment in the step that ends an episode."""

    def step(self, action: Any) -> Outcome:
        observation, reward, terminated, truncated, info = outcome = self._step(action)
        if not (terminated or truncated):
            self.observation = observation
            return outcome
        return self._end(observation, reward, terminated, truncated, info)

    def _end(
        self, observation: Any, reward: Any, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> Outcome:
        observation, info = own_copy(observation), own_copy(info)  # the reset may write into the same objects
        self.observation, reset_info = self._reset()
        self.ending = observation, reset_info
        return self.observation, reward, terminated, truncated, info

    def step_lost(self) -> Outcome:
        outcome = self._end(*super().step_lost())
        self.truncated = False
        return outcome


class _DisabledRow(EnvRow):
    """Never resets the environment by itself."""

    def step(self, action: Any) -> Outcome:
        outcome = self._step(action)
        self.observation, _, self.terminated, self.truncated, _ = outcome
        return outcome


def _takes_options(reset: Any, passes_options: bool) -> bool:
    """Return whether a method takes the argument `options`, and wants it or is to have it."""
    try:
        parameters = inspect.signature(reset).parameters
    except (TypeError, ValueError):  # in C
        return passes_options
    if "options" in parameters:
        return passes_options or parameters["options"].default is inspect.Parameter.empty
    return passes_options and any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())


_CLASSES: dict[AutoresetMode, type[EnvRow]] = {
    AutoresetMode.NEXT_STEP: _NextStepRow,
    AutoresetMode.SAME_STEP: _SameStepRow,
    AutoresetMode.DISABLED: _DisabledRow,
}


def row_class(mode: AutoresetMode) -> type[EnvRow]:
    """Return the class of the rows of an autoreset mode."""
    return _CLASSES[mode]
