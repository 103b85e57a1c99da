"""The memory that a Box2D world has allocated: chunks of blocks, and the nodes of its tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from planvec.codecs.box2d.layout import (
    BLOCK_SIZES,
    BODY_FIXTURES,
    BODY_LIST,
    CHUNK_BYTES,
    CHUNK_COUNTS,
    CHUNKS,
    CIRCLE_BYTES,
    CONTACT_BLOCK,
    CONTACT_POINTS,
    FIXTURE_SHAPE,
    FLOOR,
    FREE_LISTS,
    HALF_USED,
    JOINT_LIST,
    JOINT_PADDING,
    MEMORY,
    MOVE_COUNTS,
    NEXT_BODY,
    NEXT_JOINT,
    NODE_COUNTS,
    NODE_WORDS,
    NODES,
    NUM_POINTS,
    PADDING,
    POINT_BYTES,
    SMALL_BLOCK,
    VIRTUAL_BYTES,
    WORLD_BYTES,
    at,
    c_library,
    halves,
    view,
)
from planvec.errors import UnsupportedEnvError

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
