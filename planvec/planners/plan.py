"""The result of one decision, and its file. Letters: A root actions, L actions of a sequence, D depths."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.planners.root_actions import arrays_of_leaves, tree_of_leaves
from planvec.rows import check_actions, damage_named, one_action, read_arrays, take_row


def _no_integers() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


def _no_numbers() -> NDArray[np.float64]:
    return np.empty(0)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One decision. A planner has to give `action` and `value`; the other fields default to "unknown".

    `Planner.plan` fills in `num_simulations`, `num_env_steps`, `elapsed` and `stop_reason` itself.

    Attributes:
        action: The action to take, an element of the action space.
        value: Estimated return from the state on; discounted if the planner discounts. In a game of two
            players it is that of the player to move, as all values of a plan are.
        root_actions: `[A, *action shape]`, the first actions that were compared: all of a Discrete space,
            else those that were tried (a swarm: those of its walkers at the end).
        visit_counts: `[A]` int64, number of simulations (walkers, trajectories) that began with each; of
            width-based planners the nodes below, with those of the last decision.
        action_values: `[A]` float64, mean return of each; NaN where the count is 0.
        standard_errors: `[A]` float64, standard error of that mean; NaN where the count is below 2.
        best_actions: `[L, *action shape]`, the best action sequence. In a random environment it is that of
            one sampled future.
        best_num_steps: `[L]` int64, number of environment steps for which each of its actions is repeated.
        best_return: Sum of the rewards along it; discounted if the planner discounts; NaN if unknown.
        depth_histogram: `[D]` int64, how many simulations ended after 0, 1, ... actions (shooting:
            environment steps).
        num_simulations: Tree simulations, walker moves or trajectories.
        num_env_steps: Environment steps simulated.
        elapsed: Seconds; NaN if unknown.
        stop_reason: "num_simulations", "num_iterations", "max_env_steps", "max_seconds", "callback",
            "ended" (every simulated episode has ended), "exhausted" (nothing is left to simulate) or
            "max_memory".
        search_data: What the planner can reuse or a user can inspect: a `Tree`, the `Walkers` of a swarm, a
            `Distribution`, a `WidthTree`, or None.
    """

    action: Any
    value: float
    root_actions: np.ndarray = field(default_factory=_no_numbers)
    visit_counts: NDArray[np.int64] = field(default_factory=_no_integers)
    action_values: NDArray[np.float64] = field(default_factory=_no_numbers)
    standard_errors: NDArray[np.float64] = field(default_factory=_no_numbers)
    best_actions: np.ndarray = field(default_factory=_no_numbers)
    best_num_steps: NDArray[np.int64] = field(default_factory=_no_integers)
    best_return: float = float("nan")
    depth_histogram: NDArray[np.int64] = field(default_factory=_no_integers)
    num_simulations: int = 0
    num_env_steps: int = 0
    elapsed: float = float("nan")
    stop_reason: str | None = None
    search_data: Any = None

    def __repr__(self) -> str:
        return (
            f"<Plan: action {self.action}, value {self.value:.4g}, {self.num_simulations} simulations, "
            f"{self.num_env_steps} env steps, {self.stop_reason}>"
        )


# -- Writes plans to files and reads them. A file holds arrays and text, and runs no code when it is read.
#
# The data of a search (`Plan.search_data`) is written if its class has `to_arrays` and `from_arrays`, and is
# named here: a file must not name any class that it likes.

Arrays = Mapping[str, np.ndarray]

# name of a class of search data -> its module
_CLASSES = {
    "Tree": "planvec.planners.mcts.tree",
    "WidthTree": "planvec.planners.width",
    "Walkers": "planvec.planners.swarm.search",
    "Gaussian": "planvec.planners.shooting",
    "Categorical": "planvec.planners.shooting",
    "Uniform": "planvec.planners.shooting",
}
_NUMBERS = ("value", "best_return", "num_simulations", "num_env_steps", "elapsed")
_ARRAYS = (
    *("root_actions", "visit_counts", "action_values", "standard_errors"),
    *("best_actions", "best_num_steps", "depth_histogram"),
)
_DATA = "search_data."


