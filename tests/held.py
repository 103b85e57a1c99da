"""Environments that hold sets of objects, and data of libraries."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import scipy.sparse
from nasty import Nasty


@dataclasses.dataclass(frozen=True)
class Cell:
    x: int
    y: int


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3


class Thing:
    """Is hashed by identity."""

    def __init__(self, number: float) -> None:
        self.number = number
        self.peers: Any = set()


class Equal:
    """Is hashed by content."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)


class SetOfItsOwn(set[Any]):
    pass


# -- sets whose order has no influence ----------------------------------------------------------------


class Cells(Nasty):
    def begin(self) -> None:
        self.s = {Cell(0, 0), Cell(1, 1), Cell(2, 5)}

    def extra(self, action: int) -> float:
        self.s.add(Cell(action, self.time % 7))
        self.s.discard(Cell(action, (self.time - 3) % 7))
        return float(len(self.s) + (Cell(1, 2) in self.s))


class Colors(Nasty):
    def begin(self) -> None:
        self.s = {Color.RED, Color.BLUE}

    def extra(self, action: int) -> float:
        self.s ^= {[Color.RED, Color.GREEN, Color.BLUE][action % 3]}
        return float(len(self.s) + (Color.RED in self.s))


class Things(Nasty):
    """Holds objects in a set and in a list, which comes later in the alphabet."""

    number = 1.0

    def begin(self) -> None:
        self.things = [Thing(self.number * index) for index in range(6)]
        self.s = set(self.things[:3])

    def extra(self, action: int) -> float:
        self.s ^= {self.things[(action + self.time) % 6]}
        return float(len(self.s) + (self.things[0] in self.s))


class EqualThings(Things):
    """Holds objects that only their places tell apart."""

    number = 0.0


class Equals(Nasty):
    def begin(self) -> None:
        self.s = {Equal(index) for index in range(5)}

    def extra(self, action: int) -> float:
        self.s ^= {Equal(action)}
        return float(len(self.s) + (Equal(3) in self.s))


class Scalars(Nasty):
    def begin(self) -> None:
        self.s: set[Any] = {np.int64(3), decimal.Decimal("1.5"), uuid.UUID(int=4), pathlib.Path("a")}

    def extra(self, action: int) -> float:
        self.s ^= {np.int64(action), datetime.date(2020, 1, 1 + action)}
        return float(len(self.s))


class KeyedByThings(Nasty):
    def begin(self) -> None:
        self.d = {Thing(index): index for index in range(6)}

    def extra(self, action: int) -> float:
        key = next(iter(self.d))  # dicts keep the order in which they were filled
        value = self.d.pop(key)
        self.d[key] = value + action
        return value * 10 + key.number


class FrozenSetsOfThings(Nasty):
    def begin(self) -> None:
        self.f = frozenset(Cell(index, 1) for index in range(4))

    def extra(self, action: int) -> float:
        self.f ^= {Cell(action, 1)}
        return float(len(self.f))


class Nested(Nasty):
    def begin(self) -> None:
        self.s: set[Any] = {
            frozenset({Cell(0, 0), Cell(1, 1)}),
            frozenset({Color.RED}),
            (Color.RED, Cell(0, 1)),
        }

    def extra(self, action: int) -> float:
        self.s ^= {frozenset({Cell(action, 0), Cell(1, action)}), (Color.BLUE, Cell(action, 1))}
        return float(len(self.s))


class Agent:
    def __init__(self, env: Any, number: int) -> None:
        self.env, self.number, self.health = env, number, 3


class RefersToTheEnv(Nasty):
    def begin(self) -> None:
        self.agents = {Agent(self, index) for index in range(4)}

    def extra(self, action: int) -> float:
        for agent in self.agents:
            agent.health -= agent.number == action
        self.agents = {agent for agent in self.agents if agent.health > 0}
        return float(sum(agent.health * (agent.env is self) for agent in self.agents))


class Peers(Nasty):
    """Holds a ring of equal objects, which are reached through sets alone."""

    def begin(self) -> None:
        ring = [Thing(0) for _ in range(4)]
        for index, thing in enumerate(ring):
            thing.peers = {ring[index - 1], ring[(index + 1) % 4]}
        self.all = set(ring)

    def extra(self, action: int) -> float:
        return float(len(self.all) + sum(len(thing.peers & self.all) for thing in self.all))


