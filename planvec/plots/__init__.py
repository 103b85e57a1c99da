"""Pictures of what planvec returns, with matplotlib (and igraph for trees).

Every function draws into `ax` and returns the axes; without `ax` it makes a new figure. Colour-blind people
can tell the colours apart. Lines and text follow the style in use, for instance `dark_background`.

    planning         what a planner has looked at: a tree, visits, sequences, a swarm, frames
    results          episodes, returns, explorations, and what `planvec.checking.measure_throughput` measured
"""

from __future__ import annotations

from planvec.extras import install_command

try:
    import matplotlib as _matplotlib  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(f"planvec.plots needs matplotlib: {install_command('plot')}") from error

from planvec.plots.planning import (
    SwarmPicture,
    TreePicture,
    plot_fan,
    plot_map,
    plot_sequence,
    plot_swarm,
    plot_tree,
    plot_visits,
    swarm_picture,
    tree_picture,
)
from planvec.plots.results import plot_episode, plot_exploration, plot_returns, plot_throughput
from planvec.plots.style import COLORS

__all__ = [
    "COLORS",
    "SwarmPicture",
    "TreePicture",
    "plot_episode",
    "plot_exploration",
    "plot_fan",
    "plot_map",
    "plot_returns",
    "plot_sequence",
    "plot_swarm",
    "plot_throughput",
    "plot_tree",
    "plot_visits",
    "swarm_picture",
    "tree_picture",
]