@runtime_checkable
class SearchData(Protocol):
    """The data of a search that can be written to a file."""

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return arrays of numbers and text, from which `from_arrays` makes equal data."""
        ...

    @classmethod
    def from_arrays(cls, arrays: Arrays, action_space: Space[Any]) -> Self:
        """Return the data that `to_arrays` turned into arrays."""
        ...

    @property
    def saved_states(self) -> np.ndarray:
        """The states in it, `[N]`, which have to be checked if they come from a file."""
        ...


def arrays_of_plan(plan: Plan, action_space: Space[object]) -> dict[str, np.ndarray]:
    """Return the arrays of a plan."""
    data = plan.search_data
    kind = "" if data is None else type(data).__name__
    if data is not None and not (isinstance(data, SearchData) and kind in _CLASSES):
        raise InvalidBatchError(
            f"plan: expected the search_data of one of planvec's planners, got {kind}, which cannot be "
            "written; write dataclasses.replace(plan, search_data=None)"
        )
    arrays = {name: np.array(getattr(plan, name)) for name in _NUMBERS}
    arrays |= {name: getattr(plan, name) for name in _ARRAYS}
    arrays["stop_reason"] = np.array(plan.stop_reason or "")
    arrays |= arrays_of_leaves(action_space, "action", one_action(action_space, plan.action))
    arrays["search_data"] = np.array(kind)
    if isinstance(data, SearchData):
        arrays |= {f"{_DATA}{name}": array for name, array in data.to_arrays().items()}
    return arrays


def plan_of_arrays(arrays: Arrays, action_space: Space[object]) -> Plan:
    """Return the plan that `arrays_of_plan` turned into arrays."""
    actions = tree_of_leaves(action_space, "action", arrays)
    for several in (actions, arrays["root_actions"], arrays["best_actions"]):
        if not (isinstance(several, np.ndarray) and several.size == 0):
            check_actions(action_space, several)
    kind, data = str(arrays["search_data"]), None
    if kind:
        data_class: type[SearchData] = getattr(importlib.import_module(_CLASSES[kind]), kind)
        own = {name.removeprefix(_DATA): arrays[name] for name in arrays if name.startswith(_DATA)}
        data = data_class.from_arrays(own, action_space)
    parts: dict[str, Any] = {name: arrays[name].item() for name in _NUMBERS}
    parts |= {name: arrays[name] for name in _ARRAYS}
    stop_reason = str(arrays["stop_reason"]) or None
    return Plan(take_row(action_space, actions, 0), **parts, stop_reason=stop_reason, search_data=data)


def save_plan(path: str | Path, plan: Plan, env: Any) -> None:
    """Write a plan to a NumPy archive, its tree, swarm or distribution included.

    Args:
        path: The file, which is overwritten.
        plan: The plan.
        env: The stepper at whose state it was made.

    Raises:
        InvalidBatchError: Its `search_data` belongs to a planner of the user's own.
    """
    arrays = arrays_of_plan(plan, env.action_space)
    with open(path, "wb") as file:  # given the name, NumPy would append ".npz"
        np.savez(file, **arrays)  # type: ignore[arg-type]


def load_plan(path: str | Path, env: Any) -> Plan:
    """Read a plan that `save_plan` wrote.

    Args:
        path: The file.
        env: A `BatchEnv` or `PlanEnv` of the same environment, which checks the states in the plan.

    Raises:
        InvalidBatchError: The file is damaged, or holds something else than a plan of this environment.
        OSError: The file cannot be read.
    """
    damage = f"got {path}, which is damaged or of another environment"
    with damage_named(f"plan: expected a file that save_plan wrote for this environment, {damage}"):
        plan = plan_of_arrays(read_arrays(path), env.action_space)
    check_plan_states(plan, env)
    return plan


def check_plan_states(plan: Plan, env: Any) -> None:
    """Check the states in a plan that comes from a file."""
    if isinstance(plan.search_data, SearchData) and len(plan.search_data.saved_states):
        env.check_states(plan.search_data.saved_states)


# -- What pictures show of a search tree of any planner. Letters: N nodes, E links, P actions of a path ------


class TreeView(NamedTuple):
    """The nodes of a tree, node 0 the root."""

    parents: NDArray[np.int64]  # `[N]` int64, the node from which each was reached first; -1 for the root
    actions: NDArray[np.int64]  # `[N]` int64, index of the action that leads there; -1 for the root
    visits: NDArray[np.int64]  # `[N]` int64, how many simulations came there
    # `[N]` float64, the return of the action that leads there; the value of the root
    values: NDArray[np.float64]
    best: NDArray[np.int64]  # `[P + 1]` int64, nodes on the path of best actions, from the root on
    links: NDArray[np.int64]  # `[E, 2]` int64, a node and one to which an action leads, for every such pair


@runtime_checkable
class ViewedTree(Protocol):
    """A search tree that can be drawn."""

    num_nodes: int  # N

    def view(self) -> TreeView:
        """Return what pictures show."""
        ...

    def node_actions(self, node: int) -> np.ndarray:
        """Return the actions `[A, *action shape]` of a node."""
        ...
