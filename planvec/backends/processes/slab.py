"""Lays out the rows of a batch in memory that a worker shares with its parent.

    slot 0: states actions dt seeds flags rollout_actions | new_states observations rewards ... seconds
    slot 1: the same; the parent fills one slot while the worker steps the other
    progress: ticket, row and step that the worker is executing

The parent writes the left side, and the worker writes the right side. Each side reads data only after a
message about it has arrived over the channel. Therefore rows that a worker was writing when it crashed are
never read; only `progress` is. The memory has no name in the file system: it is freed when both processes
have ended, even after a crash. Its size is bounded; larger batches are cut into more chunks.
"""

from __future__ import annotations

import mmap
import multiprocessing.spawn
import os
import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.rows import EnvDescription, Outputs, empty_rows, is_fixed, raw, take_rows

NUM_SLOTS = 2
_SLOT_BYTES = 4 << 20
_MAX_ROWS = 2048
_ALIGNMENT = 64
_MAX_VIEWS = 32
_ROLLOUT_BYTES = 1 << 20  # Bytes for the actions of rollouts. Larger rollouts are pickled.


def open_memory() -> int:
    """Return a file descriptor of memory without a name. Its size is 0 until `Slab` sets it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("planvec", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:  # unlinked at once
        return os.dup(file.fileno())


_OF_ROWS = ("states", "state_blocks", "actions", "dt", "seeds")  # the inputs in a slot, `[B, ...]` each


@dataclass(slots=True)
class Slot:
    """Holds the arrays of one chunk. Letters: B rows."""

    # Data of variable size is None here, and is sent in the message instead.

    states: np.ndarray | None  # `[B]`, or None
    state_blocks: NDArray[np.void] | None  # the same as blocks of bytes, which NumPy copies faster
    actions: Any  # A tree of arrays `[B, ...]`, or None
    dt: NDArray[np.int64]  # `[B]` int64
    seeds: NDArray[np.uint64]  # `[B]` uint64
    flags: NDArray[np.uint8]  # `[1]` uint8, the options of steps, see `_HAS_SEEDS` in `requests`
    rollout_actions: NDArray[np.uint8]  # uint8, the memory for `rollout_tree`
    outputs: Outputs  # the outputs of the rows
    seconds: NDArray[np.float64]  # `[1]` float64, the time that the worker took
    waits: NDArray[np.int64]  # `[1]` int64, see `Answer.waits`
    deadline: NDArray[np.float64]  # `[1]` float64, the deadline of steps; inf: none
    action_space: Space[Any]
    _views: dict[int, Slot] = field(default_factory=dict)

    def first(self, num_rows: int) -> Slot:
        """Return views of the first rows of this slot. Cached, since many calls have the same size."""
        view = self._views.get(num_rows)
        if view is None:
            if len(self._views) >= _MAX_VIEWS:
                self._views.clear()
            rows = slice(0, num_rows)
            arrays = {name: getattr(self, name) for name in _OF_ROWS}
            parts = {name: take_rows(array, rows) for name, array in arrays.items() if array is not None}
            view = replace(self, outputs=self.outputs.part(rows), _views={}, **parts)
            self._views[num_rows] = view  # stored last: a signal handler may raise before
        return view

    def rollout_tree(self, num_actions: int) -> Any:
        """Return a tree of arrays `[num_actions, ...]` in `rollout_actions`, or None if they do not fit."""
        if not is_fixed(self.action_space):
            return None
        allocate = Allocator(self.rollout_actions.data)
        try:
            return empty_rows(self.action_space, num_actions, allocate)
        except ValueError:  # the buffer is too small
            return None


class Allocator:
    """Allocates arrays in a buffer one after another; without a buffer, it only counts the bytes."""

    def __init__(self, buffer: mmap.mmap | memoryview | None, offset: int = 0) -> None:
        self._buffer = buffer
        self.offset = offset

    def __call__(self, shape: Any, dtype: Any) -> np.ndarray:
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        dtype = np.dtype(dtype)
        start = -(-self.offset // _ALIGNMENT) * _ALIGNMENT
        count = int(np.prod(shape, dtype=np.int64))
        self.offset = start + count * dtype.itemsize
        if not count * dtype.itemsize:
            return np.empty(shape, dtype)
        if self._buffer is None:
            # Only shape and dtype matter here: this allocates no memory, whatever the size.
            return np.broadcast_to(np.zeros((), dtype), shape)
        return np.frombuffer(self._buffer, dtype, count, start).reshape(shape)


def _slot(description: EnvDescription, num_rows: int, allocate: Allocator) -> Slot:
    def rows(space: Space[object]) -> Any:
        return empty_rows(space, num_rows, allocate) if is_fixed(space) else None

    dtype = description.state_format.dtype
    has_records = not dtype.hasobject
    states = allocate(num_rows, dtype) if has_records else None
    new_states = allocate(num_rows, dtype) if has_records else None
    return Slot(
        states=states,
        state_blocks=None if states is None else raw(states),
        actions=rows(description.action_space),
        dt=allocate(num_rows, np.int64),
        seeds=allocate(num_rows, np.uint64),
        flags=allocate(1, np.uint8),
        rollout_actions=allocate(_ROLLOUT_BYTES, np.uint8),
        seconds=allocate(1, np.float64),
        waits=allocate(1, np.int64),
        deadline=allocate(1, np.float64),
        action_space=description.action_space,
        outputs=Outputs(
            new_states=new_states,
            state_blocks=None if new_states is None else raw(new_states),
            observations=rows(description.observation_space),
            rewards=allocate(num_rows, np.float64),
            terminated=allocate(num_rows, np.bool_),
            truncated=allocate(num_rows, np.bool_),
            num_steps=allocate(num_rows, np.int64),
        ),
    )


def _capacity(description: EnvDescription) -> int:
    """Return the number of rows per slot: as many as fit into `_SLOT_BYTES`, but at least 1."""
    one = Allocator(None)
    _slot(description, 1, one)
    return max(1, min(_MAX_ROWS, _SLOT_BYTES // max(one.offset - _ROLLOUT_BYTES, 1)))


class Slab:
    """Maps the slots of one worker from a file descriptor."""

    # Both processes make a slab from the same description, and therefore use the same layout.

    def __init__(self, description: EnvDescription, memory: int) -> None:
        self.capacity = _capacity(description)  # largest number of rows in a slot
        counter = Allocator(None)
        counter(3, np.int64)
        for _ in range(NUM_SLOTS):
            _slot(description, self.capacity, counter)
        self.num_bytes = max(counter.offset, 1)  # size of the memory in bytes
        if os.fstat(memory).st_size < self.num_bytes:
            os.ftruncate(memory, self.num_bytes)
        allocate = Allocator(mmap.mmap(memory, self.num_bytes))
        # `[3]` int64: the ticket, the row of the chunk and the step of the rollout that the worker is
        # executing
        self.progress = memoryview(allocate(3, np.int64))  # type: ignore[arg-type]
        self.slots = [_slot(description, self.capacity, allocate) for _ in range(NUM_SLOTS)]


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Holds what a worker process is started with, as it was when the worker was opened."""

    # A replacement is started from the same spec. Otherwise it might make another environment, because the
    # program has changed its environment variables, its `sys.path` or its working directory meanwhile.

    name: str  # the name in process listings
    # Makes the hosted object. Pickled by `pickle_factory`, unless a forked worker inherits it.
    factory: bytes | Callable[[], Any]
    environ: dict[str, str]  # the environment variables
    # `sys.path`, the working directory and further settings, as the spawn method sends them
    preparation: dict[str, Any]
    preload: tuple[str, ...] = ()  # modules that the template process imports before it forks the worker

    def apply(self) -> None:
        """Install the settings in this process, a worker."""
        multiprocessing.spawn.prepare({**self.preparation, "name": self.name})
        if os.environ != self.environ:
            os.environ.clear()
            os.environ.update(self.environ)

    def write(self) -> int:
        """Return a file descriptor of memory that holds the pickled spec."""
        memory = open_memory()
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(pickle.dumps(self, protocol=5))
        except BaseException:
            os.close(memory)
            raise
        return memory

    @classmethod
    def read(cls, memory: int) -> WorkerSpec:
        """Return the spec from memory that `write` returned, and close the file descriptor."""
        with open(memory, "rb") as file:
            file.seek(0)
            spec: WorkerSpec = pickle.loads(file.read())
        return spec
