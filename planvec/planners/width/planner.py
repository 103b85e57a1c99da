"""Width-based planners, which look for new features: `RolloutIW` and `IW`."""

from __future__ import annotations

from dataclasses import dataclass

from planvec.planners.search import Search
from planvec.planners.width.config import WidthConfig


@dataclass(frozen=True)
class RolloutIW(WidthConfig):
    """Plans by rollouts that end where nothing is new (Bandres, Bonet and Geffner, AAAI 2018).

    A rollout takes random actions from the root on, among those whose subtrees are not solved. A node is
    novel if one of its features was not seen before at its depth or above in this decision. Where a node is
    not, the rollout ends, and the node is solved; a node whose children are all solved is solved, too. The
    plan's action leads to the branch with the highest return; where no branch has one, to the longest.

    It suits environments whose rewards are rare, with actions that can be listed. Where steps are random,
    each is sampled once, so that it takes luck for skill. Where every step costs something, as in
    CliffWalking or MountainCar, the branch that was followed least far looks best: take `MCTS` or `Swarm`.

    Raises:
        ValueError: A field is out of range. The message names it.
    """

    def _search_class(self) -> type[Search]:
        """Return the class of the search."""
        from planvec.planners.width.search import RolloutSearch  # here, since numba takes long to import

        return RolloutSearch


@dataclass(frozen=True)
class IW(WidthConfig):
    """Plans by breadth-first search that goes on only from new nodes (Lipovetzky, Ramirez, Geffner 2015).

    Nodes are generated level by level. One without a feature that was not seen before is not expanded, so
    that the search ends after about as many nodes as there are features, times the actions. This is IW(1).
    It does not suit environments in which every step costs something; see `RolloutIW`.

    Raises:
        ValueError: A field is out of range. The message names it.
    """

    def _search_class(self) -> type[Search]:
        """Return the class of the search."""
        from planvec.planners.width.search import BreadthSearch  # here, since numba takes long to import

        return BreadthSearch
