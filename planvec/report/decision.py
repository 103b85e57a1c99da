"""What a report shows of each decision, kept while a run is played. Letters: A actions, N points, E lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from planvec.errors import InvalidBatchError
from planvec.planners import Distribution, EpisodeStep, Plan, Tree, ViewedTree, Walkers, equal_actions
from planvec.plots import swarm_picture, tree_picture
from planvec.runs import RunObserver

_MAX_NODES = 80  # nodes of a tree that are drawn: hundreds of decisions have to fit into one file
_MAX_MOVES = 240
_MAX_SEQUENCES = 8
_MAX_ACTIONS = 24


@dataclass(frozen=True)
class Decision:
    """One decision, as numbers and text that go into a page."""

    action: str  # the action that was taken, as text
    value: float | None  # its value
    num_simulations: int  # simulations of the decision
    num_env_steps: int  # environment steps of the decision
    seconds: float  # their time
    actions: list[str]  # A names of the actions that were compared, and of the one that is taken
    places: list[float]  # A positions of the actions: their numbers, where an action is one number in a Box
    chosen: int  # index of the one that is taken
    visits: list[int]  # A visit counts
    returns: list[float | None]  # A mean returns; None where there is none
    kind: str = ""  # what is drawn: "tree", "swarm", "sequences" or ""
    x: list[float] = field(default_factory=list)  # N positions of points
    y: list[float] = field(default_factory=list)  # N positions of points
    sizes: list[float] = field(default_factory=list)  # N sizes of points, pixels
    values: list[float | None] = field(default_factory=list)  # N numbers that colour the points
    labels: list[str] = field(default_factory=list)  # N texts that are shown when the mouse is over a point
    lines: list[list[list[float]]] = field(default_factory=list)  # E lines, each `[[x, ...], [y, ...]]`
    is_best: list[bool] = field(default_factory=list)  # E flags: whether a line belongs to the best actions

    def to_json(self) -> str:
        """Return the decision as one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)


def decision_of(plan: Plan) -> Decision:
    """Return what a report shows of a plan.

    Args:
        plan: The plan of any planner.

    Raises:
        ImportError: igraph or matplotlib is not installed.
    """
    data = plan.search_data
    drawing: dict[str, Any] = {}
    if isinstance(data, (Tree, ViewedTree)):
        drawing = _tree(data)
    elif isinstance(data, Walkers):
        drawing = _swarm(data)
    elif isinstance(data, Distribution):
        drawing = _sequences(data)
    return Decision(
        action=_text(plan.action),
        value=_number(plan.value),
        num_simulations=plan.num_simulations,
        num_env_steps=plan.num_env_steps,
        seconds=round(plan.elapsed, 6) if np.isfinite(plan.elapsed) else 0.0,
        **_actions(plan),
        **drawing,
    )


def _actions(plan: Plan) -> dict[str, Any]:
    """Return the fields of the actions: the most visited ones, in their order, and the one that is taken."""
    taken, actions = np.asarray(plan.action), np.asarray(plan.root_actions)
    is_taken = np.zeros(len(actions), np.bool_)
    if actions.ndim and actions.dtype != object:
        is_taken = equal_actions(actions, taken)
    order = np.argsort(-plan.visit_counts - is_taken * 2.0**62, kind="stable")[:_MAX_ACTIONS]
    order = np.sort(order)
    names = [_text(plan.root_actions[row]) for row in order]
    visits = [int(plan.visit_counts[row]) for row in order]
    returns = [_number(plan.action_values[row]) for row in order]
    is_number = taken.dtype.kind == "f" and taken.size == 1
    places = _floats(actions.reshape(len(actions), -1)[order, 0]) if is_number and len(order) else []
    found = np.flatnonzero(is_taken[order])
    chosen = int(found[0]) if len(found) else len(names)
    if not len(found):  # the mean of a distribution, which was not compared
        names, visits, returns = [*names, _text(plan.action)], [*visits, 0], [*returns, None]
        places = [*places, *_floats(taken.reshape(-1)[:1])] if is_number else places
    if not is_number:
        places = [float(index) for index in range(len(names))]
    return {"actions": names, "places": places, "chosen": chosen, "visits": visits, "returns": returns}


