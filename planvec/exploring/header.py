"""The file that makes a form of an archive the current one, and its lock.

Letters: N cells, M nodes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planvec.errors import InvalidBatchError
from planvec.rows import replacing

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
