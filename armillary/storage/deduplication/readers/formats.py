"""Which reader a user's file or folder needs."""

from __future__ import annotations

import os
from pathlib import Path

from ..workload import NVME, Devices, Workload
from .trees import read_oci, read_tree
from .writes import read_fiu, read_trace

TABLES = (".csv", ".tsv", ".jsonl", ".parquet")


def read_work(
    path: str | os.PathLike[str], *, chunker: str = "fixed", chunk: int = 16384, writers: int = 16, devices: Devices = NVME
) -> Workload:
    """The work at `path`: an OCI image layout or a tree if it is a directory, a table by its ending, and FIU text otherwise."""
    found = Path(path)
    if found.is_dir():
        image = (found / "index.json").is_file() and (found / "blobs").is_dir()
        return (read_oci if image else read_tree)(found, chunker=chunker, chunk=chunk, writers=writers, devices=devices)
    if Path(found.name.lower().removesuffix(".gz").removesuffix(".zst")).suffix in TABLES:
        return read_trace(found, chunk=chunk, devices=devices)
    return read_fiu(found, devices=devices)
