"""Mesh files, as meshio reads them, for the arenas that work on finite-element meshes.

What a header promises is compared with the size of the file before meshio allocates anything from it.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from armillary.errors import InputError, one_line
from armillary.files import check_readable, read_head

#: Bytes of the largest file that is read.
MOST_BYTES = 4 << 30


def read_meshio(path: Path, suffixes: Sequence[str]) -> Any:
    """The `meshio.Mesh` in a file whose name ends with one of `suffixes`; raises InputError in one line."""
    check_readable(path)
    if path.suffix.lower() not in suffixes:
        raise InputError(f"found the ending {path.suffix or 'none'}; expected {', '.join(suffixes)}", where=str(path))
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"found {path.stat().st_size} bytes; expected at most {MOST_BYTES}", where=str(path))
    if find_spec("meshio") is None:
        raise InputError(
            "meshes are read by the package meshio, which is not installed; install it with pip install meshio", where=str(path)
        )
    _refuse_promises(path)
    try:
        # meshio prints its warnings.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return import_module("meshio").read(path)
    except (Exception, SystemExit) as error:
        # meshio raises whatever its parsers meet, and leaves by SystemExit for some formats.
        raise InputError(f"meshio cannot read it: {one_line(str(error), 160) or type(error).__name__}", where=str(path)) from None


def _refuse_promises(path: Path) -> None:
    """Refuses a file whose header announces more points or cells than the file has bytes."""
    size = path.stat().st_size
    head = read_head(path, 1 << 20)
    for match in re.finditer(rb"(?<![\d.eE+-])\d{8,}(?![\d.])", head):
        # Counts follow a keyword; any other number of so many digits is data, which takes its own bytes as text.
        before = head[max(0, match.start() - 200) : match.start()].upper()
        line = before[before.rfind(b"\n") + 1 :]
        counted = any(word in line for word in (b"POINTS", b"CELLS", b"NUMBEROFPOINTS", b"NUMBEROFCELLS", b"DIMENSIONS"))
        section = before.rstrip().endswith((b"$NODES", b"$ELEMENTS"))
        if (counted or section) and int(match.group()) > size:
            raise InputError(f"found a count of {int(match.group())} in a file of {size} bytes", where=str(path))
