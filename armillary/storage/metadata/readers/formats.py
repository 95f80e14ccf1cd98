"""Which reader a user's file or folder needs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..workload import Work
from .mdtest import MdtestRun, read_mdtest
from .trace import read_trace
from .trees import Tree, load_tree, read_find, scanned

TABLES = (".csv", ".jsonl", ".parquet")


def read_source(path: Path, *, lenient: bool = False) -> Work | Tree | MdtestRun:
    """Reads a trace (.csv, .jsonl, .parquet), an mdtest command line (.mdtest), or a tree: a folder, or else `find` output."""
    if path.is_dir():
        return load_tree(scanned(path), str(path))
    ending = Path(path.name.lower().removesuffix(".gz").removesuffix(".zst")).suffix
    if ending in TABLES:
        return read_trace(path, lenient=lenient)
    if ending == ".mdtest":
        return read_mdtest(path)
    return load_tree(read_find(path), str(path))


def drawn(source: Work | Tree | MdtestRun, rng: np.random.Generator, ops: int) -> Work:
    """Returns the work of a source. A tree gets `ops` operations of the mixture, and only a trace has no chance in it."""
    if isinstance(source, Work):
        return source
    return source.work(rng, ops) if isinstance(source, Tree) else source.work(rng)


def read_work(path: Path, *, ops: int = 100_000, lenient: bool = False, seed: int = 0) -> Work:
    """Reads the work at `path`; `ops` operations of the mixture are drawn for a tree, by this seed."""
    return drawn(read_source(path, lenient=lenient), np.random.default_rng(seed), ops)
