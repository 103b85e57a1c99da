"""Makes the `WorkerExit` of a process."""

from __future__ import annotations

from planvec.backends.base import WorkerExit
from planvec.backends.processes.conversation import Conversation
from planvec.backends.stats import ExitReason
from planvec.stepping import ROW, STEP, TICKET


def make_exit(
    what: str,
    reason: ExitReason,
    conversation: Conversation,
    *,
    is_ready: bool,
    was_killed: bool,
    may_be_cause: bool,
) -> WorkerExit:
    """Return the exit of a process, with the row that was in progress."""
    exit = WorkerExit(reason, what, was_starting=not is_ready, was_killed=was_killed)
    if not is_ready:
        exit.what += ", while its environment was made and verified with random actions"
    elif conversation.sent and may_be_cause:
        progress = conversation.progress
        # A process that had not begun the request exited for another reason.
        exit.is_cause = progress is None or progress[TICKET] == conversation.sent[0].ticket
        if exit.is_cause and progress is not None and progress[ROW] >= 0:
            exit.row, exit.step = progress[ROW], progress[STEP]
    return exit
