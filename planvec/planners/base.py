"""The base class of all planners. Letters: R roots."""

from __future__ import annotations

import dataclasses
import inspect
import re
import secrets
import textwrap
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import Field, dataclass, field
from typing import Any, ClassVar, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.planners.plan import Plan
from planvec.planners.search import PlanCallback, Search, drive
from planvec.rows import BatchStepper, Start, check_integer, check_number, check_seed, has_players

# -- Checks the arguments that planners share: steppers, planners, and states --------------------------------


def check_stepper(env: object) -> None:
    """Check that an argument can step batches."""
    if hasattr(env, "step_batch") and not isinstance(env, type):
        return
    if isinstance(env, str):
        got, fix = f"the id {env!r}", f"planvec.make({env!r})"
    elif isinstance(env, gymnasium.Env):
        got, fix = f"the environment {env}", "planvec.PlanEnv(env)"
    else:
        got, fix = repr(env), "planvec.make(...)"
    raise TypeError(f"env: expected an environment that steps batches, got {got}; open it with {fix}")


def check_planner(planner: object) -> None:
    """Check that an argument is a planner."""
    if isinstance(planner, type):
        raise TypeError(
            f"planner: expected an instance, got the class {planner.__name__}; call it: {planner.__name__}()"
        )
    if not hasattr(planner, "plan"):
        raise TypeError(f"planner: expected an instance of a planvec.Planner, got {planner!r}")


def one_state(env: BatchStepper, state: object) -> np.ndarray:
    """Return a state as an array `[1]`."""
    if state is None:
        get_state = getattr(env, "get_state", None)  # one made only to plan at given states has none
        if get_state is None:
            raise InvalidBatchError(
                f"state: expected one state, got None, and {type(env).__name__} has no get_state(); "
                "pass the state to plan at, such as env.reset(seed=0).state"
            )
        state = get_state()
    if isinstance(state, Start):
        raise InvalidBatchError("state: expected one state, got Start; pass its .state")
    if not isinstance(state, (np.ndarray, np.void)):
        states = np.empty(1, object)  # np.array(state) would look for a sequence in it
        states[0] = state
        return states
    states = np.atleast_1d(state)
    if states.shape != (1,):
        raise InvalidBatchError(f"state: expected one state, got shape {states.shape}")
    return states


# -- Fields of planners: one text each, for `help(planner)`, the API pages and the command line --------------

T = TypeVar("T")

_HELP = "help"  # keys of the metadata of a field
_IS_FUNCTION = "is_function"


def option(default: T, help_text: str, *, is_function: bool = False) -> T:
    """Declare a dataclass field of a planner.

    Args:
        default: The default.
        help_text: Sentences that say what it means, and what its values may be.
        is_function: Whether it is a function. The command line offers all others, by their annotations:
            numbers, words (`Literal`), flags, or tuples of numbers.

    Returns:
        The field, which type checkers take for a value of the annotated type.
    """
    declared: T = field(default=default, metadata={_HELP: help_text, _IS_FUNCTION: is_function})
    return declared


def on_command_line(declared: Field[Any]) -> bool:
    """Return whether the command line offers a field."""
    return not declared.metadata.get(_IS_FUNCTION, True)


def help_text(declared: Field[Any]) -> str:
    """Return the text of a field for the command line: its first sentence, and what None means."""
    # What only Python can pass, such as arrays and functions, belongs into further sentences.
    sentences = str(declared.metadata[_HELP]).replace(" (above)", "")
    first, *others = re.split(r"(?<=\.) (?=[A-Z(])", sentences)
    text = " ".join([first[:1].lower() + first[1:], *(one for one in others if one.startswith("None: "))])
    return text.removesuffix(".")


def document_options(planner_class: type) -> None:
    """Add the section "Args" to the docstring of a planner, whose dataclass fields it declares."""
    doc = inspect.cleandoc(planner_class.__doc__ or "")  # as Python 3.13 does it itself
    if not doc or "\nArgs:\n" in doc:
        return
    options: dict[str, Field[Any]] = {}
    for owner in planner_class.__mro__:  # its own options come first
        inherited = getattr(super(owner, owner), "__dataclass_fields__", {})
        for name, declared in vars(owner).get("__dataclass_fields__", vars(owner)).items():
            if isinstance(declared, Field) and declared is not inherited.get(name):
                options.setdefault(name, declared)
    lines = [f"{name}: {one.metadata[_HELP]}" for name, one in options.items() if _HELP in one.metadata]
    if not lines:
        return
    wrap = textwrap.TextWrapper(width=104, initial_indent=" " * 4, subsequent_indent=" " * 8)
    section = "\n".join(["Args:", *(line for text in lines for line in wrap.wrap(text))])
    text, raises, rest = doc.partition("Raises:\n")
    planner_class.__doc__ = f"{text.rstrip()}\n\n{section}\n\n{raises}{rest}".rstrip()


