"""Describes the environments of one worker to the parent, and lays out the memory that both share.

The actions and the results of every environment have a place of their own:

    progress seconds | actions observations rewards terminated truncated

The parent writes actions before it sends a step, and reads results after the reply.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from planvec.backends import Allocator
from planvec.codecs import Proof, Sharing
from planvec.vector.arrays import RowArrays
from planvec.vector.resident_envs import ResidentEnvs


@dataclass(slots=True)
class RowsLayout:
    """Describes the environments of one worker. Implements `SharedLayout`."""

    observation_spaces: list[gymnasium.Space[Any]]  # the space of the observations of each environment
    action_spaces: list[gymnasium.Space[Any]]  # the space of the actions of each environment
    metadata: dict[str, Any]  # the metadata of the first environment
    render_mode: str | None  # the render mode of the first environment
    inexact: str = ""  # why states are not saved; "" if they are
    # why each environment needs a process of its own
    sharing: Sharing = Sharing()  # noqa: RUF009
    # what proofs have shown of each row, if it gets a process of its own
    proofs: list[Proof | str | None] = field(default_factory=list)
    arrays: RowArrays = field(init=False, compare=False)  # the arrays in the memory, once it is mapped
    # the row at work; see `planvec.stepping.progress`
    progress: memoryview = field(init=False, compare=False)
    # `[1]` float64, the time that the last operation took in the worker
    seconds: NDArray[np.float64] = field(init=False, compare=False)

    @classmethod
    def of(cls, resident: ResidentEnvs) -> RowsLayout:
        """Return the description of environments."""
        envs = [row.env for row in resident.rows]
        return cls(
            _shared([env.observation_space for env in envs]),
            _shared([env.action_space for env in envs]),
            dict(getattr(envs[0], "metadata", None) or {}),
            getattr(envs[0], "render_mode", None),
            resident.inexact,
            resident.sharing,
            resident.proofs,
        )

    def __getstate__(self) -> tuple[Any, ...]:
        return (
            self.observation_spaces,
            self.action_spaces,
            self.metadata,
            self.render_mode,
            self.inexact,
            self.sharing,
            self.proofs,
        )

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.observation_spaces, self.action_spaces, self.metadata, self.render_mode = state[:4]
        self.inexact, self.sharing, self.proofs = state[4:]

    def map_memory(self, memory: int) -> memoryview:
        """Map the shared memory; see `SharedLayout`."""
        counter = Allocator(None)
        self._allocate(counter)
        num_bytes = max(counter.offset, 1)
        if os.fstat(memory).st_size < num_bytes:
            os.ftruncate(memory, num_bytes)
        self._allocate(Allocator(mmap.mmap(memory, num_bytes)))
        return self.progress

    def _allocate(self, allocate: Allocator) -> None:
        progress, self.seconds = allocate(3, np.int64), allocate(1, np.float64)
        self.progress = memoryview(progress)  # type: ignore[arg-type]
        self.arrays = RowArrays.allocate(
            self.observation_spaces[0], self.action_spaces[0], len(self.action_spaces), allocate
        )

    def difference(self, replacement: RowsLayout) -> str | None:
        """Return how the environments of a restarted worker differ from these; see `SharedLayout`."""
        for name in ("observation_spaces", "action_spaces"):
            before, after = getattr(self, name), getattr(replacement, name)
            for row, (old, new) in enumerate(zip(before, after, strict=True)):
                if old != new:
                    return f"{name}[{row}] was {old}, and is {new}"
        return None


def _shared(spaces: list[gymnasium.Space[Any]]) -> list[gymnasium.Space[Any]]:
    """Return spaces with one object for those that are equal, so that they are pickled once."""
    distinct: list[gymnasium.Space[Any]] = []
    shared = []
    for space in spaces:
        known = next((other for other in distinct if other == space), None)
        if known is None:
            distinct.append(space)
        shared.append(space if known is None else known)
    return shared