class Edges(Nasty):
    """Walks along edges, which are frozen sets of equal objects."""

    def begin(self) -> None:
        ring = [Thing(0) for _ in range(4)]
        self.edges = [frozenset({ring[index], ring[(index + 1) % 4]}) for index in range(4)]
        self.at = {ring[0]}

    def extra(self, action: int) -> float:
        if self.edges[action] & self.at:
            self.at = set(self.edges[action] - self.at)
        return float(len(self.at & self.edges[0]))


class HoldsItself(Nasty):
    """Holds a frozen set whose elements hold it."""

    def begin(self) -> None:
        things = [Thing(index) for index in range(3)]
        self.f = frozenset(things)
        for thing in things:
            thing.peers = self.f
        self.first = things[0]

    def extra(self, action: int) -> float:
        self.first.number += action
        return sum(thing.number for thing in self.f) + (self.first.peers is self.f)


class Crowd(Nasty):
    """Holds many equal objects, which nothing tells apart."""

    def begin(self) -> None:
        self.s = {Thing(0) for _ in range(30)}

    def extra(self, action: int) -> float:
        if len(self.s) > action:
            self.s.discard(min(self.s, key=lambda thing: thing.number))
        self.s |= {Thing(0) for _ in range(action)}
        return float(len(self.s))


class OwnClassOfSets(Nasty):
    def begin(self) -> None:
        self.things = [Thing(index) for index in range(4)]
        self.s = SetOfItsOwn(self.things)

    def extra(self, action: int) -> float:
        self.s = SetOfItsOwn(self.s ^ {self.things[action]})
        return float(len(self.s))


SETS: dict[str, Callable[[], Any]] = {
    "frozen dataclasses": Cells,
    "objects": Things,
    "equal objects": EqualThings,
    "enums": Colors,
    "objects with a hash of their own": Equals,
    "scalars and texts of libraries": Scalars,
    "a dict keyed by objects": KeyedByThings,
    "frozen sets of objects": FrozenSetsOfThings,
    "sets in sets": Nested,
    "objects that refer to the environment": RefersToTheEnv,
    "a ring of equal objects": Peers,
    "edges between equal objects": Edges,
    "a frozen set that holds itself": HoldsItself,
    "many equal objects": Crowd,
    "a class of sets": OwnClassOfSets,
}


# -- sets whose order has an influence ----------------------------------------------------------------


class PopsThings(Nasty):
    def begin(self) -> None:
        self.s = {Equal(int(card)) for card in self.np_random.permutation(1000)[:50]}

    def extra(self, action: int) -> float:
        self.s.add(Equal(int(self.np_random.integers(100_000))))
        return float(self.s.pop().number)


class NumbersThings(Nasty):
    """Gives numbers to objects in the order of their set, and shows them late."""

    def begin(self) -> None:
        self.s = {Equal(int(card)) for card in self.np_random.permutation(1000)[:10]}
        self.numbers: list[int] = []

    def extra(self, action: int) -> float:
        self.s.add(Equal(int(self.np_random.integers(100_000))))
        self.numbers = [thing.number for thing in self.s]
        return float(self.numbers[0]) if self.time > 300 else 0.0


# -- data of libraries --------------------------------------------------------------------------------


class PlainData(Nasty):
    def begin(self) -> None:
        self.decimal, self.fraction = decimal.Decimal("0.1"), fractions.Fraction(1, 3)
        self.now, self.hour = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(hours=1)
        self.name, self.path, self.pattern = uuid.UUID(int=5), pathlib.Path("a"), re.compile("a+")

    def extra(self, action: int) -> float:
        self.decimal += decimal.Decimal("0.1") * action
        self.fraction += fractions.Fraction(action, 7)
        self.now += self.hour * action
        self.name, self.path = uuid.UUID(int=self.name.int + action), self.path / "b"
        length = len(self.path.parts) + bool(self.pattern.match("aa"))
        return float(self.decimal) + float(self.fraction) + self.now.hour + self.name.int + length


