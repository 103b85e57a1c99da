"""Defines verbs of messages: at most 16 ASCII characters. Each `Form` defines the verb of its requests."""

from __future__ import annotations

READY = b"ready"  # the object is made; the payload is the pickled description of its environment, or None
HOSTED = b"hosted"  # the payload is an `Operation` on the hosted object
SERVED = b"served"  # the payload is a request that the hosted object, a `Server`, answers itself
DONE = b"done"  # the request succeeded; the payload is the data that does not lie in the slab
FAILED = b"failed"  # the request raised an exception; the payload is a pickled `Failure`
