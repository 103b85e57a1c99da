"""Defines the requests that a backend performs. Their arguments have been checked.

Rows do not depend on each other, so a request over rows can be split anywhere, and its parts can be performed
by different workers. To add a type of request, write a class here and an entry in `stepping.EnvStepper`.
Backends need no change.
"""

from __future__ import annotations

from planvec.rows.requests.base import FlagBatch, Request, RowRequest
from planvec.rows.requests.rollouts import RolloutBatch
from planvec.rows.requests.start import ResetRequest, SetBaseStateRequest
from planvec.rows.requests.steps import StepBatch
from planvec.rows.requests.views import CheckBatch, ObserveBatch, ReadBatch, RenderBatch

__all__ = [
    "CheckBatch",
    "FlagBatch",
    "ObserveBatch",
    "ReadBatch",
    "RenderBatch",
    "Request",
    "ResetRequest",
    "RolloutBatch",
    "RowRequest",
    "SetBaseStateRequest",
    "StepBatch",
]
