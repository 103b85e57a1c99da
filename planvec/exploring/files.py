"""The file of an archive, arrays and a manifest that run no code when they are read, and the lock beside it.

Each save replaces the whole file, so that no reader sees a part of it, and a process that is killed leaves
what was saved before.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planvec.errors import InvalidBatchError
from planvec.rows import damage_named, read_arrays, remove_unfinished, write_arrays

ARCHIVE_FILE = "archive.npz"
_FORMAT, _VERSION = "planvec archive", 2
_FILE_OF_VERSION_1 = "archive.json"
_FIELDS: dict[str, type] = {
    **dict.fromkeys(("identity", "fingerprint", "action_space"), str),
    **dict.fromkeys(("seed", "dt", "num_env_steps"), int),
    **{"is_stochastic": bool, "settings": dict, "generator": dict},
}


def holds_archive(path: Path) -> bool:
    """Return whether a directory holds an archive, of this version or of another one."""
    return (path / ARCHIVE_FILE).exists() or (path / _FILE_OF_VERSION_1).exists()


def write_archive(path: Path, fields: Mapping[str, Any], arrays: Iterable[tuple[str, NDArray[Any]]]) -> None:
    """Write an archive into a directory: the fields of the manifest, and the arrays."""

    def members() -> Iterator[tuple[str, NDArray[Any]]]:
        yield "manifest", np.array(json.dumps({"format": _FORMAT, "version": _VERSION, **fields}))
        yield from arrays

    write_arrays(path / ARCHIVE_FILE, members())
    remove_unfinished(path / ARCHIVE_FILE)


def read_archive(path: Path, *names: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the manifest and the arrays of the archive in a directory, or only the arrays of some names."""
    if not holds_archive(path):
        raise InvalidBatchError(f"path: expected a directory that Archive.save wrote, got {path}")
    if (path / _FILE_OF_VERSION_1).exists():
        raise _of_version(path, 1)
    with damage_named(whole_archive(path)):
        arrays = read_arrays(path / ARCHIVE_FILE, *names)
        manifest = json.loads(str(arrays["manifest"]))
        if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
            raise ValueError("no archive")
        if manifest.get("version") != _VERSION:
            raise _of_version(path, manifest.get("version"))
        wrong = [name for name, kind in _FIELDS.items() if type(manifest.get(name)) is not kind]
        wrong += [name for name, one in manifest.items() if type(one) is int and not 0 <= one < 2**64]
        if wrong or not all(isinstance(text, str) for text in manifest["settings"].values()):
            raise ValueError(", ".join(wrong or ["settings"]))
    return manifest, arrays


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the archive in a directory, after a check."""
    return read_archive(path, "manifest")[0]


def whole_archive(path: Path) -> str:
    """Return the message for a file that cannot be an archive of the environment."""
    return f"path: expected an archive of this environment, got {path}, which is damaged or of another kind"


def _of_version(path: Path, version: Any) -> InvalidBatchError:
    return InvalidBatchError(
        f"path: expected an archive of version {_VERSION}, got {path} of version {version!r}, which another "
        "planvec wrote; use that, or another directory"
    )


# locked directory, and the process and the thread that hold it, which may lock it again
_held: set[tuple[Path, int, int]] = set()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Make a directory, and keep other processes and threads from writing an archive there."""
    if path.exists() and not path.is_dir():
        raise InvalidBatchError(f"path: expected a directory, got the file {path}")
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    own = path.resolve(), os.getpid(), threading.get_ident()
    if own in _held:
        yield
        return
    directory = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(
                directory, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # the system unlocks it if this process dies
        except BlockingIOError as error:
            raise InvalidBatchError(
                f"path: expected a directory to which nobody else writes, got {path}, where another "
                "exploration is in progress"
            ) from error
        _held.add(own)
        yield
    finally:
        _held.discard(own)
        os.close(directory)
        if is_new:
            with contextlib.suppress(OSError):  # it holds something
                path.rmdir()
