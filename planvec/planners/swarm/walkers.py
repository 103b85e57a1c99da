"""The walkers of a swarm as a struct of arrays. Letters: B walkers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.planners.swarm.arrays import WALKER_DTYPE, Outcomes, Rules
from planvec.planners.swarm.features import Features
from planvec.planners.swarm.iteration import iterate
from planvec.planners.swarm.lineage import Lineage
from planvec.planners.swarm.samplers import Draw
from planvec.planners.swarm.values import extrapolate_returns
from planvec.rows import Transitions, arrays_of_states, states_of_arrays

_NO_BYTES = np.empty(0, np.uint8)


@dataclass(slots=True, eq=False)
class Walkers:
    """The state of every walker, and the actions that led to it."""

    start: NDArray[Any]  # `[1]`, the state at which the planner plans
    states: NDArray[Any]  # `[B]` states
    table: NDArray[Any]  # `[B]` of `WALKER_DTYPE`, what is known of each walker besides
    lineage: Lineage  # the moves of all walkers, a tree
    num_ended: int = 0  # how many have terminated or were truncated

    def __repr__(self) -> str:
        return f"<Walkers: {len(self.table)}, of which {self.num_ended} have ended>"

    @classmethod
    def initial(cls, start: NDArray[Any], num_walkers: int, action_space: Space[Any]) -> Walkers:
        """Return walkers that have not moved yet."""
        table = np.zeros(num_walkers, WALKER_DTYPE)
        return cls(start, np.repeat(start, num_walkers), table, Lineage(action_space, num_walkers))

    @property
    def returns(self) -> NDArray[np.float64]:
        """Undiscounted returns, `[B]` float64."""
        return self.table["total"]

    @property
    def num_steps(self) -> NDArray[np.int64]:
        """Ages in environment steps, `[B]` int64."""
        return self.table["num_steps"]

    @property
    def nodes(self) -> NDArray[np.int64]:
        """The latest node of each walker in the lineage, `[B]` int64."""
        return self.table["node"]

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """Which walkers have terminated, `[B]` bool."""
        return self.table["terminated"]

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Which walkers were truncated, `[B]` bool."""
        return self.table["truncated"]

    def advance_and_clone(
        self,
        draw: Draw,
        out: Transitions,
        features: Features,
        novelty: NDArray[np.float64],
        rules: Rules,
        is_guided: bool,
    ) -> bool:
        """Update every walker by its transition, then replace some by clones of others."""
        # `novelty`: `[B]`, number of features that no walker has seen before; empty: it does not count.
        # Returns whether walker 0 was dead, and is a clone now.
        lineage = self.lineage
        lineage.make_room(self.table)
        outcomes = Outcomes(
            np.ascontiguousarray(out.rewards, np.float64),
            np.ascontiguousarray(out.infos["num_steps"], np.int64),
            np.ascontiguousarray(out.terminated, bool),
            np.ascontiguousarray(out.truncated, bool),
        )
        states = out.new_states
        are_objects = states.dtype.hasobject
        held = _NO_BYTES if are_objects else np.ascontiguousarray(states).view(np.uint8)
        copies = np.empty_like(held)
        lineage.num_nodes, self.num_ended, first_was_dead = iterate(
            *(self.table, lineage.moves, lineage.num_nodes, outcomes, features, draw.action_bytes),
            *(held, copies, draw.uniforms, novelty, rules, is_guided),
        )
        self.states = states[self.table["source"]] if are_objects else copies.view(states.dtype)
        return bool(first_was_dead)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the swarm as arrays of numbers and text."""
        lineage = self.lineage
        return {
            **arrays_of_states("start", self.start),
            **arrays_of_states("states", self.states),
            "table": self.table,
            "moves": lineage.moves.nodes[: lineage.num_nodes],
            "actions": lineage.moves.actions[: lineage.num_nodes],
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], action_space: Space[Any]) -> Walkers:
        """Return the swarm that `to_arrays` turned into arrays."""
        start, states = states_of_arrays("start", arrays), states_of_arrays("states", arrays)
        table = arrays["table"]
        if start.shape != (1,) or states.shape != table.shape or table.dtype != WALKER_DTYPE:
            raise ValueError(f"table: expected one row for each of {len(states)} walkers")
        lineage = Lineage.from_moves(action_space, arrays["moves"], arrays["actions"], table)
        num_ended = int((table["terminated"] | table["truncated"]).sum())
        return cls(start, states, table, lineage, num_ended)

    @property
    def saved_states(self) -> NDArray[Any]:
        """The states of the walkers, and the one at which the planner plans."""
        return np.concatenate([self.states, self.start])

    def values(self) -> NDArray[np.float64]:
        """Return the returns `[B]`, extrapolated to the age of the oldest walker."""
        values = np.empty(len(self.table))
        extrapolate_returns(self.table, values)
        return values
