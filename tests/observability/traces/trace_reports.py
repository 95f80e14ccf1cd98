"""Small exports for tests: what a test names happens, and everything else stays away."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from armillary.observability.traces import Process, Run, Spans, Thread
from armillary.observability.traces.run.model import CALL, HOST, KERNEL, MEMORY, MORE, NVTX
from armillary.observability.traces.synthesis.exports import BEGAN_NS, ExportWriter

Row = tuple[Any, ...]


def export(
    path: Path, *, host: str = "node0", pid: int = 1234, utc_ns: int = BEGAN_NS, calls: Sequence[Row] = (), kernels: Sequence[dict[str, Any]] = (),
    copies: Sequence[Row] = (), ranges: Sequence[Row] = (), rank: int | None = None, **tables: Sequence[Row],
) -> Path:  # fmt: skip
    """An export with calls (start, end, name, correlation), kernels (by the names of `ExportWriter.kernel`), copies and ranges."""
    writer = ExportWriter(path, host, pid, 0, utc_ns)
    if calls:
        writer.rows("CUPTI_ACTIVITY_KIND_RUNTIME", [writer.call(*one) for one in calls])
    if kernels:
        writer.rows("CUPTI_ACTIVITY_KIND_KERNEL", [writer.kernel(**one) for one in kernels])
    if copies:
        writer.rows("CUPTI_ACTIVITY_KIND_MEMCPY", [writer.copy(*one) for one in copies])
    if ranges:
        writer.rows("NVTX_EVENTS", [writer.range(*one) for one in ranges])
    if rank is not None:
        writer.rows("MPI_RANKS", [(writer.thread(pid), rank)])
    for table, rows in tables.items():
        writer.rows(table, [tuple(writer.text(v[1:]) if isinstance(v, str) and v[:1] == "@" else v for v in row) for row in rows])
    writer.close()
    return path


def change(path: Path, *statements: str) -> Path:
    """The same export after some statements of SQL."""
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return path


def spans(kind: str, rows: Sequence[tuple[int, int, int, int, int]], **more: Any) -> Spans:
    """Spans from (start, end, thread, name, correlation)."""
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    rest = {name: np.asarray(more.get(name, np.zeros(len(rows))), kind_of) for name, kind_of in MORE[kind].items()}
    return Spans(columns[0], columns[1], columns[2].astype(np.int32), columns[3].astype(np.int32), columns[4].astype(np.uint32), rest).in_order()


def run_of(
    names: Sequence[str], kernels: Sequence[tuple[int, int, int, int, int]] = (), copies: Sequence[tuple[int, int, int, int, int]] = (),
    calls: Sequence[tuple[int, int, int, int, int]] = (), ranges: Sequence[tuple[int, int, int, int, int]] = (), processes: int = 1,
) -> Run:  # fmt: skip
    """A run of processes with one host thread (3 * process) and two streams (3 * process + 1 and + 2) of one device each."""
    threads = [Thread(p, *place) for p in range(processes) for place in ((HOST, 100 + p), (0, 7), (0, 13))]
    kinds = {KERNEL: kernels, MEMORY: copies, CALL: calls, NVTX: ranges}
    found = {kind: spans(kind, rows, pushed=np.ones(len(rows))) for kind, rows in kinds.items() if rows}
    owners = tuple(Process(f"node{p}", 100 + p, p) for p in range(processes))
    return Run(owners, tuple(threads), tuple(names), found, np.array([[1] * 10]))
