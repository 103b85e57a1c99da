"""Checks whether an environment is saved and restored exactly."""

from __future__ import annotations

from planvec.checking.check import check_env
from planvec.checking.report import CheckReport

__all__ = ["CheckReport", "check_env"]
