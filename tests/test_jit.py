"""How functions are compiled, cached on disk, and given tuples of many arrays by address."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from planvec.kernels import Pointer, jit, value_at


class Inner(NamedTuple):
    numbers: NDArray[np.float64]
    factor: float
    is_signed: bool
    limits: tuple[float, int]


class Outer(NamedTuple):
    counts: NDArray[np.int64]
    inner: Inner
    records: NDArray[np.void]


RECORD = np.dtype([("small", np.int8), ("large", np.float64)])


def outer(factor: float = 2.0) -> Outer:
    records = np.zeros(3, RECORD)
    records["small"] = [1, 2, 3]
    return Outer(np.arange(4), Inner(np.array([0.5, 1.5]), factor, True, (0.25, 7)), records)


@jit()
def _sum(pointer: Pointer[Outer], index: int) -> float:
    value: Outer = value_at(pointer)
    inner = value.inner
    total = inner.numbers[index] * inner.factor + inner.limits[0] + inner.limits[1]
    return total + value.counts[index] + value.records[index].small + (100 if inner.is_signed else 0)


@jit()
def _write(pointer: Pointer[Outer], index: int) -> None:
    value: Outer = value_at(pointer)
    value.counts[index] += 10
    value.records[index].large = 4.5


def test_compiled_code_reads_arrays_and_numbers_of_any_depth() -> None:
    assert _sum(Pointer(outer()), 1) == 1.5 * 2 + 0.25 + 7 + 1 + 2 + 100
    assert _sum(Pointer(outer(factor=3.0)), 0) == 0.5 * 3 + 0.25 + 7 + 0 + 1 + 100


def test_compiled_code_writes_the_arrays_themselves() -> None:
    value = outer()
    pointer = Pointer(value)
    _write(pointer, 2)
    assert value.counts.tolist() == [0, 1, 12, 3]
    assert value.records["large"].tolist() == [0, 0, 4.5]
    assert pointer.value is value


def test_a_pointer_keeps_its_arrays_alive() -> None:
    pointers = [Pointer(outer(factor=float(number))) for number in range(100)]
    gc.collect()
    np.full(1000, 7.0)  # would take the memory of arrays that were freed
    assert [_sum(pointer, 1) for pointer in pointers] == [1.5 * n + 110.25 for n in range(100)]


def test_functions_are_compiled_once_for_all_pointers_to_a_class() -> None:
    _sum(Pointer(outer()), 0)
    _sum(Pointer(outer()), 0)
    assert len(_sum.signatures) == 1  # type: ignore[attr-defined]


LIBRARY = """
from typing import NamedTuple
import numpy as np
from planvec.kernels import jit
from {module} import Pair

@jit(cache=True)
def first(pair):
    return pair.first
"""
PAIR = """
from typing import NamedTuple

class Pair(NamedTuple):
    first: float
    second: float
"""


@pytest.mark.slow
def test_a_cache_that_names_a_class_which_has_moved_is_written_again(tmp_path: Path) -> None:
    """numba alone would raise from then on: its files name classes by their modules."""
    outputs = []
    for module in ("old_place", "new_place"):
        (tmp_path / f"{module}.py").write_text(PAIR)
        library = tmp_path / "library.py"
        library.write_text(LIBRARY.format(module=module))
        os.utime(library, (1e9, 1e9))  # numba reads caches of files that did not change, by time and size
        code = f"from {module} import Pair; from library import first; print(first(Pair(2.5, 0.0)))"
        result = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(result.stdout)
        (tmp_path / f"{module}.py").unlink()
    assert outputs == ["2.5\n", "2.5\n"]
