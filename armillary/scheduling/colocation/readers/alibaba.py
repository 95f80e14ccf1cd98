"""Alibaba cluster-trace-v2018: `container_meta.csv` and `container_usage.csv`, both without a header.

cpu_request 100 is one core; memory bandwidth and network are normalised to 0 to 100, empty cells mean that nothing was read, and -1 and 101
percent of the disk are abnormal and not used. cpu_util_percent is taken as a share of the request. Of a container's lines in the first
file, the last one that says it was started counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.files import Column, read_table, scan_table
from armillary.scheduling.contention.topology import MOST_INSTANCES

META = ("container_id", "machine_id", "time_stamp", "app_du", "status", "cpu_request", "cpu_limit", "mem_size")
USAGE = (
    "container_id", "machine_id", "time_stamp", "cpu_util_percent", "mem_util_percent", "cpi", "mem_gps", "mpki", "net_in", "net_out",
    "disk_io_percent",
)  # fmt: skip
MOST_META = 5_000_000
#: A reading that a container lacks is that of the mean over all others.
READ = ("cpu_util_percent", "cpi", "mem_gps", "mpki", "net_in", "net_out")


def read_alibaba(place: Path, usage: str = "") -> dict[str, Any]:
    """names, machines, app, app_names, request (cores), cpu (cores), cpi, mpki, mem_gps, net, and how many were skipped."""
    meta = _file(place, "container_meta") if place.is_dir() else place
    used = Path(usage) if usage else _file(meta.parent, "container_usage")
    columns = [
        Column("container_id", "str"), Column("machine_id", "str"), Column("time_stamp", "int", least=0), Column("app_du", "str"),
        Column("status", "str"), Column("cpu_request", "int", least=0, most=1_000_000, default=0),
    ]  # fmt: skip
    table = read_table(meta, columns, format="csv", header=META, row_limit=MOST_META)
    import polars as pl

    last = (
        table.frame.filter((pl.col("status") == "started") & (pl.col("cpu_request") > 0))
        .sort("time_stamp", maintain_order=True).group_by("container_id", maintain_order=True).last().sort("container_id")
    )  # fmt: skip
    if not last.height:
        raise InputError("found no container that was started with a CPU request", where=str(meta))
    if last.height > MOST_INSTANCES:
        raise InputError(f"found {last.height:,} containers; expected at most {MOST_INSTANCES:,}", where=str(meta))
    number = {name: i for i, name in enumerate(last["container_id"].to_list())}
    sums, counts = _means(used, number)
    seen = counts[:, 0] > 0
    if not seen.any():
        raise InputError(f"found no line about any of the {len(number):,} containers of {meta.name}", where=str(used))
    mean = sums / np.maximum(counts, 1)
    overall = sums.sum(0) / np.maximum(counts.sum(0), 1)
    mean = np.where(counts > 0, mean, overall)[seen]
    kept = last.filter(pl.Series(seen))
    apps = kept["app_du"].unique(maintain_order=True).to_list()
    app = np.array([{name: i for i, name in enumerate(apps)}[name] for name in kept["app_du"].to_list()], np.int64)
    request = kept["cpu_request"].to_numpy() / 100
    share = np.clip(mean[:, 0] / 100, 1e-3, 1.0)
    return {
        "names": kept["container_id"].to_list(), "machines": sorted(set(kept["machine_id"].to_list())), "app": app, "app_names": apps,
        "request": request, "cpu": share * request, "cpi": np.clip(mean[:, 1], 0.05, 100), "mem_gps": np.clip(mean[:, 2], 0, 100),
        "mpki": np.clip(mean[:, 3], 0, 1000), "net": np.clip((mean[:, 4] + mean[:, 5]) / 2, 0, 100), "skipped": int((~seen).sum()),
    }  # fmt: skip


def _means(path: Path, number: dict[str, int]) -> tuple[Any, Any]:
    """Sums and counts of the readings of each container, block by block."""
    columns = [Column("container_id", "str"), *(Column(name, least=-1e6, most=1e9, default=-1.0) for name in READ)]
    sums, counts = np.zeros((len(number), len(READ))), np.zeros((len(number), len(READ)), np.int64)
    for table in scan_table(path, columns, format="csv", header=USAGE):
        who = np.array([number.get(name, -1) for name in table["container_id"].tolist()], np.int64)
        for c, name in enumerate(READ):
            values = table[name]
            good = (who >= 0) & (values >= 0)
            sums[:, c] += np.bincount(who[good], values[good], len(number))
            counts[:, c] += np.bincount(who[good], minlength=len(number))
    return sums, counts


def _file(folder: Path, stem: str) -> Path:
    for ending in (".csv", ".csv.gz"):
        if (folder / f"{stem}{ending}").is_file():
            return folder / f"{stem}{ending}"
    raise InputError(f"found no {stem}.csv; expected it in the folder, or as --usage", where=str(folder))
