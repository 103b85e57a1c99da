"""Reads the first message of a worker process, which says whether its object was made."""

from __future__ import annotations

import pickle
from typing import Any

from planvec.backends.messages.ready import read_description, start_error
from planvec.backends.processes.wire.channel import Frame
from planvec.backends.processes.wire.served import SharedLayout
from planvec.backends.processes.wire.verbs import FAILED
from planvec.backends.sharded import check_replacement
from planvec.errors import WorkerStartError
from planvec.rows import EnvDescription


def read_ready_message(frame: Frame, name: str, before: Any) -> EnvDescription | SharedLayout | None:
    """Return the description of a `PlanEnv`, the layout of a `Server`, or None for any other object."""
    if frame.verb == FAILED:
        raise start_error(pickle.loads(frame.payload), name)
    description: EnvDescription | SharedLayout | None = read_description(frame.payload, name)
    if isinstance(description, EnvDescription) and before is not None:
        check_replacement(name, before, description)
    elif description is not None and before is not None:
        difference = before.difference(description)
        if difference is not None:
            raise WorkerStartError(f"{name}: its factories made something else after a restart: {difference}")
    return description
