"""Width-based planners, which look for new features: `RolloutIW` and `IW`."""

from __future__ import annotations

from dataclasses import dataclass

from planvec.planners.search import Search
from planvec.planners.width.config import WidthConfig

__all__ = ["IW", "RolloutIW"]


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

    Args:
        num_simulations: Steps from nodes of the tree per decision, one for each new node. None: as many as
            another budget allows, or 200.
        batch_size: Steps in flight. With more of them, rollouts look into more directions at once, and less
            far where the budget is small.
        features: `features(observations) -> [B, F]` integers: a feature says that a column has a value. Or
            `planvec.Screens()`, B-PROST of images. None: `Screens` for images, and numbers as they are, or as
            one of 32 intervals where they are not integers.
        discount: Factor per action, in [0, 1].
        dt: Environment steps for which an action is repeated.
        subtables: Whether features are counted apart for paths whose return has another order of magnitude
            (a power of two).
        risk_aversion: Factor of negative rewards.
        life_cost: Cost of a lost life. The infos, and the `info` that is given to `plan`, need "lives".
        reuse_tree: Whether a decision goes on with the tree of the previous one. Its nodes cost no steps.
        max_env_steps: Environment steps per decision; see `Planner`.
        max_seconds: Seconds per decision; see `Planner`.

    Raises:
        ValueError: A field is out of range. The message names it.
    """

    def _search_class(self) -> type[Search]:
        """Return the class of the search."""
        from planvec.planners.width.rollouts import RolloutSearch  # here, since numba takes long to import

        return RolloutSearch


@dataclass(frozen=True)
class IW(WidthConfig):
    """Plans by breadth-first search that goes on only from new nodes (Lipovetzky, Ramirez, Geffner 2015).

    Nodes are generated level by level. One without a feature that was not seen before is not expanded, so
    that the search ends after about as many nodes as there are features, times the actions. This is IW(1).
    It does not suit environments in which every step costs something; see `RolloutIW`.

    Args:
        num_simulations: Steps per decision, one for each new node. None: as many as another budget allows, or
            200.
        batch_size: Steps in flight.
        features: As in `RolloutIW`.
        discount: Factor per action, in [0, 1].
        dt: Environment steps for which an action is repeated.
        subtables: As in `RolloutIW`.
        risk_aversion: Factor of negative rewards.
        life_cost: As in `RolloutIW`.
        reuse_tree: Whether a decision goes on with the tree of the previous one.
        max_env_steps: Environment steps per decision; see `Planner`.
        max_seconds: Seconds per decision; see `Planner`.

    Raises:
        ValueError: A field is out of range. The message names it.
    """

    def _search_class(self) -> type[Search]:
        """Return the class of the search."""
        from planvec.planners.width.breadth import BreadthSearch  # here, since numba takes long to import

        return BreadthSearch
