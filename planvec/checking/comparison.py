"""Compares results with the reference, and collects the differences by stage and field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from planvec.checking.reference import Outcome
from planvec.checking.report import Difference

# Keys of the info that `RecordEpisodeStatistics` adds. "t" is a wall-clock time, which is not compared.
_EPISODE_STATISTICS = {"r", "l", "t"}


class Comparison:
    """Compares results with the reference, and collects the differences."""

    def __init__(self, info_keys: Sequence[str] | None) -> None:
        self._info_keys = info_keys
        # stage -> field -> how its values differ
        self.differences: dict[str, dict[str, Difference]] = {}

    def compare(self, stage: str, field: str, expected: Any, got: Any, where: str) -> None:
        """Compare one value with the reference."""
        fields = self.differences.setdefault(stage, {})
        fields.setdefault(field, Difference()).add(expected, got, where)

    def compare_infos(
        self, stage: str, field: str, expected: dict[str, Any], got: dict[str, Any], where: str
    ) -> None:
        """Compare one info as a whole with the reference. The arguments are those of `compare`."""
        self.compare(stage, field, self._comparable(expected), self._comparable(got), where)

    def compare_outcomes(self, stage: str, expected: Outcome, got: Outcome, where: str) -> None:
        """Compare all fields of the result of a step, and each key of the info."""
        for number, field in enumerate(("observation", "reward", "terminated", "truncated")):
            self._compare_items(stage, field, expected[number], got[number], where)
        infos = self._comparable(expected[4]), self._comparable(got[4])
        self._compare_items(stage, "info", *infos, where)

    def _compare_items(self, stage: str, field: str, expected: Any, got: Any, where: str) -> None:
        """Compare two dicts key by key, and values of other types as a whole."""
        are_dicts = isinstance(expected, dict) and isinstance(got, dict)
        if are_dicts and expected and expected.keys() == got.keys():
            for key in expected:
                self.compare(stage, field, expected[key], got[key], f"{where}, {field}[{key!r}]")
        else:
            self.compare(stage, field, expected, got, where)

    def _comparable(self, info: dict[str, Any]) -> Any:
        """Return the part of an info that is compared."""
        without_time = {
            key: {name: item for name, item in value.items() if name != "t"}
            if isinstance(value, dict) and value.keys() >= _EPISODE_STATISTICS
            else value
            for key, value in info.items()
            if key != "num_steps"
        }
        if self._info_keys is not None:
            without_time = {key: value for key, value in without_time.items() if key in self._info_keys}
        return _with_floats(without_time)


def _with_floats(info: Any) -> Any:
    """Return an info with all numbers as floats, because a column of a batch has one type for all rows."""
    if isinstance(info, dict):
        return {key: _with_floats(value) for key, value in info.items()}
    if isinstance(info, (list, tuple)):
        return [_with_floats(value) for value in info]
    if isinstance(info, (bool, int, float, np.ndarray, np.generic)) and np.asarray(info).dtype.kind in "biuf":
        return np.asarray(info, np.float64)
    return info
