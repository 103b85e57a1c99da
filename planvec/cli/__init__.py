"""Runs the command line.

`entry` knows the commands; `plan`, `explore` and `check` (with `bench`, `envs` and `replay`) hold them.
"""

from __future__ import annotations

from planvec.cli.entry import main

__all__ = ["main"]
