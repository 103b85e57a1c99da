"""Performs operations on environments in this process."""

from __future__ import annotations

from planvec.vector.chunk import Chunk
from planvec.vector.operations import Step
from planvec.vector.resident_envs import ResidentEnvs

__all__ = ["LocalRows"]


class LocalRows:
    """Performs operations at once. Implements `RowGroup`.

    Args:
        resident: The environments.
    """

    first_row = 0
    seconds_per_step = 0.0

    def __init__(self, resident: ResidentEnvs) -> None:
        self._resident = resident
        self.num_rows = len(resident.rows)

    def submit(self, chunk: Chunk) -> None:
        """Perform an operation; see `RowGroup`."""
        operation, resident = chunk.operation, self._resident
        own = arrays = resident.arrays
        if chunk.out is not None and operation.rows is None:
            if not isinstance(operation, Step):
                chunk.out.make(resident.observation_space, len(chunk.rows))
            arrays = resident.arrays = chunk.out  # written without a copy
        try:
            reply = resident.perform(operation)
        finally:
            resident.arrays = own  # those of the caller must not be written again
        if isinstance(operation, Step):
            self.seconds_per_step = reply.seconds / max(1, len(chunk.rows))
        chunk.finish(reply, arrays)