class Containers(Nasty):
    def begin(self) -> None:
        self.queue = collections.deque([1, 2], maxlen=5)
        self.lists: Any = collections.defaultdict(list)
        self.order: Any = collections.OrderedDict()
        self.counts, self.chain = collections.Counter("abc"), collections.ChainMap({}, {0: 1})
        self.numbers, self.bytes = array.array("d", [1]), bytearray(b"abc")

    def extra(self, action: int) -> float:
        self.queue.append(action)
        self.lists[action].append(1)
        self.order[action] = self.time
        self.order.move_to_end(action, last=False)
        self.counts[str(action)] += 1
        self.chain[action] = self.time
        self.numbers.append(action)
        self.bytes.append(action)
        counts = len(self.lists[action]) + self.counts[str(action)] + self.chain[0]
        return float(sum(self.queue) + next(iter(self.order)) + counts + sum(self.numbers) + self.bytes[-2])


class Tables(Nasty):
    """Holds tables of pandas, some of which lie in the memory of others."""

    def begin(self) -> None:
        self.table = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}, index=pd.date_range("2020", periods=2))
        self.column, self.kinds = self.table["a"], pd.Series(["a", "b"], dtype="category")
        self.groups = dict(list(self.table.groupby("b")))
        self.now, self.hour = pd.Timestamp("2020-01-01"), pd.Timedelta("1h")

    def extra(self, action: int) -> float:
        self.table.iloc[action % 2, 0] += action
        self.now += self.hour
        return float(self.table["a"].sum() + self.now.hour + self.column.sum() + len(self.groups["x"]))


class Matrices(Nasty):
    def begin(self) -> None:
        self.rows, self.cells = scipy.sparse.csr_matrix(np.eye(3)), scipy.sparse.lil_matrix((4, 4))
        self.keyed, self.places = scipy.sparse.dok_matrix((4, 4)), scipy.sparse.coo_array(np.eye(3))

    def extra(self, action: int) -> float:
        self.rows = self.rows + scipy.sparse.eye(3, format="csr") * action
        self.cells[action, 0] += 1
        self.keyed[action, 1] = self.time
        return float(self.rows.sum() + self.cells.sum() + self.keyed.sum() + self.places.sum())


class Picture(Nasty):
    def begin(self) -> None:
        self.picture = PIL.Image.new("L", (8, 8))

    def extra(self, action: int) -> float:
        self.picture.putpixel((action, 0), self.time % 200)
        return float(np.asarray(self.picture).sum())


class Fields(Nasty):
    """Changes the names of the fields of its records."""

    def begin(self) -> None:
        self.records = np.zeros(3, [("p", "f8"), ("q", "f8")])
        self.records["p"] = 1

    def extra(self, action: int) -> float:
        names = ("q", "p") if self.records.dtype.names == ("p", "q") else ("p", "q")
        self.records = self.records.view([(name, "f8") for name in names])
        return float(self.records["p"][0])


LIBRARIES: dict[str, Callable[[], Any]] = {
    "plain data": PlainData,
    "containers": Containers,
    "tables": Tables,
    "sparse matrices": Matrices,
    "a picture": Picture,
    "records whose fields change": Fields,
}


# -- memory that a copy would separate ----------------------------------------------------------------


class BytesSeenAsNumbers(Nasty):
    """Holds an array in the memory of a bytearray, which matters late."""

    def begin(self) -> None:
        self.bytes = bytearray(8)
        self.array = np.frombuffer(self.bytes, np.uint8)

    def extra(self, action: int) -> float:
        self.bytes[0] = action
        return float(self.array[0]) if self.time > 300 else 0.0


class ArraySeenAsArray(BytesSeenAsNumbers):
    def begin(self) -> None:
        self.bytes: Any = array.array("B", [0, 0])
        self.array = np.asarray(self.bytes)


class ColumnSeenAsArray(Nasty):
    def begin(self) -> None:
        self.table = pd.DataFrame({"a": [1.0, 2.0]})
        self.array = self.table["a"].to_numpy()

    def extra(self, action: int) -> float:
        self.table.loc[0, "a"] += action
        return float(self.array[0]) if self.time > 300 else 0.0
