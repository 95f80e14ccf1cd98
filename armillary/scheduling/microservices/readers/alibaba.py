"""Alibaba's trace of microservices of 2021: `MSCallGraph_*`, `MSResource_*` and `MSRTQps_*`, as CSV or in the published `.tar.gz`.

The first column is an unnamed row number, and columns are read by name, so files with and without it are the same. Times are in ms. A
remote call stands twice under one (traceid, rpcid): `rt` above 0 is the caller's time, `rt` below 0 is minus the callee's. The call
0.1.2 was made by 0.1. A trace in which a caller is missing is dropped and counted.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, Table, column_names, open_file, read_table

from .documents import Read
from .traces import Span, application_from, linked

MOST_ROWS, MOST_BYTES = 20_000_000, 1 << 32
#: What an archive may hold besides its table, at most.
MOST_MEMBERS = 1000
CALL_GRAPH = (
    Column("traceid", "str"), Column("timestamp", unit="milliseconds", least=0, most=1e13), Column("rpcid", "str"),
    Column("um", "str", default=""), Column("rpctype", "str", default=""), Column("dm", "str", default=""),
    Column("interface", "str", default=""), Column("rt", unit="milliseconds", least=-1e10, most=1e10, default=0.0),
)  # fmt: skip
RESOURCE = (
    Column("timestamp", unit="milliseconds", least=0, most=1e13), Column("msname", "str"), Column("msinstanceid", "str"),
    Column("nodeid", "str"), Column("instance_cpu_usage", aliases=("cpu_utilization",), least=0, most=1e6),
    Column("instance_memory_usage", aliases=("memory_utilization",), least=0, most=1e6),
)  # fmt: skip
RATES = (
    Column("timestamp", unit="milliseconds", least=0, most=1e13), Column("msname", "str"), Column("msinstanceid", "str"),
    Column("metric", "str", aliases=("metrics",)), Column("value", least=-1e12, most=1e12),
)  # fmt: skip


def read_alibaba(path: str | Path, *, threads: int = 16, replicas: int = 2, slo_ms: float | None = None) -> Read:
    """The application that a call graph describes; see `application_from`."""
    traces, dropped = read_traces(path)
    return application_from(traces, str(path), threads=threads, replicas=replicas, slo_ms=slo_ms, dropped=dropped)


def read_resources(path: str | Path) -> Table:
    """`MSResource_*`: timestamp, msname, msinstanceid, nodeid, instance_cpu_usage and instance_memory_usage."""
    return _table(path, RESOURCE)


def read_call_rates(path: str | Path) -> Table:
    """`MSRTQps_*`: timestamp, msname, msinstanceid, metric and value."""
    return _table(path, RATES)


def read_traces(path: str | Path) -> tuple[list[Span], int]:
    """(whole traces, the number of dropped ones) of a call graph."""
    table = _table(path, CALL_GRAPH)
    number, names = table.numbered("traceid")
    order = np.argsort(number, kind="stable")
    edges = np.searchsorted(number[order], np.arange(len(names) + 1))
    rpc, callee, start, took = (table[name] for name in ("rpcid", "dm", "timestamp", "rt"))
    found, dropped = [], 0
    for k in range(len(names)):
        whole = _trace(order[edges[k] : edges[k + 1]].tolist(), rpc, callee, start, took)
        dropped += whole is None
        found += [] if whole is None else [whole]
    return found, dropped


def _trace(rows: list[int], rpc: Any, callee: Any, start: Any, took: Any) -> Span | None:
    spans: dict[str, Span] = {}
    seen_by_callee: set[str] = set()
    for row in rows:
        key = str(rpc[row])
        own = took[row] < 0
        span = spans.get(key)
        if span is None:
            spans[key] = Span(str(callee[row]), 1e-3 * float(start[row]), 1e-3 * abs(float(took[row])))
        elif own and key not in seen_by_callee:
            # The callee's time is that of the work itself; the caller's also holds the network.
            span.duration_s, span.start_s = 1e-3 * abs(float(took[row])), 1e-3 * float(start[row])
            span.service = span.service or str(callee[row])
        elif not own and not span.service:
            span.service = str(callee[row])
        if own:
            seen_by_callee.add(key)
    parents = {key: key.rpartition(".")[0] for key in spans if "." in key}
    if not all(span.service for span in spans.values()):
        return None
    return linked(spans, parents)


def _table(path: str | Path, columns: tuple[Column, ...]) -> Table:
    where = str(path)
    with unpacked(path) as (file, inside):
        try:
            present = {name.strip().lower() for name in column_names(file, format="csv")}
            missing = [c.name for c in columns if not c.may_be_missing and not present & set(c.names)]
            if missing:
                said = f"found the columns {one_line(', '.join(sorted(present)), 80)}; expected {', '.join(c.name for c in columns)}"
                raise InputError(said, where=where)
            return read_table(file, columns, format="csv", row_limit=MOST_ROWS)
        except InputError as error:
            if not inside or error.where is None:
                raise
            place = error.where.removeprefix(str(file))
            raise InputError(error.message, where=f"{where} ({inside}){place}" if place != error.where else error.where) from None


@contextlib.contextmanager
def unpacked(path: str | Path) -> Iterator[tuple[Path, str]]:
    """(file, name inside the archive): the one table of a `.tar.gz` as a temporary file, or the file itself."""
    where = str(path)
    with open_file(path, limit=MOST_BYTES) as head:
        start = head.read(512)
    if start[257:262] != b"ustar":
        yield Path(path), ""
        return
    with tempfile.TemporaryDirectory(prefix="armillary-trace-") as folder, open_file(path, limit=MOST_BYTES) as stream:
        name = ""
        target = Path(folder) / "table.csv"
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for count, member in enumerate(archive):
                    if count >= MOST_MEMBERS:
                        raise InputError(f"found more than {MOST_MEMBERS:,} members; expected one table", where=where)
                    if not member.isfile() or not member.name.endswith(".csv") or os.path.basename(member.name).startswith("."):
                        continue
                    if name:
                        raise InputError(f"found {one_line(member.name, 60)} besides {one_line(name, 60)}; expected one table", where=where)
                    if member.size > MOST_BYTES:
                        raise InputError(f"found a table of {member.size:,} bytes; expected at most {MOST_BYTES:,}", where=where)
                    name = member.name
                    source = archive.extractfile(member)
                    assert source is not None
                    with target.open("wb") as out:
                        shutil.copyfileobj(cast(Any, source), out, 1 << 20)
        except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
            raise InputError(f"not an archive that can be read: {one_line(str(error), 80)}", where=where) from None
        if not name:
            raise InputError("found no .csv inside; expected one table", where=where)
        yield target, one_line(name, 60)
