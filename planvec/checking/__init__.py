"""Checks whether an environment is saved and restored exactly, and measures how fast it is stepped."""

from __future__ import annotations

from planvec.checking.check import CheckReport, check_env
from planvec.checking.throughput import Throughput, measure_throughput

__all__ = ["CheckReport", "Throughput", "check_env", "measure_throughput"]
