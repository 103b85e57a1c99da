"""Open made-up environments, and look for one that planvec accepts and restores wrongly.

    python benchmarks/fuzz_environments.py --minutes 10
    python benchmarks/fuzz_environments.py --first 4711 --number 1      # one environment again

Each environment consists of one to four parts, chosen and set up by its number. A part keeps its memory in
one way that Python allows: shared lists, sets, generators, slots, views, closures, variables of the module,
chains, iterators and so on. Many have influence only after some hundred steps. Unknown wrappers around it
share objects with it.

Environments that are refused count as refused. From the others, the states of an episode of 300 steps are
stepped in another order, and every outcome is compared with Gymnasium's own loop. One that differs is an
error of planvec; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import itertools
import random
import sys
import time
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle

import planvec

NUM_STEPS = 300
LATE = (0, 3, 40, 150, 280)
"""Steps after which a part begins to have influence."""
NOTHING = object()
TABLE: list[Any] = [[1.0], [2.0], [3.0]]
COUNT = 0


class Part:
    """Keeps some memory, and computes a number from it. `late` steps long, the number is 0."""

    def __init__(self, rng: random.Random) -> None:
        self.late = rng.choice(LATE)
        self.flag = rng.random() < 0.5

    def begin(self, env: Any) -> None:
        """Start an episode."""

    def act(self, env: Any, action: int) -> float:
        """Change the memory, and return a number."""
        raise NotImplementedError


class SharedLists(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.items: list[float] = []
        self.other = self.items
        env.shared = {"items": self.items, "tuple": (self.items, self)}

    def act(self, env: Any, action: int) -> float:
        self.items.append(float(action))
        del self.items[:-20]
        return float(sum(env.shared["tuple"][0])) + len(self.other) + (env.shared["tuple"][1] is self)


class Node:
    """Is one object of a graph."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.links: list[Node] = []


