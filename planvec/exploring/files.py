"""The directory of an archive. It holds arrays and text, and runs no code when it is read.

archive.json            the start, the settings, and the names of the other files; replaced as the last one
counts-<n>-<form>.npz   what changes all the time: visits, choices, the history
part-<n>-<form>.npz     cells whose best state had changed, with these states, and the steps that were new

A part is never changed. Where cells are in several parts, the last one holds. When there are many parts, or
many replaced states in them, all is written anew. Letters: N cells, K cells of a part, M nodes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.exploring.cells import CellFunction, cells_for, keys_of
from planvec.exploring.contents import Arrival, Contents, Origin
from planvec.planners import check_stepper
from planvec.rows import (
    DAMAGED,
    arrays_of_states,
    check_integer,
    read_arrays,
    replacing,
    states_of_arrays,
    write_arrays,
)

# -- The file that makes a form of an archive the current one, and its lock.
#
# Letters: N cells, M nodes.

HEADER = "archive.json"
# names of the files that belong to an archive; others in the directory are left alone
OWN_FILE = re.compile(r"\.?(part|counts)-\d+-[0-9a-f]{8}(-[0-9a-f]{8})?\.npz|\.archive-[0-9a-f]{8}\.json")
_FORMAT, _VERSION = "planvec archive", 1
_FIELDS: dict[str, type] = {
    **dict.fromkeys(("identity", "form", "fingerprint", "action_space", "counts"), str),
    **dict.fromkeys(("seed", "dt", "num_env_steps", "num_cells", "num_nodes", "num_written"), int),
    **{"is_stochastic": bool, "settings": dict, "generator": dict, "parts": list},
}
# locked directory -> the process and the thread that hold it
_held: dict[Path, tuple[int, int]] = {}


def read_header(path: Path) -> dict[str, Any]:
    """Read the header of the archive in a directory, and check it."""
    try:
        header = json.loads((path / HEADER).read_text())
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ValueError("no archive")
    except (ValueError, RecursionError) as error:
        raise InvalidBatchError(
            f"path: expected a directory that Archive.save wrote, got {path}, whose {HEADER} holds something "
            f"else ({error})"
        ) from error
    if header.get("version") != _VERSION:
        raise InvalidBatchError(
            f"path: expected an archive of version {_VERSION}, got {path} of version "
            f"{header.get('version')!r}, which another planvec wrote; use that, or another directory"
        )
    wrong = [name for name, kind in _FIELDS.items() if not _is(header.get(name), kind)]
    files = [header.get("counts"), *(header["parts"] if not wrong else [])]
    if not wrong:
        is_named = all(isinstance(one, str) and OWN_FILE.fullmatch(one) for one in files)
        are_texts = all(isinstance(one, str) for one in header["settings"].values())
        wrong += ([] if is_named else ["parts"]) + ([] if are_texts else ["settings"])
    if wrong:
        raise InvalidBatchError(
            f"path: expected a directory that Archive.save wrote, got {path}, whose {HEADER} is damaged "
            f"({', '.join(wrong)})"
        )
    return header


def _is(value: Any, kind: type) -> bool:
    """Return whether a value of the header has a type; numbers are at least 0, and fit into int64."""
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return isinstance(value, kind)


def write_header(path: Path, fields: Mapping[str, Any]) -> None:
    """Replace the header, when all that it names is on the disk."""
    text = json.dumps({"format": _FORMAT, "version": _VERSION, **fields}, indent=1) + "\n"
    with replacing(path / HEADER, is_durable=True) as temporary:
        temporary.write_text(text)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Make a directory, and keep other processes and threads from writing an archive there."""
    if path.exists() and not path.is_dir():
        raise InvalidBatchError(f"path: expected a directory, got the file {path}")
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    place = path.resolve()
    own = os.getpid(), threading.get_ident()
    if _held.get(place) == own:
        yield
        return
    directory = os.open(place, os.O_RDONLY)
    try:
        _lock(directory, path)
        _held[place] = own
        yield
    finally:
        if _held.get(place) == own:
            del _held[place]
        os.close(directory)
        if is_new:
            with contextlib.suppress(OSError):  # it holds something
                path.rmdir()


def _lock(directory: int, path: Path) -> None:
    """Lock an open directory; the system releases it if this process dies."""
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InvalidBatchError(
            f"path: expected a directory to which nobody else writes, got {path}, where another exploration "
            "is in progress"
        ) from error


# -- Takes the steps to cells again, to check states from files, or to compute them anew.
#
# Steps that several cells share are taken once. Letters: K cells, M nodes of the tree of steps, D nodes of
# one depth.

_LARGEST_BATCH = 4096


