"""Tree search without the driver, where steps are made in this process. It finds the same plans.

choice      decides whether it can be used, and runs the searches of several roots on threads
run         runs one search
row_run     ... whose requests the environment performs, or a kernel in batches
kernel_run  ... in one compiled loop with a kernel, without Python
performing  the compiled loop for a kernel
loop        the part of it that knows no kernel
"""

from __future__ import annotations

from planvec.planners.mcts.compiled.choice import run_here

__all__ = ["run_here"]
