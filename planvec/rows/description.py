"""Describes an environment to processes that do not hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.rows.states import StateFormat


@dataclass(slots=True)
class EnvDescription:
    """Describes one environment: its spaces, the form of its states, its spec."""

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    state_format: StateFormat  # the dtype of one state, and the environment and codec that it belongs to
    spec: EnvSpec | None  # Gymnasium's spec of the environment, or None
    render_mode: str | None  # the argument of `gymnasium.make`, or None
    metadata: dict[str, Any]  # Gymnasium's metadata (render modes, frames per second)
    base_state: Any  # the state of `reset(seed=0)`
    fingerprint: bytes  # equal for environments with the same constants
    # A digest of the outcome of each step of the random walk on which planvec verified the codec; empty if it
    # did not. The number of steps depends on how fast they were.
    walk: tuple[bytes, ...]
    uses_hashes: bool  # whether its steps may depend on hashes of texts, which differ between processes
    is_stochastic: bool  # False only if every step is known to have one outcome, whatever its seed
    warning: str  # what the user should be told; "" for nothing
    # path of each file that the code of the environment comes from -> digest of its content
    code: dict[str, str]

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """The dtype of one state."""
        return self.state_format.dtype
