"""The memory that a Box2D world has allocated: chunks of blocks, and the nodes of its tree."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import UnsupportedEnvError

# -- The memory layout of Box2D 2.3 on 64-bit Linux, and the memory of this process as an array.
#
# The offsets come from the library's debugging information. `layout_check` compares them with the installed
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
        if CONTACT_BLOCK not in self.sizes:
            self._add_contact_chunk()
        for offset in HALF_USED:
            MEMORY[at(self.address + offset)] &= np.uint64(0xFFFFFFFF)
        # for each chunk, how many blocks from its start may have been in use
        self.touched = [self._zero_unused(number) for number in range(len(self.chunks))]
        self._zero_joints()
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

    def drop_moves(self) -> None:
        """Clear the list of moved boxes."""
        MEMORY[at(self.address + MOVE_COUNTS)] &= np.uint64(0xFFFFFFFF)

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

    def _add_contact_chunk(self) -> None:
        """Allocate a chunk for contacts, so that the first contact does not change the layout."""
        chunk = self._add_chunk(CONTACT_BLOCK)
        self.sizes.append(CONTACT_BLOCK)
        count = CHUNK_BYTES // CONTACT_BLOCK
        links = view(chunk, _CHUNK_WORDS)[:: CONTACT_BLOCK // 8]
        links[: count - 1] = chunk + CONTACT_BLOCK * np.arange(1, count, dtype=np.uint64)
        MEMORY[at(self.address + FREE_LISTS + 8 * BLOCK_SIZES.index(CONTACT_BLOCK))] = chunk

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

    def _zero_joints(self) -> None:
        """Zero the bytes that the joints do not use."""
        joint = int(self.word(JOINT_LIST))
        while joint:
            octets = view(joint, JOINT_PADDING[-1][1] // 8).view(np.uint8)
            for start, stop in JOINT_PADDING:
                octets[start:stop] = 0
            joint = int(MEMORY[at(joint + NEXT_JOINT)])

    def _zero_free_nodes(self) -> None:
        """Zero all of a free node except its link and its height, which is -1."""
        nodes = view(self.nodes, self.capacity * NODE_WORDS).view(np.int32).reshape(-1, 2 * NODE_WORDS)
        free = nodes[:, 9] == -1
        nodes[free, :6] = 0
        nodes[free, 7:9] = 0
