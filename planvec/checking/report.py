"""Defines `CheckReport`, the result of `planvec.check_env`, and writes it as text and JSON."""

from __future__ import annotations

import math
import textwrap
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from planvec.codecs import same

# Stages of the check, in order -> what each does. Its results are compared with those of the reference.
STAGES = {
    "same instance": "step from each saved state to the next one",
    "other instance": "step from all states, shuffled, in a second environment",
    "other process": "step from all states, shuffled, in a worker process",
    "kernel": "step from all states, shuffled, with the compiled kernel, where there is one",
    "branches": "step several branches from some states, in the second environment and in the worker process",
    "replay": "step some of the branches without planvec, from the reset",
}


_ADVICE = (
    "The state lacks something on which the future depends. If you wrote the environment: keep everything in "
    "its attributes and draw random numbers only from self.np_random, or write a codec for it "
    '(planvec.Codec). If the environment restarts exactly from its seed, codec="replay" (--codec replay) is '
    "exact, but restoring a state repeats all steps since the reset"
)


@dataclass(slots=True)
class Difference:
    """Counts how many values of one field differ in one stage, and by how much."""

    num_compared: int = 0  # number of values that were compared
    num_different: int = 0  # number of values that differ in at least one bit
    # the largest absolute difference; infinite if the shape or the type of a value differs
    largest: float = 0.0
    first: str = ""  # where the first difference is, or ""

    def add(self, expected: Any, got: Any, where: str) -> None:
        """Compare one more value."""
        self.num_compared += 1
        if same(expected, got):
            return
        self.num_different += 1
        self.largest = max(self.largest, _distance(expected, got))
        self.first = self.first or where

    def __str__(self) -> str:
        if not self.num_compared:
            return "-"
        if not self.num_different:
            return "exact"
        size = "differs" if math.isinf(self.largest) else f"off by {self.largest:.2g}"
        return f"{size}, {self.num_different} of {self.num_compared}"


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Reports whether an environment is saved and restored exactly.

    Attributes:
        name: Name of the environment.
        codec: How its states are saved.
        note: What planvec changes in the environment, or "".
        kernel: Whether its compiled kernel is used, or "" if there is none.
        num_steps: Number of random steps.
        num_episodes: Number of episodes of these steps.
        num_restores: Number of states from which branches were stepped.
        num_children: Number of branches from each of these states.
        num_replayed: Number of branches that were replayed from the reset.
        state_bytes: Mean number of bytes of a state.
        microseconds: Median times of "get", "set", "step" and "observe".
        differences: Stage -> field -> how its values differ. The stages are the keys of `STAGES`.
        error: Why the check could not be completed, or why `planvec.make` refuses the environment; or "".
    """

    name: str
    codec: str = ""
    note: str = ""
    kernel: str = ""
    num_steps: int = 0
    num_episodes: int = 0
    num_restores: int = 0
    num_children: int = 0
    num_replayed: int = 0
    state_bytes: float = 0.0
    microseconds: dict[str, float] = field(default_factory=dict)
    differences: dict[str, dict[str, Difference]] = field(default_factory=dict)
    error: str = ""

    @property
    def exact(self) -> bool:
        """True if the check was completed, no bit differs in any stage, and `planvec.make` accepts it."""
        return not self.error and not any(
            difference.num_different for fields in self.differences.values() for difference in fields.values()
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON. Infinite differences are None."""
        plain = {**asdict(self), "exact": self.exact}
        for fields in plain["differences"].values():
            for difference in fields.values():
                largest = difference["largest"]
                difference["largest"] = largest if math.isfinite(largest) else None
        return plain

    def __str__(self) -> str:
        lines = [self.name]
        if self.codec:
            lines += self._facts()
        if self.differences:
            lines += ["", *self._table()]
        lines += ["", textwrap.fill(self._verdict(), 100)]
        return "\n".join(lines)

    def _facts(self) -> list[str]:
        facts = {"saved by": self.codec, "note": self.note, "kernel": self.kernel}
        if self.num_steps:
            facts["steps"] = f"{self.num_steps} in {self.num_episodes} episodes"
            facts["branches"] = (
                f"{self.num_children} from each of {self.num_restores} states; {self.num_replayed} of them "
                "replayed from the reset"
            )
        if self.microseconds:
            facts["size"] = f"{self.state_bytes:,.0f} bytes per state"
            times = [f"{name} {value:,.1f}" for name, value in self.microseconds.items()]
            facts["microseconds"] = ", ".join(times)
        return [f"  {name:<14}{text}" for name, text in facts.items() if text]

    def _table(self) -> list[str]:
        stages = self.differences.values()
        names = list(dict.fromkeys(name for fields in stages for name in fields))
        header = ["", *self.differences]
        rows = [[name, *(str(fields.get(name, Difference())) for fields in stages)] for name in names]
        widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
        return [
            "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in [header, *rows]
        ]

    def _verdict(self) -> str:
        if self.exact:
            return "exact"
        firsts = [
            f"{name} ({stage}), first at {difference.first}. "
            for stage, fields in self.differences.items()
            for name, difference in fields.items()
            if difference.num_different
        ]
        return f"NOT exact: {firsts[0] if firsts else ''}{self.error or _ADVICE}"


def _distance(expected: Any, got: Any) -> float:
    """Return the largest absolute difference of two values; infinite if they cannot be subtracted."""
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
