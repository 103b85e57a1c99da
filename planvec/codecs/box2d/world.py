"""Saves and restores the memory of a Box2D world word by word.

Box2D 2.3 cannot copy a world, and its interface gives no access to contacts, impulses, sleep times or the
tree of boxes. But all of them lie in a few regions of memory, which a world keeps until it is freed:

    b2World       heads of lists and of free blocks, counters
    tree nodes    one array, replaced by one of twice the size when it is full
    chunks        of 16 KB: blocks of one size each; bodies, shapes, joints and contacts live in them

A state holds what differs from the world's *baseline*, its memory after the reset: positions and words. A
pointer is saved as (region, offset). So the bytes are the same in every process, and another world with the
same baseline can be put into the state. Memory that Box2D leaves uninitialised is zeroed when it is first
read, so that equal states have equal bytes.

Letters: W words.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError

# -- The memory layout of Box2D 2.3 on 64-bit Linux, and the memory of this process as an array.
#
# The offsets come from the library's debugging information. `unknown_layout` compares them with the installed
# library before anything is written.

Words = NDArray[np.uint64]

# -- b2World: bytes from its start ------------------------------------------------------------------

WORLD_BYTES = 0x19380
CHUNKS = 0
CHUNK_COUNTS = 8
FREE_LISTS = 16
WORLD_FLAGS = 0x19298
TREE_ROOT = 0x192A0
NODES = 0x192A8
NODE_COUNTS = 0x192B0
FREE_NODES = 0x192B8
INSERTIONS = 0x192C0
PROXY_COUNT = 0x192C8
MOVE_COUNTS = 0x192D8
CONTACT_LIST = 0x192F8
CONTACT_COUNT = 0x19300
ALLOCATOR = 0x19318
BODY_LIST = 0x19320
JOINT_LIST = 0x19328
BODY_AND_JOINT_COUNT = 0x19330
GRAVITY = 0x19338
STEP_RATIO = 0x19358
_SCRATCH, _SCRATCH_ENTRIES = 0x19080, 0x19290  # not cleared by a step that raised an error

# the words of a world that steps change, without scratch space and clocks
WORLD_WORDS = (
    *range(FREE_LISTS, 128, 8),
    *(_SCRATCH, _SCRATCH_ENTRIES, WORLD_FLAGS),
    *(TREE_ROOT, NODE_COUNTS, FREE_NODES, INSERTIONS, PROXY_COUNT),
    *(CONTACT_LIST, CONTACT_COUNT, BODY_LIST, JOINT_LIST, BODY_AND_JOINT_COUNT, STEP_RATIO),
)
# the words among them whose upper half is padding
HALF_USED = (_SCRATCH_ENTRIES, WORLD_FLAGS, TREE_ROOT, INSERTIONS, PROXY_COUNT, CONTACT_COUNT)

# -- objects that the world points to ---------------------------------------------------------------

CHUNK_BYTES = 16384
BLOCK_SIZES = (16, 32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640)
SMALL_BLOCK, FIXTURE_BLOCK, BODY_BLOCK, CONTACT_BLOCK = 32, 96, 192, 224
# block size -> bytes that the objects in such blocks do not use between steps
PADDING = {
    BODY_BLOCK: ((6, 12), (124, 128), (184, 192)),
    FIXTURE_BLOCK: ((4, 8), (59, 64), (72, 96)),
    CONTACT_BLOCK: ((12, 16), (188, 192), (204, 224)),
}
JOINT_PADDING = ((12, 16), (118, 120), (161, 164), (173, 176))  # the bytes that revolute joints do not use
NEXT_JOINT = 24
BODY_POSITION, BODY_ANGLE, BODY_WORLD, NEXT_BODY, BODY_FIXTURES = 12, 56, 88, 104, 112
NEXT_FIXTURE, FIXTURE_BODY, FIXTURE_SHAPE, FIXTURE_PROXIES = 8, 16, 24, 40
PROXY_FIXTURE, PROXY_NODE = 16, 28
CONTACT_FIXTURES = 96
CONTACT_POINTS, POINT_BYTES, NUM_POINTS = 120, 20, 180
CIRCLE_BYTES = 24
NODE_WORDS = 5
VIRTUAL_BYTES = 1 << 16  # all virtual tables of the library lie within this many bytes of any of them

# -- memory -----------------------------------------------------------------------------------------

FLOOR = 4096
_ADDRESS_SPACE: Any = (ctypes.c_uint64 * (2**44 - FLOOR // 8)).from_address(FLOOR)
MEMORY: Words = np.frombuffer(_ADDRESS_SPACE, np.uint64)  # the address space of this process, as words


def at(address: int) -> int:
    """Return the index of an address in `MEMORY`."""
    return (address - FLOOR) >> 3


def view(address: int, num_words: int) -> Words:
    """Return so many words from an address, as a view."""
    return MEMORY[at(address) : at(address) + num_words]


def halves(word: Any) -> tuple[int, int]:
    """Return the two 32-bit counts in a word, the lower first."""
    return int(word) & 0xFFFFFFFF, int(word) >> 32


def c_library() -> Any:
    """Return the C library, with the types of malloc, free and malloc_usable_size."""
    library = ctypes.CDLL(None)
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    library.free.restype = None
    library.free.argtypes = [ctypes.c_void_p]
    library.malloc_usable_size.restype = ctypes.c_size_t
    library.malloc_usable_size.argtypes = [ctypes.c_void_p]
    return library


_CHUNK_WORDS = CHUNK_BYTES // 8
_NODE_BYTES = NODE_WORDS * 8
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


# -- The memory that a world has allocated: chunks of blocks, and the nodes of its tree ----------------------


class WorldHeap:
    """Finds the memory of one world, and zeroes what Box2D leaves uninitialised."""

    # Chunks are numbered in the order in which the world has made them in its current history. Spare chunks
    # may follow, which an earlier state has used and the current one does not.

    def __init__(self, world: Any) -> None:
        self._world = world  # keeps its memory alive
        self._libc = c_library()
        self.address = int(world.this)
        if not self._is_block(self.address, WORLD_BYTES):
            raise UnsupportedEnvError("Box2D: unexpected size of a world")
        count, space = self.counts(CHUNK_COUNTS)
        table = int(self.word(CHUNKS))
        if not 0 < count <= space or not self._is_block(table, space * 16):
            raise UnsupportedEnvError("Box2D: unexpected layout of the block allocator")
        entries = view(table, 2 * count).reshape(count, 2).tolist()
        # sizes of the blocks in them, without the spare chunks
        self.sizes = [size & 0xFFFFFFFF for size, _ in entries]
        self.chunks = [chunk for _, chunk in entries]  # addresses of the chunks
        self.nodes = int(self.word(NODES))  # address of the tree's nodes
        # `capacity`: number of nodes that fit into the memory. `known_capacity`: number of nodes that the
        # world assumed when it was last read, at most `capacity`
        self.capacity = self.known_capacity = self.counts(NODE_COUNTS)[1]
        if (
            not set(self.sizes) <= set(BLOCK_SIZES)
            or not all(self._is_block(chunk, CHUNK_BYTES) for chunk in self.chunks)
            or not self._is_block(self.nodes, self.capacity * _NODE_BYTES)
        ):
            raise UnsupportedEnvError("Box2D: unexpected layout of the chunks or of the tree")
        if self.moves_pending():
            raise UnsupportedEnvError("Box2D: expected a world that was stepped since its bodies were made")
        # an address shortly before the library's virtual tables
        self.virtual = self._first_virtual_table() - VIRTUAL_BYTES
        if CONTACT_BLOCK not in self.sizes:  # a chunk for them, lest the first contact change the layout
            chunk = self._add_chunk(CONTACT_BLOCK)
            self.sizes.append(CONTACT_BLOCK)
            count = CHUNK_BYTES // CONTACT_BLOCK
            links = view(chunk, _CHUNK_WORDS)[:: CONTACT_BLOCK // 8]
            links[: count - 1] = chunk + CONTACT_BLOCK * np.arange(1, count, dtype=np.uint64)
            MEMORY[at(self.address + FREE_LISTS + 8 * BLOCK_SIZES.index(CONTACT_BLOCK))] = chunk
        for offset in HALF_USED:
            MEMORY[at(self.address + offset)] &= _LOW
        # for each chunk, how many blocks from its start may have been in use
        self.touched = [self._zero_unused(number) for number in range(len(self.chunks))]
        joint = int(self.word(JOINT_LIST))
        while joint:
            octets = view(joint, JOINT_PADDING[-1][1] // 8).view(np.uint8)
            for start, stop in JOINT_PADDING:
                octets[start:stop] = 0
            joint = int(MEMORY[at(joint + NEXT_JOINT)])
        self._zero_free_nodes()

    def word(self, offset: int) -> np.uint64:
        """Return a word of the world."""
        word: np.uint64 = MEMORY[at(self.address + offset)]
        return word

    def counts(self, offset: int) -> tuple[int, int]:
        """Return a word of the world as two counts."""
        return halves(self.word(offset))

    def has_new_nodes(self) -> bool:
        """Return whether Box2D has replaced the nodes."""
        # Their number is compared, since an address may be used again.
        return self.counts(NODE_COUNTS)[1] != self.known_capacity

    def moves_pending(self) -> bool:
        """Return whether the world has moved boxes without looking for their contacts yet."""
        return self.counts(MOVE_COUNTS)[1] > 0

    def refresh(self) -> None:
        """Read what Box2D has allocated since the last call, and zero what it left uninitialised."""
        # New chunks are numbered after those in use, so that the number of a chunk does not depend on earlier
        # states of this world. A spare chunk with the same number is freed.
        count, space = self.counts(CHUNK_COUNTS)
        table = view(int(self.word(CHUNKS)), 2 * count).reshape(count, 2)
        for size, chunk in table[len(self.chunks) :].tolist():
            number = len(self.sizes)
            if number < len(self.chunks):
                spare = self.chunks.pop(number)
                count -= 1
                table[table[:, 1].tolist().index(spare)] = table[count]
                MEMORY[at(self.address + CHUNK_COUNTS)] = count | space << 32
                self._libc.free(spare)
            self.sizes.append(size & 0xFFFFFFFF)
            self.chunks.insert(number, chunk)
            self._zero_unused(number)
        if self.has_new_nodes():
            self.nodes = int(self.word(NODES))
            self.capacity = self.known_capacity = self.counts(NODE_COUNTS)[1]
            self._zero_free_nodes()

    def make_room(self, num_chunks: int, capacity: int) -> None:
        """Allocate the memory that a state of another world needs. The content of the nodes is lost."""
        while len(self.chunks) < num_chunks:
            self._add_chunk(BLOCK_SIZES[0])
        if capacity > self.capacity:
            nodes = self._allocate(capacity * _NODE_BYTES)
            self._libc.free(self.nodes)
            MEMORY[at(self.address + NODES)] = nodes
            self.nodes, self.capacity = nodes, capacity

    # -- allocating -----------------------------------------------------------------------------

    def _is_block(self, address: int, num_bytes: int) -> bool:
        """Return whether malloc returned this address for so many bytes."""
        if address < FLOOR or address % 16:
            return False
        usable = self._libc.malloc_usable_size(address)
        return bool(num_bytes <= usable <= num_bytes + 64)

    def _allocate(self, num_bytes: int) -> int:
        address = self._libc.malloc(num_bytes)
        if not address:
            raise MemoryError
        view(address, num_bytes // 8)[:] = 0
        return int(address)

    def _add_chunk(self, size: int) -> int:
        """Give the world a chunk of zeros, which it will free with its other chunks."""
        count, space = self.counts(CHUNK_COUNTS)
        if count == space:
            space += 128
            table, before = self._allocate(space * 16), int(self.word(CHUNKS))
            view(table, 2 * count)[:] = view(before, 2 * count)
            MEMORY[at(self.address + CHUNKS)] = table
            self._libc.free(before)
        chunk = self._allocate(CHUNK_BYTES)
        view(int(self.word(CHUNKS)) + 16 * count, 2)[:] = (size, chunk)
        MEMORY[at(self.address + CHUNK_COUNTS)] = count + 1 | space << 32
        self.chunks.append(chunk)
        return chunk

    # -- memory that was never initialised ------------------------------------------------------

    def _first_virtual_table(self) -> int:
        """Return the virtual table of the shape of the first fixture in the world."""
        body = int(self.word(BODY_LIST))
        while body and not MEMORY[at(body + BODY_FIXTURES)]:
            body = int(MEMORY[at(body + NEXT_BODY)])
        if not body:
            raise UnsupportedEnvError("Box2D: expected a world with a body that has a fixture")
        fixture = int(MEMORY[at(body + BODY_FIXTURES)])
        return int(MEMORY[at(int(MEMORY[at(fixture + FIXTURE_SHAPE)]))])

    def _zero_unused(self, number: int) -> int:
        """Zero the bytes that no object uses."""
        # Returns how many blocks from the start of the chunk may have been in use.
        chunk, size = self.chunks[number], self.sizes[number]
        count = CHUNK_BYTES // size
        words = view(chunk, _CHUNK_WORDS)
        words[count * (size // 8) :] = 0
        blocks = words[: count * (size // 8)].reshape(count, size // 8)
        following = chunk + size * np.arange(1, count + 1, dtype=np.uint64)
        following[-1] = 0
        unlinked = np.flatnonzero(blocks[:, 0] != following)
        touched = int(unlinked[-1]) + 1 if len(unlinked) else 0
        in_use = np.arange(count) < touched
        free = int(self.word(FREE_LISTS + 8 * BLOCK_SIZES.index(size)))
        while free and not chunk + size * touched <= free < chunk + CHUNK_BYTES:
            if chunk <= free < chunk + CHUNK_BYTES:
                in_use[(free - chunk) // size] = False
            free = int(MEMORY[at(free)])
        if not free:  # the end of the list is a zero inside an object in the last block
            in_use[touched:] = True
            touched = count
        blocks[~in_use, 1:] = 0
        octets = blocks.view(np.uint8)
        for start, stop in PADDING.get(size, ()):
            octets[in_use, start:stop] = 0
        if size == CONTACT_BLOCK:
            num_points = blocks.view(np.uint32)[:, NUM_POINTS // 4]
            for point in range(2):
                start = CONTACT_POINTS + POINT_BYTES * point
                octets[in_use & (num_points <= point), start : start + POINT_BYTES] = 0
            octets[in_use & (num_points == 0), CONTACT_POINTS:NUM_POINTS] = 0
        if size == SMALL_BLOCK:  # circles are shorter than proxies, which have blocks of the same size
            circles = blocks[:, 0] - np.uint64(self.virtual) < np.uint64(2 * VIRTUAL_BYTES)
            octets[in_use & circles, CIRCLE_BYTES:] = 0
        return touched

    def _zero_free_nodes(self) -> None:
        """Zero all of a free node except its link and its height, which is -1."""
        nodes = view(self.nodes, self.capacity * NODE_WORDS).view(np.int32).reshape(-1, 2 * NODE_WORDS)
        free = nodes[:, 9] == -1
        nodes[free, :6] = 0
        nodes[free, 7:9] = 0


# -- Saves and restores a world ------------------------------------------------------------------------------


_SLACK = 4  # Unused blocks at the end of a window. If the last of them is used, the window is widened.
_SHIFT, _MASK = 20, (1 << 20) - 1
# Number of the first chunk among the regions. In positions region 0 is the world and region 1 the nodes; in
# pointers region 1 is the virtual tables.
_FIRST_CHUNK = 2


class SavedWorld(NamedTuple):
    """Holds what differs from the baseline."""

    positions: bytes  # `[W]` uint32: region << 20 | word
    words: bytes  # `[W]` uint64; a pointer is region << 32 | byte
    pointers: bytes  # `[W]` bits that flag the words that are pointers
    chunks: tuple[int, ...]  # block sizes of the chunks that were added since the baseline
    capacity: int  # number of nodes that fit into the tree


class WorldMemory:
    """Saves and restores one world."""

    def __init__(self, world: object) -> None:
        self._heap = heap = WorldHeap(world)
        self._num_base = len(heap.chunks)
        self._base_world = MEMORY[[at(heap.address + offset) for offset in WORLD_WORDS]]
        self._base_nodes = view(heap.nodes, heap.capacity * NODE_WORDS).copy()
        self._base_chunks = [view(chunk, _CHUNK_WORDS).copy() for chunk in heap.chunks]
        self._windows = [0] * self._num_base
        for number, touched in enumerate(heap.touched):
            self._widen(number, touched)
        self._lay_out()
        # A digest of the baseline, equal in worlds that can take each other's states
        self.digest = self._digest()

    def get(self) -> SavedWorld:
        """Return what differs from the baseline now."""
        heap = self._heap
        if heap.has_new_nodes():
            self._refresh()
        present = MEMORY.take(self._where)
        changed = np.flatnonzero(present != self._base)
        while self._is_guard[changed].any():
            if heap.moves_pending():
                raise UnsupportedEnvError(
                    "Box2D: expected a world between two steps, got one in the middle of a step. Reset it"
                )
            self._refresh()
            present = MEMORY.take(self._where)
            changed = np.flatnonzero(present != self._base)
        words = present[changed]
        densities = np.flatnonzero(self._is_density[changed])
        if len(densities):  # beside the density of a fixture lies half of an old link
            shapes = MEMORY[self._where[changed[densities]] + FIXTURE_SHAPE // 8]
            words[densities[shapes != 0]] &= _LOW
        pointers = self._name_pointers(words)
        return SavedWorld(
            self._positions[changed].tobytes(),
            words.tobytes(),
            np.packbits(pointers).tobytes(),
            tuple(heap.sizes[self._num_base :]),
            heap.known_capacity,
        )

    def set(self, saved: SavedWorld) -> None:
        """Put the world into a saved state."""
        heap = self._heap
        if heap.has_new_nodes() or (MEMORY.take(self._guards) != self._guarded).any():
            MEMORY[at(heap.address + MOVE_COUNTS)] &= _LOW  # the moved boxes of a step that raised an error
            self._refresh()
        num_chunks = self._num_base + len(saved.chunks)
        if num_chunks > len(heap.chunks) or saved.capacity > heap.capacity:
            heap.make_room(num_chunks, saved.capacity)
            self._lay_out()
        positions, words = np.frombuffer(saved.positions, np.uint32), np.frombuffer(saved.words, np.uint64)
        regions, offsets = positions >> _SHIFT, positions & _MASK
        try:
            beyond = offsets >= self._window_words[regions]
            if beyond.any():  # blocks that another world has used
                for region, offset in zip(regions[beyond].tolist(), offsets[beyond].tolist(), strict=True):
                    number = region - _FIRST_CHUNK
                    if not 0 <= number < self._num_base or offset >= _CHUNK_WORDS:
                        raise ValueError(f"no word {offset} in region {region}")
                    self._widen(number, offset * 8 // heap.sizes[number] + 1)
                self._lay_out()
            indices = self._window_starts[regions] + offsets
            image = self._base.copy()
            image[indices] = words
            pointers = np.unpackbits(np.frombuffer(saved.pointers, np.uint8), count=len(words)).view(bool)
            named = words[pointers]
            image[indices[pointers]] = self._bases[named >> _HALF] + (named & _LOW)
        except (IndexError, ValueError) as error:
            raise UnsupportedEnvError(
                f"Box2D: expected a state of this world, got a state of another world ({error})"
            ) from error
        MEMORY[self._where[: self._num_saved]] = image[: self._num_saved]
        heap.known_capacity = saved.capacity
        if tuple(heap.sizes[self._num_base :]) != saved.chunks:
            heap.sizes[self._num_base :] = saved.chunks
            self._lay_out()

    # -- which words are saved ------------------------------------------------------------------

    def _refresh(self) -> None:
        """Find new memory, and blocks in use beyond the windows."""
        self._heap.refresh()
        for number, base in enumerate(self._base_chunks):
            differs = np.flatnonzero(view(self._heap.chunks[number], _CHUNK_WORDS) != base)
            if len(differs):
                self._widen(number, int(differs[-1]) * 8 // self._heap.sizes[number] + 1)
        self._lay_out()

    def _widen(self, number: int, num_blocks: int) -> None:
        """Widen the window of a chunk to so many blocks from its start, and a few more."""
        size = self._heap.sizes[number]
        window = min(num_blocks + _SLACK, CHUNK_BYTES // size) * (size // 8)
        self._windows[number] = max(self._windows[number], window)

    def _lay_out(self) -> None:
        """Compute which words of memory are compared, and their values in the baseline."""
        heap = self._heap
        start, num_nodes = at(heap.address), heap.capacity * NODE_WORDS
        where = [start + np.array(WORLD_WORDS) // 8, at(heap.nodes) + np.arange(num_nodes)]
        nodes = np.zeros(num_nodes, np.uint64)
        nodes[: len(self._base_nodes)] = self._base_nodes[:num_nodes]
        base, guards = [self._base_world, nodes], [np.zeros(len(part), bool) for part in where]
        for number, chunk in enumerate(heap.chunks):
            if number < self._num_base:
                window, block = self._windows[number], heap.sizes[number] // 8
                guard = np.zeros(window, bool)
                if window + block <= _CHUNK_WORDS:
                    # Box2D takes free blocks in the order of their addresses: none behind this one was used.
                    guard[window - block :] = True
                guards.append(guard)
                base.append(self._base_chunks[number][:window])
            else:
                window = _CHUNK_WORDS
                guards.append(np.zeros(window, bool))
                base.append(np.zeros(window, np.uint64))
            where.append(at(chunk) + np.arange(window))
        lengths = np.array([len(part) for part in where])
        watched = start + np.array([CHUNK_COUNTS, MOVE_COUNTS]) // 8
        self._num_saved = int(lengths.sum())
        self._where = np.concatenate([*where, watched])
        self._base: Words = np.concatenate([*base, MEMORY[watched]])
        self._is_guard = np.concatenate([*guards, np.ones(len(watched), bool)])
        self._guards, self._guarded = self._where[self._is_guard], self._base[self._is_guard]
        self._is_density = np.zeros(len(self._where), bool)
        self._window_words, self._window_starts = lengths, np.cumsum(lengths) - lengths
        for number, size in enumerate(heap.sizes):
            if size == FIXTURE_BLOCK:
                first = self._window_starts[_FIRST_CHUNK + number]
                self._is_density[first : first + lengths[_FIRST_CHUNK + number] : size // 8] = True
        numbered = [region << _SHIFT | np.arange(length) for region, length in enumerate(lengths)]
        self._positions = np.concatenate(numbered).astype(np.uint32)
        # the regions that pointers may point into, sorted by address
        self._bases: Words = np.array([heap.address, heap.virtual, *heap.chunks], np.uint64)
        sizes = np.array([WORLD_BYTES, 2 * VIRTUAL_BYTES] + [CHUNK_BYTES] * len(heap.chunks), np.uint64)
        order = np.argsort(self._bases)
        self._starts, self._lengths, self._names = self._bases[order], sizes[order], order.astype(np.uint64)
        self._lowest = self._starts[0]
        self._span = self._starts[-1] + self._lengths[-1] - self._lowest

    def _name_pointers(self, words: Words) -> NDArray[np.bool_]:
        """Replace the pointers among words `[W]` by (region, byte), in place."""
        # A word that points into the world is a pointer. No two numbers in one word look like that: the
        # second would have to be a float of 1e-41 or a count above 20,000.
        # Returns `[W]` flags of the pointers.
        pointers = np.zeros(len(words), bool)
        candidates = np.flatnonzero(words - self._lowest < self._span)
        if len(candidates):
            addresses = words[candidates]
            slots = self._starts.searchsorted(addresses, "right") - 1
            offsets = addresses - self._starts[slots]
            inside = offsets < self._lengths[slots]
            candidates = candidates[inside]
            words[candidates] = self._names[slots[inside]] << _HALF | offsets[inside]
            pointers[candidates] = True
        return pointers

    def _digest(self) -> bytes:
        words = np.concatenate([self._base_world, self._base_nodes])
        self._name_pointers(words)
        layout = repr((self._heap.sizes, self._heap.capacity, self._heap.virtual % 4096)).encode()
        return hashlib.blake2b(layout + words.tobytes(), digest_size=8).digest()


# -- Verification that the installed Box2D lies in memory as `layout` says -----------------------------------

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
        if not WORLD_BYTES <= usable <= WORLD_BYTES + 64:
            return f"a b2World: expected {WORLD_BYTES} bytes, got {usable}"
        for name, in_memory, expected in _facts(world):  # lazily, so that no wrong pointer is followed
            if in_memory != expected:
                return f"{name}: expected {expected} in memory, got {in_memory}"
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


class _Reader:
    """Reads the memory of this process, and raises an error instead of following a wrong pointer."""

    def __init__(self) -> None:
        # first address, and address behind the last, of the regions that this process can read
        self._regions = []
        for line in Path("/proc/self/maps").read_text().splitlines():
            span, permissions = line.split()[:2]
            if permissions.startswith("r"):
                start, _, stop = span.partition("-")
                self._regions.append((int(start, 16), int(stop, 16)))

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


def _facts(world: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what saving relies on: its name, its value in the memory of the small world, Box2D's answer."""
    address, read = int(world.this), _Reader()
    yield "gravity", read.floats(address + GRAVITY, 2), list(world.gravity)
    counts = (world.bodyCount, world.jointCount)
    yield "body count", read.halves(address + BODY_AND_JOINT_COUNT), counts
    yield "joints", read.word(address + JOINT_LIST), int(world.joints[0].this)
    yield "proxy count", read.halves(address + PROXY_COUNT)[0], world.proxyCount
    yield "allocator", read.word(address + ALLOCATOR), address
    yield "contact count", read.halves(address + CONTACT_COUNT)[0], world.contactCount
    yield "any contact", world.contactCount > 0, True
    contact = list(world.contacts)[-1]
    start = int(contact.this)
    yield "contacts", read.word(address + CONTACT_LIST), start
    fixtures = [int(contact.fixtureA.this), int(contact.fixtureB.this)]
    yield "fixtures of a contact", read.words(start + CONTACT_FIXTURES, 2).tolist(), fixtures
    num_points = read.halves((start + NUM_POINTS) & ~7)[1]
    yield "points of a contact", num_points, contact.manifold.pointCount
    yield "number of nodes", read.halves(address + NODE_COUNTS)[0], 2 * world.proxyCount - 1
    # the list of bodies, and from each body the pointers to its fixture, shape, proxy and node
    link = address + BODY_LIST
    for body in list(world.bodies)[::-1]:
        start = read.word(link)
        yield "list of bodies", start, int(body.this)
        yield "position", read.floats(start + BODY_POSITION, 2), list(body.position)
        yield "angle", read.floats(start + BODY_ANGLE, 1), [body.angle]
        yield "world of a body", read.word(start + BODY_WORLD), address
        fixture = read.word(start + BODY_FIXTURES)
        yield "fixture", fixture, int(body.fixtures[0].this)
        yield "body of a fixture", read.word(fixture + FIXTURE_BODY), start
        yield "shape", read.word(fixture + FIXTURE_SHAPE), int(body.fixtures[0].shape.this)
        proxy = read.word(fixture + FIXTURE_PROXIES)
        yield "fixture of a proxy", read.word(proxy + PROXY_FIXTURE), fixture
        node = read.halves((proxy + PROXY_NODE) & ~7)[1]
        nodes = read.word(address + NODES)
        yield "proxy of a node", read.word(nodes + 8 * NODE_WORDS * node + 16), proxy
        link = start + NEXT_BODY
    yield "end of the bodies", read.word(link), 0


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
