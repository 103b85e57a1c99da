"""Performs operations on environments in this process."""

from __future__ import annotations

import numpy as np

from planvec.vector.arrays import RowArrays
from planvec.vector.call import DoneCall, RowsCall
from planvec.vector.chunk import Chunk
from planvec.vector.infos import kept
from planvec.vector.operations import Call, Operation, Reply, Step
from planvec.vector.resident_envs import ResidentEnvs

_PLAIN = (np.ndarray, list, dict, tuple, set)


class LocalRows:
    """Performs operations at once. Implements `RowGroup`."""

    first_row = 0
    seconds_per_step = 0.0

    def __init__(self, resident: ResidentEnvs) -> None:
        self._resident = resident
        self.num_rows = len(resident.rows)
        self._all_rows = np.arange(self.num_rows)

    def close(self) -> None:
        """Close the environments."""
        self._resident.close()

    def prepare(self, chunk: Chunk) -> None:
        """Do nothing; see `RowGroup`."""

    def submit(self, chunk: Chunk) -> None:
        """Perform an operation; see `RowGroup`."""
        operation, out = chunk.operation, chunk.out
        if out is None or operation.rows is not None:
            reply = self._resident.perform(operation)
            arrays = self._resident.arrays
        else:
            if not isinstance(operation, Step):
                out.make(self._resident.observation_space, len(chunk.rows))
            reply, arrays = self._perform(operation, out), out
        if isinstance(operation, Step):
            self.seconds_per_step = reply.seconds / max(1, len(chunk.rows))
        if isinstance(operation, Call):  # the environment may change them later
            reply.value = [kept(value) if type(value) in _PLAIN else value for value in reply.value]
        _keep_observations(reply)
        chunk.finish(reply, arrays)

    def _perform(self, operation: Operation, out: RowArrays) -> Reply:
        """Perform an operation on all rows, and write the results without a copy."""
        resident = self._resident
        own, resident.arrays = resident.arrays, out
        try:
            return resident.perform(operation)
        finally:
            resident.arrays = own  # those of the caller must not be written again

    def step(self, operation: Step, out: RowArrays) -> RowsCall:
        """Step all rows. Faster than `submit`, for few cheap environments."""
        reply = self._perform(operation, out)
        _keep_observations(reply)
        self.seconds_per_step = reply.seconds / self.num_rows
        if reply.is_plain:
            return DoneCall(out)
        chunk = Chunk(operation, self._all_rows, out)
        chunk.finish(reply, out)
        return RowsCall.of_one(chunk)


def _keep_observations(reply: Reply) -> None:
    """Copy the observations that lie in no array: the environment may change them later."""
    if reply.observations is not None:
        reply.observations = [kept(observation) for observation in reply.observations]
