"""Tree search without Python, for environments that have a kernel. It finds the plans of `TreeSearch`.

choice      decides whether it can be used, and runs the searches of several roots on threads
run         runs one search
performing  the compiled loop for a kernel
loop        the part of it that knows no kernel
"""

from __future__ import annotations

from planvec.planners.mcts.compiled.choice import run_compiled

__all__ = ["run_compiled"]
