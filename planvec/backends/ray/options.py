"""Defines `ActorOptions`, the checked options of the actors of one backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from planvec.backends.ray.actor import CONCURRENCY_GROUPS, StepActor
from planvec.errors import InvalidBatchError

# options of actors that planvec sets: it restarts actors and retries rows by itself
_OWN = (
    "concurrency_groups",
    "lifetime",
    "max_concurrency",
    "max_pending_calls",
    "max_restarts",
    "max_task_retries",
    "name",
)
# strings have the same hashes in all actors, so that sets of strings have the same order
_HASH_SEED = {"PYTHONHASHSEED": "0"}


class ActorOptions:
    """Checks options of `ray.remote`. Needs no connection to Ray."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        own = [name for name in _OWN if name in options]
        if own:
            raise InvalidBatchError(
                f"ray_actor_options: expected none of {list(_OWN)}, which planvec sets itself, got {own}"
            )
        # the `runtime_env` that the user has passed; empty if there is none
        self.runtime_env = _mapping(options, "runtime_env")
        variables = {**_HASH_SEED, **_mapping(self.runtime_env, "env_vars")}
        complete = {**options, "runtime_env": {**self.runtime_env, "env_vars": variables}}
        if complete.get("num_cpus") is None:
            complete["num_cpus"] = 1
        try:
            remote: Any = ray.remote  # its types know few of its options
            # the class of the actors, with these options
            self.actor_class = remote(concurrency_groups=CONCURRENCY_GROUPS)(StepActor).options(**complete)
        except (ValueError, TypeError) as error:
            raise InvalidBatchError(f"ray_actor_options: {error}") from error
        self.num_cpus: float = complete["num_cpus"]  # the CPUs among them
        # name -> the amount that one actor needs
        self.resources: dict[str, float] = {
            "CPU": self.num_cpus,
            "GPU": options.get("num_gpus") or 0,
            "memory": options.get("memory") or 0,
            **_mapping(options, "resources"),
        }


def _mapping(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an option that must be a dict, or None."""
    value = options.get(name)
    if not isinstance(value, Mapping | None):
        raise InvalidBatchError(f"ray_actor_options: {name}: expected a dict or None, got {value!r}")
    return dict(value or {})
