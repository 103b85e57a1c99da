"""Checks that workers and their replacements have the same environment."""

from __future__ import annotations

from collections.abc import Sequence

from planvec.backends.base import Worker
from planvec.errors import WorkerStartError
from planvec.rows import EnvDescription

# ends the messages of errors about workers with different environments
_DIFFERENT = (
    "results would depend on the worker. A factory must make the same environment in every process; use a "
    "fixed seed for everything that it draws at random, such as a map, and np.zeros instead of np.empty"
)


def common_description(workers: Sequence[Worker]) -> EnvDescription:
    """Return the description that all workers have in common."""
    first = workers[0].description
    for worker in workers:
        description = worker.description
        if description is None or first is None:
            raise WorkerStartError(
                f"workers: expected each to host a planvec.PlanEnv, but {worker.name} does not; "
                "pass ExternalProcess(lambda: planvec.PlanEnv(...))"
            )
        check_same(worker.name, first, description)
    assert first is not None
    return first


def check_same(name: str, first: EnvDescription, description: EnvDescription) -> None:
    """Check that a worker has the same environment as the first one."""
    for what, one, other in (
        ("observation_space", first.observation_space, description.observation_space),
        ("action_space", first.action_space, description.action_space),
        ("state_dtype", first.state_dtype, description.state_dtype),
    ):
        if one != other:
            raise WorkerStartError(
                f"workers: {name} made another environment than the first: its {what} is {other}, not {one}"
            )
    _check_code(f"workers: {name}", first, description)
    difference = _difference(first, description)
    if difference:
        raise WorkerStartError(f"workers: {name} made another environment than the first: {difference}")


def check_replacement(name: str, before: EnvDescription, description: EnvDescription) -> None:
    """Check that a worker that was restarted has the same environment as before."""
    _check_code(f"{name} was restarted, and", before, description)
    difference = _difference(before, description)
    if difference:
        raise WorkerStartError(f"{name} was restarted and made another environment: {difference}")


def _difference(first: EnvDescription, other: EnvDescription) -> str:
    """Return how two environments differ in what they hold or how they behaved; "" if they do not."""
    if (other.state_format, other.fingerprint) != (first.state_format, first.fingerprint):
        return _DIFFERENT
    for number, (one, another) in enumerate(zip(first.walk, other.walk, strict=False), 1):
        if one != another:
            return (
                f"step {number} of the same random walk had another outcome. {_DIFFERENT}. If it depends on "
                "the order of a set of objects, which follows their addresses, use a dict or a list instead"
            )
    return ""


def _check_code(name: str, first: EnvDescription, description: EnvDescription) -> None:
    """Check that two environments come from the same code. Files that only one has imported do not count."""
    changed = sorted(path for path, code in first.code.items() if description.code.get(path, code) != code)
    if changed:
        raise WorkerStartError(
            f"{name} imported other code than the workers before it: since the environment was opened, "
            f"there was a change of {', '.join(changed)}. Open the environment again to use the new code"
        )
