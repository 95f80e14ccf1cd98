"""Azure's public VM traces, 2017 (V1) and 2019 (V2): `vmtable.csv[.gz]`, and if you have them files of CPU readings.

Neither has a header. A row of the table is vmid, subscriptionid, deploymentid, vmcreated, vmdeleted (seconds), maxcpu, avgcpu, p95maxcpu
(per cent), vmcategory, cores and memory in GB. V1 gives cores and memory as numbers, V2 as the upper ends of buckets, up to ">24" cores
and ">64" GB, which count as 30 and 70 as in the analysis that comes with the trace. A row of the readings is timestamp, vmid, mincpu,
maxcpu, avgcpu, every five minutes. The trace has no hosts and says nothing about interference: hosts are built in, VMs are placed by best
fit when they come, and what they do to each other is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import Column, scan_table
from armillary.scheduling.vm.problem.fleet import Floats, Ints
from armillary.scheduling.vm.problem.metrics import READINGS

HEADER = (
    "vmid", "subscriptionid", "deploymentid", "vmcreated", "vmdeleted", "maxcpu", "avgcpu", "p95maxcpu", "vmcategory", "cores", "memory",
)  # fmt: skip
READING = ("timestamp", "vmid", "mincpu", "maxcpu", "avgcpu")
CATEGORIES = ("Delay-insensitive", "Interactive", "Unknown")
#: What the open buckets count as.
OPEN = {"cores": (">24", 30.0), "memory": (">64", 70.0)}
#: The most rows of a table and of readings that are looked at.
MOST_ROWS, MOST_READINGS = 20_000_000, 200_000_000
#: A VM whose 95th percentile is this many times its mean is bursty (ours).
BURSTY = 3.0


@dataclass(frozen=True)
class AzureVms:
    """VMs of a trace: sizes, life in seconds, mean and 95th percentile of the CPU as shares, and readings where there are any."""

    names: tuple[str, ...]
    vcpu: Ints
    memory_gb: Floats
    created_s: Floats
    deleted_s: Floats
    cpu_mean: Floats
    cpu_p95: Floats
    #: CPU as a share, [vms, hours, 12] with NaN where there is no reading; None without files of readings.
    readings: npt.NDArray[np.float32] | None = None


def read_azure(
    path: Path, *, most: int, begin_s: float, alive_s: tuple[float, float], hours: int, readings: Sequence[Path] = ()
) -> AzureVms:
    """The first `most` VMs that live at some time within `alive_s`; readings from `begin_s` on for some hours."""
    columns = [
        Column("vmid", "str"), Column("vmcreated", unit="seconds", least=0, most=1e10),
        Column("vmdeleted", unit="seconds", least=0, most=1e10),
        Column("maxcpu", least=0, most=101), Column("avgcpu", least=0, most=101), Column("p95maxcpu", least=0, most=101),
        Column("vmcategory", "str", choices=CATEGORIES), Column("cores", "str"), Column("memory", "str"),
    ]  # fmt: skip
    kept: dict[str, list[float]] = {}
    for table in scan_table(path, columns, format="csv", header=HEADER, row_limit=MOST_ROWS):
        created, deleted = table["vmcreated"], table["vmdeleted"]
        late = np.flatnonzero(deleted < created)
        if len(late):
            row = int(late[0])
            raise table.error(row, f"found {deleted[row]:g} after the creation at {created[row]:g}; expected a later time", "vmdeleted")
        rows = np.flatnonzero((created < alive_s[1]) & (np.maximum(deleted, created + 300) > alive_s[0]))
        values = {name: table[name] for name in ("vmid", "avgcpu", "p95maxcpu", "cores", "memory")}
        for row in rows[: most - len(kept)].tolist():
            cores, memory = (_bucket(table, row, name, values[name][row]) for name in ("cores", "memory"))
            name = str(values["vmid"][row])
            if name in kept:
                raise table.error(row, f'found "{one_line(name, 20)}" twice; expected different VMs', "vmid")
            kept[name] = [
                cores, memory, float(created[row]), float(deleted[row]), values["avgcpu"][row] / 100, values["p95maxcpu"][row] / 100,
            ]  # fmt: skip
        if len(kept) >= most:
            break
    if not kept:
        said = f"found no VM between {alive_s[0]:g} and {alive_s[1]:g} s; expected at least one (set --from-day)"
        raise InputError(said, where=str(path))
    facts = np.array(list(kept.values()), np.float64)
    vcpu = np.maximum(1, np.round(facts[:, 0])).astype(np.int64)
    found = _readings(readings, {name: i for i, name in enumerate(kept)}, begin_s, hours) if readings else None
    return AzureVms(tuple(kept), vcpu, facts[:, 1], facts[:, 2], facts[:, 3], np.clip(facts[:, 4], 0, 1), np.clip(facts[:, 5], 0, 1), found)


def _bucket(table: object, row: int, name: str, text: object) -> float:
    mark, value = OPEN[name]
    said = str(text).strip()
    if said == mark:
        return value
    try:
        found = float(said)
    except ValueError:
        found = float("nan")
    if not 0 < found <= 4096:
        raise table.error(row, f'found "{one_line(said, 20)}"; expected a number or "{mark}"', name)  # type: ignore[attr-defined]
    return found


def _readings(files: Sequence[Path], number: dict[str, int], begin_s: float, hours: int) -> npt.NDArray[np.float32]:
    import polars as pl

    out = np.full((len(number), hours, READINGS), np.nan, np.float32)
    columns = [
        Column("timestamp", unit="seconds", least=0, most=1e10), Column("vmid", "str"), Column("mincpu", least=0, most=101),
        Column("maxcpu", least=0, most=101), Column("avgcpu", least=0, most=101),
    ]  # fmt: skip
    names = pl.Series(list(number))
    for file in files:
        for table in scan_table(file, columns, format="csv", header=READING, row_limit=MOST_READINGS):
            frame = table.frame.filter(pl.col("vmid").is_in(names.implode()))
            if not frame.height:
                continue
            slot = np.floor((frame["timestamp"].to_numpy() - begin_s) * READINGS / 3600).astype(np.int64)
            ok = (slot >= 0) & (slot < hours * READINGS)
            vm = frame["vmid"].replace_strict(names, pl.int_range(len(names), eager=True), return_dtype=pl.Int64).to_numpy()
            out[vm[ok], slot[ok] // READINGS, slot[ok] % READINGS] = np.clip(frame["avgcpu"].to_numpy()[ok] / 100, 0, 1)
    return out
