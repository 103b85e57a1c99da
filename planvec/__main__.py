"""`python -m planvec` is the command line."""

from __future__ import annotations

import sys

from planvec.cli import main

if __name__ == "__main__":
    sys.exit(main())
