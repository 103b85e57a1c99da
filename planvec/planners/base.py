"""What all planners share. Letters: R roots."""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.driver import Budget, PlanCallback, Search, drive
from planvec.planners.plan import Plan
from planvec.rows import BatchStepper

__all__ = ["Planner", "generator_of", "one_state"]


@dataclass(frozen=True, kw_only=True)
class Planner(ABC):
    """Chooses an action at a state. A frozen configuration: what it learns is in the `Plan`.

    A planner of your own is a dataclass with a `begin`, and a `Search` with a `simulate` and a `plan`::

        @dataclass(frozen=True)
        class Greedy(planvec.Planner):
            \"\"\"Tries every action once.\"\"\"

            def begin(self, env, state, generator, *, previous=None, info=None):
                return GreedySearch(env, state)

        class GreedySearch(Search):
            def simulate(self):
                actions = np.arange(self.env.action_space.n)
                states = np.repeat(self.state, len(actions))
                self.out = yield StepRequest(actions, states, np.ones(len(actions), int), None)
                self.stop_reason = "num_simulations"

            def plan(self, elapsed):
                return Plan(action=self.out.rewards.argmax(), ...)

    Args:
        max_env_steps: No batch begins once a root has simulated so many; None: no limit.
        max_seconds: No batch begins once they are over; None: no limit. The one budget by which a plan
            depends on the speed of the machine.
    """

    max_env_steps: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: Naming the argument.
        """
        self._at_least(1, "max_env_steps")
        if self.max_seconds is not None and not self.max_seconds > 0:
            raise ValueError(f"max_seconds: expected more than 0, or None, got {self.max_seconds!r}")

    def _at_least(self, lowest: int, *names: str, optional: bool = True) -> None:
        """Check that arguments are integers from a lowest one on."""
        for name in names:
            value = getattr(self, name)
            if value is None and optional:
                continue
            is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
            if not is_integer or value < lowest:
                raise ValueError(f"{name}: expected an integer of at least {lowest}, got {value!r}")

    def _in_range(self, low: float, high: float, *names: str) -> None:
        """Check that arguments are numbers from `low` to `high`."""
        for name in names:
            value = getattr(self, name)
            is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
            if not is_number or not low <= value <= high:
                bounds = f"from {low} to {high}" if high < np.inf else f"of at least {low}"
                raise ValueError(f"{name}: expected a number {bounds}, got {value!r}")

    def prepare(self) -> None:
        """Do what takes long the first time: compile, where a planner does. `plan` does it otherwise."""
        return

    @abstractmethod
    def begin(
        self,
        env: BatchStepper,
        state: NDArray[Any],
        generator: np.random.Generator,
        *,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> Search:
        """Begin to plan at one state.

        Args:
            env: The stepper.
            state: `[1]`.
            generator: For every random choice.
            previous: The decision one environment step ago, to build on.
            info: The environment's info at the state, for planners that read it.
        """

    def plan(
        self,
        env: BatchStepper,
        state: Any = None,
        *,
        seed: int | None = None,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
        callback: PlanCallback | None = None,
    ) -> Plan:
        """Plan at a state.

        Args:
            env: The stepper; its base state is left as it is.
            state: One state; None takes the base state of `env`.
            seed: Fixes every random choice, for any number of workers; None takes a fresh one.
            previous: The decision one environment step ago, to build on.
            info: The environment's info at the state (of `reset` or `step`), for planners that read it.
            callback: `callback(num_simulations, num_env_steps)` after each batch; True stops.

        Raises:
            InvalidBatchError: Not one state, or one whose episode has ended.
            UnsupportedEnvError: A planner that cannot plan with these actions.
        """
        return self._plan_all(env, [one_state(env, state)], [seed], [previous], [info], callback)[0]

    def plan_batch(
        self,
        env: BatchStepper,
        states: NDArray[Any],
        *,
        seeds: Sequence[int] | NDArray[np.integer[Any]] | None = None,
        previous: Sequence[Plan | None] | None = None,
        infos: Sequence[dict[str, Any] | None] | None = None,
        callback: PlanCallback | None = None,
    ) -> list[Plan]:
        """Plan at several states (roots) at once, which step as one batch; each as `plan` would.

        Args:
            env: The stepper.
            states: `[R]`.
            seeds: `[R]`; None takes fresh ones.
            previous: `[R]`, the decisions one environment step ago.
            infos: `[R]`, the infos at the states.
            callback: As in `plan`, with the sums over all roots.

        Returns:
            `[R]` plans. Budgets are per root; `elapsed` is that of all.

        Raises:
            As `plan`, and InvalidBatchError where lengths differ.
        """
        states = np.atleast_1d(states)
        each: dict[str, list[Any]] = {}
        for name, given in (("seeds", seeds), ("previous", previous), ("infos", infos)):
            each[name] = [None] * len(states) if given is None else list(given)
            if len(each[name]) != len(states):
                raise InvalidBatchError(
                    f"{name}: expected one per state ({len(states)}), got {len(each[name])}"
                )
        roots = [states[row : row + 1] for row in range(len(states))]
        return self._plan_all(env, roots, each["seeds"], each["previous"], each["infos"], callback)

    def _plan_all(
        self,
        env: BatchStepper,
        roots: list[NDArray[Any]],
        seeds: Sequence[Any],
        previous: Sequence[Plan | None],
        infos: Sequence[dict[str, Any] | None],
        callback: PlanCallback | None,
    ) -> list[Plan]:
        started = time.perf_counter()
        searches = []
        for state, seed, before, info in zip(roots, seeds, previous, infos, strict=True):
            searches.append(self.begin(env, state, generator_of(seed), previous=before, info=info))
        return self._run(env, searches, started, callback)

    def _run(
        self, env: BatchStepper, searches: list[Search], started: float, callback: PlanCallback | None
    ) -> list[Plan]:
        """Run searches until the budget is spent; `started` is `time.perf_counter()` at the beginning."""
        drive(env, searches, Budget(self.max_env_steps, self.max_seconds), started, callback)
        elapsed = time.perf_counter() - started
        return [search.plan(elapsed) for search in searches]


def generator_of(seed: int | None) -> np.random.Generator:
    """What every random choice of a decision comes from; None takes a fresh seed."""
    return np.random.default_rng(secrets.randbits(63) if seed is None else seed)


def one_state(env: BatchStepper, state: Any) -> NDArray[Any]:
    """The state to plan at, as an array `[1]`.

    Args:
        env: The stepper.
        state: One state; None takes the base state of `env`.

    Raises:
        InvalidBatchError: Not one state; or None, and `env` has no `get_state`.
    """
    if state is None:
        get_state = getattr(env, "get_state", None)
        if get_state is None:
            raise InvalidBatchError(
                f"state: expected one state, got None, and {type(env).__name__} has no get_state(); "
                "pass the state to plan at, such as env.reset(seed=0).state"
            )
        state = get_state()
    if not isinstance(state, (np.ndarray, np.void)):
        held = np.empty(1, object)  # np.array(state) would look for a sequence in it
        held[0] = state
        return held
    states = np.atleast_1d(state)
    if states.shape != (1,):
        raise InvalidBatchError(f"state: expected one state, got shape {states.shape}")
    return states
