"""Runs the command line as `python -m planvec`."""

from __future__ import annotations

import sys

from planvec.cli import main

if __name__ == "__main__":
    sys.exit(main())
