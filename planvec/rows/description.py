"""Describes an environment to processes that do not hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from planvec.rows.states import StateFormat

__all__ = ["EnvDescription"]


@dataclass(slots=True)
class EnvDescription:
    """Describes one environment: its spaces, the form of its states, its spec.

    Attributes:
        observation_space: The space of one observation.
        action_space: The space of one action.
        state_format: The dtype of one state, and the environment and codec that it belongs to.
        spec: Gymnasium's spec of the environment, or None.
        render_mode: The argument of `gymnasium.make`, or None.
        metadata: Gymnasium's metadata (render modes, frames per second).
        base_state: The state of `reset(seed=0)`.
        fingerprint: Equal for environments with the same constants.
        walk: A digest of the outcome of each step of the random walk on which planvec verified the codec;
            empty if it did not. The number of steps depends on how fast they were.
        uses_hashes: Whether its steps may depend on hashes of texts, which differ between processes.
        is_stochastic: False only if every step is known to have one outcome, whatever its seed.
        warning: What the user should be told; "" for nothing.
        code: Path of each file that the code of the environment comes from -> digest of its content.
    """

    observation_space: gymnasium.Space[Any]
    action_space: gymnasium.Space[Any]
    state_format: StateFormat
    spec: EnvSpec | None
    render_mode: str | None
    metadata: dict[str, Any]
    base_state: Any
    fingerprint: bytes
    walk: tuple[bytes, ...]
    uses_hashes: bool
    is_stochastic: bool
    warning: str
    code: dict[str, str]

    @property
    def state_dtype(self) -> np.dtype[Any]:
        """The dtype of one state."""
        return self.state_format.dtype
