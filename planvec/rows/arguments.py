"""Checks the seeds, repeats and other numbers that users pass. Letters: B rows."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError

MAX_STEPS = 2**31 - 1  # largest number of steps of one row in one call
_INT64 = np.dtype(np.int64)
_ONES = np.ones(256, np.int64)
_ONES.flags.writeable = False


def _as_array(name: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except ValueError as error:
        raise InvalidBatchError(f"{name}: expected one dimension, got rows of different sizes") from error


def check_integer(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """Check that a value is an integer from `low` to `high`."""
    _check_range(name, value, (int, np.integer), "an integer", low, high)


def check_number(name: str, value: Any, low: float, high: float = math.inf) -> None:
    """Check that a value is a number from `low` to `high`, and not NaN."""
    _check_range(name, value, (int, float, np.integer, np.floating), "a number", low, high)


def _check_range(name: str, value: Any, kinds: tuple[type, ...], what: str, low: float, high: float) -> None:
    is_kind = isinstance(value, kinds) and not isinstance(value, bool)
    if not (is_kind and low <= value <= high):
        bounds = f"from {low} to {high}" if high < sys.float_info.max else f"of at least {low}"
        what = f"a finite {what.removeprefix('a ')}" if high == sys.float_info.max else what
        raise InvalidBatchError(f"{name}: expected {what} {bounds}, got {value!r}")


def check_on_error(on_error: Any) -> bool:
    """Return whether failed rows are flagged instead of raised."""
    if on_error == "raise":
        return False
    if on_error == "mask":
        return True
    raise InvalidBatchError(f"on_error: expected 'raise' or 'mask', got {on_error!r}")


def check_dt(dt: Any, num_rows: int) -> NDArray[np.int64]:
    """Return how often each row's action is repeated, `[num_rows]` int64."""
    if type(dt) is int:
        if not 1 <= dt <= MAX_STEPS:
            raise InvalidBatchError(f"dt: expected from 1 to {MAX_STEPS}, got {dt}")
        if dt == 1 and num_rows <= len(_ONES):
            return _ONES[:num_rows]
        return np.broadcast_to(np.int64(dt), num_rows)  # a million rows take no memory
    if _are_valid(dt, num_rows):
        valid: NDArray[np.int64] = dt
        return valid
    array = _as_array("dt", dt)
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidBatchError(f"dt: expected integers, got dtype {array.dtype}")
    if array.ndim == 0:
        array = np.full(num_rows, array)
    if array.shape != (num_rows,):
        raise InvalidBatchError(f"dt: expected shape ({num_rows},), got {array.shape}")
    outside = (array < 1) | (array > MAX_STEPS)
    if outside.any():
        row = int(np.argmax(outside))
        raise InvalidBatchError(f"dt[{row}]: expected from 1 to {MAX_STEPS}, got {array[row]}")
    return array.astype(np.int64, copy=False)


def _are_valid(dt: Any, num_rows: int) -> bool:
    """Return whether `dt` is `[num_rows]` int64 in range; False also for what `check_dt` has to convert."""
    if type(dt) is not np.ndarray or dt.dtype != _INT64 or dt.shape != (num_rows,):
        return False
    # For small batches, argmin and argmax take a third of the time of a comparison or of min and max.
    return not num_rows or (dt.item(dt.argmin()) >= 1 and dt.item(dt.argmax()) <= MAX_STEPS)


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return one seed in [0, 2**64) as an int."""
    is_integer = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    if not is_integer or not 0 <= seed < 2**64:
        raise InvalidBatchError(f"{name}: expected an integer in [0, 2**64), got {seed!r}")
    return int(seed)


def _are_integers(values: Any) -> bool:
    return isinstance(values, (list, tuple)) and all(isinstance(value, (int, np.integer)) for value in values)


def check_seeds(seeds: Any, num_rows: int) -> NDArray[np.uint64] | None:
    """Return the seeds as uint64 `[num_rows]`, or None if there are none."""
    if seeds is None:
        return None
    array = _as_array("seeds", seeds)
    if array.dtype.kind in "fO" and _are_integers(seeds):
        # NumPy makes floats of a list with small integers and some of 2**63 or more.
        try:
            array = np.array(seeds, np.uint64)
        except OverflowError as error:
            raise InvalidBatchError(f"seeds: expected integers in [0, 2**64), got {seeds!r}") from error
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidBatchError(f"seeds: expected integers in [0, 2**64), got dtype {array.dtype}")
    if array.shape != (num_rows,):
        raise InvalidBatchError(f"seeds: expected shape ({num_rows},), got {array.shape}")
    if array.dtype.kind == "i" and (array < 0).any():
        row = int(np.argmax(array < 0))
        raise InvalidBatchError(f"seeds[{row}]: expected at least 0, got {array[row]}")
    return array.astype(np.uint64, copy=False)


def check_compiled(compiled: Any, num_threads: Any) -> None:
    """Check the arguments `compiled` and `num_threads`."""
    if not isinstance(compiled, bool | None):
        raise InvalidBatchError(f"compiled: expected None, True or False, got {compiled!r}")
    is_count = isinstance(num_threads, int) and not isinstance(num_threads, bool) and num_threads >= 1
    if num_threads is not None and not is_count:
        raise InvalidBatchError(
            f"num_threads: expected an integer of at least 1, or None, got {num_threads!r}"
        )
