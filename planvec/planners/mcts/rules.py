"""The settings of the kernels of tree search, and the constants that they share."""

from __future__ import annotations

import math
from typing import NamedTuple

# how a selection ends: at an action to step; at a node whose value is known; at a step that is in flight
SAMPLE, RESOLVED, COLLIDED = 0, 1, 2
# an action has one outcome; a node for each of its outcomes; one node for all of its outcomes
SINGLE, NODES, OPEN_LOOP = 0, 1, 2
# special values of `Rules.value_scale`; any other value is the scale itself
SCALE_BY_TREE, SCALE_BY_NODE = -1.0, -2.0
MAX_IDLE = 10_000  # simulations in a row without a step, after which the tree counts as exhausted
ALL = (math.inf, 0.0)  # A value of `Rules.widening`: no limit

# what a look at the environment has chosen: nothing; shorter rollouts; a graph of observations
AS_GIVEN, SHORT_ROLLOUTS, GRAPH = 0, 1, 2


class TreeKind(NamedTuple):
    """The settings with which a tree was searched. Only a search with the same ones can continue it."""

    has_own_actions: bool  # whether every node has its own, drawn actions
    has_priors: bool  # whether there are priors (PUCT)
    has_legal: bool  # whether there are masks of legal actions
    shares_nodes: bool  # whether equal states share a node
    chance: int  # `SINGLE`, `NODES` or `OPEN_LOOP`
    discount: float  # factor per environment step
    dt: int  # environment steps for which an action is repeated
    choice: int = AS_GIVEN  # `AS_GIVEN`, `SHORT_ROLLOUTS` or `GRAPH`


class Rules(NamedTuple):
    """The settings of the kernels."""

    exploration: float = 1.0  # factor of the exploration term
    value_scale: float = 1.0  # further factor of it: a number, `SCALE_BY_TREE` or `SCALE_BY_NODE`
    use_priors: bool = False  # whether to select by PUCT, else by UCT
    use_legal: bool = False  # whether there are masks of legal actions
    chance: int = SINGLE  # `SINGLE`, `NODES` or `OPEN_LOOP`
    max_depth: int = 1  # D
    # A node tries `widening[0] * visits ** widening[1]` actions; (inf, 0): all
    widening: tuple[float, float] = ALL
    outcome_widening: tuple[float, float] = ALL  # the same for the outcomes sampled of an action
    # whether a value is computed from the values of its outcomes, as a graph needs it, or is the mean of the
    # returns of its simulations
    backs_up_values: bool = False
    # whether the value of a node is that of its best action, or the mean of its simulations
    backs_up_max: bool = False
    proves: bool = False  # whether exactly known values are passed up
    # the lowest and the highest return that is possible
    value_bounds: tuple[float, float] = (-math.inf, math.inf)
    rolls_out: bool = False  # whether new nodes are evaluated by a rollout
    seed: int = 0  # fixes the choice among ties and among outcomes, in [0, 2**62)
