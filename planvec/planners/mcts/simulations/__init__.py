"""The simulations of a tree search as compiled code: one call before each step of a batch, and one after it.

memory      holds the simulations in flight, and calls the compiled functions
half        begins and continues one half of them
steps       the requests for steps, and the expansion of the tree by their answers
leaves      the requests for values of leaves, and the backup
table       the transposition table
progress    the arrays of all this
"""

from __future__ import annotations

from planvec.planners.mcts.simulations.memory import Simulations

__all__ = ["Simulations"]
