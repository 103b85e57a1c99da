"""Monte Carlo tree search. Importing it does not import numba, which `MCTS` imports when it plans."""

from __future__ import annotations

from planvec.planners.mcts.planner import MCTS
from planvec.planners.mcts.tree import Links, Tree, links_of, node_visits, view_of

__all__ = ["MCTS", "Links", "Tree", "links_of", "node_visits", "view_of"]
