"""From the end of a process to a `WorkerExit`."""

from __future__ import annotations

from planvec.backends.base import WorkerExit
from planvec.backends.processes.conversation import Conversation
from planvec.backends.stats import ExitReason
from planvec.stepping import ROW, STEP, TICKET

__all__ = ["make_exit"]


def make_exit(
    what: str,
    reason: ExitReason,
    conversation: Conversation,
    *,
    is_ready: bool,
    was_killed: bool,
    may_be_cause: bool,
) -> WorkerExit:
    """Return how a process ended, and the row that it was at.

    Args:
        what: Which process, and how it ended.
        reason: For `Stats`.
        conversation: With the process.
        is_ready: Whether it had made its object.
        was_killed: Whether somebody else ended it.
        may_be_cause: Whether the request at work may be the cause.
    """
    exit = WorkerExit(reason, what, was_starting=not is_ready, was_killed=was_killed)
    if not is_ready:
        exit.what += ", while its environment was made and tried with random actions"
    elif conversation.sent and may_be_cause:
        progress = conversation.progress
        # A worker that had not begun it yet has died of something else.
        exit.is_cause = progress is None or progress[TICKET] == conversation.sent[0].ticket
        if exit.is_cause and progress is not None and progress[ROW] >= 0:
            exit.row, exit.step = progress[ROW], progress[STEP]
    return exit
