"""Gives the environments of DI-engine Gymnasium's interface, without importing DI-engine.

A DI-engine environment has `reset(**parameters)`, `step(action)`, which returns a timestep `(obs, reward,
done, info)`, and `seed(seed, dynamic_seed)`, which seeds global generators. Each environment has those to
itself here.
"""

from __future__ import annotations

import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.random.mtrand import get_bit_generator, set_bit_generator

# -- Gives an environment the global generators of NumPy and Python to itself, as in a process of its own ----


class GlobalGenerators:
    """Holds the global generators of one environment while others are at work."""

    # That of NumPy is None until the first `seed`: environments of the same kind must begin equal, so that
    # one proof does for all. That of Python is None until a reset is seen to use it, because exchanging it
    # takes 20 us.

    def __init__(self) -> None:
        self._numpy: Any = None
        self._python: Any = None

    def seed(self, seed: int | None) -> None:
        """Begin both with a seed. None begins those that have not begun yet, by chance."""
        if self._numpy is None or seed is not None:
            self._numpy = np.random.MT19937(seed)
        if self._python is not None and seed is not None:
            self._python = random.Random(seed).getstate()

    @contextmanager
    def installed(self, seed: int | None = None, *, is_reset: bool = False) -> Iterator[None]:
        """Make them the global ones in the block. A reset shows whether it uses that of Python."""
        # `seed`: of Python's generator if it is used for the first time; None: by chance.
        python, watches = self._python, is_reset and self._python is None
        if watches:
            python = random.Random(seed).getstate()
        if python is not None:
            outer_python = random.getstate()
            random.setstate(python)
        outer_numpy = get_bit_generator()
        set_bit_generator(self._numpy)
        try:
            yield
        finally:
            set_bit_generator(outer_numpy)
            if python is not None:
                after = random.getstate()
                random.setstate(outer_python)
                if not watches or after != python:
                    self._python = after


TIMESTEP = "timestep"  # key of the info under which the timestep is returned, without its observation

_log = logging.getLogger("planvec")


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """Says how an environment is reset."""

    parameters: dict[str, Any] | None = None  # keyword arguments of its `reset`; None for none
    # arguments of its `seed`, which is called before; None if it is not called
    seeding: tuple[Any, ...] | None = None
    is_renewed: bool = False  # whether the environment is closed and made anew before
    closes_on_error: bool = False  # whether the environment is closed if it raises
    timeout: float | None = None  # seconds that the reset may take; None: no limit
    replay_path: str | None = None  # where the environment saves videos, which it is told once; None: nowhere


class DingEnv(gymnasium.Env[Any, Any]):
    """Wraps an environment of DI-engine."""

    has_own_generators = True  # of `random` and `numpy.random`; see `planvec.codecs.find_shared`

    def __init__(
        self,
        env_fn: Callable[[], Any],
        observation_space: spaces.Space[object] | None,
        action_space: spaces.Space[object] | None,
        step_timeout: float | None,  # seconds that a step may take; None: no limit
        resets_in_place: bool,
    ) -> None:
        self._env_fn = env_fn
        self._step_timeout = step_timeout
        self._resets_in_place = resets_in_place
        self.observation_space = _Anything() if observation_space is None else observation_space
        self.action_space = _Actions(action_space)
        self._generators = GlobalGenerators()
        self._replay_path: str | None = None  # what the environment was told
        self._observation: Any = None
        of_constructor = GlobalGenerators()
        of_constructor.seed(None)
        with of_constructor.installed(is_reset=True):
            self.ding_env = env_fn()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode. `options["reset"]` holds `ResetOptions`."""
        super().reset(seed=seed)
        self._generators.seed(seed)
        how = (options or {}).get("reset", ResetOptions())
        with self._generators.installed(seed, is_reset=True):
            try:
                with time_limit(how.timeout, "reset"):
                    if how.is_renewed:
                        self._try_to_close()
                        self.ding_env, self._replay_path = self._env_fn(), None
                    if how.replay_path != self._replay_path:
                        self.ding_env.enable_save_replay(how.replay_path)
                        self._replay_path = how.replay_path
                    self._seed((seed,) if how.seeding is None and seed is not None else how.seeding)
                    self._observation = self.ding_env.reset(**(how.parameters or {}))
            except Exception:
                if how.closes_on_error:  # as in DI-engine: some can be reset only after that
                    self._try_to_close()
                raise
        return self._observation, {}

    def _try_to_close(self) -> None:
        try:
            self.ding_env.close()
        except _TimeLimitError:  # the alarm rings once: the rest of the reset would have no limit
            raise
        except Exception:  # it has failed before
            _log.warning("%s: closing it after an error has failed", self, exc_info=True)

    def _seed(self, arguments: tuple[object, ...] | None) -> None:
        if arguments is None:
            return
        try:
            self.ding_env.seed(*arguments)
        except _TimeLimitError:
            raise
        except Exception:  # DI-engine goes on without the seed, too
            _log.warning("%s: its seed method failed; it is reset without a seed", self, exc_info=True)

    def step(self, action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step. The timestep is in the info, since its reward and info may be anything."""
        with self._generators.installed(), time_limit(self._step_timeout, "step"):
            timestep = self.ding_env.step(action)
            is_done = bool(timestep.done)
            if not is_abnormal(timestep.info):  # else there may be no observation
                self._observation = timestep.obs
                if is_done and self._resets_in_place:
                    self._observation = self.ding_env.reset()
        return self._observation, 0.0, is_done, False, {TIMESTEP: timestep._replace(obs=None)}

    def get_wrapper_attr(self, name: str) -> Any:
        """Return an attribute of the environment of DI-engine."""
        return getattr(self.ding_env, name)

    def close(self) -> None:
        """Close the environment."""
        self.ding_env.close()

    def __str__(self) -> str:
        return str(self.ding_env)


