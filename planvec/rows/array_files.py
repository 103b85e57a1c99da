"""Reads and writes files of arrays, which run no code, and replaces whole files."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import site
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from planvec.errors import InvalidBatchError

# what NumPy, the zip file, JSON and checks of the content raise on files of another form
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, TypeError),
    *(IndexError, NotImplementedError, MemoryError, OverflowError, AttributeError, RecursionError),
)


@contextlib.contextmanager
def damage_named(message: str) -> Iterator[None]:
    """Raise `InvalidBatchError` with a message, and the cause, where a file has another form."""
    try:
        yield
    except _DAMAGED as error:
        raise InvalidBatchError(f"{message} ({type(error).__name__}: {error})") from error


def read_arrays(path: str | Path, *names: str) -> dict[str, np.ndarray]:
    """Return the arrays of a NumPy archive, or those of some names. No pickle in it is read."""
    with open(path, "rb") as file:
        if file.read(4) != b"PK\3\4":  # else NumPy might take it for a pickle, and advise to read that
            raise ValueError(f"expected a NumPy archive, got {path}")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                return {name: archive[name] for name in names or archive}
        # damage: a place beyond the end, another compression, or a header of an array that is no Python
        except (OSError, SyntaxError, tokenize.TokenError) as error:
            raise ValueError(f"expected a NumPy archive, got {path} ({error})") from error


def write_arrays(path: Path, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write a NumPy archive, compressed fast (`numpy.savez_compressed` takes several times as long)."""
    # One array after the other, so that not all have to be made before the first one is written.
    with (
        replacing(path, is_durable=True) as temporary,
        zipfile.ZipFile(temporary, "x", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
    ):
        for name, array in arrays:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


@contextlib.contextmanager
def replacing(path: Path, *, is_durable: bool = False) -> Iterator[Path]:
    """Give the name of a new file, which replaces `path` once it is written: no reader sees a part of it."""
    # `is_durable`: waits until it is on the disk, so that it outlasts a power failure.
    temporary = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    try:
        yield temporary
        if is_durable:
            _flush(temporary)
        os.replace(temporary, path)
        if is_durable:
            _flush(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_unfinished(path: Path) -> None:
    """Remove what `replacing` has left of a file, whose name may be a pattern, where a process was killed."""
    for temporary in path.parent.glob(f".{path.stem}-{'[0-9a-f]' * 8}{path.suffix}"):
        temporary.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


# -- Tells the modules of installed packages from those of a program -----------------------------------------


@functools.cache
def _folders() -> tuple[str, ...]:
    """Return the folders of Python's own modules and of installed packages."""
    standard_library = os.path.dirname(os.__file__)
    paths = (standard_library, *site.getsitepackages(), site.getusersitepackages())
    return tuple(path + os.sep for path in paths)


def is_installed(path: str) -> bool:
    """Return whether a file belongs to Python, or to a package that was installed and is not being edited."""
    return path.startswith(_folders())