def _tree(tree: Tree | ViewedTree) -> dict[str, Any]:
    picture = tree_picture(tree, _MAX_NODES)
    share = np.sqrt(picture.visits / max(1, picture.visits.max()))
    x, y = _floats(picture.x), _floats(-picture.depths)
    ways = [(parent, row) for row, parent in enumerate(picture.parents.tolist()) if parent >= 0]
    best = list(zip(picture.best[:-1].tolist(), picture.best[1:].tolist(), strict=True))
    ways = [way for way in ways if way not in best] + best
    lines = [[[x[row] for row in way], [y[row] for row in way]] for way in ways]
    is_best = [way in best for way in ways]
    labels = []
    for parent, action, visits in zip(picture.parents, picture.actions, picture.visits.tolist(), strict=True):
        way = (
            f"action {_text(tree.node_actions(int(picture.nodes[parent]))[action])}" if parent >= 0 else "now"
        )
        labels.append(f"{way}, {visits:,} visits")
    return {
        "kind": "tree",
        "x": x,
        "y": y,
        "sizes": _floats(4 + 16 * share),
        "values": _floats(picture.values),
        "labels": labels,
        "lines": lines,
        "is_best": is_best,
    }


def _swarm(walkers: Walkers) -> dict[str, Any]:
    picture = swarm_picture(walkers)
    x, y, parents = picture.steps, picture.returns, picture.parents
    drawn = np.unique(np.concatenate([picture.ends, np.flatnonzero(picture.is_best)]))
    kept = set(drawn.tolist())
    for node in picture.ends.tolist():  # whole ways to walkers, until there are enough moves
        if len(kept) >= _MAX_MOVES:
            break
        while node >= 0:
            kept.add(node)
            node = int(parents[node])
    lines, is_best = [], []
    for node in sorted(kept):
        parent = int(parents[node])
        if parent in kept:
            lines.append([_floats([x[parent], x[node]]), _floats([y[parent], y[node]])])
            is_best.append(bool(picture.is_best[node] and picture.is_best[parent]))
    ends = picture.ends
    return {
        "kind": "swarm",
        "x": _floats(x[ends]),
        "y": _floats(y[ends]),
        "sizes": [7.0] * len(ends),
        "values": _floats(walkers.returns),
        "labels": [f"walker {row}{', ended' * bool(over)}" for row, over in enumerate(walkers.terminated)],
        "lines": lines,
        "is_best": is_best,
    }


def _sequences(distribution: Distribution) -> dict[str, Any]:
    """Draw the first number of the actions of the best sequences, and of the most likely one."""
    best = np.asarray(distribution.elites, np.float64)[:_MAX_SEQUENCES]
    mode = np.asarray(distribution.mode(), np.float64)
    steps = _floats(np.arange(len(mode)) * distribution.dt)
    rows = [sequence.reshape(len(mode), -1)[:, 0] for sequence in (*best, mode)]
    is_best = [False] * len(best) + [True]
    return {"kind": "sequences", "lines": [[steps, _floats(row)] for row in rows], "is_best": is_best}


def _text(action: object) -> str:
    """Return an action as short text."""
    array = np.asarray(action)
    if array.ndim == 0:
        return f"{array.item():.3g}" if array.dtype.kind == "f" else str(array.item())
    return np.array2string(array, precision=2, separator=", ", threshold=6)


def _number(value: float) -> float | None:
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _floats(array: object) -> list[float]:
    """Return numbers with few digits, which take less room in a file."""
    return [float(f"{value:.5g}") if np.isfinite(value) else 0.0 for value in np.asarray(array, np.float64)]


# -- Keeps decisions while a run is played -------------------------------------------------------------------

_KEPT = "report_decisions"


class ReportRecorder(RunObserver):
    """Keeps the decisions of the current episode.

    Attributes:
        decisions: One per step.
    """

    def __init__(self) -> None:
        self.decisions: list[Decision] = []

    def restore(self, kept: Mapping[str, np.ndarray]) -> None:
        """Take the decisions before the interrupt."""
        if _KEPT in kept:
            lines = kept[_KEPT].tobytes().decode().splitlines()
            self.decisions = [Decision(**json.loads(line)) for line in lines]

    def begin_episode(self, episode: int, seed: int, num_steps: int, total_return: float) -> None:
        """Forget the decisions of the last episode.

        Raises:
            InvalidBatchError: The run was begun without a report, and the first decisions were not kept.
        """
        if not num_steps:
            self.decisions = []
        if len(self.decisions) != num_steps:
            raise InvalidBatchError(
                f"report: expected a run that was begun with a report, got one whose first {num_steps} "
                "decisions were not kept; go on without it, or begin again"
            )

    def step(self, step: EpisodeStep) -> None:
        """Keep a decision."""
        self.decisions.append(decision_of(step.plan))

    def kept(self) -> dict[str, np.ndarray]:
        """Return the decisions as lines of JSON."""
        text = "\n".join(decision.to_json() for decision in self.decisions)
        return {_KEPT: np.frombuffer(text.encode(), np.uint8)}
