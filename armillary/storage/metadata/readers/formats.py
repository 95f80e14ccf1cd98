"""Which reader a user's file or folder needs."""

from __future__ import annotations

from pathlib import Path

from ..workload import Work
from .mdtest import read_mdtest
from .trace import read_trace
from .trees import read_find, scanned, with_mixture

TABLES = (".csv", ".jsonl", ".parquet")


def read_work(path: Path, *, ops: int = 100_000, lenient: bool = False) -> Work:
    """Reads the work at `path`: a folder, a trace (.csv, .jsonl, .parquet), an mdtest command line (.mdtest), or else `find` output.

    A tree without operations gets `ops` of the mixture.
    """
    if path.is_dir():
        return with_mixture(scanned(path), ops, str(path))
    ending = Path(path.name.lower().removesuffix(".gz").removesuffix(".zst")).suffix
    if ending in TABLES:
        return read_trace(path, lenient=lenient)
    if ending == ".mdtest":
        return read_mdtest(path)
    return with_mixture(read_find(path), ops, str(path))
