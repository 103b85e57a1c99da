"""Converts results into the timesteps of DI-engine."""

from __future__ import annotations

from typing import Any

import treetensor.numpy as tnp
from ding.envs import BaseEnvTimestep
from ding.utils import make_key_as_identifier

from planvec.vector.ding.fleet import Answer


def timestep_of(answer: Answer) -> Any:
    """Return the timestep of a step that has not raised."""
    if answer.timestep is None:  # the episode was lost with its worker
        return BaseEnvTimestep(None, None, None, {"abnormal": True, "worker_exited": True})
    return answer.timestep._replace(obs=answer.observation)


def as_tree(env_id: int, observation: Any, reward: Any, done: Any, info: Any) -> Any:
    """Return a timestep as a tree of arrays, with keys of the info that are identifiers."""
    info = make_key_as_identifier(info)
    return tnp.array({"obs": observation, "reward": reward, "done": done, "info": info, "env_id": env_id})