def leads_to_states(archive: Contents, env: Any, cells: CellFunction | None, num_checks: int) -> bool:
    """Return whether the steps to some cells lead to their states."""
    if num_checks < 1:
        return True
    ends = np.flatnonzero(archive.store["ended"])
    some = _spread(np.arange(archive.num_cells), num_checks)
    checked = np.unique(np.concatenate([some, _spread(ends, num_checks), np.array([archive.best])]))
    again, expected = _step_again(archive, env, checked), archive.states(checked)
    if again.states.dtype != expected.dtype or again.differs_from(archive, checked).any():
        return False
    if any(bytes(state) != bytes(other) for state, other in zip(again.states, expected, strict=True)):
        return False
    if cells is not None:
        keys = keys_of(cells, env.observe(expected), len(checked), archive.store["keys"][0])
        if (keys != archive.store["keys"][checked]).any():
            raise InvalidBatchError(
                "cells: expected the function of the exploration, got one that gives other cells; use the "
                "same, or another directory"
            )
    return True


def _spread(cells: NDArray[np.int64], num: int) -> NDArray[np.int64]:
    """Return at most some of the cells, evenly spread."""
    return cells[np.linspace(0, len(cells) - 1, min(num, len(cells))).astype(np.int64)]


def replay_all(archive: Contents, env: Any, cells: CellFunction | None, path: Path) -> None:
    """Compute the states of all cells from the seed and the actions."""
    if cells is None:
        raise InvalidBatchError(
            "cells: expected the function of the exploration, since the states do not fit this environment "
            "and have to be computed again, got None"
        )
    every = np.arange(archive.num_cells)
    again = _step_again(archive, env, every)
    states, differs = again.states, again.differs_from(archive, every)
    for start in range(0, len(every), _LARGEST_BATCH):
        part = slice(start, start + _LARGEST_BATCH)
        expected = archive.store["keys"][part]
        keys = keys_of(cells, env.observe(states[part]), len(expected))
        differs[part] |= (keys != expected).any(axis=1) if keys.shape == expected.shape else True
    if differs.any():
        raise InvalidBatchError(
            f"env: expected the environment that was explored into {path}, got one in which the actions lead "
            f"to other scores, ends or cells, for {int(differs.sum()):,} of {len(every):,} cells, the first "
            f"of them cell {int(differs.argmax())}; explore another environment into another directory"
        )
    archive.store.replace_states(states)
    archive.origin = archive.origin._replace(fingerprint=getattr(env, "fingerprint", ""))
    archive.was_replayed = True


class _Again(NamedTuple):
    """What steps have led to: `[K]` states, scores, and whether episodes have ended."""

    states: NDArray[Any]
    scores: NDArray[np.float64]
    ended: NDArray[np.bool_]

    def differs_from(self, archive: Contents, cells: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for which cells scores or ends are others, `[K]`."""
        columns = archive.store.columns(("scores", "ended"), cells)
        differs: NDArray[np.bool_] = (self.scores != columns["scores"]) | (self.ended != columns["ended"])
        return differs


def _step_again(archive: Contents, env: Any, cells: NDArray[np.int64]) -> _Again:
    """Take the steps to cells again."""
    tree, ends = archive.steps, archive.store["nodes"][cells]
    owners = np.full(len(tree), -1, np.int64)
    owners[ends] = np.arange(len(cells))
    is_needed, positions = tree.ancestors_of(ends), np.zeros(len(tree), np.int64)
    states, scores = np.empty(len(cells), env.state_dtype), np.zeros(len(cells))
    ended = np.zeros(len(cells), np.bool_)
    before, totals = np.empty(1, env.state_dtype), np.zeros(1)
    before[0] = env.reset(seed=archive.origin.seed).state
    if owners[0] >= 0:
        states[owners[0]] = before[0]
    for level in tree.levels():
        nodes = level[is_needed[level]]
        rows = positions[tree["parents"][nodes]]
        before, rewards, ends_here = _step(archive, env, nodes, before[rows])
        totals = totals[rows] + rewards
        positions[nodes] = np.arange(len(nodes))
        is_end = owners[nodes] >= 0
        states[owners[nodes[is_end]]], scores[owners[nodes[is_end]]] = before[is_end], totals[is_end]
        ended[owners[nodes[is_end]]] = ends_here[is_end]
    return _Again(states, scores, ended)


def _step(
    archive: Contents, env: Any, nodes: NDArray[np.int64], states: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_]]:
    """Take the steps of nodes, `[D]`, from states; return new states, rewards, and what has ended."""
    tree, origin = archive.steps, archive.origin
    new_states, rewards = np.empty(len(nodes), env.state_dtype), np.zeros(len(nodes))
    ended = np.zeros(len(nodes), np.bool_)
    for start in range(0, len(nodes), _LARGEST_BATCH):
        part = slice(start, start + _LARGEST_BATCH)
        seeds = tree["seeds"][nodes[part]] if tree.has_seeds else None
        out = env.step_batch(
            tree["actions"][nodes[part]], states[part], origin.dt, seeds=seeds, blocking=True
        )
        new_states[part], rewards[part] = out.new_states, out.rewards
        ended[part] = out.terminated | out.truncated
    return new_states, rewards, ended


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
