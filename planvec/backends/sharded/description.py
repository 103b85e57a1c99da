"""Checks that several workers have the same environment."""

from __future__ import annotations

from collections.abc import Sequence

from planvec.backends.base import Worker
from planvec.errors import WorkerStartError
from planvec.rows import EnvDescription

__all__ = ["DIFFERENT", "common_description"]

DIFFERENT = (
    "results would depend on the worker. A factory must make the same environment in every process; use a "
    "fixed seed for everything that it draws at random, such as a map"
)
"""Ends the messages of errors about workers with different environments."""


def common_description(workers: Sequence[Worker]) -> EnvDescription:
    """Return the description that all workers have in common.

    Raises:
        WorkerStartError: A worker has no environment, or the workers have different ones.
    """
    first = workers[0].description
    for worker in workers:
        description = worker.description
        if description is None or first is None:
            raise WorkerStartError(
                f"workers: expected each to host a planvec.PlanEnv, but {worker.name} does not; "
                "pass ExternalProcess(lambda: planvec.PlanEnv(...))"
            )
        for name, one, other in (
            ("observation_space", first.observation_space, description.observation_space),
            ("action_space", first.action_space, description.action_space),
            ("state_dtype", first.state_dtype, description.state_dtype),
        ):
            if one != other:
                raise WorkerStartError(
                    f"workers: {worker.name} made another environment than the first: its {name} is "
                    f"{other}, not {one}"
                )
        if (description.state_format, description.fingerprint) != (first.state_format, first.fingerprint):
            raise WorkerStartError(
                f"workers: {worker.name} made another environment than the first: {DIFFERENT}"
            )
    assert first is not None
    return first
