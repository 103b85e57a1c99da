"""Defines `Launcher`, which starts the actors of one backend."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import ray

from planvec.backends.ray.actor import CONCURRENCY_GROUPS, StepActor
from planvec.backends.ray.caution import Caution
from planvec.backends.ray.shared_states import SharedStates
from planvec.errors import InvalidBatchError
from planvec.rows import EnvDescription

__all__ = ["Launcher"]

_OWN = (
    "concurrency_groups",
    "lifetime",
    "max_concurrency",
    "max_pending_calls",
    "max_restarts",
    "max_task_retries",
    "name",
)
"""Options of actors that planvec sets: it restarts actors and retries rows by itself."""
_HASH_SEED = {"PYTHONHASHSEED": "0"}
"""Strings have the same hashes in all actors, so that sets of strings have the same order."""


class Launcher:
    """Starts actors that make the same environment.

    Args:
        factory: Makes a `PlanEnv`; pickled by cloudpickle.
        options: The options of actors that the user has passed.

    Attributes:
        factory: The factory in the object store, from which each node takes it once.
        path: The `sys.path` of this process.
        directory: The working directory of this process; None if `runtime_env` names another one.
        resources: Name -> the amount that one actor needs.
        description: The description of the environment, once a worker has made it.
        caution: Says whether its actors get one request at a time.
        shared_states: Gives references to large states that were sent before.

    Raises:
        InvalidBatchError: The options are wrong.
    """

    def __init__(self, factory: bytes, options: Mapping[str, Any]) -> None:
        own = [name for name in _OWN if name in options]
        if own:
            raise InvalidBatchError(
                f"ray_actor_options: expected none of {list(_OWN)}, which planvec sets itself, got {own}"
            )
        options = {"num_cpus": 1, **options}
        environment = dict(options.get("runtime_env") or {})
        variables = {**_HASH_SEED, **(environment.get("env_vars") or {})}
        options["runtime_env"] = {**environment, "env_vars": variables}
        self.resources: dict[str, float] = {
            "CPU": options["num_cpus"],
            "GPU": options.get("num_gpus") or 0,
            "memory": options.get("memory") or 0,
            **(options.get("resources") or {}),
        }
        try:
            remote: Any = ray.remote  # its types know few of its options
            self._actor_class = remote(concurrency_groups=CONCURRENCY_GROUPS)(StepActor).options(**options)
        except (ValueError, TypeError) as error:
            raise InvalidBatchError(f"ray_actor_options: {error}") from error
        self.factory = ray.put(factory)
        self.path = [entry or os.getcwd() for entry in sys.path]
        self.directory = None if "working_dir" in environment else os.getcwd()
        self.description: EnvDescription | None = None
        self.caution = Caution()
        self.shared_states = SharedStates()

    def start(self) -> Any:
        """Start an actor, and return its handle at once."""
        return self._actor_class.remote()