# Parts of its lateness by which a decision corrects the next one, if it was late and if it was early: a
# deadline is a promise, and time that is left does little harm.
_GAIN, _GAIN_EARLY = 0.3, 0.05
_LATEST = 2e-3  # lateness in seconds from which on other programs are to blame


# -- The base class ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Planner(ABC):
    """Chooses an action at a state. It is a frozen configuration; results and statistics are in the `Plan`.

    A planner of your own overrides `begin`, which returns a `Search` of your own. A search has a `simulate`,
    which requests batches of steps, and a `plan`, which returns the decision; see docs/your-own.md.

    Attributes:
        plays_games: Whether it can plan in games of two players. It is refused there if it cannot.
    """

    plays_games: ClassVar[bool] = False
    # with `max_seconds`, the seconds that decisions need after their search, as far as known
    _reserve: ClassVar[float] = 0.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        document_options(cls)

    max_env_steps: int | None = option(
        None, "Environment steps per decision. No batch begins after them. None: no limit."
    )
    max_seconds: float | None = option(
        None,
        "Seconds per decision. No batch begins after them, and one under way is cut (docs/planning.md). This "
        "is the only limit with which a plan depends on the speed of the machine. None: no limit.",
    )

    def __post_init__(self) -> None:
        """Check the fields."""
        self._check_integers(1, "max_env_steps")
        is_number = isinstance(self.max_seconds, (int, float))
        if self.max_seconds is not None and not (is_number and self.max_seconds > 0):
            raise ValueError(f"max_seconds: expected more than 0, or None, got {self.max_seconds!r}")

    def _check_integers(self, lowest: int, *names: str, optional: bool = True) -> None:
        """Check that fields are integers of at least `lowest`; with `optional`, None is allowed."""
        for name in names:
            value = getattr(self, name)
            if value is not None or not optional:
                check_integer(name, value, lowest)

    def _check_numbers(self, low: float, high: float, *names: str) -> None:
        """Check that fields are numbers from `low` to `high`."""
        for name in names:
            check_number(name, getattr(self, name), low, high)

    @property
    def info_keys(self) -> tuple[str, ...]:
        """Keys of the infos that the planner reads: `make(info_keys=...)` has to keep them."""
        return ()

    @property
    def num_planned(self) -> int | None:
        """Simulations of a decision, for progress bars; None if another budget ends it."""
        return None

    def check_space(self, action_space: gymnasium.Space[Any]) -> None:
        """Check that the planner supports an action space, before an environment is opened.

        Raises:
            UnsupportedEnvError: It does not. The message says which planners do.
        """
        return

    def prepare(self) -> None:
        """Compile what the planner has to compile. Without this call, the first `plan` does it."""
        return

    @abstractmethod
    def begin(
        self,
        env: BatchStepper,
        state: np.ndarray,
        generator: np.random.Generator,
        *,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> Search:
        """Return a new search at one state. This is the method that a planner overrides.

        Args:
            env: The stepper.
            state: `[1]`.
            generator: The source of every random choice.
            previous: The decision one environment step ago, to reuse its `search_data`.
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
            env: The stepper; its base state does not change.
            state: One state; None takes the base state of `env`.
            seed: Fixes every random choice, for any number of workers; None takes a fresh one.
            previous: The decision one environment step ago, whose results are reused.
            info: The environment's info at the state (of `reset` or `step`), for planners that read it.
            callback: `callback(num_simulations, num_env_steps)` after each batch; True stops.

        Raises:
            InvalidBatchError: `state` is not one state, or its episode has ended; or `previous` has states
                of another environment.
            TypeError: `env` has no `step_batch`, or `previous` is no plan.
            UnsupportedEnvError: The planner does not support the action space, or games of two players.
        """
        check_stepper(env)
        return self.plan_batch(
            env, one_state(env, state), seeds=[seed], previous=[previous], infos=[info], callback=callback
        )[0]

    def plan_batch(
        self,
        env: BatchStepper,
        states: np.ndarray,
        *,
        seeds: Sequence[int | None] | NDArray[np.integer] | None = None,
        previous: Sequence[Plan | None] | None = None,
        infos: Sequence[dict[str, Any] | None] | None = None,
        callback: PlanCallback | None = None,
    ) -> list[Plan]:
        """Plan at several states (roots) at once, which share their batches. Each plan equals that of `plan`.

        It may differ only by functions of the planner, such as networks, that give a row other bits in
        another batch.

        Args:
            env: The stepper.
            states: `[R]`.
            seeds: `[R]`; None takes fresh ones.
            previous: `[R]`, the decisions one environment step ago.
            infos: `[R]`, the infos at the states.
            callback: `callback(num_simulations, num_env_steps)` after each batch, with the sums over all
                roots; True stops.

        Returns:
            `[R]` plans. Budgets are per root; `elapsed` is the time of the whole call.

        Raises:
            InvalidBatchError: The lengths of the arguments differ, the episode of a state has ended, or
                `previous` has other states.
            TypeError: `env` has no `step_batch`, or `previous` are no plans.
            UnsupportedEnvError: The planner does not support the action space, or games of two players.
        """
        check_stepper(env)
        states = np.atleast_1d(states)
        arguments: dict[str, list[Any]] = {}
        for name, given in (("seeds", seeds), ("previous", previous), ("infos", infos)):
            arguments[name] = [None] * len(states) if given is None else list(given)
            if len(arguments[name]) != len(states):
                raise InvalidBatchError(
                    f"{name}: expected one per state ({len(states)}), got {len(arguments[name])}"
                )
        if has_players(states) and not self.plays_games:
            raise UnsupportedEnvError(
                f"{type(self).__name__}: expected an environment with one player, got a game of two; "
                "it would plan as if the other one played along. planvec.MCTS plans against the other"
            )
        for before in arguments["previous"]:
            if before is None:
                continue
            if not isinstance(before, Plan):
                raise TypeError(f"previous: expected a planvec.Plan or None, got {before!r}")
            known = getattr(before.search_data, "saved_states", None)
            if known is not None and len(known) and known.dtype != states.dtype:
                raise InvalidBatchError(
                    f"previous: expected a plan of this environment, whose states are {states.dtype}, got "
                    f"one with states {known.dtype}; pass None at the first decision in an environment"
                )
        started = time.perf_counter()
        searches = []
        for row, (seed, before, info) in enumerate(zip(*arguments.values(), strict=True)):
            state = states[row : row + 1]
            searches.append(self.begin(env, state, self._generator(seed), previous=before, info=info))
        return self._plans(env, searches, started, callback)

    def _plans(
        self, env: BatchStepper, searches: list[Search], started: float, callback: PlanCallback | None
    ) -> list[Plan]:
        """Run searches to their end, and return their plans. The list is emptied."""
        self._run(env, searches, started - self._reserve, callback)
        plans = [_plan_of(search) for search in searches]
        searches.clear()  # what they hold is freed now, which takes a millisecond after thousands of nodes
        elapsed = time.perf_counter() - started
        if self.max_seconds is not None and any(one.stop_reason == "max_seconds" for one in plans):
            # The next search ends earlier by what this decision was late, or later.
            late = min(elapsed - self.max_seconds, _LATEST)
            gain = _GAIN if late > 0 else _GAIN_EARLY
            reserve = min(max(self._reserve + gain * late, 0.0), self.max_seconds / 4)
            object.__setattr__(self, "_reserve", reserve)  # of a frozen dataclass
        return [dataclasses.replace(plan, elapsed=elapsed) for plan in plans]

    def _run(
        self, env: BatchStepper, searches: Sequence[Search], started: float, callback: PlanCallback | None
    ) -> None:
        """Run searches to their end."""
        drive(env, searches, started, callback, self.max_env_steps, self.max_seconds)

    @staticmethod
    def _generator(seed: int | None) -> np.random.Generator:
        """Return the source of every random choice of a decision; None takes a fresh seed."""
        return np.random.default_rng(secrets.randbits(63) if seed is None else check_seed(seed))


document_options(Planner)


def _plan_of(search: Search) -> Plan:
    """Return the plan of a search that has ended, with what the search counts."""
    plan = search.plan()
    if not isinstance(plan, Plan):
        raise TypeError(
            f"{type(search).__name__}.plan: expected a planvec.Plan, got {type(plan).__name__}; "
            "return planvec.Plan(action=..., value=...)"
        )
    return dataclasses.replace(
        plan,
        num_simulations=search.num_simulations,
        num_env_steps=search.num_env_steps,
        stop_reason=search.stop_reason or "exhausted",
    )


class SearchPlanner(Planner):
    """The base class of planners that hand all arguments of `begin` to the class of their search."""

    @abstractmethod
    def _search_class(self) -> Callable[..., Search]:
        """Import and return the class of the search, called as `(planner, *arguments of begin)`."""

    def begin(
        self,
        env: BatchStepper,
        state: np.ndarray,
        generator: np.random.Generator,
        *,
        previous: Plan | None = None,
        info: dict[str, Any] | None = None,
    ) -> Search:
        """Return a new search at a state; the arguments are those of `Planner.begin`.

        Raises:
            UnsupportedEnvError: The planner does not support the action space, or the observations.
        """
        return self._search_class()(self, env, state, generator, previous, info)
