"""Environments that share something with others in the same process, or whose results are unusual.

`KINDS` has a function for each, which returns the functions that make N environments. Every episode is a walk
along a line. What is shared, or unusual, shows in observations, rewards and infos.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import functools
import heapq
import itertools
import os
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Factories = list[Callable[[], Any]]

COUNT = 0
CONFIG: dict[str, int] = {"made": 0}
LOG: list[int] = []
TABLE = np.zeros(4)
NUMBERS = itertools.count()
GENERATOR = np.random.default_rng(3)
BEST: dict[str, float] = collections.defaultdict(float)
library = ctypes.CDLL(None)


class Walk(gymnasium.Env[Any, Any]):
    """Goes up with each action. The episode ends above 8."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = spaces.Discrete(3, start=1)
    t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), self.info()

    def step(self, action: Any) -> Any:
        self.t += int(action)
        return self.observe(), float(self.t), self.t > 8, False, self.info()

    def observe(self) -> Any:
        return np.array([self.t, self.shown()], np.float64)

    def shown(self) -> float:
        return 0.0

    def info(self) -> dict[str, Any]:
        return {}


# -- module variables, class attributes -----------------------------------------------------------------


@dataclasses.dataclass
class World:
    time: int = 0

    def tick(self) -> int:
        self.time += 1
        return self.time


WORLD = World()


class CountsInConstructor(Walk):
    def __init__(self) -> None:
        global COUNT
        COUNT += 1
        self.number = COUNT

    def shown(self) -> float:
        return self.number


class ShowsTheCount(CountsInConstructor):
    def shown(self) -> float:
        return COUNT


class CountsSteps(Walk):
    def shown(self) -> float:
        global COUNT
        COUNT += 1
        return COUNT


class ChangesConfig(Walk):
    def __init__(self) -> None:
        CONFIG["made"] += 1

    def shown(self) -> float:
        return CONFIG["made"]


