"""Reads the messages of an OTF2 archive (Score-P, Extrae, VampirTrace), with the package `otf2`.

That package is a C library, and an archive comes from a stranger, so it is read in a process of its own, with bounds on memory, time and
output. Every MPI_Send and MPI_Isend becomes a message from the rank of its process to the rank that it names in its communicator. Ranks are
the archive's MPI processes in their order.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from armillary import extras
from armillary.errors import InputError, one_line
from armillary.files import Column, read_table

from ..traffic.messages import MOST_MESSAGES

#: Seconds, bytes of memory and bytes of output that reading may take.
MOST_S, MOST_BYTES, MOST_OUTPUT = 600, 4 << 30, 2 << 30


def anchor_of(path: Path) -> Path:
    """The anchor file of an archive, which is given as it is or as its folder."""
    if not path.is_dir():
        return path
    found = sorted(path.glob("*.otf2"))
    if len(found) != 1:
        raise InputError(f"found {len(found)} files that end in .otf2; expected one", where=str(path))
    return found[0]


def read_otf2(path: str | Path) -> tuple[Any, Any, Any, Any]:
    """Nanoseconds, sources, destinations and bytes of an archive's messages, by time."""
    anchor = anchor_of(Path(path))
    if importlib.util.find_spec("otf2") is None:
        raise extras.missing("otf2")
    with tempfile.TemporaryDirectory(prefix="armillary-otf2-") as folder:
        table = Path(folder) / "messages.csv"
        with table.open("wb") as out:
            command = [sys.executable, "-m", "armillary.network.routing.sockets.otf2_process", str(anchor.resolve()), str(MOST_BYTES)]
            command += [str(MOST_S), str(MOST_OUTPUT), str(MOST_MESSAGES)]
            try:
                done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=MOST_S, check=False)
            except subprocess.TimeoutExpired:
                raise InputError(f"cannot be read within {MOST_S} seconds", where=str(anchor)) from None
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"the reader ended with status {done.returncode}"]
            raise InputError(f"cannot be read as OTF2 ({one_line(lines[-1], 200)})", where=str(anchor))
        columns = [
            Column("time_ns", "float", least=0, not_decreasing=True),
            *(Column(name, "int", least=0) for name in ("source", "destination", "bytes")),
        ]
        read = read_table(table, columns, row_limit=MOST_MESSAGES, may_be_empty=True)
        if not read.rows:
            raise InputError("found no MPI_Send and no MPI_Isend; expected at least one", where=str(anchor))
        found = tuple(read[name].copy() for name in ("time_ns", "source", "destination", "bytes"))
    return found[0], found[1], found[2], found[3]
