"""Archives of arrays (`.npz`), checked before anything in them is believed or allocated."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np

from armillary.errors import InputError, one_line

#: The most that zlib can pack into one byte.
_DEFLATE = 1032


def check_archive(path: Path) -> set[str]:
    """The names of the arrays in an `.npz`, each of which is as large as its header says and no larger than its bytes can unpack to."""
    names = set()
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not entry.filename.endswith(".npy"):
                    raise InputError(f"found {one_line(entry.filename)} inside; expected arrays only", where=str(path))
                if entry.file_size > _DEFLATE * entry.compress_size + 65536:
                    raise InputError(f"{entry.filename}: its size is not what its bytes unpack to", where=str(path))
                with archive.open(entry) as member:
                    shape, dtype, start = _header(member)
                if dtype.hasobject:
                    raise InputError(f"{entry.filename}: found Python objects; expected numbers", where=str(path))
                if math.prod(shape) * dtype.itemsize != entry.file_size - start:
                    raise InputError(f"{entry.filename}: its header does not fit its size", where=str(path))
                names.add(entry.filename.removesuffix(".npy"))
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError, SyntaxError, OverflowError) as error:
        raise InputError(f"not an .npz of arrays: {one_line(str(error))}", where=str(path)) from error
    return names


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    return shape, dtype, member.tell()
