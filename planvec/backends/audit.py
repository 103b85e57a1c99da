"""Steps some rows a second time and compares: a watch over environments that the proof at opening has missed.

    call        row 17 on worker 0 ------> answer, kept
    later       row 17 on worker 1 ------> answer, compared with the first

Rows are chosen such that the second steps take a fixed fraction of the time of all steps.
"""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from typing import Any

from planvec.errors import InvalidBatchError, UnsupportedEnvError
from planvec.rows import Answer, Outputs, Request
from planvec.stepping import output_difference

DEFAULT_AUDIT = 0.005  # fraction of the time that is spent on audits unless the user chooses another
# the cause and the fix if two steps of the environment differ
ENV_ADVICE = (
    "The environment is no function of its state. planvec.check_env searches for the cause; "
    'codec="replay" restores states from the seed and the actions'
)
# the same if the first step was that of a kernel
KERNEL_ADVICE = (
    "The compiled kernel of the environment gives other results than the environment itself. Pass "
    "compiled=False, which does not use it, and correct the kernel if it is your own, else please report this"
)
_OVERHEAD_SECONDS = 0.5e-3  # time that a row costs besides its step: a chunk of its own, and the comparison


@dataclass(slots=True)
class AuditedRow:
    """Holds a row to step again, and its first results."""

    request: Request[Any]  # the request for this row alone
    expected: Outputs  # its first results
    row: int  # its index in the batch
    stepped_by: str  # name of the worker that stepped it first

    def compare(
        self, answer: Answer, stepped_by: str, advice: str = ENV_ADVICE
    ) -> UnsupportedEnvError | None:
        """Return the error to raise if the second results differ from the first ones, else None."""
        difference = output_difference(self.expected, answer.outputs)
        return None if difference is None else self.error(stepped_by, difference, advice)

    def error(self, stepped_by: str, difference: str, advice: str = ENV_ADVICE) -> UnsupportedEnvError:
        """Return the error for a difference."""
        return UnsupportedEnvError(
            f"audit: row {self.row} of an earlier {self.request.verb} was repeated and gave another result "
            f"({self.stepped_by}, then {stepped_by}): {difference}. {advice}; audit=0 switches this check off"
        )


class Audit:
    """Chooses the rows that are stepped again."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction
        self._budget = 0.0
        self._random = random.Random(0)  # the choice has no influence on results

    def choose(self, request: Request[Any], rows: slice, answer: Answer, name: str) -> AuditedRow | None:
        """Return a row to step again, or None."""
        self._budget += self._fraction * answer.seconds
        num_rows = rows.stop - rows.start
        if self._budget < _OVERHEAD_SECONDS or not request.is_counted or not num_rows:
            return None
        cost = _OVERHEAD_SECONDS + answer.seconds / num_rows
        index = self._random.randrange(num_rows)
        counts = answer.outputs.num_steps
        is_late = request.deadline is not None and counts is not None and counts[index] < 0
        if self._budget < cost or index in answer.errors or is_late:
            return None
        self._budget -= cost
        row = rows.start + index
        one = request.part(slice(row, row + 1)).copy()
        one.deadline = None
        return AuditedRow(one, copy.deepcopy(answer.outputs.part(slice(index, index + 1))), row, name)


def check_audit(audit: Any) -> None:
    """Check the fraction of the time that is spent on audits."""
    is_number = isinstance(audit, (int, float)) and not isinstance(audit, bool)
    if not (is_number and 0 <= audit <= 1):
        raise InvalidBatchError(f"audit: expected a fraction from 0 to 1, got {audit!r}")
