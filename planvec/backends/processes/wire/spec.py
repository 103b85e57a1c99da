"""Defines `WorkerSpec`, which holds what a worker process is started with."""

from __future__ import annotations

import contextlib
import multiprocessing.spawn
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from planvec.backends.processes.wire.slab import open_memory

_HASH_SEED = "PYTHONHASHSEED"


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

    @property
    def path(self) -> list[str]:
        """The `sys.path` of the worker."""
        path: list[str] = self.preparation["sys_path"]
        return path

    def interpreter_environ(self) -> dict[str, str]:
        """Return the environment variables with which a fresh interpreter is started."""
        # Strings have the same hashes in all workers, so that sets of strings have the same order.
        return {_HASH_SEED: "0", **self.environ}

    @contextlib.contextmanager
    def hash_seed(self) -> Iterator[None]:
        """Set the seed of `interpreter_environ` in this process, for a server that multiprocessing starts."""
        before = os.environ.get(_HASH_SEED)
        os.environ[_HASH_SEED] = self.interpreter_environ()[_HASH_SEED]
        try:
            yield
        finally:
            if before is None:
                del os.environ[_HASH_SEED]
            else:
                os.environ[_HASH_SEED] = before

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