class _TimeLimitError(TimeoutError):
    """The limit of a block has passed."""


@contextmanager
def time_limit(seconds: float | None, what: str) -> Iterator[None]:
    """Raise TimeoutError in the block after some seconds. Only the main thread can be interrupted."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    is_over = False

    def interrupt(*_: object) -> None:
        if not is_over:
            raise _TimeLimitError(f"{what}: expected at most {seconds} s, and it took longer")

    begun = time.monotonic()
    seconds_left, interval = signal.setitimer(signal.ITIMER_REAL, 0)  # of a timer of the user
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            yield
        finally:
            is_over = True  # the limit may pass now
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        if seconds_left:
            signal.setitimer(
                signal.ITIMER_REAL, max(seconds_left - (time.monotonic() - begun), 1e-6), interval
            )


def is_abnormal(info: object) -> bool:
    """Return whether the info of a timestep says that the environment has failed."""
    infos = info if isinstance(info, (list, tuple)) else [info]
    return any(isinstance(part, dict) and bool(part.get("abnormal", False)) for part in infos)


def render_frame(mode: str, env: Any) -> Any:
    """Return a frame of a `DingEnv`."""
    from ding.utils import render

    return render(env.ding_env, mode)


def as_gymnasium(space: Any) -> spaces.Space[Any] | None:
    """Return a space of `gym` or Gymnasium as one of Gymnasium; None if its elements have no fixed size."""
    kind = type(space).__name__
    if kind == "Box" and space.dtype is not None:
        return spaces.Box(space.low, space.high, space.shape, np.dtype(space.dtype).type)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        dtype = np.dtype(space.dtype).type
        return spaces.MultiDiscrete(space.nvec, dtype, start=getattr(space, "start", None))
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Dict":
        children = {key: as_gymnasium(child) for key, child in space.spaces.items()}
        return None if None in children.values() else spaces.Dict(children)  # type: ignore[arg-type]
    return None


class _Anything(spaces.Space[Any]):
    """The space of observations of any kind, which are sent as they are."""

    def __eq__(self, other: object) -> bool:
        return type(other) is _Anything

    __hash__ = None  # type: ignore[assignment]


class _Actions(spaces.Space[Any]):
    """Draws actions in the form of DI-engine's `random_action`: a number is an array `[1]`."""

    def __init__(self, space: spaces.Space[object] | None) -> None:
        super().__init__()
        self._space = space

    def seed(self, seed: Any = None) -> Any:
        return None if self._space is None else self._space.seed(seed)

    def sample(self, mask: object = None, probability: object = None) -> Any:
        if self._space is None:
            raise NotImplementedError("the action space is none of Gymnasium's")
        action = self._space.sample()
        return np.array([action], np.int64) if isinstance(self._space, spaces.Discrete) else action

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Actions) and self._space == other._space

    __hash__ = None  # type: ignore[assignment]
