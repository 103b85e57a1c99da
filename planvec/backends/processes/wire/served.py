"""Defines `Server`, the base class of hosted objects that answer requests of their own.

A `PlanEnv` answers the requests of `planvec.rows` over a `Slab`. An object that lays out the shared memory
itself, such as the environments of a vector environment, implements `Server`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol

from planvec.rows import Request


class SharedLayout(Protocol):
    """Describes a `Server`, and lays out the memory that it shares with its parent."""

    # The worker pickles it for the parent. Each process maps the memory once per worker process.

    def map_memory(self, memory: int) -> memoryview:
        """Map the shared memory."""
        # Returns the progress; see `planvec.stepping.progress`.
        ...

    def difference(self, replacement: Any) -> str | None:
        """Return how the object of a restarted worker differs from this one, for messages; None if equal."""
        ...


class Server(ABC):
    """Answers requests of its own. A worker that hosts such an object passes them on to it."""

    # Describes it, and lays out its memory. The worker maps it before the first request.
    layout: SharedLayout

    @abstractmethod
    def serve(self, payload: bytes) -> bytes:
        """Return the answer to what `ServedRequest.write` returned."""


class ServedRequest(Request[Any]):
    """Asks something of a `Server`. The value of the answer is what `Server.serve` returned."""

    verb: ClassVar[str] = "serve"

    @abstractmethod
    def write(self) -> bytes:
        """Write what lies in the shared memory, and return the rest. Called when the request is sent."""