class NodeGraph(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.nodes = [Node(float(number)) for number in range(6)]

    def act(self, env: Any, action: int) -> float:
        one, two = env.np_random.integers(6, size=2)
        self.nodes[one].links.append(self.nodes[two])
        del self.nodes[one].links[:-3]
        self.nodes[two].value += action
        return sum(link.value for link in self.nodes[one].links) + (self.nodes[one] in self.nodes[two].links)


class Sets(Part):
    """Holds sets. With `flag`, their order matters."""

    def begin(self, env: Any) -> None:
        self.tags = [{f"tag {env.np_random.integers(100)}" for _ in range(8)}, {(1, 2), (3, 4)}]

    def act(self, env: Any, action: int) -> float:
        self.tags[0].add(f"tag {env.np_random.integers(100)}")
        if len(self.tags[0]) > 20:
            self.tags[0].discard(min(self.tags[0]))
        return float(len(next(iter(self.tags[0])))) if self.flag else float(len(self.tags[0]))


class FrozenSets(Part):
    """Holds sets that cannot change. With `flag`, their order matters."""

    def begin(self, env: Any) -> None:
        self.tags = frozenset(f"tag {env.np_random.integers(1000)}" for _ in range(30))

    def act(self, env: Any, action: int) -> float:
        self.tags = (self.tags | {f"tag {env.np_random.integers(1000)}"}) - {min(self.tags)}
        return float(len(next(iter(self.tags))) if self.flag else len(self.tags))


class PoppedSet(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.cards = {int(card) for card in env.np_random.integers(10_000, size=30)}

    def act(self, env: Any, action: int) -> float:
        self.cards.add(int(env.np_random.integers(100_000)))
        return float(self.cards.pop() if self.flag else len(self.cards))


class Member:
    """Is hashed by identity, and refers to others in sets."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.peers: set[Member] = set()


class SetsOfObjects(Part):
    """Holds objects in sets, some of them in sets alone. With `flag`, their order matters."""

    def begin(self, env: Any) -> None:
        self.members = [Member(float(number // 2)) for number in range(6)]
        self.chosen = frozenset(self.members[:3])
        self.crowd = {Member(0.0) for _ in range(4)}

    def act(self, env: Any, action: int) -> float:
        one, two = env.np_random.integers(6, size=2)
        self.members[one].peers ^= {self.members[two]}
        self.chosen ^= {self.members[action]}
        first = next(iter(self.crowd))
        for member in [first] if self.flag else self.crowd:
            member.value += action
        self.crowd |= {Member(first.value)} if len(self.crowd) < 9 else set()
        if self.flag:
            return first.value
        return sum(len(member.peers & self.chosen) for member in self.members) + float(len(self.crowd))


class SharedBuffer(Part):
    """Holds an array, with `flag` in the memory of a bytearray."""

    def begin(self, env: Any) -> None:
        self.bytes = bytearray(8)
        self.view = np.frombuffer(self.bytes if self.flag else bytes(8), np.uint8)

    def act(self, env: Any, action: int) -> float:
        self.bytes[action] = (self.bytes[action] + 1) % 200
        return float(self.view.sum() + self.bytes[0])


class Generators(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        seed = int(env.np_random.integers(1 << 30))
        self.own = np.random.default_rng(seed)
        self.also = self.own
        self.old = random.Random(seed)
        self.legacy = np.random.RandomState(seed)
        self.alias = env.np_random

    def act(self, env: Any, action: int) -> float:
        return float(self.also.normal() + self.old.random() + self.legacy.rand() + self.alias.random())


class Slots(Part):
    """Keeps its memory in the way of its name."""

    class Point:
        """Keeps its attributes in slots, one of them private."""

        __slots__ = ("__private", "x")

        def __init__(self) -> None:
            self.x = 0.0
            self.__private = 0

        def move(self, by: float) -> float:
            """Move, and return a number that depends on both attributes."""
            self.__private += 1
            self.x += by
            return self.x * self.__private

    def begin(self, env: Any) -> None:
        self.point = self.Point()
        self.move = self.point.move

    def act(self, env: Any, action: int) -> float:
        return self.move(action) + self.point.x


class Identities(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.held: Any = NOTHING
        self.mode = TABLE[0]

    def act(self, env: Any, action: int) -> float:
        self.mode = TABLE[action % 3] if action else self.mode
        self.held = NOTHING if self.held is not NOTHING else action
        return float(self.held is NOTHING) + sum(self.mode is entry for entry in TABLE)


class Arrays(Part):
    """Holds arrays. With `flag`, one is a view of another."""

    def begin(self, env: Any) -> None:
        self.grid = np.zeros((4, 4), np.float32)
        self.row = self.grid[1] if self.flag else self.grid[1].copy()
        self.objects = np.array([Node(1.0), None, "text"], object)
        self.record = np.zeros(2, [("a", "f4"), ("b", "i2", 3)])

    def act(self, env: Any, action: int) -> float:
        self.grid[1, action % 4] += 1
        self.record["b"][0, action % 3] += 1
        self.objects[0].value += 1
        return float(self.row.sum() + self.record["b"].sum() + self.objects[0].value)


class OnClass(Part):
    """Keeps its memory in the way of its name."""

    count = 0

    def act(self, env: Any, action: int) -> float:
        type(self).count += 1
        return float(type(self).count % 5)


class InModule(Part):
    """Keeps its memory in the way of its name."""

    def act(self, env: Any, action: int) -> float:
        global COUNT
        COUNT += 1
        return float(COUNT % 5)


class GlobalGenerator(Part):
    """Keeps its memory in the way of its name."""

    def act(self, env: Any, action: int) -> float:
        return random.random() if self.flag else float(np.random.rand())  # noqa: NPY002


class Closure(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        count = 0

        def counted() -> int:
            nonlocal count
            count += 1
            return count

        self.counted = counted

    def act(self, env: Any, action: int) -> float:
        return float(self.counted() % 5)


class ClosureFromStart(Closure):
    """Keeps its memory in the way of its name."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        super().begin(None)

    def begin(self, env: Any) -> None:
        """Keep the function, whose count goes on."""


class Containers(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.queue: Any = collections.deque([0], maxlen=7)
        self.counter: Any = collections.Counter()
        self.lists: Any = collections.defaultdict(list)
        self.ordered: Any = collections.OrderedDict()

    def act(self, env: Any, action: int) -> float:
        self.queue.append(action)
        self.counter[action] += 1
        self.lists[action].append(len(self.queue))
        self.ordered.pop(action, None)
        self.ordered[action] = 1
        return sum(self.queue) + len(self.lists[action]) + self.counter[action] * next(iter(self.ordered))


class KeyedById(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.nodes = [Node(1.0), Node(2.0)]
        self.known = {id(node): node.value for node in self.nodes}

    def act(self, env: Any, action: int) -> float:
        return self.known.get(id(self.nodes[action % 2]), -1.0)


class SampledSpace(Part):
    """Keeps its memory in the way of its name."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.space = spaces.Dict(a=spaces.Discrete(5), b=spaces.Box(0, 1, (2,)))

    def begin(self, env: Any) -> None:
        if self.flag:
            self.space.seed(int(env.np_random.integers(1 << 30)))

    def act(self, env: Any, action: int) -> float:
        return float(self.space.sample()["a"])


class Pickled(EzPickle):
    """Keeps its memory in the way of its name."""

    def __init__(self, value: float) -> None:
        EzPickle.__init__(self, value)
        self.value = value


class EzPart(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.part = Pickled(1.0)

    def act(self, env: Any, action: int) -> float:
        self.part.value += action
        return self.part.value


class Functions(Part):
    """Keeps its memory in the way of its name."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        factor = rng.random()
        self.table = {"times": lambda x: x * factor, "module": np}
        self.partial = functools.partial(max, 1.0)

    def begin(self, env: Any) -> None:
        self.chosen: Any = self.table["times"]

    def act(self, env: Any, action: int) -> float:
        return float(self.chosen(action) + self.partial(action) + (self.chosen is self.table["times"]))


class Iterators(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.cycle: Any = iter([1, 2, 3] * 200) if self.flag else (number for number in range(10_000))

    def act(self, env: Any, action: int) -> float:
        return float(next(self.cycle))


class ChainOfNodes(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.last: Any = None

    def act(self, env: Any, action: int) -> float:
        node = Node(action)
        node.links = [self.last] if self.last is not None else []
        self.last = node
        return float(node.links[0].value) if node.links else 0.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Is immutable, and compared by value."""

    x: int
    name: str


class Values(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        self.value = Frozen(0, "start")
        self.seen = {self.value: 1}

    def act(self, env: Any, action: int) -> float:
        self.value = dataclasses.replace(self.value, x=action)
        self.seen[self.value] = self.seen.get(self.value, 0) + 1
        return float(self.seen[Frozen(action, "start")])


class Clock(Part):
    """Reads the clock, early enough to be found: later, only an audit in use can find it."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.late = min(self.late, LATE[2])

    def act(self, env: Any, action: int) -> float:
        return time.perf_counter() % 1.0


class Cached(Part):
    """Has a cache without influence."""

    @functools.cached_property
    def weights(self) -> Any:
        return np.arange(10.0)

    def act(self, env: Any, action: int) -> float:
        return float(self.weights[action])


class Spawned(Part):
    """Keeps its memory in the way of its name."""

    def begin(self, env: Any) -> None:
        (self.child,) = env.np_random.spawn(1)

    def act(self, env: Any, action: int) -> float:
        if self.flag:
            (self.child,) = env.np_random.spawn(1)
        return float(self.child.random())


class OldGenerators(Part):
    """Swaps generators of NumPy's old kind, and makes new ones. With `flag`, two share one bit generator."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.kept = np.random.RandomState(3)

    def begin(self, env: Any) -> None:
        seed = int(env.np_random.integers(2**31))
        self.pair = [np.random.RandomState(seed), np.random.RandomState([seed, 1])]
        self.kept.seed(seed)
        bits = np.random.PCG64(seed)
        self.new = [np.random.Generator(bits), np.random.Generator(bits if self.flag else np.random.PCG64(1))]

    def act(self, env: Any, action: int) -> float:
        self.pair.reverse()
        if action == 1:
            self.pair[0] = np.random.RandomState(int(self.pair[1].randint(1000)))
        drawn = sum(float(generator.normal()) for generator in self.pair)
        return drawn + float(self.kept.uniform()) + sum(float(each.random()) for each in self.new)


class Tables(Part):
    """Reads large arrays, some of which it changes in place or replaces late in an episode."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.first = np.random.default_rng(0).random((20, 30))
        self.table = self.first.copy()
        self.words = np.array([f"word {number}" for number in range(200)], dtype=object)
        self.view = self.table[3] if rng.random() < 0.3 else None
        self.frozen = np.arange(500.0)
        self.frozen.flags.writeable = False
        self.time = 0

    def begin(self, env: Any) -> None:
        self.time = 0
        self.table[:] = self.first

    def act(self, env: Any, action: int) -> float:
        self.time += 1
        if self.flag and self.time > self.late:
            self.table[self.time % 20, action] += 1
        if self.time == 60:
            self.table = self.table.copy()
        if self.view is not None:
            self.view[0] += 0.5
        return float(self.table[self.time % 20].sum() + self.frozen[self.time]) + len(self.words[action])


class Cycles(Part):
    """Goes round in cycles."""

    def begin(self, env: Any) -> None:
        self.cycles = [itertools.cycle([1, 2, 3]), itertools.cycle(iter(range(4))), itertools.cycle("abcde")]

    def act(self, env: Any, action: int) -> float:
        return float(next(self.cycles[0]) + next(self.cycles[1]) * action) + ord(next(self.cycles[2]))


PARTS = [part for part in Part.__subclasses__() if part is not Closure] + [Closure, ClosureFromStart]


class Made(gymnasium.Env[Any, Any]):
    """Consists of parts.

    Args:
        number: Decides everything.
    """

    def __init__(self, number: int) -> None:
        rng = random.Random(number)
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Discrete(4)
        self.parts = [part(rng) for part in rng.sample(PARTS, rng.randint(1, 4))]
        self.length = rng.choice([7, 60, 1000, 1000])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time, self.last = 0, 0.0
        for part in self.parts:
            part.begin(self)
        return np.array([0.0, 0.0]), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        numbers = [(part.act(self, int(action)), part.late) for part in self.parts]
        reward = sum(number for number, late in numbers if self.time > late)
        self.last = 0.5 * self.last + float(reward)
        observation = np.array([self.time, self.last])
        return observation, float(reward), self.time >= self.length, False, {}


class Sharing(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Keeps references to parts of the environment below it."""

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        self.first = self.unwrapped.parts[0]  # type: ignore[attr-defined]
        self.memory = [self.first, 0.0]
        return result

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        self.memory[1] = 0.9 * self.memory[1] + reward
        is_same = self.memory[0] is self.unwrapped.parts[0]  # type: ignore[attr-defined]
        return observation, reward + float(is_same) + 0.01 * self.memory[1], *rest


def make(number: int) -> Any:
    """Return the environment of a number, perhaps with wrappers."""
    rng = random.Random(-1 - number)
    env: Any = Made(number)
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        env = rng.choice(
            [Sharing, lambda inner: gymnasium.wrappers.FrameStackObservation(inner, 2), Sharing]
        )(env)
    return env


def difference(number: int, num_workers: int) -> str:
    """Return how the restored environment differs from Gymnasium's own loop; "" if it does not.

    Raises:
        UnsupportedEnvError: planvec refuses it.
    """
    with planvec.make(lambda: make(number), num_workers=num_workers, audit=0) as env:
        reference = make(number)
        space = spaces.Discrete(4, seed=number)
        states, actions, outcomes = [], [], []
        state = env.reset(seed=number).state
        reference.reset(seed=number)
        for step in range(NUM_STEPS):
            action = int(space.sample())
            expected = reference.step(action)
            out = env.step_batch([action], np.repeat(np.array([state], env.state_dtype), 1))
            if not same(out, 0, expected):
                return f"step {step} of the episode"
            states.append(state)
            actions.append(action)
            outcomes.append(expected)
            state = out.new_states[0]
            if expected[2]:
                break
        order = np.random.default_rng(number).permutation(len(states))
        out = env.step_batch(np.array(actions)[order], np.array(states, env.state_dtype)[order])
        for row, index in enumerate(order):
            if not same(out, row, outcomes[index]):
                return f"step {index}, restored out of order"
    return ""


def same(out: Any, row: int, expected: Any) -> bool:
    """Return whether a row has the expected observation, reward and end."""
    observation, reward, terminated, *_ = expected
    return (
        np.array_equal(out.observations[row], observation)
        and float(out.rewards[row]) == float(reward)
        and bool(out.terminated[row]) == terminated
    )


def names_of(number: int) -> str:
    """Return the names of the parts of an environment."""
    return ", ".join(
        f"{type(part).__name__}{'!' * part.flag}@{part.late}" for part in make(number).unwrapped.parts
    )


def main() -> None:
    """Open one environment after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--first", type=int, default=0, help="number of the first environment")
    parser.add_argument("--number", type=int, help="how many; default: until the time is over")
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print each refusal")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    deadline = time.monotonic() + 60 * arguments.minutes
    counts: collections.Counter[str] = collections.Counter()
    stop = None if arguments.number is None else arguments.first + arguments.number
    for number in itertools.takewhile(
        lambda number: stop is None or number < stop, itertools.count(arguments.first)
    ):
        if time.monotonic() > deadline:
            break
        try:
            where = difference(number, arguments.num_workers)
        except planvec.UnsupportedEnvError as error:
            counts["refused"] += 1
            if arguments.verbose:
                print(f"{number} ({names_of(number)}): {str(error)[:200]}")
            continue
        counts["wrong" if where else "exact"] += 1
        if where:
            print(f"{number} ({names_of(number)}): accepted and wrong at {where}", flush=True)
    print(f"{counts['exact']} exact, {counts['refused']} refused, {counts['wrong']} accepted and wrong")
    sys.exit(counts["wrong"] > 0)


if __name__ == "__main__":
    import fuzz_environments  # by its name, since `functools.cached_property` cannot be sent by value

    fuzz_environments.main()
