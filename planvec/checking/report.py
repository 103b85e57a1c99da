"""What `planvec.check_env` found: field by field, and as text."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from planvec.codecs import same

__all__ = ["ROUTES", "CheckReport", "Gap"]

ROUTES = {
    "stepped on": "every step from the saved state before it",
    "other instance": "all states, shuffled, in a second environment",
    "other process": "the same in a worker process",
    "branches": "children of restored states, in both places",
    "replayed": "some of those children, by the environment itself from its reset",
}
"""Where a state was restored -> what was done there."""


@dataclass(slots=True)
class Gap:
    """How far one field was off on one route.

    Attributes:
        num_compared: Values that were held against each other.
        num_wrong: Those that differed by a bit or more.
        largest: The largest absolute difference; infinite where a value has another shape or kind.
        first: Where it was first seen.
    """

    num_compared: int = 0
    num_wrong: int = 0
    largest: float = 0.0
    first: str = ""

    def compare(self, expected: Any, got: Any, where: str) -> None:
        """Hold one value against another."""
        self.num_compared += 1
        if same(expected, got):
            return
        self.num_wrong += 1
        self.largest = max(self.largest, _distance(expected, got))
        self.first = self.first or where

    def __str__(self) -> str:
        if not self.num_compared:
            return "-"
        if not self.num_wrong:
            return "exact"
        size = "differs" if math.isinf(self.largest) else f"off by {self.largest:.2g}"
        return f"{size}, {self.num_wrong} of {self.num_compared}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Whether an environment is saved and restored exactly.

    Attributes:
        name: Of the environment.
        codec: How it is saved.
        note: What planvec changes in it, or "".
        num_steps: Steps walked by the environment itself.
        num_episodes: Episodes that these were in.
        num_restores: States that children were stepped from.
        num_children: Children of each.
        num_replayed: Children that the environment itself was replayed for.
        state_bytes: Mean size of a state.
        microseconds: Of "get", "set", "step" and "observe", medians.
        gaps: Route -> field -> how far it was off.
        error: Why it could not be checked to the end, or "".
    """

    name: str
    codec: str = ""
    note: str = ""
    num_steps: int = 0
    num_episodes: int = 0
    num_restores: int = 0
    num_children: int = 0
    num_replayed: int = 0
    state_bytes: float = 0.0
    microseconds: dict[str, float] = field(default_factory=dict)
    gaps: dict[str, dict[str, Gap]] = field(default_factory=dict)
    error: str = ""

    @property
    def exact(self) -> bool:
        """Whether every bit was the same everywhere."""
        return not self.error and not any(
            gap.num_wrong for fields in self.gaps.values() for gap in fields.values()
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; infinite differences are None."""
        plain = {**asdict(self), "exact": self.exact}
        for fields in plain["gaps"].values():
            for gap in fields.values():
                gap["largest"] = gap["largest"] if math.isfinite(gap["largest"]) else None
        return plain

    def __str__(self) -> str:
        lines = [self.name]
        if self.codec:
            lines += self._facts()
        if self.gaps:
            lines += ["", *self._table()]
        lines += ["", textwrap.fill(self._verdict(), 100)]
        return "\n".join(lines)

    def _facts(self) -> list[str]:
        facts = {"saved by": self.codec, "note": self.note}
        if self.num_steps:
            facts["walked"] = f"{self.num_steps} steps in {self.num_episodes} episodes"
            facts["branched"] = (
                f"{self.num_restores} states, {self.num_children} children each; {self.num_replayed} of "
                "these replayed from the reset"
            )
        if self.microseconds:
            facts["a state"] = f"{self.state_bytes:,.0f} bytes"
            times = [f"{name} {value:,.1f}" for name, value in self.microseconds.items()]
            facts["microseconds"] = ", ".join(times)
        return [f"  {name:<14}{text}" for name, text in facts.items() if text]

    def _table(self) -> list[str]:
        names = list(dict.fromkeys(name for fields in self.gaps.values() for name in fields))
        header = ["", *self.gaps]
        rows = [[name, *(str(fields.get(name, Gap())) for fields in self.gaps.values())] for name in names]
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        return [
            "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in [header, *rows]
        ]

    def _verdict(self) -> str:
        if self.error:
            return f"NOT exact: {self.error}"
        if self.exact:
            return "exact"
        wrong = [
            f"{name} ({route}) first at {gap.first}"
            for route, fields in self.gaps.items()
            for name, gap in fields.items()
            if gap.num_wrong
        ]
        return (
            f"NOT exact: {wrong[0]}. Something that the future depends on is not in the state. If the "
            "environment is yours: keep all of it in attributes of the environment, draw from self.np_random "
            "alone, or write a codec for it (planvec.Codec, see the README). If it restarts exactly from its "
            'seed, codec="replay" (--codec replay) is exact, at the cost of a step for every step on the way'
        )


def _distance(expected: Any, got: Any) -> float:
    """The largest absolute difference between two values; infinite where they cannot be subtracted."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        return max((_distance(expected[key], got[key]) for key in expected), default=0.0)
    if isinstance(expected, (tuple, list)) and isinstance(got, (tuple, list)) and len(expected) == len(got):
        return max((_distance(a, b) for a, b in zip(expected, got, strict=True)), default=0.0)
    try:
        a, b = np.asarray(expected, np.float64), np.asarray(got, np.float64)
    except (TypeError, ValueError):
        return 0.0 if same(expected, got) else math.inf
    if a.shape != b.shape:
        return math.inf
    distance = float(np.max(np.abs(a - b), initial=0.0))
    return distance if math.isfinite(distance) else math.inf
