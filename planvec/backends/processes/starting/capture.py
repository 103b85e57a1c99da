"""Captures the settings of this process with which a worker is started."""

from __future__ import annotations

import multiprocessing.spawn
import os
from collections.abc import Callable, Sequence
from typing import Any

from planvec.backends.processes.starting.hidden_main import hidden_main
from planvec.backends.processes.wire.spec import WorkerSpec


def capture_spec(factory: bytes | Callable[[], Any], name: str, preload: Sequence[str]) -> WorkerSpec:
    """Return a spec with the present settings of this process."""
    with hidden_main():
        preparation = multiprocessing.spawn.get_preparation_data(name)
    # Plain bytes: `AuthenticationString` refuses to be pickled. The key only goes into the worker's memory.
    preparation["authkey"] = bytes(preparation["authkey"])
    return WorkerSpec(name, factory, dict(os.environ), preparation, tuple(preload))
