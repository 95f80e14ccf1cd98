"""A run as JSON for Perfetto and Chrome: one process per process, one lane per thread and stream, and arrows from calls to activities."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ..analysis.regions import launching
from ..run.model import CALL, GRAPH, KERNEL, MEMORY, METRIC, MPI, NVTX, Run, Spans
from .whole import whole_files, write_all

_BLOCK = 32_000
_CATEGORIES = {KERNEL: "kernel", MEMORY: "gpu_memcpy", GRAPH: "graph", CALL: "cuda_runtime", MPI: "mpi", NVTX: "user_annotation"}


def write_chrome(run: Run, path: str | Path) -> int:
    """Writes `{"displayTimeUnit": "ns", "traceEvents": [...]}`, packed where the name ends in .gz; returns its bytes."""
    path = Path(path)
    with whole_files([path]) as (out,):
        write_all(out, b'{"displayTimeUnit":"ns","traceEvents":[\n')
        write_all(out, ",\n".join(_names(run)).encode())
        for block in _blocks(run):
            write_all(out, b",\n")
            write_all(out, block.encode())
        write_all(out, b"\n]}\n")
    return path.stat().st_size


def _names(run: Run) -> Iterator[str]:
    for number, one in enumerate(run.processes):
        name = f"rank {one.rank} " if one.rank is not None else ""
        yield json.dumps({"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"{name}{one.host} {one.pid}".strip()}})
    for number, thread in enumerate(run.threads):
        name = thread.label or f"thread {thread.number}"
        for what, value in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": number})):
            yield json.dumps({"ph": "M", "name": what, "pid": thread.process, "tid": number, "args": value})


def _blocks(run: Run) -> Iterator[str]:
    names = pl.Series([json.dumps(name) for name in run.names], dtype=pl.String)
    owners = run.process_of_thread()
    for kind, category in _CATEGORIES.items():
        spans = run.of(kind)
        for first in range(0, len(spans), _BLOCK):
            part = spans.of(slice(first, first + _BLOCK))
            frame = pl.DataFrame(
                {
                    "name": names.gather(part.name), "pid": owners[part.thread], "tid": part.thread, "ts": part.start,
                    "dur": part.end - part.start, "args": _arguments(run, kind, part),
                }
            )  # fmt: skip
            text = pl.concat_str(
                pl.lit('{"ph":"X","name":'), "name", pl.lit(f',"cat":"{category}","pid":'), "pid", pl.lit(',"tid":'), "tid",
                pl.lit(',"ts":'), *_micro("ts"), pl.lit(',"dur":'), *_micro("dur"), pl.lit(',"args":{'), "args", pl.lit("}}"),
            )  # fmt: skip
            yield _joined(frame.select(text))
    yield from _arrows(run, owners)
    yield from _counters(run, owners)


def _micro(column: str) -> tuple[pl.Expr, ...]:
    """Nanoseconds as microseconds with three digits."""
    whole = pl.col(column).floordiv(1000)
    return whole, pl.lit("."), (pl.col(column) - whole * 1000).cast(pl.String).str.zfill(3)


def _joined(frame: pl.DataFrame) -> str:
    return ",\n".join(frame.to_series().to_list())


def _arguments(run: Run, kind: str, part: Spans) -> pl.Series:
    columns: dict[str, Any] = {}
    if kind in (KERNEL, MEMORY, CALL, GRAPH):
        columns["correlation"] = part.correlation
    if kind == MEMORY:
        columns["bytes"] = part.more["bytes"]
    if kind == KERNEL:
        launches = run.launches[part.more["launch"]]
        columns |= {"registers per thread": launches[:, 9], "shared memory": launches[:, 6] + launches[:, 7]}
        columns |= {"device": np.array([one.device for one in run.threads])[part.thread]}
        columns |= {"stream": np.array([one.number for one in run.threads])[part.thread]}
    if not columns:
        return pl.Series([""] * len(part), dtype=pl.String)
    pieces: list[Any] = []
    for number, name in enumerate(columns):
        pieces += [pl.lit(f'{"," if number else ""}"{name}":'), pl.col(name)]
    frame = pl.DataFrame(columns)
    if kind == KERNEL:
        for name, first in (("grid", 0), ("block", 3)):
            texts = pl.Series([f',"{name}":[{a},{b},{c}]' for a, b, c in run.launches[:, first : first + 3].tolist()], dtype=pl.String)
            frame = frame.with_columns(texts.gather(part.more["launch"]).alias(name))
            pieces.append(pl.col(name))
    return frame.select(pl.concat_str(*pieces)).to_series()


def _arrows(run: Run, owners: np.ndarray) -> Iterator[str]:
    calls = run.of(CALL)
    number = 0
    for kind in (KERNEL, MEMORY, GRAPH):
        spans = run.of(kind)
        source = launching(run, spans)
        for first in range(0, len(source), _BLOCK):
            mine = first + np.flatnonzero(source[first : first + _BLOCK] >= 0)
            if not len(mine):
                continue
            call = source[mine]
            frame = pl.DataFrame(
                {
                    "id": np.arange(number, number + len(mine)), "pid": owners[calls.thread[call]], "tid": calls.thread[call],
                    "ts": calls.start[call], "pid2": owners[spans.thread[mine]], "tid2": spans.thread[mine], "ts2": spans.start[mine],
                }
            )  # fmt: skip
            number += len(mine)
            text = pl.concat_str(
                pl.lit('{"ph":"s","name":"ac2g","cat":"ac2g","id":'), "id", pl.lit(',"pid":'), "pid", pl.lit(',"tid":'), "tid",
                pl.lit(',"ts":'), *_micro("ts"), pl.lit('},\n{"ph":"f","bp":"e","name":"ac2g","cat":"ac2g","id":'), "id",
                pl.lit(',"pid":'), "pid2", pl.lit(',"tid":'), "tid2", pl.lit(',"ts":'), *_micro("ts2"), pl.lit("}"),
            )  # fmt: skip
            yield _joined(frame.select(text))


def _counters(run: Run, owners: np.ndarray) -> Iterator[str]:
    spans = run.of(METRIC)
    if not len(spans):
        return
    for first in range(0, len(spans), _BLOCK):
        part = spans.of(slice(first, first + _BLOCK))
        titles = {k: json.dumps(f"{run.metrics.get(k, f'GPU metric {k}')}") for k in np.unique(part.more["metric"]).tolist()}
        frame = pl.DataFrame({"metric": part.more["metric"], "pid": owners[part.thread], "ts": part.start, "value": part.more["value"]})
        name = pl.col("metric").replace_strict(titles, return_dtype=pl.String)
        yield _joined(
            frame.select(pl.concat_str(pl.lit('{"ph":"C","name":'), name, pl.lit(',"pid":'), "pid", pl.lit(',"ts":'), *_micro("ts"),
                                       pl.lit(',"args":{"value":'), "value", pl.lit("}}")))
        )  # fmt: skip
