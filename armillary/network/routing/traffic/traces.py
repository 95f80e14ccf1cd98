"""Reads messages: tables with `time_ns,source,destination,bytes` (CSV, TSV, JSON lines, Parquet), and OTF2 archives."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, read_table

from .messages import MOST_MESSAGE_FLITS, MOST_MESSAGES, Messages

COLUMNS = (
    Column("time_ns", "float", unit="nanoseconds", least=0, most=1e18, not_decreasing=True),
    Column("source", "int", least=0, most=(1 << 31) - 1),
    Column("destination", "int", aliases=("target",), least=0, most=(1 << 31) - 1),
    Column("bytes", "int", unit="bytes", least=0, most=1 << 46),
)


def read_messages(path: str | Path, *, cycle_ns: float = 1.0, flit_bytes: int = 64) -> Messages:
    """The messages of a file; each leaves at its time, counted from the first one's. Messages without bytes take one flit."""
    if not 1e-6 <= cycle_ns <= 1e9:
        raise InputError(f"found {cycle_ns}; expected nanoseconds per cycle from 0.000001 to 1,000,000,000", where="cycle_ns")
    if not 1 <= flit_bytes <= 1 << 20:
        raise InputError(f"found {flit_bytes}; expected 1 to {1 << 20:,} bytes per flit", where="flit_bytes")
    path = Path(path)
    if path.is_dir() or path.suffix.lower() == ".otf2":
        from ..sockets.otf2 import read_otf2

        time_ns, source, target, nbytes = read_otf2(path)
    else:
        table = read_table(path, COLUMNS, row_limit=MOST_MESSAGES)
        time_ns, source, target, nbytes = (table[name] for name in ("time_ns", "source", "destination", "bytes"))
    flits = np.maximum(1, -(-nbytes // flit_bytes)).astype(np.int64)
    if flits.max() > MOST_MESSAGE_FLITS:
        raise InputError(
            f"found a message of {int(nbytes.max()):,} bytes; expected at most {MOST_MESSAGE_FLITS * flit_bytes:,}", where=str(path)
        )
    pause = np.minimum((time_ns - time_ns[0]) / cycle_ns, 2.0**62).astype(np.int64)
    return Messages(source.astype(np.int64), target.astype(np.int64), flits, pause, cycle_ns=cycle_ns, name=str(path))
