"""Requests: what a backend is asked to do, with arguments that are checked.

A request over rows can be answered in parts, in any cut and in any place: rows do not depend on each other.
A new kind of request is a class here and an entry in `stepping.EnvStepper`; backends pass it on unseen.
"""

from __future__ import annotations

from planvec.rows.requests.base import FlagBatch, Request, RowRequest
from planvec.rows.requests.rollouts import RolloutBatch
from planvec.rows.requests.start import ResetRequest, SetBaseStateRequest
from planvec.rows.requests.steps import StepBatch
from planvec.rows.requests.views import ObserveBatch, ReadBatch, RenderBatch

__all__ = [
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
