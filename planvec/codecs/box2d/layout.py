"""The memory layout of Box2D 2.3 on 64-bit Linux, and the memory of this process as an array.

The offsets come from the library's debugging information. `layout_check` compares them with the installed
library before anything is written.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
