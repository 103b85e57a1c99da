"""Verification that the installed Box2D lies in memory as `layout` says."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planvec.codecs.box2d import layout
from planvec.codecs.box2d.layout import c_library, halves, view
from planvec.codecs.box2d.world import WorldMemory
from planvec.errors import UnsupportedEnvError

_NUM_STEPS = 30


@functools.cache
def unknown_layout() -> str | None:
    """Return how the memory layout differs from the expected one; None if worlds can be saved."""
    # A small world is made. Everything that saving relies on is read from its memory and compared with the
    # answers of Box2D. Then the world and a second one are put into one of its states and stepped.
    if sys.platform != "linux" or sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return f"a {sys.byteorder}-endian {sys.platform} with {ctypes.sizeof(ctypes.c_void_p)}-byte pointers"
    try:
        world = _small_world()
        usable = c_library().malloc_usable_size(int(world.this))
        if not layout.WORLD_BYTES <= usable <= layout.WORLD_BYTES + 64:
            return f"a b2World: expected {layout.WORLD_BYTES} bytes, got {usable}"
        for fact in _facts(world):  # lazily, so that no wrong pointer is followed
            if fact.in_memory != fact.expected:
                return f"{fact.name}: expected {fact.expected} in memory, got {fact.in_memory}"
        return None if _restores() else "a world took other steps after it was restored"
    except (IndexError, AttributeError, OSError, UnsupportedEnvError) as error:
        return str(error)


def _small_world() -> Any:
    """Make a world with a ground, and on it a box and a disk that are joined and touch the ground."""
    from Box2D import b2CircleShape, b2EdgeShape, b2FixtureDef, b2PolygonShape, b2RevoluteJointDef, b2World

    world = b2World(gravity=(0.25, -9.5))
    world.CreateStaticBody(shapes=b2EdgeShape(vertices=[(-9, 0), (9, 0)]))
    box = world.CreateDynamicBody(
        position=(0.125, 0.75),
        angle=0.5,
        fixtures=b2FixtureDef(shape=b2PolygonShape(box=(0.5, 0.5)), density=1),
    )
    disk = world.CreateDynamicBody(
        position=(2, 0.5), fixtures=b2FixtureDef(shape=b2CircleShape(radius=0.25), density=2)
    )
    world.CreateJoint(b2RevoluteJointDef(bodyA=box, bodyB=disk, localAnchorA=(1, 0), localAnchorB=(-1, 0)))
    _step(world, 5)
    return world


def _step(world: Any, count: int) -> list[tuple[float, ...]]:
    """Step a world and return the positions and angles of its bodies after each step."""
    poses = []
    for _ in range(count):
        world.Step(0.02, 20, 20)
        poses.append(tuple(x for body in world.bodies for x in (*body.position, body.angle)))
    return poses


class _Fact(NamedTuple):
    """Holds one value that lies in memory, and Box2D's answer for it."""

    name: str
    in_memory: Any
    expected: Any


