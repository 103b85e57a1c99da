"""The settings of the kernels of tree search, and the constants that they share."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = [
    "ALL",
    "AS_GIVEN",
    "COLLIDED",
    "GRAPH",
    "MAX_IDLE",
    "NODES",
    "OPEN_LOOP",
    "RESOLVED",
    "SAMPLE",
    "SCALE_BY_NODE",
    "SCALE_BY_TREE",
    "SHORT_ROLLOUTS",
    "SINGLE",
    "Rules",
    "TreeKind",
]

SAMPLE, RESOLVED, COLLIDED = 0, 1, 2
"""How a selection ends: at an action to step; at a node whose value is known; at a step that is in flight."""
SINGLE, NODES, OPEN_LOOP = 0, 1, 2
"""An action has one outcome; a node for each of its outcomes; one node for all of its outcomes."""
SCALE_BY_TREE, SCALE_BY_NODE = -1.0, -2.0
"""Special values of `Rules.value_scale`; any other value is the scale itself."""
MAX_IDLE = 10_000
"""Simulations in a row without a step, after which the tree counts as exhausted."""
ALL = (math.inf, 0.0)
"""A value of `Rules.widening`: no limit."""

AS_GIVEN, SHORT_ROLLOUTS, GRAPH = 0, 1, 2
"""What a look at the environment has chosen: nothing; shorter rollouts; a graph of observations."""


class TreeKind(NamedTuple):
    """The settings with which a tree was searched. Only a search with the same ones can continue it.

    Attributes:
        has_own_actions: Whether every node has its own, drawn actions.
        has_priors: Whether there are priors (PUCT).
        has_legal: Whether there are masks of legal actions.
        shares_nodes: Whether equal states share a node.
        chance: `SINGLE`, `NODES` or `OPEN_LOOP`.
        discount: Factor per environment step.
        dt: Environment steps for which an action is repeated.
        choice: `AS_GIVEN`, `SHORT_ROLLOUTS` or `GRAPH`.
    """

    has_own_actions: bool
    has_priors: bool
    has_legal: bool
    shares_nodes: bool
    chance: int
    discount: float
    dt: int
    choice: int = AS_GIVEN


class Rules(NamedTuple):
    """The settings of the kernels.

    Attributes:
        exploration: Factor of the exploration term.
        value_scale: Further factor of it: a number, `SCALE_BY_TREE` or `SCALE_BY_NODE`.
        use_priors: Whether to select by PUCT, else by UCT.
        use_legal: Whether there are masks of legal actions.
        chance: `SINGLE`, `NODES` or `OPEN_LOOP`.
        max_depth: D.
        widening: A node tries `widening[0] * visits ** widening[1]` actions; (inf, 0): all.
        outcome_widening: The same for the outcomes sampled of an action.
        backs_up_values: Whether a value is computed from the values of its outcomes, as a graph needs it, or
            is the mean of the returns of its simulations.
        backs_up_max: Whether the value of a node is that of its best action, or the mean of its simulations.
        proves: Whether exactly known values are passed up.
        value_bounds: The lowest and the highest return that is possible.
        rolls_out: Whether new nodes are evaluated by a rollout.
        seed: Fixes the choice among ties and among outcomes, in [0, 2**62).
    """

    exploration: float = 1.0
    value_scale: float = 1.0
    use_priors: bool = False
    use_legal: bool = False
    chance: int = SINGLE
    max_depth: int = 1
    widening: tuple[float, float] = ALL
    outcome_widening: tuple[float, float] = ALL
    backs_up_values: bool = False
    backs_up_max: bool = False
    proves: bool = False
    value_bounds: tuple[float, float] = (-math.inf, math.inf)
    rolls_out: bool = False
    seed: int = 0
