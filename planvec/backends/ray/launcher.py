"""Defines `Launcher`, which starts and kills the actors of one backend."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Any

import ray

from planvec.backends.ray.caution import Caution
from planvec.backends.ray.cluster import Cluster
from planvec.backends.ray.options import ActorOptions
from planvec.backends.ray.shared_states import SharedStates
from planvec.errors import ClosedError
from planvec.rows import EnvDescription


class Launcher:
    """Starts actors that make the same environment."""

    def __init__(self, factory: bytes, options: ActorOptions, cluster: Cluster) -> None:
        self.options, self._cluster = options, cluster
        self._actors: set[Any] = set()
        self._is_ended = False
        self.factory = ray.put(factory)  # the factory in the object store, from which each node takes it once
        self.path = [entry or os.getcwd() for entry in sys.path]  # the `sys.path` of this process
        environments = (options.runtime_env, ray.get_runtime_context().runtime_env)
        has_directory = any("working_dir" in environment for environment in environments)
        # the working directory of this process; None if a `runtime_env` names another one
        self.directory = None if has_directory else os.getcwd()
        # the description of the environment, once a worker has made it
        self.description: EnvDescription | None = None
        self.caution = Caution()  # says whether its actors get one request at a time
        self.shared_states = SharedStates()  # gives references to large states that were sent before

    def why_unusable(self) -> ClosedError | None:
        """Return the error of a call without the connection to Ray: a call would start Ray anew."""
        if self._cluster.is_connected:
            return None
        return ClosedError("Ray was stopped, perhaps by ray.shutdown(); open the environment again")

    def start(self) -> Any:
        """Start an actor, and return its handle at once."""
        actor = self.options.actor_class.remote()
        self._actors.add(actor)
        return actor

    def kill(self, actor: Any) -> None:
        """Kill an actor. One that is dead already is forgotten."""
        self._actors.discard(actor)
        if self._cluster.is_connected:
            with contextlib.suppress(Exception):  # it is dead, or Ray is being stopped
                ray.kill(actor, no_restart=True)

    def end(self) -> None:
        """Kill all actors that are left. Stop Ray if planvec has started it. May be called again."""
        self._is_ended = True
        for actor in list(self._actors):
            self.kill(actor)
        self._cluster.close()

    def end_later(self) -> None:
        """Do the same in a thread: the garbage collector may run in one of Ray's own threads."""
        if not self._is_ended and self._cluster.is_connected:
            threading.Thread(target=self.end, name="planvec-ray-end", daemon=True).start()
