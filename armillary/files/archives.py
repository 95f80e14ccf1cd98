"""Arrays in files (`.npy`, `.npz`), checked before anything in them is believed or allocated. Nothing is unpickled."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from armillary.errors import InputError, one_line

from .content import check_readable
from .opening import Name, open_file

#: The most that zlib can pack into one byte.
_DEFLATE = 1032
#: What the readers of archives and of array headers raise for bytes that are not theirs.
ARCHIVE_FAULTS = (
    zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError, SyntaxError, OverflowError, TokenError, TypeError,
    KeyError, MemoryError,
)  # fmt: skip


def check_archive(path: Name, *, limit: int | None = None) -> set[str]:
    """The names of the arrays in an `.npz`, each of which is as large as its header says and no larger than its bytes can unpack to.

    limit: the most bytes that all arrays together may have.
    """
    names, total, where = set(), 0, str(path)
    try:
        with open_file(path, limit=None, unpack=False) as file, zipfile.ZipFile(file) as archive:
            for entry in archive.infolist():
                if not entry.filename.endswith(".npy"):
                    raise InputError(f"found {one_line(entry.filename)} inside; expected arrays only", where=where)
                if entry.file_size > _DEFLATE * entry.compress_size + 65536:
                    raise InputError(f"{entry.filename}: its size is not what its bytes unpack to", where=where)
                with archive.open(entry) as member:
                    shape, dtype, start = _header(member)
                if dtype.hasobject:
                    raise InputError(f"{entry.filename}: found Python objects; expected numbers", where=where)
                if math.prod(shape) * dtype.itemsize != entry.file_size - start:
                    raise InputError(f"{entry.filename}: its header does not fit its size", where=where)
                total += entry.file_size - start
                if limit is not None and total > limit:
                    raise InputError(f"found arrays of more than {limit:,} bytes; expected at most {limit:,}", where=where)
                names.add(entry.filename.removesuffix(".npy"))
    except ARCHIVE_FAULTS as error:
        raise InputError(f"not an .npz of arrays: {one_line(str(error))}", where=where) from error
    return names


def read_arrays(path: Name, names: Iterable[str] | None = None, *, limit: int | None = 1 << 32) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an `.npz` by name, or those of them that `names` lists and that must be there; `limit` as in `check_archive`."""
    there = check_archive(path, limit=limit)
    wanted = sorted(there) if names is None else list(names)
    missing = [name for name in wanted if name not in there]
    if missing:
        found = one_line(", ".join(sorted(there)) or "none", 120)
        raise InputError(f"found the arrays {found}; expected {', '.join(wanted)}", where=str(path))
    try:
        with open_file(path, limit=None, unpack=False) as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in wanted}
    except ARCHIVE_FAULTS as error:
        raise InputError(f"not an .npz of arrays: {one_line(str(error))}", where=str(path)) from error


def map_array(path: Name) -> np.ndarray[Any, Any]:
    """The array in a `.npy` file, mapped rather than read, so that its rows are loaded when they are used."""
    check_readable(Path(path))
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ARCHIVE_FAULTS as error:
        raise InputError(f"not an array of numbers: {one_line(str(error))}", where=str(path)) from error
    if not isinstance(array, np.ndarray):
        raise InputError("found several arrays; expected one", where=str(path))
    if array.dtype.kind not in "biufc":
        raise InputError(f"found an array of {array.dtype}; expected numbers", where=str(path))
    return array


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype, member.tell()
