"""The exactness check: whether an environment is saved and restored to the bit."""

from __future__ import annotations

from planvec.checking.check import check_env
from planvec.checking.report import CheckReport

__all__ = ["CheckReport", "check_env"]