class CountsInReset(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        CONFIG["resets"] = CONFIG.get("resets", 0) + 1
        return super().reset(seed=seed)

    def shown(self) -> float:
        return CONFIG["resets"]


class Logs(Walk):
    def shown(self) -> float:
        LOG.append(self.t)
        return len(LOG)


class LogsLate(Walk):
    """Shares only after 300 steps, which no trial sees."""

    age = 0

    def shown(self) -> float:
        self.age += 1
        if self.age > 300:
            LOG.append(self.t)
        return len(LOG)


class Late(Walk):
    """Changes something after 300 steps, indirectly."""

    age = 0

    def shown(self) -> float:
        self.age += 1
        if self.age > 300:
            self.end()
        return float(self.value())

    def end(self) -> None: ...

    def value(self) -> float:
        return 0


STATISTICS: dict[str, Any] = {"wins": [], "of": {"x": 0}, "levels": types.SimpleNamespace(n=0)}
COUNTER: collections.Counter[str] = collections.Counter()
DECK = list(range(20))
LISTS: dict[int, list[int]] = {1: [], 2: []}
HEAP: list[int] = []
ARRAY = np.zeros(3)


class LateInList(Late):
    def end(self) -> None:
        STATISTICS["wins"].append(1)

    def value(self) -> float:
        return len(STATISTICS["wins"])


class LateItem(Late):
    def end(self) -> None:
        STATISTICS["of"]["x"] += 1

    def value(self) -> float:
        return STATISTICS["of"]["x"]


class LateCounter(Late):
    def end(self) -> None:
        COUNTER["steps"] += 1

    def value(self) -> float:
        return COUNTER["steps"]


class LateByAnotherName(LateInList):
    def end(self) -> None:
        statistics = STATISTICS
        wins = statistics["wins"]
        wins.append(1)


class LateInFunction(LateItem):
    def end(self) -> None:
        add_one(STATISTICS["of"])


def add_one(counts: dict[str, int]) -> None:
    counts["x"] += 1


class LateHeld(Late):
    def __init__(self, levels: Any = STATISTICS["levels"]) -> None:
        self.levels = levels

    def end(self) -> None:
        self.levels.n += 1

    def value(self) -> float:
        return self.levels.n


class LateWorld(Late):
    def __init__(self) -> None:
        self.world = WORLD

    def end(self) -> None:
        self.world.tick()

    def value(self) -> float:
        return self.world.time


class LateDeck(Late):
    """Shuffles what it takes for its own."""

    def __init__(self) -> None:
        self.deck = DECK

    def end(self) -> None:
        self.np_random.shuffle(self.deck)

    def value(self) -> float:
        return self.deck[0]


class LateHeap(Late):
    def end(self) -> None:
        heapq.heappush(HEAP, self.age)

    def value(self) -> float:
        return len(HEAP)


class LateOut(Late):
    def end(self) -> None:
        np.add(ARRAY, 1, out=ARRAY)

    def value(self) -> float:
        return ARRAY[0]


class LateGlobals(Late):
    def end(self) -> None:
        globals()["COUNT"] += 1

    def value(self) -> float:
        return COUNT


class LateByName(Late):
    made = 0

    def end(self) -> None:
        setattr(type(self), "ma" + "de", self.made + 1)

    def value(self) -> float:
        return self.made


class OnlyOne:
    """One object for all who ask."""

    one: Any = None
    n = 0

    def __new__(cls) -> OnlyOne:
        if cls.one is None:
            cls.one = super().__new__(cls)
        return cls.one


class LateSingle(Late):
    def __init__(self) -> None:
        self.only = OnlyOne()

    def end(self) -> None:
        self.only.n += 1

    def value(self) -> float:
        return self.only.n


class Manager:
    """One object for all who ask its class."""

    one: Manager | None = None
    n = 0

    @classmethod
    def get(cls) -> Manager:
        if cls.one is None:
            cls.one = cls()
        return cls.one

    def tick(self) -> None:
        self.n += 1


class LateManager(Late):
    def end(self) -> None:
        Manager.get().tick()

    def value(self) -> float:
        return Manager.get().n


class Registry(dict[str, int]):
    def note(self, key: str) -> None:
        self[key] = self.get(key, 0) + 1


REGISTRY = Registry()


class LateRegistry(Late):
    def end(self) -> None:
        REGISTRY.note("x")

    def value(self) -> float:
        return REGISTRY.get("x", 0)


class LateIfThere(LateInList):
    def end(self) -> None:
        if (wins := STATISTICS["wins"]) is not None:
            wins.append(1)


class LateInLoop(Late):
    def end(self) -> None:
        for numbers in LISTS.values():
            numbers.append(1)

    def value(self) -> float:
        return len(LISTS[1])


class LateInPairs(LateInLoop):
    def end(self) -> None:
        for _, numbers in LISTS.items():
            numbers.append(1)


class LateAt(LateOut):
    def end(self) -> None:
        np.add.at(ARRAY, [0], 1)


class LateView(LateOut):
    def end(self) -> None:
        ARRAY.flat[0] += 1


class LateUnseen(Late):
    """Changes what it asks others for, which nobody can read in its code."""

    def end(self) -> None:
        everything()["wins"].append(1)

    def value(self) -> float:
        return len(everything()["wins"])


def everything() -> dict[str, Any]:
    return dict(STATISTICS)


LATE = (
    *(LateInList, LateItem, LateCounter, LateByAnotherName, LateInFunction, LateHeld, LateWorld, LateDeck),
    *(LateHeap, LateOut, LateGlobals, LateByName, LateSingle, LateManager, LateRegistry, LateIfThere),
    *(LateInLoop, LateInPairs, LateAt, LateView),
)


class FillsTable(Walk):
    def shown(self) -> float:
        TABLE[self.t % 4] += 1
        return TABLE.sum()


class HoldsTable(Walk):
    def __init__(self) -> None:
        self.table = TABLE

    def shown(self) -> float:
        self.table[self.t % 4] += 1
        return self.table.sum()


class Numbered(Walk):
    def __init__(self) -> None:
        self.number = next(NUMBERS)

    def shown(self) -> float:
        return self.number


class Records(Walk):
    def shown(self) -> float:
        BEST["walk"] = max(BEST["walk"], self.t)
        return BEST["walk"]


class ClassList(Walk):
    history: list[int] = []  # noqa: RUF012

    def shown(self) -> float:
        self.history.append(self.t)
        return len(self.history)


class ClassCount(Walk):
    made = 0

    def __init__(self) -> None:
        type(self).made += 1

    def shown(self) -> float:
        return self.made


class ClassMethodCount(Walk):
    made = 0

    @classmethod
    def register(cls) -> None:
        cls.made += 1

    def shown(self) -> float:
        self.register()
        return self.made


class NamedClassCount(Walk):
    steps = 0

    def shown(self) -> float:
        NamedClassCount.steps += 1
        return self.steps


class ClassSpaceDraws(Walk):
    """Draws from its action space, which all environments of the class share."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.action_space.seed(seed if seed is not None else 7)
        return super().reset(seed=seed)

    def shown(self) -> float:
        return float(self.action_space.sample())


class DefaultArgument(Walk):
    def shown(self, seen: list[int] = []) -> float:  # noqa: B006
        seen.append(self.t)
        return len(seen)


class FunctionAttribute(Walk):
    def shown(self) -> float:
        count.calls += 1  # type: ignore[attr-defined]
        return count.calls  # type: ignore[attr-defined]


def count() -> None: ...


count.calls = 0  # type: ignore[attr-defined]


class InOneWorld(Walk):
    def shown(self) -> float:
        return WORLD.tick()


class ModuleGenerator(Walk):
    def shown(self) -> float:
        return GENERATOR.random()


class Variable(Walk):
    """Keeps a count in the environment variables of the process."""

    def shown(self) -> float:
        os.environ["PLANVEC_TEST"] = str(int(os.environ.get("PLANVEC_TEST", "0")) + 1)
        return float(os.environ["PLANVEC_TEST"])


class LibraryGenerator(Walk):
    """Draws from the generator of the C library."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        library.srand(0 if seed is None else seed)
        return super().reset(seed=seed)

    def shown(self) -> float:
        return float(library.rand())


# -- global generators ----------------------------------------------------------------------------------


class NumpyGlobal(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        np.random.seed(seed if seed is not None else 7)  # noqa: NPY002
        return super().reset(seed=seed)

    def shown(self) -> float:
        return np.random.rand()  # noqa: NPY002


class PythonGlobal(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        random.seed(seed if seed is not None else 7)
        return super().reset(seed=seed)

    def shown(self) -> float:
        return random.random()


class LateGlobal(Walk):
    """Draws from a global generator only at the end of an episode that goes far."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        random.seed(seed if seed is not None else 7)
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.t += int(action)
        return self.observe(), float(self.t), self.t > 8, False, {}

    def shown(self) -> float:
        if self.t < 12:
            return random.random() if self.t == 11 else 0.0
        return 0.0


class HoldsModule(Walk):
    def __init__(self) -> None:
        self.rng = np.random

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.rng.seed(seed if seed is not None else 7)
        return super().reset(seed=seed)

    def shown(self) -> float:
        return self.rng.uniform()


class ImportsInside(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        from random import seed as seed_it

        seed_it(seed if seed is not None else 7)
        return super().reset(seed=seed)

    def shown(self) -> float:
        import random as chance

        return chance.gauss(0, 1)


# -- objects --------------------------------------------------------------------------------------------


class Takes(Walk):
    """Holds what it is given."""

    def __init__(self, given: Any) -> None:
        self.given = given


class TakesDict(Takes):
    def shown(self) -> float:
        self.given["n"] = self.given.get("n", 0) + 1
        return self.given["n"]


class TakesList(Takes):
    def shown(self) -> float:
        given = self.given
        given.append(self.t)
        return len(given)


class TakesArray(Takes):
    def shown(self) -> float:
        self.given += 1
        return self.given[0]


class TakesWorld(Takes):
    def shown(self) -> float:
        return self.given.tick()


class TakesGenerator(Takes):
    def shown(self) -> float:
        return self.given.random()


class TakesFunction(Takes):
    def shown(self) -> float:
        return self.given()


class TakesArrayLate(Takes):
    age = 0

    def shown(self) -> float:
        self.age += 1
        if self.age > 300:
            self.given += 1
        return self.given[0]


class TakesWorldLate(Takes):
    """Changes what it was given only after 300 steps."""

    age = 0

    def shown(self) -> float:
        self.age += 1
        return self.given.tick() if self.age > 300 else self.given.time


def one_object(num_envs: int) -> Factories:
    env = Walk()
    return [lambda: env] * num_envs


def one_core(num_envs: int) -> Factories:
    core = Walk()
    return [lambda: gymnasium.wrappers.TimeLimit(core, 5)] * num_envs


def one_counter(num_envs: int) -> Factories:
    calls = 0

    def tick() -> int:
        nonlocal calls
        calls += 1
        return calls

    return [lambda: TakesFunction(tick)] * num_envs


def given(kind: Callable[[Any], Any], make: Callable[[], Any]) -> Callable[[int], Factories]:
    """One object for the environments."""

    def factories(num_envs: int) -> Factories:
        shared = make()
        return [lambda: kind(shared)] * num_envs

    return factories


class Shows(Takes):
    def shown(self) -> float:
        return self.given


def popped_config(num_envs: int) -> Factories:
    config = {"size": 3, "nested": {"depth": 2}}
    return [lambda: Pops(config)] * num_envs


class Pops(Walk):
    """Takes settings out of what it is given, as RLlib's environments do."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.size = config.pop("size", 7) + config["nested"].pop("depth", 1)

    def shown(self) -> float:
        return self.size


def drawn_by_function(num_envs: int) -> Factories:
    def make() -> Any:
        random.seed(4)
        return Shows(random.random())

    return [make] * num_envs


def numbered_by_function(num_envs: int) -> Factories:
    numbers = itertools.count()
    return [lambda: Shows(next(numbers))] * num_envs


def partial_dict(num_envs: int) -> Factories:
    return [functools.partial(TakesDict, {})] * num_envs


# -- infos and observations that change later, or are unusual -------------------------------------------


class GrowingInfo(Walk):
    """Returns the same list and dict every time, and changes them."""

    def __init__(self) -> None:
        self.visited: list[int] = []
        self.stats: dict[str, Any] = {"steps": 0, "path": self.visited}

    def info(self) -> dict[str, Any]:
        self.visited.append(self.t)
        self.stats["steps"] += 1
        return {"visited": self.visited, "stats": self.stats}


class SameInfo(Walk):
    """Returns one info object, and changes it."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def info(self) -> dict[str, Any]:
        self.kept["t"] = self.t
        self.kept.setdefault("first", self.t)
        return self.kept


class SameArrays(Walk):
    """Returns the same arrays every time, and changes them."""

    def __init__(self) -> None:
        self.kept = np.zeros(2)
        self.noted = np.zeros(3)

    def observe(self) -> Any:
        self.kept[:] = self.t, -self.t
        return self.kept

    def info(self) -> dict[str, Any]:
        self.noted += self.t
        return {"noted": self.noted}


class StructInfo(Walk):
    def info(self) -> dict[str, Any]:
        struct = np.zeros(2, [("price", "f8"), ("n", "i4")])
        struct["n"] = self.t
        return {
            "struct": struct,
            "when": np.datetime64("2026-01-01") + np.timedelta64(self.t, "D"),
            "text": np.array(f"t{self.t:02}"),
        }


class OddInfo(Walk):
    """Has keys that vector environments or planvec use themselves."""

    def info(self) -> dict[str, Any]:
        info: dict[str, Any] = {"num_steps": self.t, "error": "none", "worker_exited": False}
        info |= {"none": None, "nested": {"a": {"b": self.t}}, "pair": (self.t, "x")}
        if self.t % 2:
            info["sometimes"] = self.t
        return info


class NumpyScalars(Walk):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, np.float64(reward), np.bool_(terminated), np.bool_(False), info

    def info(self) -> dict[str, Any]:
        return {
            "i": np.int32(self.t),
            "f": np.float32(self.t),
            "b": np.bool_(self.t % 2),
            "l": [self.t] * self.t,
        }


class SmallSeeds(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        assert seed is None or seed < 2**31
        return super().reset(seed=seed)


class Total(Walk):
    """Counts its steps beyond the episode."""

    steps = 0

    def shown(self) -> float:
        self.steps += 1
        return self.steps


class Curriculum(Walk):
    """Goes a level up with each reset."""

    level = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.level += 1
        return super().reset(seed=seed)

    def shown(self) -> float:
        return self.level


class BareReset(Walk):
    """Its reset has no defaults."""

    def reset(self, seed: Any, options: Any) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


def forget() -> None:
    """Put the variables of this process back to what a new process has. A fork inherits them."""
    global COUNT, NUMBERS, GENERATOR, WORLD
    COUNT, NUMBERS, GENERATOR, WORLD = 0, itertools.count(), np.random.default_rng(3), World()
    STATISTICS.update(wins=[], of={"x": 0})
    STATISTICS["levels"].n = LateByName.made = ARRAY[:] = 0
    COUNTER.clear()
    HEAP.clear()
    DECK[:] = range(20)
    OnlyOne.one = Manager.one = None
    REGISTRY.clear()
    for numbers in LISTS.values():
        numbers.clear()
    CONFIG.clear()
    CONFIG["made"] = 0
    LOG.clear()
    BEST.clear()
    TABLE[:] = 0
    ClassList.history.clear()
    ClassCount.made = ClassMethodCount.made = NamedClassCount.steps = 0
    DefaultArgument.shown.__defaults__[0].clear()  # type: ignore[index]
    count.calls = 0  # type: ignore[attr-defined]
    os.environ.pop("PLANVEC_TEST", None)


def many(kind: Callable[[], Any]) -> Callable[[int], Factories]:
    return lambda num_envs: [kind] * num_envs


PLAIN = (
    *(
        CountsInConstructor,
        ShowsTheCount,
        CountsSteps,
        ChangesConfig,
        CountsInReset,
        Logs,
        LogsLate,
        FillsTable,
    ),
    *(
        HoldsTable,
        Numbered,
        Records,
        ClassList,
        ClassCount,
        ClassMethodCount,
        NamedClassCount,
        ClassSpaceDraws,
    ),
    *(DefaultArgument, FunctionAttribute, InOneWorld, ModuleGenerator, Variable, LibraryGenerator),
    *(NumpyGlobal, PythonGlobal, LateGlobal, HoldsModule, ImportsInside),
)
REUSING = ("GrowingInfo", "SameInfo", "SameArrays")
UNUSUAL = (
    GrowingInfo,
    SameInfo,
    SameArrays,
    StructInfo,
    OddInfo,
    NumpyScalars,
    SmallSeeds,
    BareReset,
    Total,
    Curriculum,
)

SHARING: dict[str, Callable[[int], Factories]] = {
    **{kind.__name__: many(kind) for kind in (*PLAIN, *LATE)},
    "one_object": one_object,
    "one_core": one_core,
    "one_counter": one_counter,
    "numbered_by_function": numbered_by_function,
    "partial_dict": partial_dict,
    "popped_config": popped_config,
    "drawn_by_function": drawn_by_function,
    "TakesDict": given(TakesDict, dict),
    "TakesList": given(TakesList, list),
    "TakesArray": given(TakesArray, lambda: np.zeros(2)),
    "TakesArrayLate": given(TakesArrayLate, lambda: np.zeros(2)),
    "TakesWorld": given(TakesWorld, World),
    "TakesWorldLate": given(TakesWorldLate, World),
    "TakesGenerator": given(TakesGenerator, lambda: np.random.default_rng(5)),
}
"""Environments that need a process each."""
KINDS = {**SHARING, **{kind.__name__: many(kind) for kind in UNUSUAL}, "Walk": many(Walk)}


def trajectory(env: Any, num_steps: int, seed: int = 3) -> Iterator[Any]:
    """What Gymnasium's interface returns on a walk. Results are kept, not copied."""
    actions = np.random.default_rng(seed)
    yield env.reset(seed=[seed + row for row in range(env.num_envs)])
    for _ in range(num_steps):
        yield env.step(actions.integers(1, 4, env.num_envs))
