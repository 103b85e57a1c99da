"""Defines `ProcessPending`, a request to a process and the future of its answer."""

from __future__ import annotations

from typing import Any

from planvec.backends.pending import Pending
from planvec.backends.processes.wire.form import Form
from planvec.backends.processes.wire.requests import form_of
from planvec.rows import Request


class ProcessPending(Pending):
    """Holds a request to a process."""

    __slots__ = ("form",)

    def __init__(self, request: Request[Any]) -> None:
        super().__init__(request)
        self.form: Form[Any] = form_of(request)  # writes the request
