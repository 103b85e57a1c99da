"""Environments that a careless copy restores wrongly. Each is exact, or refused.

Their steps show the fault only after `LATE` steps or in rare situations, where that is possible.
"""

from __future__ import annotations

import copy
import pickle
import random
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle

MISSING = object()
TABLE: list[float] = [0.0, 1.0, 2.0, 3.0]
MODES = [[1.0], [2.0], [3.0]]
COUNTS = {"steps": 0}
_total = 0


class Nasty(gymnasium.Env[Any, Any]):
    """Adds the action and what a subclass computes."""

    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: Any = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time, self.total = 0, 0.0
        self.begin()
        return np.array([self.time, self.total], float), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        extra = self.extra(int(action))
        self.total += extra
        return np.array([self.time, self.total], float), float(extra), False, False, {}

    def begin(self) -> None:
        """Start an episode."""

    def extra(self, action: int) -> float:
        """Return the reward of a step."""
        raise NotImplementedError


# -- exact --------------------------------------------------------------------------------------------


class SharedInventory(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shares a list with the environment below it."""

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.inventory = self.unwrapped.inventory  # type: ignore[attr-defined]
        return result

    def step(self, action: Any) -> Any:
        self.inventory.append(int(action))
        return super().step(action)


class Inventory(Nasty):
    def begin(self) -> None:
        self.inventory: list[int] = []

    def extra(self, action: int) -> float:
        return float(sum(self.inventory))


class Sentinel(Nasty):
    """Compares with an object at the level of its module by `is`."""

    def begin(self) -> None:
        self.held: list[Any] = [MISSING, 5]

    def extra(self, action: int) -> float:
        self.held = [*self.held[-3:], MISSING if action == 0 else action]
        return float(sum(item is MISSING for item in self.held))


class Shelf(Nasty):
    """Holds lists of its module, which it compares by `is`."""

    def begin(self) -> None:
        self.mode = MODES[0]

    def extra(self, action: int) -> float:
        changed = self.mode is not MODES[action % 3]
        self.mode = MODES[action % 3]
        return float(changed) + self.mode[0]


class Slotted(Nasty):
    """Keeps attributes in `__slots__`."""

    __slots__ = ("__hidden", "speed")

    def begin(self) -> None:
        self.speed = 0.0
        self.__hidden = 1

    def extra(self, action: int) -> float:
        self.speed += action
        self.__hidden += 1
        return self.speed * self.__hidden


class Point:
    """Keeps its attributes in slots."""

    __slots__ = ("x",)


class SlottedParts(Nasty):
    def begin(self) -> None:
        self.point = Point()
        self.point.x = 0.0
        self.also = self.point

    def extra(self, action: int) -> float:
        self.also.x += action
        return float(self.point.x)


class SamplesItsSpace(Nasty):
    """Draws from its action space, which its reset seeds."""

    def __init__(self) -> None:
        self.action_space = spaces.Discrete(4)
        self.inner = spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Discrete(9))

    def begin(self) -> None:
        seed = int(self.np_random.integers(1 << 30))
        self.action_space.seed(seed)
        self.inner.seed(seed)

    def extra(self, action: int) -> float:
        return float(self.action_space.sample()) + float(self.inner.sample()["a"].sum())


class Sampler:
    """Holds a space."""

    def __init__(self) -> None:
        self.space = spaces.Tuple((spaces.Discrete(9), spaces.Box(0, 1, (1,))))


class SamplesInnerSpace(Nasty):
    """Draws from a space inside another object, without influence in the first steps."""

    def __init__(self) -> None:
        self.samplers = [Sampler()]

    def begin(self) -> None:
        self.samplers[0].space.seed(int(self.np_random.integers(1 << 30)))

    def extra(self, action: int) -> float:
        number = int(self.samplers[0].space.sample()[0])
        return float(number) if self.time > 20 else 0.0


class Chain:
    """Is one link of a chain."""

    def __init__(self, number: int, previous: Any) -> None:
        self.number = number
        self.previous = previous


class LongChain(Nasty):
    """Holds a chain of objects that grows."""

    def begin(self) -> None:
        self.last: Any = None

    def extra(self, action: int) -> float:
        self.last = Chain(self.time, self.last)
        before = self.last.previous
        return float(before.number if before is not None else -1)


class Reloaded(Nasty, EzPickle):
    """Pickles itself as its constructor's arguments, and holds another such object."""

    def __init__(self, with_part: bool = True) -> None:
        EzPickle.__init__(self, with_part)
        self.part = Reloaded(False) if with_part else None
        self.charge = 0

    def begin(self) -> None:
        self.charge = 0
        if self.part is not None:
            self.part.charge = 0

    def extra(self, action: int) -> float:
        assert self.part is not None
        self.part.charge += action
        self.charge += 1
        return float(self.part.charge * self.charge)


class Strategy:
    """Holds functions that cannot be pickled."""

    def __init__(self) -> None:
        self.bonus = lambda action: action * 2.0
        self.module = random
        self.count = 0


class HoldsFunctions(Nasty):
    def __init__(self) -> None:
        self.strategy = Strategy()
        self.table = {"double": lambda number: number * 2}

    def begin(self) -> None:
        self.strategy.count = 0

    def extra(self, action: int) -> float:
        self.strategy.count += 1
        return float(self.strategy.bonus(action) + self.table["double"](self.strategy.count))


class NestedSets(Nasty):
    """Holds sets inside other objects, whose order has no influence."""

    def begin(self) -> None:
        self.rooms = [{"seen": set[Any]()}, {"seen": {"door"}}]

    def extra(self, action: int) -> float:
        seen: Any = self.rooms[action % 2]["seen"]
        seen.add((self.time, "place"))
        seen.discard((self.time - 3, "place"))
        return float(len(seen))


class ReadsSetsInAnyWay(Nasty):
    """Uses its sets in the ways in which their order has no influence."""

    def begin(self) -> None:
        self.free = {(int(x), int(y)) for x, y in self.np_random.integers(8, size=(30, 2))}
        self.taken: set[Any] = set()

    def extra(self, action: int) -> float:
        cell = sorted(self.free)[action]
        self.free.discard(cell)
        self.taken |= {cell}
        if len(self.free) < 9:
            self.free, self.taken = self.free | self.taken, self.taken - self.free - self.taken
        copied = self.free.copy()
        copied.update(self.taken)
        return float(min(self.free)[0] + sum(x * y for x, y in copied) + (cell in self.taken))


class ComparesFrozenSets(Nasty):
    """Looks whether two attributes hold the same frozen set."""

    def begin(self) -> None:
        self.options = [frozenset({1, 2}), frozenset({3})]
        self.current = self.options[0]

    def extra(self, action: int) -> float:
        if action < 2:
            self.current = self.options[action]
        return float(self.current is self.options[0])


class SeesKindsOfSets(Nasty):
    """Tells sets from their subclasses, pickles and prints them, and puts them into infos and other sets."""

    def begin(self) -> None:
        self.items, self.frozen, self.seen = {1}, frozenset({2, 10}), {frozenset({0, 8})}

    def extra(self, action: int) -> float:
        self.items = copy.deepcopy(pickle.loads(pickle.dumps(self.items))) ^ {action, action + 8}
        self.seen = {*self.seen, frozenset({action, self.time % 5})}
        self.frozen |= frozenset({self.time % 4})
        return float(len(repr({*self.items} & {1})) + (frozenset({0, 8}) in self.seen))

    def step(self, action: Any) -> Any:
        *rest, info = super().step(action)
        return *rest, {**info, "items": self.items, "frozen": self.frozen, "number": len(self.seen)}


class ChecksTypesOfSets(Nasty):
    """Uses a table of types."""

    def begin(self) -> None:
        self.items: Any = {3, 4}

    def extra(self, action: int) -> float:
        self.items = {action, self.time} if type(self.items) is set else [3]
        return float({set: sum, list: len}[type(self.items)](self.items))


class SpawnsInReset(Nasty):
    """Spawns generators in its reset, and draws from them."""

    def begin(self) -> None:
        self.noise, self.wind = self.np_random.spawn(2)

    def extra(self, action: int) -> float:
        return float(self.noise.normal() + self.wind.normal())


EXACT: dict[str, Callable[[], Any]] = {
    "a wrapper that shares a list": lambda: SharedInventory(Inventory()),
    "a wrapper within others": lambda: gymnasium.wrappers.TimeLimit(SharedInventory(Inventory()), 90),
    "a sentinel": Sentinel,
    "lists of the module": Shelf,
    "slots": Slotted,
    "slots of a part": SlottedParts,
    "spaces that are sampled": SamplesItsSpace,
    "spaces in objects": SamplesInnerSpace,
    "a long chain": LongChain,
    "EzPickle": Reloaded,
    "functions in objects": HoldsFunctions,
    "sets in objects": NestedSets,
    "sets that are read in any way": ReadsSetsInAnyWay,
    "frozen sets that are compared": ComparesFrozenSets,
    "sets in infos, pickles and sets": SeesKindsOfSets,
    "types of sets": ChecksTypesOfSets,
    "generators spawned in reset": SpawnsInReset,
}


# -- refused ------------------------------------------------------------------------------------------


class KeyedById(Nasty):
    """Finds objects by their `id()`."""

    def begin(self) -> None:
        self.parts = [Point(), Point()]
        self.weights = {id(part): number + 1.0 for number, part in enumerate(self.parts)}

    def extra(self, action: int) -> float:
        return self.weights.get(id(self.parts[action % 2]), 0.0) if self.time > 300 else 0.0


class PopsFromSet(Nasty):
    """Takes elements from a set in its order."""

    def begin(self) -> None:
        self.cards = {int(card) for card in self.np_random.permutation(1000)[:50]}

    def extra(self, action: int) -> float:
        self.cards.add(int(self.np_random.integers(100_000)))
        return float(self.cards.pop())


class OrderRarelyMatters(Nasty):
    """Looks at the first element of a set, which seldom makes a difference."""

    def begin(self) -> None:
        self.tags = {int(tag) for tag in self.np_random.integers(10_000, size=8)}

    def extra(self, action: int) -> float:
        self.tags.add(int(self.np_random.integers(10_000)))
        if len(self.tags) > 20:
            self.tags.remove(min(self.tags))
        return float(next(iter(self.tags)) % 16 == 0)


class WalksThroughNames(Nasty):
    """Goes through a set of strings, whose order depends on the process."""

    def begin(self) -> None:
        self.names = {f"name {number}" for number in range(20)}

    def extra(self, action: int) -> float:
        return float(int(next(iter(self.names)).split()[1]))


class DrawsFromRandom(Nasty):
    """Draws from the module `random`, without influence in the first steps."""

    def extra(self, action: int) -> float:
        number = random.random()
        return number if self.time > 300 else 0.0


class DrawsFromNumpy(Nasty):
    def extra(self, action: int) -> float:
        number = float(np.random.rand())  # noqa: NPY002
        return number if self.time > 300 else 0.0


class CountsOnItsClass(Nasty):
    count = 0

    def extra(self, action: int) -> float:
        type(self).count += 1
        return float(self.time > 300 and self.count % 2)


class CountsInItsModule(Nasty):
    def extra(self, action: int) -> float:
        COUNTS["steps"] += 1
        return float(self.time > 300 and COUNTS["steps"] % 2)


class RebindsGlobal(Nasty):
    def extra(self, action: int) -> float:
        global _total
        _total += 1
        return float(self.time > 300 and _total % 2)


class CountsInDefault(Nasty):
    """Counts in a default argument."""

    def extra(self, action: int, calls: list[int] = [0]) -> float:  # noqa: B006
        calls[0] += 1
        return float(self.time > 300 and calls[0] % 2)


class CountsOnFunction(Nasty):
    """Counts in an attribute of a function."""

    def extra(self, action: int) -> float:
        function: Any = CountsOnFunction.extra
        function.count = getattr(function, "count", 0) + 1
        return float(self.time > 300 and function.count % 2)


def counting_in_closure() -> Any:
    """Return an environment whose step counts in a closure."""
    count = 0

    class CountsInClosure(Nasty):
        def extra(self, action: int) -> float:
            nonlocal count
            count += 1
            return float(self.time > 300 and count % 2)

    return CountsInClosure()


class ChangesItsSpace(Nasty):
    def __init__(self) -> None:
        self.action_space = spaces.Discrete(4)
        self.goals: Any = spaces.Discrete(4)

    def begin(self) -> None:
        self.goals.n = np.int64(4)

    def extra(self, action: int) -> float:
        self.goals.n += 1
        return float(self.goals.n) if self.time > 300 else 0.0


class SpawnsInSteps(Nasty):
    def extra(self, action: int) -> float:
        (child,) = self.np_random.spawn(1)
        return float(child.normal())


class View(Nasty):
    """Holds a view of its own array, which matters late."""

    def begin(self) -> None:
        self.grid = np.zeros(4)
        self.head = self.grid[:2]

    def extra(self, action: int) -> float:
        self.grid[0] += 1
        return float(self.head[0]) if self.time > 300 else 0.0


class ReadsTheClock(Nasty):
    """Tells the time, late in an episode."""

    def extra(self, action: int) -> float:
        self.last_call = time.perf_counter()
        return float(self.last_call) if self.time > 10_000 else 0.0


class SlowDrift(Nasty):
    """Keeps something in C memory that matters after 98 steps."""

    def begin(self) -> None:
        self.memory = memoryview(bytearray(8)) if not hasattr(self, "memory") else self.memory
        self.memory[0] = 0

    def extra(self, action: int) -> float:
        self.memory[0] = (self.memory[0] + action) % 200
        return float(self.memory[0]) if self.time > 98 else 0.0


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a dict keyed by id()": (KeyedById, r"is the id\(\) of KeyedById.parts|is the id\(\) of layer0.parts"),
    "a set that is popped": (PopsFromSet, "The order of a set depends on how it was filled"),
    "a set whose order rarely matters": (OrderRarelyMatters, "its sets in another order"),
    "the module random": (DrawsFromRandom, "global generator of `random`"),
    "numpy.random": (DrawsFromNumpy, "global generator of `numpy.random`"),
    "a class attribute": (CountsOnItsClass, "its steps change nasty.CountsOnItsClass.count"),
    "a dict of the module": (CountsInItsModule, "its steps change nasty.COUNTS"),
    "a number of the module": (RebindsGlobal, "its steps change nasty._total"),
    "a default argument": (
        CountsInDefault,
        "its steps change default argument 0 of nasty.CountsInDefault.extra",
    ),
    "a function attribute": (CountsOnFunction, "its steps change nasty.CountsOnFunction.extra.count"),
    "a closure": (counting_in_closure, "its steps change the variable count of nasty"),
    "a space": (ChangesItsSpace, "its steps change the space layer0.goals"),
    "spawned generators": (SpawnsInSteps, "its steps spawn generators from np_random"),
    "a view of an array": (View, r"\(arrays that share memory\)"),
    "the clock": (ReadsTheClock, r'ReadsTheClock.last_call .*Copied\(\["last_call"\]\)'),
    "memory that cannot be pickled": (SlowDrift, r"SlowDrift.memory: memoryview cannot be pickled"),
}
"""Name -> the environment, and the message of its refusal."""
