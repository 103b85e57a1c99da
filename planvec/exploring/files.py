"""The directory of an archive. It holds arrays and text, and runs no code when it is read.

archive.json        the start, the settings, and the names of the other files; replaced as the last one
counts-<n>.npz      what changes all the time: visits, choices, the history
part-<n>.npz        cells whose best state had changed, with these states, and the steps that were new

A part is never changed. Where cells are in several parts, the last one holds. When there are many parts, or
many replaced states in them, all is written anew. Letters: N cells, K cells of a part, M nodes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.exploring.cells import CellFunction
from planvec.exploring.contents import Contents, Origin
from planvec.exploring.replay import leads_to_states, replay_all
from planvec.rows import (
    DAMAGED,
    arrays_of_states,
    read_arrays,
    replacing,
    states_of_arrays,
    write_arrays,
)

__all__ = ["load_contents", "save_contents"]

C = TypeVar("C", bound=Contents)

_VERSION = 1
_LARGEST_PART = 1 << 16
"""Cells of a part, so that neither writing nor reading takes a second copy of all states."""
_SPARE, _MAX_PARTS = 1000, 100
_HEADER = "archive.json"
_CELLS = ("keys", "scores", "num_steps", "first_visits", "ended", "nodes", "lives")
_COUNTS = ("num_visits", "num_choices")


def save_contents(archive: Contents, path: Path) -> None:
    """Write an archive; see `Archive.save`."""
    path.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = (
        _read_header(path) if (path / _HEADER).exists() else {"parts": [], "num_nodes": 1, "num_written": 0}
    )
    _check_own(archive, path, header)
    num_written = header["num_written"] + len(archive.store.changed)
    parts, first_node = list(header["parts"]), header["num_nodes"]
    has_many = num_written > 2 * archive.num_cells + _SPARE or len(parts) > _MAX_PARTS
    if header.get("form") != archive.saved_as or has_many:
        parts, first_node, num_written = [], 1, archive.num_cells
        archive.forget_steps()
    number = _next_number(path)
    cells = np.array(sorted(archive.store.changed), np.int64) if parts else np.arange(archive.num_cells)
    for start in range(0, max(1, len(cells)), _LARGEST_PART):
        rows = cells[start : start + _LARGEST_PART]
        arrays = {"cells": rows, **archive.store.columns(_CELLS, rows)}
        arrays |= arrays_of_states("states", archive.states(rows))
        if start == 0:
            steps = archive.steps.to_arrays(first_node)
            arrays |= {f"steps.{name}": array for name, array in steps.items()}
        name = f"part-{number}.npz"
        write_arrays(path / name, arrays)
        parts.append(name)
        number += 1
    counts = f"counts-{number}.npz"
    every = np.arange(archive.num_cells)
    write_arrays(path / counts, {**archive.store.columns(_COUNTS, every), "history": archive.history})
    _write_header(archive, path, parts, counts, num_written)
    kept = {*parts, counts}
    for file in [*path.glob("part-*.npz"), *path.glob("counts-*.npz"), *path.glob(".*.npz")]:
        if file.name not in kept:
            file.unlink()


def _check_own(archive: Contents, path: Path, header: Mapping[str, Any]) -> None:
    """Check that a directory holds no other archive, and no later form of this one.

    Raises:
        InvalidBatchError: It does.
    """
    if header.get("identity", archive.identity) != archive.identity:
        got = "another archive"
    elif header.get("num_env_steps", 0) > archive.num_env_steps:
        got = f"a later form of this one, of {header['num_env_steps']:,} steps"
    else:
        return
    raise InvalidBatchError(
        f"path: expected a new directory, or one with an earlier form of this archive, got {path}, which "
        f"holds {got}"
    )


def _next_number(path: Path) -> int:
    """Return a number that no file has."""
    numbers = [file.stem.partition("-")[2] for file in path.glob("*-*.npz")]
    return 1 + max((int(number) for number in numbers if number.isdecimal()), default=0)


def _write_header(archive: Contents, path: Path, parts: list[str], counts: str, num_written: int) -> None:
    """Write the file that makes a form of an archive the current one."""
    origin = archive.origin
    form = f"{archive.num_env_steps} {counts}"
    header = {
        "format": "planvec archive",
        "version": _VERSION,
        "identity": archive.identity,
        "form": form,
        "seed": origin.seed,
        "dt": origin.dt,
        "fingerprint": origin.fingerprint,
        "is_stochastic": origin.is_stochastic,
        "settings": origin.settings,
        "num_env_steps": archive.num_env_steps,
        "num_cells": archive.num_cells,
        "num_nodes": len(archive.steps),
        "num_written": num_written,
        "generator": archive.generator.bit_generator.state,
        "parts": parts,
        "counts": counts,
    }
    with replacing(path / _HEADER) as temporary:
        temporary.write_text(json.dumps(header, indent=1) + "\n")
    archive.saved_as = form
    archive.store.changed.clear()


def _read_header(path: Path) -> dict[str, Any]:
    """Read the header of an archive.

    Raises:
        InvalidBatchError: The directory holds something else.
        OSError: There is no such file.
    """
    try:
        header = json.loads((path / _HEADER).read_text())
        if header["format"] != "planvec archive":
            raise ValueError(f"the format {header['format']!r}")
        if header["version"] != _VERSION:
            raise ValueError(f"version {header['version']} instead of {_VERSION}")
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidBatchError(
            f"path: expected a directory that Archive.save wrote, got {path}, whose {_HEADER} holds "
            f"something else ({type(error).__name__}: {error})"
        ) from error
    return dict(header)


def load_contents(
    path: Path, env: Any, cells: CellFunction | None, num_checks: int, make: Callable[[Origin], C]
) -> C:
    """Read an archive; see `Archive.load`. `make` makes an empty one."""
    if not (path / _HEADER).exists():
        raise InvalidBatchError(f"path: expected a directory that Archive.save wrote, got {path}")
    header = _read_header(path)
    try:
        archive = _read(path, header, env, make)
    except FileNotFoundError as error:
        raise InvalidBatchError(
            f"path: expected a whole archive, got {path} without {error.filename}"
        ) from error
    except DAMAGED as error:
        raise InvalidBatchError(
            f"path: expected an archive of this environment, got {path}, which is damaged or of another kind "
            f"({type(error).__name__}: {error})"
        ) from error
    is_same = header["fingerprint"] == getattr(env, "fingerprint", "")
    if is_same and env.state_dtype.hasobject:
        env.check_states(archive.states(np.arange(archive.num_cells)))
    if not (is_same and leads_to_states(archive, env, num_checks)):
        replay_all(archive, env, cells)
    return archive


def _read(path: Path, header: Mapping[str, Any], env: Any, make: Callable[[Origin], C]) -> C:
    """Return the archive in the files, whose states were not checked.

    Raises:
        InvalidBatchError: The states could run code when they are restored.
        OSError: A file cannot be read.
        One of `DAMAGED`: A file is damaged.
    """
    archive: C | None = None
    counts = read_arrays(path / header["counts"])
    for name in header["parts"]:
        arrays = read_arrays(path / name)
        states = states_of_arrays("states", arrays)
        if archive is None:
            archive = make(_origin(header, env, states[0], arrays["keys"][0]))
        steps = {
            key.removeprefix("steps."): array for key, array in arrays.items() if key.startswith("steps.")
        }
        if steps:
            archive.steps.extend(steps)
        archive.store.restore(arrays["cells"], {name: arrays[name] for name in _CELLS}, states)
    if archive is None or archive.num_cells != header["num_cells"]:
        raise ValueError(f"expected {header['num_cells']} cells")
    if len(archive.steps) != header["num_nodes"] or (archive.store["nodes"] >= len(archive.steps)).any():
        raise ValueError("steps are missing")
    archive.store.set_columns({name: counts[name] for name in _COUNTS})
    archive.set_history(counts["history"])
    archive.num_env_steps = int(header["num_env_steps"])
    archive.generator.bit_generator.state = header["generator"]
    archive.identity, archive.saved_as = str(header["identity"]), str(header["form"])
    archive.store.changed.clear()
    return archive


def _origin(header: Mapping[str, Any], env: Any, state: Any, key: NDArray[Any]) -> Origin:
    """Return what an archive begins with."""
    return Origin(
        seed=int(header["seed"]),
        dt=int(header["dt"]),
        state=state,
        key=key,
        action_space=env.action_space,
        is_stochastic=bool(header["is_stochastic"]),
        lives=float("nan"),
        fingerprint=str(header["fingerprint"]),
        settings={str(name): str(value) for name, value in header["settings"].items()},
    )
