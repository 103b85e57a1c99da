"""The directory of an archive. It holds arrays and text, and runs no code when it is read.

archive.json            the start, the settings, and the names of the other files; replaced as the last one
counts-<n>-<form>.npz   what changes all the time: visits, choices, the history
part-<n>-<form>.npz     cells whose best state had changed, with these states, and the steps that were new

A part is never changed. Where cells are in several parts, the last one holds. When there are many parts, or
many replaced states in them, all is written anew. Letters: N cells, K cells of a part, M nodes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from planvec.errors import InvalidBatchError
from planvec.exploring.cells import CellFunction, cells_for
from planvec.exploring.contents import Contents, Origin
from planvec.exploring.header import HEADER, OWN_FILE, locked, read_header, write_header
from planvec.exploring.replay import leads_to_states, replay_all
from planvec.exploring.store import Arrival
from planvec.planners import check_stepper
from planvec.rows import DAMAGED, arrays_of_states, check_integer, read_arrays, states_of_arrays, write_arrays

C = TypeVar("C", bound=Contents)

# cells of a part, so that neither writing nor reading takes a second copy of all states
_LARGEST_PART = 1 << 16
_SPARE, _MAX_PARTS = 1000, 100
_CELLS = ("keys", "scores", "num_steps", "first_visits", "ended", "nodes", "lives")
_COUNTS = ("num_visits", "num_choices")


def save_contents(archive: Contents, path: Path) -> None:
    """Write an archive; see `Archive.save`."""
    with locked(path):
        header = read_header(path) if (path / HEADER).exists() else None
        if header is not None:
            _check_own(archive, path, header)
        parts: list[str] = []
        number, first_node, num_written = 1, 1, archive.num_cells
        if header is not None:
            number = 1 + int(header["counts"].split("-")[1])
            wanted = header["num_written"] + len(archive.store.changed)
            has_few = wanted <= 2 * archive.num_cells + _SPARE and len(header["parts"]) <= _MAX_PARTS
            if header["form"] == archive.saved_as and has_few:
                parts, first_node, num_written = list(header["parts"]), header["num_nodes"], wanted
        if not parts:
            archive.saved_as = ""  # the next lines give the nodes other numbers than those in files
            archive.forget_steps()
        form = secrets.token_hex(4)
        parts += _write_parts(archive, path, number, form, first_node, is_whole=not parts)
        counts = f"counts-{number + len(parts)}-{form}.npz"
        every = np.arange(archive.num_cells)
        write_arrays(path / counts, {**archive.store.columns(_COUNTS, every), "history": archive.history})
        write_header(path, _fields(archive, form, parts, counts, num_written))
        archive.saved_as = form
        archive.store.changed.clear()
        for file in path.iterdir():
            if OWN_FILE.fullmatch(file.name) and file.name not in {*parts, counts}:
                file.unlink()


def _check_own(archive: Contents, path: Path, header: Mapping[str, Any]) -> None:
    """Check that a directory holds no other archive, and no later form of this one."""
    if header["identity"] != archive.identity:
        got = "another archive"
    elif header["num_env_steps"] > archive.num_env_steps:
        got = f"a later form of this one, of {header['num_env_steps']:,} steps"
    else:
        return
    raise InvalidBatchError(
        f"path: expected a new directory, or one with an earlier form of this archive, got {path}, which "
        f"holds {got}"
    )


def _write_parts(
    archive: Contents, path: Path, number: int, form: str, first_node: int, *, is_whole: bool
) -> list[str]:
    """Write cells and steps, and return the names of the files."""
    changed = sorted(archive.store.changed)
    cells = np.arange(archive.num_cells) if is_whole else np.array(changed, np.int64)
    names: list[str] = []
    for start in range(0, max(1, len(cells)), _LARGEST_PART):
        rows = cells[start : start + _LARGEST_PART]
        arrays = {"cells": rows, **archive.store.columns(_CELLS, rows)}
        arrays |= arrays_of_states("states", archive.states(rows))
        if start == 0:
            steps = archive.steps.to_arrays(first_node)
            arrays |= {f"steps.{name}": array for name, array in steps.items()}
        names.append(f"part-{number + len(names)}-{form}.npz")
        write_arrays(path / names[-1], arrays)
    return names


def _fields(archive: Contents, form: str, parts: list[str], counts: str, num_written: int) -> dict[str, Any]:
    """Return the fields of the header."""
    origin = archive.origin
    return {
        "identity": archive.identity,
        "form": form,
        "seed": origin.seed,
        "dt": origin.dt,
        "fingerprint": origin.fingerprint,
        "action_space": repr(origin.action_space),
        "is_stochastic": bool(origin.is_stochastic),
        "settings": origin.settings,
        "num_env_steps": archive.num_env_steps,
        "num_cells": archive.num_cells,
        "num_nodes": len(archive.steps),
        "num_written": num_written,
        "generator": archive.generator.bit_generator.state,
        "parts": parts,
        "counts": counts,
    }


def load_contents(
    path: Path, env: Any, cells: CellFunction | None, num_checks: int, make: Callable[[Origin, Arrival], C]
) -> C:
    """Read an archive; see `Archive.load`. `make` makes one of the first cell."""
    check_integer("num_checks", num_checks, 0)
    check_stepper(env)
    if not (path / HEADER).exists():
        raise InvalidBatchError(f"path: expected a directory that Archive.save wrote, got {path}")
    header = read_header(path)
    while True:
        _check_env(header, path, env)
        try:
            archive = _read(path, header, env, make)
            break
        except FileNotFoundError as error:
            latest = read_header(path)
            if latest["form"] == header["form"]:
                raise InvalidBatchError(
                    f"path: expected a whole archive, got {path} without {error.filename}"
                ) from error
            header = latest  # an exploration in progress has saved, and removed the files of before
        except (*DAMAGED, AttributeError) as error:
            raise InvalidBatchError(
                f"path: expected an archive of this environment, got {path}, which is damaged or of another "
                f"kind ({type(error).__name__}: {error})"
            ) from error
    if cells is None and archive.origin.settings.get("cells") == "None":
        cells = cells_for(env.observation_space, None)
    is_same = header["fingerprint"] == getattr(env, "fingerprint", "")
    if is_same and env.state_dtype.hasobject:
        env.check_states(archive.states(np.arange(archive.num_cells)))
    if not (is_same and leads_to_states(archive, env, cells, num_checks)):
        replay_all(archive, env, cells, path)
    return archive


def _check_env(header: Mapping[str, Any], path: Path, env: Any) -> None:
    """Check that an archive is of this environment."""
    for name, own in (("action_space", repr(env.action_space)), ("is_stochastic", bool(env.is_stochastic))):
        if header[name] != own:
            raise InvalidBatchError(
                f"env: expected {name} {header[name]}, as when {path} was explored, got {own}; make it with "
                "the arguments of then, or explore into another directory"
            )


def _read(path: Path, header: Mapping[str, Any], env: Any, make: Callable[[Origin, Arrival], C]) -> C:
    """Return the archive in the files, whose states were not checked."""
    archive: C | None = None
    counts = read_arrays(path / header["counts"])
    for name in header["parts"]:
        arrays = read_arrays(path / name)
        states = states_of_arrays("states", arrays)
        if archive is None:
            keys = arrays["keys"]
            if keys.ndim != 2 or keys.dtype.kind not in "biu":
                raise ValueError("keys: expected integers [K, F]")
            start = Arrival(keys[0], states[0], 0.0, 0, False, float("nan"))  # `restore` writes it again
            archive = make(_origin(header, env), start)
        steps = {
            key.removeprefix("steps."): array for key, array in arrays.items() if key.startswith("steps.")
        }
        if steps:
            archive.steps.extend(steps)
        archive.store.restore(arrays["cells"], {name: arrays[name] for name in _CELLS}, states)
    if archive is None or archive.num_cells != header["num_cells"]:
        raise ValueError(f"expected {header['num_cells']} cells")
    archive.check_nodes(header["num_nodes"])
    archive.store.set_columns({name: counts[name] for name in _COUNTS})
    archive.set_history(counts["history"])
    archive.num_env_steps = header["num_env_steps"]
    archive.generator.bit_generator.state = header["generator"]
    archive.identity, archive.saved_as = header["identity"], header["form"]
    archive.store.changed.clear()
    return archive


def _origin(header: Mapping[str, Any], env: Any) -> Origin:
    """Return what an archive begins with."""
    return Origin(
        seed=header["seed"],
        dt=max(1, header["dt"]),
        action_space=env.action_space,
        is_stochastic=header["is_stochastic"],
        fingerprint=header["fingerprint"],
        settings=dict(header["settings"]),
    )
