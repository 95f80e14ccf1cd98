"""Serverless traces in: Azure Functions 2019 and 2021, Huawei's public cloud 2025, and a plain table of invocations.

`read_invocations` tells the kinds apart by their columns. A folder is read as the files of one trace that lie in it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, Table, column_names, read_table

from .invocations import Floats, Invocations
from .pods import peaks

#: The most rows of one file and invocations of one trace.
MOST_ROWS, MOST_INVOCATIONS = 20_000_000, 20_000_000
#: The most of (invocations of a function) × (its pods at once), over all functions.
MOST_VISITS = 2e10
MOST_FILES = 64
ENDINGS = (".csv", ".csv.gz", ".csv.zst", ".txt")
#: Millicores and MB at the end of a pool's name.
_POOL = re.compile(r"-(\d{1,7})-(\d{1,9})$")
SPREADS = ("uniform", "start", "even")
KINDS = (
    "Azure 2019 (HashOwner, HashApp, HashFunction, Trigger, 1 … 1440), Azure 2021 (app, func, end_timestamp, duration), Huawei 2025 "
    "requests (time_worker, …, podID) or counts (day, time, functions), or a table with function, arrival_s and duration_s"
)


@dataclass(frozen=True)
class Defaults:
    """What is assumed where a trace does not say, and how counts per minute are spread."""

    cold_s: float = 1.0
    vcpu: float = 0.3
    memory_gb: float = 0.125
    duration_s: float = 0.6
    spread: str = "uniform"
    seed: int = 0


def read_invocations(
    path: str | os.PathLike[str], *, durations: str = "", memory: str = "", cold_starts: str = "", spread: str = "uniform",
    cold_s: float = 1.0, vcpu: float = 0.3, memory_mb: float = 128.0, duration_s: float = 0.6, seed: int = 0,
) -> Invocations:  # fmt: skip
    """Reads a serverless trace: a file, or a folder with the files of one trace.

    durations, memory: further files of Azure 2019. cold_starts: Huawei's file of cold starts. spread: where in its minute an invocation
    of a count arrives: "uniform" (drawn with the seed), "start", or "even". cold_s, vcpu, memory_mb and duration_s stand for what a trace
    does not say. Several day files of Azure 2019 count as consecutive days in the order of their names.
    """
    if spread not in SPREADS:
        raise InputError(f'found "{spread}"; expected {", ".join(SPREADS)}', where="spread")
    how = Defaults(cold_s, vcpu, memory_mb / 1024, duration_s, spread, seed)
    files = _files(Path(path))
    kinds = {kind: [file for file in files if _kind(file) == kind] for kind in _READERS}
    kinds["durations"] += [Path(durations)] if durations else []
    kinds["memory"] += [Path(memory)] if memory else []
    kinds["cold starts"] += [Path(cold_starts)] if cold_starts else []
    for kind, given in (("durations", durations), ("memory", memory), ("cold starts", cold_starts)):
        if given and _kind(Path(given)) != kind:
            raise InputError(f"found another kind of file; expected {kind}", where=given)
    works = [kind for kind in _WORKS if kinds[kind]]
    if len(works) != 1:
        found = "none" if not works else " and ".join(works)
        raise InputError(f"found {found}; expected the files of one trace: {KINDS}", where=str(path))
    trace = _WORKS[works[0]](kinds, how)
    _check_pods(trace, str(path))
    return trace


def _check_pods(trace: Invocations, where: str) -> None:
    """An arrival may look at every pod of its function, so a trace may not have too many invocations times pods."""
    peak = peaks(trace)
    if float((np.diff(trace.offsets).astype(np.float64) * peak).sum()) > MOST_VISITS:
        worst = int(peak.argmax())
        name = one_line(trace.names[worst], 60) if trace.names else str(worst)
        raise InputError(f'found {peak[worst]:,} invocations of "{name}" at once; expected fewer, because each needs a pod', where=where)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.iterdir() if file.name.lower().endswith(ENDINGS) and file.is_file())
    if not 1 <= len(found) <= MOST_FILES:
        raise InputError(f"found {len(found)} files; expected 1 to {MOST_FILES} with the endings {', '.join(ENDINGS)}", where=str(path))
    return found


def _kind(path: Path) -> str:
    """The kind of a file, by its columns."""
    names = [name.strip() for name in column_names(path, format="csv")]
    for kind, needed in _READERS.items():
        if needed <= set(names):
            return kind
    if names[:2] == ["day", "time"] and len(names) > 2:
        return "Huawei counts"
    shown = one_line(", ".join(names[:6]), 100) + ("…" if len(names) > 6 else "")
    raise InputError(f"found the columns {shown}; expected {KINDS}", where=f"{path}:1")


#: The columns by which each kind of file is known.
_READERS: dict[str, frozenset[str]] = {
    "Azure 2019": frozenset({"HashOwner", "HashApp", "HashFunction", "Trigger", "1"}),
    "durations": frozenset({"HashOwner", "HashApp", "HashFunction", "Average", "Count"}),
    "memory": frozenset({"HashOwner", "HashApp", "SampleCount", "AverageAllocatedMb"}),
    "Azure 2021": frozenset({"app", "func", "end_timestamp", "duration"}),
    "cold starts": frozenset({"totalCost_cold_start", "podID", "funcName", "userID"}),
    "Huawei requests": frozenset({"time_worker", "podID", "funcName", "userID", "runtimeCost"}),
    "Huawei functions": frozenset({"funcID", "cpu_request", "runtime"}),
    "Huawei counts": frozenset({"day", "time", "\0"}),
    "table": frozenset({"function", "arrival_s", "duration_s"}),
}


def _read(path: Path, columns: Sequence[Column]) -> Table:
    return read_table(path, columns, format="csv", row_limit=MOST_ROWS)


def _check_total(total: int, where: str) -> None:
    if total > MOST_INVOCATIONS:
        raise InputError(f"found {total:,} invocations; expected at most {MOST_INVOCATIONS:,}", where=where)


def _arrivals(counts: np.ndarray, how: Defaults, first_minute: int, rng: np.random.Generator) -> tuple[np.ndarray, Floats]:
    """(row, seconds) of counted invocations; counts is [rows, minutes]."""
    row, minute = np.nonzero(counts)
    many = counts[row, minute]
    row, minute, whole = np.repeat(row, many), np.repeat(minute, many), np.repeat(many, many)
    if how.spread == "uniform":
        place = rng.random(len(row))
    elif how.spread == "start":
        place = np.zeros(len(row))
    else:
        place = (np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)) / whole
    return row, 60.0 * (first_minute + minute + place)


def _table(files: dict[str, list[Path]], how: Defaults) -> Invocations:
    """A table with function, arrival_s and duration_s, and if known memory_mb, vcpu and cold_s, of which a function's first row counts."""
    (path,) = files["table"]
    columns = [
        Column("function", "str"), Column("arrival_s", "time"), Column("duration_s", unit="seconds", least=0, most=1e7),
        Column("memory_mb", unit="MB", above=0, most=1e8, default=1024 * how.memory_gb),
        Column("vcpu", above=0, most=1e5, default=how.vcpu), Column("cold_s", unit="seconds", least=0, most=1e5, default=how.cold_s),
    ]  # fmt: skip
    table = _read(path, columns)
    number, names = table.numbered("function")
    first = np.unique(number, return_index=True)[1]
    return Invocations.of(
        number, table["arrival_s"], table["duration_s"], functions=len(names), cold_s=table["cold_s"][first], vcpu=table["vcpu"][first],
        memory_gb=table["memory_mb"][first] / 1024, names=[str(name) for name in names],
    )  # fmt: skip


