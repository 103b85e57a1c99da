"""Equal to the bit: the tests' own comparison, apart from the package's."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import planvec


def assert_same(got: Any, expected: Any, where: str = "") -> None:
    """Compare nested dicts, tuples, arrays, numbers and strings bit for bit."""
    if isinstance(expected, dict):
        assert isinstance(got, dict), where
        assert set(got) == set(expected), where
        for key, value in expected.items():
            assert_same(got[key], value, f"{where}[{key!r}]")
    elif isinstance(expected, (tuple, list)):
        assert len(got) == len(expected), where
        for index, value in enumerate(expected):
            assert_same(got[index], value, f"{where}[{index}]")
    elif isinstance(expected, (np.ndarray, np.generic, float, int)):
        one, other = np.asarray(got), np.asarray(expected)
        if other.dtype == object and other.ndim == 0:
            assert got == expected, where
            return
        if other.dtype == object:
            assert_same(one.tolist(), other.tolist(), where)
            return
        assert one.shape == other.shape, where
        if other.dtype.kind == "f":
            # Same bits, so 0.0 is not -0.0; a Python float counts as float64.
            assert one.astype(other.dtype).tobytes() == other.tobytes(), (where, one, other)
            assert one.astype(np.float64).tobytes() == other.astype(np.float64).tobytes(), where
        else:
            np.testing.assert_array_equal(one, other, err_msg=where)
    else:
        assert got == expected, where


def without_clock(info: dict[str, Any]) -> dict[str, Any]:
    """An info without what the wall clock put into it (RecordEpisodeStatistics)."""
    if "episode" not in info:
        return info
    return {**info, "episode": {key: info["episode"][key] for key in ("r", "l")}}


def same_states(one: Any, other: Any) -> bool:
    """Whether two arrays of states are equal: by their bytes, as planners compare them."""
    if one.dtype.hasobject:
        return bool(one.tolist() == other.tolist())
    return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())


def same_plans(one: planvec.Plan, other: planvec.Plan) -> bool:
    """Return whether two plans are equal, except for times, stop reasons and search data."""
    return all(
        np.array_equal(getattr(one, field.name), getattr(other, field.name), equal_nan=True)
        for field in dataclasses.fields(planvec.Plan)
        if field.name not in ("elapsed", "stop_reason", "search_data")
    )
