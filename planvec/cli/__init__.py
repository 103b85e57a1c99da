"""Runs the command line: `planvec plan`, `planvec check`, `planvec envs`."""

from __future__ import annotations

from planvec.cli.entry import main

__all__ = ["main"]
