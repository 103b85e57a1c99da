"""Finds out why an actor has died, or could not be made."""

from __future__ import annotations

import re
from dataclasses import replace

from ray.exceptions import ActorUnavailableError, RuntimeEnvSetupError

from planvec.backends.messages.failures import Failure
from planvec.backends.ray.cluster import cluster_nodes
from planvec.errors import PlanvecError, WorkerStartError

_CAUSE = re.compile(r"The actor is dead because (.*?)(?:\. |\.?$)", re.DOTALL | re.MULTILINE)
_MISSING = re.compile(r"No module named '([^']+)'")
_ADVICE = (
    "install the same packages on all nodes, or let Ray install what is missing: "
    'ray_actor_options={"runtime_env": {"pip": [...]}}, or "py_modules" for modules of your own'
)


def died(error: BaseException | None, node: str) -> tuple[str, PlanvecError | None]:
    """Return how an actor ended, for messages, and the error if all others would end in the same way."""
    text = str(error)
    if isinstance(error, RuntimeEnvSetupError):
        return "", WorkerStartError(f"ray_actor_options: the runtime_env cannot be set up: {text.strip()}")
    missing = _MISSING.search(text)
    if missing is not None and not node:
        return "", WorkerStartError(
            f"a node of the cluster lacks the package {missing.group(1).partition('.')[0]!r}: {_ADVICE}"
        )
    if lost_node(node):
        return "was lost with its node, which has left the cluster", None
    if isinstance(error, ActorUnavailableError):
        return "cannot be reached, perhaps since its node has left", None
    cause = _CAUSE.search(text)
    return ("died: " + " ".join((cause.group(1) if cause else text).split())[:300]), None


def lost_node(node: str) -> bool:
    """Return whether a node has left the cluster."""
    return bool(node) and any(info["NodeID"] == node and not info["Alive"] for info in cluster_nodes())


def with_advice(failure: Failure) -> Failure:
    """Return why an environment could not be made, with the fix if a module is missing on the node."""
    if _MISSING.search(failure.detail) is None:
        return failure
    return replace(failure, detail=f"{failure.detail} on its node: {_ADVICE}")