def _azure_2021(files: dict[str, list[Path]], how: Defaults) -> Invocations:
    """An invocation arrived at end_timestamp − duration."""
    (path,) = files["Azure 2021"]
    columns = [
        Column("app", "str"), Column("func", "str"), Column("end_timestamp", unit="seconds", least=0, most=1e8),
        Column("duration", unit="seconds", least=0, most=1e6),
    ]  # fmt: skip
    table = _read(path, columns)
    number, names = _joined(table, ("app", "func"))
    arrival = table["end_timestamp"] - table["duration"]
    return Invocations.of(
        number, arrival, table["duration"], functions=len(names), cold_s=how.cold_s, vcpu=how.vcpu, memory_gb=how.memory_gb, names=names,
        horizon_s=float(table["end_timestamp"].max()),
    )  # fmt: skip


def _joined(table: Table, columns: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """(number of each row, names), where a name joins several columns as Huawei's analysis does."""
    import polars as pl

    frame = table.frame.select(pl.concat_str([pl.col(c) for c in columns], separator="---").alias("name"))
    names = frame["name"].unique(maintain_order=True)
    numbers = frame["name"].replace_strict(names, pl.int_range(len(names), eager=True), return_dtype=pl.Int64)
    return numbers.to_numpy(), names.to_list()


def _azure_2019(files: dict[str, list[Path]], how: Defaults) -> Invocations:
    """Counts per minute of one or more days, with durations and memory where they are given."""
    rng = np.random.default_rng(how.seed)
    index: dict[str, int] = {}
    app: list[str] = []
    parts: list[tuple[np.ndarray, Floats]] = []
    total = 0
    for day, path in enumerate(files["Azure 2019"]):
        minutes = [name.strip() for name in column_names(path, format="csv") if name.strip().isdigit()]
        if minutes != [str(m) for m in range(1, 1441)]:
            raise InputError(f"found {len(minutes)} minutes; expected the 1,440 of a day, from 1 on", where=f"{path}:1")
        columns = [Column(name, "str") for name in ("HashOwner", "HashApp", "HashFunction")]
        columns += [Column(m, "int", least=0, most=1e9, default=0) for m in minutes]
        table = _read(path, columns)
        counts = np.stack([table[m] for m in minutes], 1)
        total += int(counts.sum(dtype=np.float64)) if counts.size else 0
        _check_total(total, str(path))
        keys = ["---".join(key) for key in zip(*(table[name].tolist() for name in ("HashOwner", "HashApp", "HashFunction")))]
        for key in keys:
            if key not in index:
                index[key] = len(index)
                app.append(key.rpartition("---")[0])
        row, seconds = _arrivals(counts, how, 1440 * day, rng)
        parts.append((np.array([index[key] for key in keys], np.int64)[row], seconds))
    function, arrival = (np.concatenate(column) for column in zip(*parts))
    seconds_of = _azure_durations(files["durations"], index, how)
    memory = _azure_memory(files["memory"], app, how)
    return Invocations.of(
        function, arrival, seconds_of[function] if len(function) else np.zeros(0), functions=max(1, len(index)), cold_s=how.cold_s,
        vcpu=how.vcpu, memory_gb=memory, names=list(index), horizon_s=86400.0 * len(files["Azure 2019"]),
    )  # fmt: skip


def _azure_durations(files: Sequence[Path], index: dict[str, int], how: Defaults) -> Floats:
    """The mean duration of each function over the days that have it, in seconds."""
    total, count = np.zeros(len(index)), np.zeros(len(index))
    for path in files:
        table = _read(path, [
            *(Column(name, "str") for name in ("HashOwner", "HashApp", "HashFunction")),
            Column("Average", unit="milliseconds", least=0, most=1e9), Column("Count", least=0, most=1e12),
        ])  # fmt: skip
        for *key, average, n in zip(*(table[name] for name in ("HashOwner", "HashApp", "HashFunction", "Average", "Count"))):
            f = index.get("---".join(key))
            if f is not None:
                total[f] += average * max(n, 1.0)
                count[f] += max(n, 1.0)
    return np.where(count > 0, total / np.maximum(count, 1.0) / 1e3, how.duration_s)


def _azure_memory(files: Sequence[Path], app: Sequence[str], how: Defaults) -> Floats:
    """The mean memory of each function's application, in GB."""
    known: dict[str, list[float]] = {}
    for path in files:
        table = _read(path, [
            *(Column(name, "str") for name in ("HashOwner", "HashApp")), Column("SampleCount", least=0, most=1e15),
            Column("AverageAllocatedMb", unit="MB", least=0, most=1e8),
        ])  # fmt: skip
        for owner, name, mb in zip(table["HashOwner"], table["HashApp"], table["AverageAllocatedMb"]):
            known.setdefault(f"{owner}---{name}", []).append(float(mb))
    return np.array([float(np.mean(known[name])) / 1024 if name in known else how.memory_gb for name in app] or [how.memory_gb])


def _pools(table: Table, column: str = "podID") -> tuple[np.ndarray, list[str], Floats, Floats]:
    """(pool of each row, pools, their vCPUs, their GB), from pods such as pool22-300-128-0000618412."""
    import polars as pl

    frame = table.frame.select(pl.col(column).str.extract_groups(r"^(?<pool>.+-(?<cpu>\d{1,7})-(?<mb>\d{1,9}))-[0-9A-Za-z]+$").alias("p"))
    parts = frame.unnest("p")
    bad = parts["pool"].is_null()
    if bad.any():
        row = int(bad.arg_max() or 0)
        shown = one_line(str(table[column][row]), 60)
        raise table.error(row, f'found "{shown}"; expected a pod such as pool22-300-128-0000618412 (millicores and MB)', column)
    names = parts["pool"].unique(maintain_order=True)
    number = parts["pool"].replace_strict(names, pl.int_range(len(names), eager=True), return_dtype=pl.Int64).to_numpy()
    facts = [name.rsplit("-", 2) for name in names.to_list()]
    return number, names.to_list(), np.array([int(f[1]) / 1e3 for f in facts]), np.array([int(f[2]) / 1024 for f in facts])


def _huawei_keys(table: Table) -> tuple[np.ndarray, list[str], Floats, Floats]:
    """(function of each row, names, vCPUs, GB), where a function is funcName---userID---pool."""
    import polars as pl

    pool, pools, vcpu, gb = _pools(table)
    frame = table.frame.select("funcName", "userID").with_columns(pl.Series("pool", [pools[p] for p in pool.tolist()], pl.String))
    names = frame.select(pl.concat_str(["funcName", "userID", "pool"], separator="---").alias("n"))["n"]
    known = names.unique(maintain_order=True)
    number = names.replace_strict(known, pl.int_range(len(known), eager=True), return_dtype=pl.Int64).to_numpy()
    first = np.unique(number, return_index=True)[1]
    return number, known.to_list(), vcpu[pool[first]], gb[pool[first]]


_HUAWEI = [Column("podID", "str"), Column("funcName", "str"), Column("userID", "str")]


def _huawei_cold(files: Sequence[Path]) -> dict[str, float]:
    """The mean cold start of each function, in seconds."""
    total: dict[str, tuple[float, int]] = {}
    for path in files:
        table = _read(path, [*_HUAWEI, Column("totalCost_cold_start", unit="seconds", least=0, most=1e5)])
        number, names, _, _ = _huawei_keys(table)
        sums, many = np.bincount(number, table["totalCost_cold_start"], len(names)), np.bincount(number, minlength=len(names))
        for name, seconds, n in zip(names, sums.tolist(), many.tolist()):
            before = total.get(name, (0.0, 0))
            total[name] = (before[0] + seconds, before[1] + n)
    return {name: seconds / n for name, (seconds, n) in total.items()}


def _huawei_requests(files: dict[str, list[Path]], how: Defaults) -> Invocations:
    """Single requests: they arrive at time_worker and take runtimeCost; cold starts are the means of the cold-start file."""
    parts = []
    index: dict[str, int] = {}
    vcpu: list[float] = []
    memory: list[float] = []
    for path in files["Huawei requests"]:
        table = _read(path, [
            *_HUAWEI, Column("time_worker", unit="seconds", least=0, most=1e9), Column("runtimeCost", unit="seconds", least=0, most=1e6),
        ])  # fmt: skip
        number, names, cpu, gb = _huawei_keys(table)
        for k, name in enumerate(names):
            if name not in index:
                index[name] = len(index)
                vcpu.append(float(cpu[k]))
                memory.append(float(gb[k]))
        parts.append((np.array([index[name] for name in names])[number], table["time_worker"], table["runtimeCost"]))
        _check_total(sum(len(part[0]) for part in parts), str(path))
    cold = _huawei_cold(files["cold starts"])
    usual = float(np.median(list(cold.values()))) if cold else how.cold_s
    function, arrival, duration = (np.concatenate(column) for column in zip(*parts))
    return Invocations.of(
        function, arrival, duration, functions=len(index), cold_s=[cold.get(name, usual) for name in index], vcpu=vcpu, memory_gb=memory,
        names=list(index),
    )  # fmt: skip


def _huawei_counts(files: dict[str, list[Path]], how: Defaults) -> Invocations:
    """Counts per minute, one column per function, empty for none; durations are the default.

    A function whose name ends with its pool, as in f---u---pool22-300-128, has that pool's pods; others have the cores of the file of
    functions, or the default.
    """
    rng = np.random.default_rng(how.seed)
    index: dict[str, int] = {}
    parts = []
    last, total = 0, 0
    for path in files["Huawei counts"]:
        names = [name.strip() for name in column_names(path, format="csv")][2:]
        if len({"day", "time", *names}) < 2 + len(names):
            raise InputError("found a column twice; expected day, time and one column per function", where=f"{path}:1")
        columns = [Column("day", "int", least=0, most=10_000), Column("time", unit="seconds", least=0, most=1e9)]
        table = _read(path, [*columns, *(Column(name, "int", least=0, most=1e9, default=0) for name in names)])
        counts = np.stack([table[name] for name in names], 0)
        total += int(counts.sum(dtype=np.float64))
        _check_total(total, str(path))
        minutes = np.floor(table["time"] / 60).astype(np.int64)
        within = table["time"].max() < 86400
        minutes = minutes + (1440 * table["day"] if within else 0)
        for name in names:
            index.setdefault(name, len(index))
        row, place = _arrivals(counts, how, 0, rng)
        minute = (place // 60).astype(np.int64)
        parts.append((np.array([index[name] for name in names])[row], 60.0 * minutes[minute] + place - 60.0 * minute))
        last = max(last, int(minutes.max()) + 1)
    function, arrival = (np.concatenate(column) for column in zip(*parts))
    cold = _huawei_cold(files["cold starts"])
    usual = float(np.median(list(cold.values()))) if cold else how.cold_s
    cores = _huawei_cores(files["Huawei functions"])
    pools = [_POOL.search(name) for name in index]
    return Invocations.of(
        function, arrival, np.full(len(function), how.duration_s), functions=len(index), cold_s=[cold.get(name, usual) for name in index],
        vcpu=[int(pool[1]) / 1e3 if pool else cores.get(name, how.vcpu) for name, pool in zip(index, pools)],
        memory_gb=[int(pool[2]) / 1024 if pool else how.memory_gb for pool in pools], names=list(index), horizon_s=60.0 * last,
    )  # fmt: skip


def _huawei_cores(files: Sequence[Path]) -> dict[str, float]:
    """The vCPUs of functions, from a file that has them in millicores."""
    found: dict[str, float] = {}
    for path in files:
        table = _read(path, [Column("funcID", "str"), Column("cpu_request", unit="millicores", above=0, most=1e7)])
        found |= dict(zip(table["funcID"].tolist(), (table["cpu_request"] / 1e3).tolist()))
    return found


_WORKS: dict[str, Callable[[dict[str, list[Path]], Defaults], Invocations]] = {
    "table": _table, "Azure 2019": _azure_2019, "Azure 2021": _azure_2021, "Huawei requests": _huawei_requests,
    "Huawei counts": _huawei_counts,
}  # fmt: skip
