"""Whether the Box2D that is installed lies in memory as `box2d_layout` says."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from planvec.codecs.box2d import layout
from planvec.codecs.box2d.layout import c_library, halves, view
from planvec.codecs.box2d.world import WorldMemory
from planvec.errors import UnsupportedEnvError

__all__ = ["unknown_layout"]

_NUM_STEPS = 30


@functools.cache
def unknown_layout() -> str | None:
    """What is not as expected; None if worlds can be saved by their memory.

    A small world is made, everything that saving relies on is read from its memory and compared with what
    Box2D answers, and then the world, and its twin, are put back into one of its states.
    """
    if sys.platform != "linux" or sys.byteorder != "little" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return f"a {sys.byteorder}-endian {sys.platform} with {ctypes.sizeof(ctypes.c_void_p)}-byte pointers"
    try:
        world = _small_world()
        usable = c_library().malloc_usable_size(int(world.this))
        if not layout.WORLD_BYTES <= usable <= layout.WORLD_BYTES + 64:
            return f"a b2World of {usable} bytes instead of {layout.WORLD_BYTES}"
        for name, found, expected in _facts(world):  # lazily: no wrong pointer is followed
            if found != expected:
                return f"{name}: {found} in memory instead of {expected}"
        return None if _restores() else "another way after a state was put back"
    except (IndexError, AttributeError, OSError, UnsupportedEnvError) as error:
        return str(error)


def _small_world() -> Any:
    """Ground, and a box and a disk on it that a joint holds together, with contacts between them."""
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
    """Where its bodies were after each step."""
    ways = []
    for _ in range(count):
        world.Step(0.02, 20, 20)
        ways.append(tuple(x for body in world.bodies for x in (*body.position, body.angle)))
    return ways


def _facts(world: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, what memory holds, what Box2D says."""
    address = int(world.this)
    bodies = list(world.bodies)[::-1]
    contacts = list(world.contacts)[::-1]

    mapped = _mapped()

    def words(offset: int, count: int, start: int = address) -> Any:
        place = start + offset
        if place % 8 or not any(first <= place and place + 8 * count <= last for first, last in mapped):
            raise UnsupportedEnvError(f"there is no memory at {place:#x}, where {count} words were expected")
        return view(place, count)

    def word(offset: int, start: int = address) -> int:
        return int(words(offset, 1, start)[0])

    def floats(start: int, offset: int, count: int) -> list[float]:
        around = words(offset & ~7, 2, start).view(np.float32)[offset % 8 // 4 :]
        found: list[float] = around[:count].tolist()
        return found

    yield "gravity", floats(address + layout.GRAVITY, 0, 2), list(world.gravity)
    counts = (world.bodyCount, world.jointCount)
    yield "body count", halves(word(layout.BODY_AND_JOINT_COUNT)), counts
    yield "joints", word(layout.JOINT_LIST), int(world.joints[0].this)
    yield "proxy count", halves(word(layout.PROXY_COUNT))[0], world.proxyCount
    yield "allocator", word(layout.ALLOCATOR), address
    yield "contact count", halves(word(layout.CONTACT_COUNT))[0], world.contactCount
    yield "any contact", world.contactCount > 0, True
    yield "contacts", word(layout.CONTACT_LIST), int(contacts[0].this)
    fixtures = [int(contacts[0].fixtureA.this), int(contacts[0].fixtureB.this)]
    first = int(contacts[0].this)
    yield "fixtures of a contact", words(layout.CONTACT_FIXTURES, 2, first).tolist(), fixtures
    points = contacts[0].manifold.pointCount
    yield "points of a contact", halves(word(layout.NUM_POINTS & ~7, first))[1], points
    yield "number of nodes", halves(word(layout.NODE_COUNTS))[0], 2 * world.proxyCount - 1
    place = layout.BODY_LIST
    start = address
    for body in bodies:
        found = word(place, start)
        yield "list of bodies", found, int(body.this)
        yield "position", floats(found, layout.BODY_POSITION, 2), list(body.position)
        yield "angle", floats(found, layout.BODY_ANGLE, 1), [body.angle]
        yield "world of a body", word(layout.BODY_WORLD, found), address
        fixture = word(layout.BODY_FIXTURES, found)
        yield "fixture", fixture, int(body.fixtures[0].this)
        yield "body of a fixture", word(layout.FIXTURE_BODY, fixture), found
        yield "shape", word(layout.FIXTURE_SHAPE, fixture), int(body.fixtures[0].shape.this)
        proxy = word(layout.FIXTURE_PROXIES, fixture)
        yield "fixture of a proxy", word(layout.PROXY_FIXTURE, proxy), fixture
        node = halves(word(layout.PROXY_NODE & ~7, proxy))[1]
        yield "proxy of a node", word(16 + 40 * node, word(layout.NODES)), proxy
        place, start = layout.NEXT_BODY, found
    yield "end of the bodies", word(place, start), 0


def _mapped() -> list[tuple[int, int]]:
    """Where this process has memory that can be read: start and end."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, rights = line.split()[:2]
        if rights.startswith("r"):
            start, _, stop = span.partition("-")
            found.append((int(start, 16), int(stop, 16)))
    return found


def _restores() -> bool:
    """Whether a world and its twin go the same way again from a state."""
    world, twin = _small_world(), _small_world()
    memory, other = WorldMemory(world), WorldMemory(twin)
    if memory.digest != other.digest:
        return False
    _step(world, _NUM_STEPS)
    saved = memory.get()
    way = _step(world, _NUM_STEPS)
    memory.set(saved)
    other.set(saved)
    same = memory.get() == saved == other.get()
    return same and _step(world, _NUM_STEPS) == way == _step(twin, _NUM_STEPS)