class _Reader:
    """Reads the memory of this process, and raises an error instead of following a wrong pointer."""

    def __init__(self) -> None:
        self._regions = _readable_regions()

    def words(self, address: int, count: int) -> Any:
        """Read words."""
        stop = address + 8 * count
        if address % 8 or not any(first <= address and stop <= last for first, last in self._regions):
            raise UnsupportedEnvError(f"expected {count} words of memory at {address:#x}, got none")
        return view(address, count)

    def word(self, address: int) -> int:
        """Read one word."""
        return int(self.words(address, 1)[0])

    def halves(self, address: int) -> tuple[int, int]:
        """Read one word as two counts."""
        return halves(self.word(address))

    def floats(self, address: int, count: int) -> list[float]:
        """Read at most three floats, which may begin in the middle of a word."""
        pairs = self.words(address & ~7, 2).view(np.float32)
        numbers: list[float] = pairs[address % 8 // 4 :][:count].tolist()
        return numbers


def _facts(world: Any) -> Iterator[_Fact]:
    """Yield everything in the memory of the small world that saving relies on."""
    address, read = int(world.this), _Reader()
    yield _Fact("gravity", read.floats(address + layout.GRAVITY, 2), list(world.gravity))
    counts = (world.bodyCount, world.jointCount)
    yield _Fact("body count", read.halves(address + layout.BODY_AND_JOINT_COUNT), counts)
    yield _Fact("joints", read.word(address + layout.JOINT_LIST), int(world.joints[0].this))
    yield _Fact("proxy count", read.halves(address + layout.PROXY_COUNT)[0], world.proxyCount)
    yield _Fact("allocator", read.word(address + layout.ALLOCATOR), address)
    yield _Fact("contact count", read.halves(address + layout.CONTACT_COUNT)[0], world.contactCount)
    yield _Fact("any contact", world.contactCount > 0, True)
    contact = list(world.contacts)[-1]
    start = int(contact.this)
    yield _Fact("contacts", read.word(address + layout.CONTACT_LIST), start)
    fixtures = [int(contact.fixtureA.this), int(contact.fixtureB.this)]
    yield _Fact("fixtures of a contact", read.words(start + layout.CONTACT_FIXTURES, 2).tolist(), fixtures)
    num_points = read.halves((start + layout.NUM_POINTS) & ~7)[1]
    yield _Fact("points of a contact", num_points, contact.manifold.pointCount)
    yield _Fact("number of nodes", read.halves(address + layout.NODE_COUNTS)[0], 2 * world.proxyCount - 1)
    yield from _facts_of_bodies(world, read)


def _facts_of_bodies(world: Any, read: _Reader) -> Iterator[_Fact]:
    """Follow the list of bodies, and from each body the pointers to its fixture, shape, proxy and node."""
    address = int(world.this)
    link = address + layout.BODY_LIST
    for body in list(world.bodies)[::-1]:
        start = read.word(link)
        yield _Fact("list of bodies", start, int(body.this))
        yield _Fact("position", read.floats(start + layout.BODY_POSITION, 2), list(body.position))
        yield _Fact("angle", read.floats(start + layout.BODY_ANGLE, 1), [body.angle])
        yield _Fact("world of a body", read.word(start + layout.BODY_WORLD), address)
        fixture = read.word(start + layout.BODY_FIXTURES)
        yield _Fact("fixture", fixture, int(body.fixtures[0].this))
        yield _Fact("body of a fixture", read.word(fixture + layout.FIXTURE_BODY), start)
        yield _Fact("shape", read.word(fixture + layout.FIXTURE_SHAPE), int(body.fixtures[0].shape.this))
        proxy = read.word(fixture + layout.FIXTURE_PROXIES)
        yield _Fact("fixture of a proxy", read.word(proxy + layout.PROXY_FIXTURE), fixture)
        node = read.halves((proxy + layout.PROXY_NODE) & ~7)[1]
        nodes = read.word(address + layout.NODES)
        yield _Fact("proxy of a node", read.word(nodes + 8 * layout.NODE_WORDS * node + 16), proxy)
        link = start + layout.NEXT_BODY
    yield _Fact("end of the bodies", read.word(link), 0)


def _readable_regions() -> list[tuple[int, int]]:
    """Return the regions of memory that this process can read: first address, and address behind the last."""
    regions = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions = line.split()[:2]
        if permissions.startswith("r"):
            start, _, stop = span.partition("-")
            regions.append((int(start, 16), int(stop, 16)))
    return regions


def _restores() -> bool:
    """Return whether a world, and a second one like it, take the same steps from a restored state."""
    world, second = _small_world(), _small_world()
    memory, second_memory = WorldMemory(world), WorldMemory(second)
    if memory.digest != second_memory.digest:
        return False
    _step(world, _NUM_STEPS)
    saved = memory.get()
    poses = _step(world, _NUM_STEPS)
    memory.set(saved)
    second_memory.set(saved)
    same = memory.get() == saved == second_memory.get()
    return same and _step(world, _NUM_STEPS) == poses == _step(second, _NUM_STEPS)
