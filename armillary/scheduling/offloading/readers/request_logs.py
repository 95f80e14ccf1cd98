"""Request logs: the artifact's CSV files, and a table of our own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, column_names, read_table
from armillary.scheduling.offloading.functions.curves import Floats

#: Rows of a log, and seconds that it may span.
MOST_ROWS, LONGEST_S = 2_000_000, 1e7
#: What is accepted, for messages.
KINDS = "timestamp,response_time_ms; timestamp,matrix_size,response_time_ms; or timestamp,latency_ms[,size]"


@dataclass(frozen=True)
class Log:
    """Answered requests in the order of their times: seconds since the first, latencies in seconds, and sizes where there are any.

    `failed` counts requests without an answer, which are left out; `reordered` counts rows that stood before an earlier one.
    """

    arrival_s: Floats
    latency_s: Floats
    size: Floats | None
    failed: int = 0
    reordered: int = 0
    kind: str = "requests"

    def __len__(self) -> int:
        return len(self.arrival_s)


def read_log(path: str | Path) -> Log:
    """Reads a CSV of requests. A latency of −1 is a request that failed. Times are ISO 8601 without a zone, or seconds."""
    names = [name.strip() for name in column_names(path, format="csv")]
    if "timestamp" not in names or not {"response_time_ms", "latency_ms"} & set(names):
        raise InputError(f"found the columns {one_line(', '.join(names) or 'none', 160)}; expected {KINDS}", where=str(path))
    table = read_table(
        path,
        [
            Column("timestamp", "time"),
            Column("latency_ms", aliases=("response_time_ms",), unit="milliseconds", least=-1, most=1e9),
            Column("size", aliases=("matrix_size",), least=0, most=1e12, optional=True),
        ],
        format="csv", row_limit=MOST_ROWS,
    )  # fmt: skip
    latency, at = table["latency_ms"], table["timestamp"]
    odd = np.flatnonzero((latency < 0) & (latency != -1))
    if len(odd):
        raise table.error(int(odd[0]), f"found {latency[odd[0]]:g}; expected milliseconds of at least 0, or −1 for a failure", "latency_ms")
    answered = latency >= 0
    if not answered.any():
        raise InputError(f"found {len(latency):,} failed requests and no other; expected at least one answer", where=str(path))
    size = table["size"][answered].astype(np.float64) if "size" in table else None
    return ordered(at[answered], latency[answered] / 1e3, size, int((~answered).sum()), str(path))


def ordered(at: Floats, latency_s: Floats, size: Floats | None, failed: int, where: str, kind: str = "requests") -> Log:
    """A log from rows in any order."""
    order = np.argsort(at, kind="stable")
    arrival = (at - at.min())[order].astype(np.float64)
    if arrival[-1] > LONGEST_S:
        raise InputError(f"found requests over {arrival[-1]:.3g} s; expected at most {LONGEST_S:g} s", where=where)
    moved = int(np.count_nonzero(np.diff(at) < 0))
    return Log(arrival, latency_s[order].astype(np.float64), None if size is None else size[order], failed, moved, kind)


def both_backends(cpu: Log, gpu: Log | None, speedup: float, where: str) -> Floats:
    """Seconds of the CPU log's requests on both backends, [2, requests].

    With sizes in both logs, the GPU takes what its requests of that size took in the median, interpolated between sizes. Without, the
    latency of the same rank. Without a GPU log, the CPU's latency over `speedup`.
    """
    if gpu is None:
        return np.stack([cpu.latency_s, cpu.latency_s / speedup])
    if (cpu.size is None) != (gpu.size is None):
        raise InputError("found sizes in one of the two logs only; expected them in both or in none", where=where)
    if cpu.size is not None and gpu.size is not None:
        sizes, medians = _medians(gpu.size, gpu.latency_s)
        return np.stack([cpu.latency_s, np.interp(cpu.size, sizes, medians)])
    ranks = np.argsort(np.argsort(cpu.latency_s, kind="stable"), kind="stable")
    shares = (ranks + 0.5) / len(ranks)
    places = (np.arange(len(gpu)) + 0.5) / len(gpu)
    return np.stack([cpu.latency_s, np.interp(shares, places, np.sort(gpu.latency_s))])


def _medians(size: Floats, latency: Floats) -> tuple[Floats, Floats]:
    sizes, place = np.unique(size, return_inverse=True)
    order = np.lexsort((latency, place))
    starts = np.searchsorted(place[order], np.arange(len(sizes)))
    stops = np.append(starts[1:], len(place))
    low, high = (starts + stops - 1) // 2, (starts + stops) // 2
    values = latency[order]
    return sizes.astype(np.float64), (values[low] + values[high]) / 2


def spread(counts: Sequence[Sequence[float]], times: Sequence[float], bounds_ms: Sequence[float], where: str) -> Log:
    """Requests from counts per period and bucket, evenly over the period and over the bucket.

    counts: [periods][buckets], the last bucket without a bound. times: the end of each period, preceded by the begin of the first one.
    """
    table = np.asarray(counts, np.float64)
    if table.sum() > MOST_ROWS:
        raise InputError(f"found {table.sum():,.0f} requests; expected at most {MOST_ROWS:,}", where=where)
    whole = np.rint(table).astype(np.int64)
    if not whole.sum():
        raise InputError("found no request; expected counters that rise", where=where)
    low = np.array([0.0, *bounds_ms])
    high = np.array([*bounds_ms, bounds_ms[-1]])
    at, latency = [], []
    for k in range(len(whole)):
        n = int(whole[k].sum())
        if not n:
            continue
        bucket = np.repeat(np.arange(whole.shape[1]), whole[k])
        place = np.concatenate([(np.arange(c) + 0.5) / c for c in whole[k].tolist() if c])
        ms = low[bucket] + (high[bucket] - low[bucket]) * place
        # Buckets are dealt out over the period, so that slow requests do not all come last.
        turn = np.argsort(place, kind="stable")
        latency.append(ms[turn] / 1e3)
        at.append(times[k] + (times[k + 1] - times[k]) * (np.arange(n) + 0.5) / n)
    return ordered(np.concatenate(at), np.concatenate(latency), None, 0, where, "histogram")
