"""Verbs of messages: at most 16 ASCII characters. Those of requests stand with their forms."""

from __future__ import annotations

__all__ = ["DONE", "FAILED", "HOSTED", "READY"]

READY = b"ready"
"""The object was made; the payload is the description of its environment."""
HOSTED = b"hosted"
"""The payload is an `Operation` on the hosted object."""
DONE = b"done"
"""The request was carried out; the payload is what does not lie in the slab."""
FAILED = b"failed"
"""It raised; the payload is a `Failure`."""
