"""Passes the ids that are registered in this process on to other processes."""

from __future__ import annotations

import cloudpickle
from gymnasium.envs.registration import EnvSpec, registry

from planvec.backends import load_pickled

__all__ = ["RegisteredIds"]


class RegisteredIds:
    """Holds Gymnasium's registry of this process, so that a factory in a worker can make any of its ids."""

    def __init__(self) -> None:
        self._specs: dict[str, bytes] = {}
        for env_id, spec in registry.items():
            try:
                self._specs[env_id] = cloudpickle.dumps(spec)
            except Exception:  # an argument that cannot be pickled: workers do not know this id
                continue

    def install(self) -> None:
        """Register the ids that this process does not know."""
        for env_id, data in self._specs.items():
            if env_id not in registry:
                spec: EnvSpec = load_pickled(data)
                registry[env_id] = spec
