"""Our own tables: metrics of VMs over time, and what their hosts are.

`time, host, vm, vcpu, memory_gb, cpu` and as many of the other metrics as were measured; `host, cores, …` for the hosts. Both are CSV or
Parquet. CPU and steal are shares of the VM's vCPUs, `mem_gbps` is of the whole VM, `qos` is 1 for a VM that nobody disturbs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from armillary.errors import InputError, one_line
from armillary.files import Column, Table, column_names, read_table
from armillary.scheduling.vm.problem.fleet import MOST_HOSTS, Floats, Hosts, Ints, built_in

MOST_ROWS, MOST_TABLE_VMS = 5_000_000, 20_000
#: Later times are none, and up to here seconds are exact enough to tell readings apart.
MOST_TIME_S = 1e10
#: Columns that every table has, and their bounds.
NEEDED: tuple[tuple[str, float, float], ...] = (("vcpu", 1, 1024), ("memory_gb", 0.001, 1e5), ("cpu", 0, 1))
#: Columns that a table may have.
METRICS: tuple[tuple[str, float, float], ...] = (
    ("steal", 0, 1), ("cpi", 0, 1e3), ("ports", 0, 1), ("l2_mpki", 0, 1e3), ("llc_mpki", 0, 1e3), ("mem_gbps", 0, 1e5),
    ("net_mbps", 0, 1e6), ("disk_mbps", 0, 1e6), ("core_bound", 0, 1), ("l2_bound", 0, 1), ("llc_bound", 0, 1), ("dram_bound", 0, 1),
)  # fmt: skip
FURTHER: tuple[tuple[str, float, float], ...] = (("qos", 0, 1), ("age_days", 0, 1e5))


@dataclass(frozen=True)
class MetricTable:
    """Rows of metrics: seconds, VM and host by number, and columns by name; hosts and VMs by name."""

    time_s: Floats
    vm: Ints
    host: Ints
    columns: dict[str, Floats]
    vms: tuple[str, ...]
    hosts: Hosts


def is_metric_table(path: Path) -> bool:
    """Whether a file's header is that of a table of metrics."""
    try:
        return {"time", "host", "vm"} <= {name.strip() for name in column_names(path)}
    except InputError:
        return False


def read_metrics(path: str | Path, hosts: str | Path | None = None, *, every_metric: bool = False) -> MetricTable:
    """The table of metrics in a file with the hosts of another; `every_metric` refuses a table that lacks one."""
    columns = [Column("time", "time", least=0, most=MOST_TIME_S), Column("host", "str"), Column("vm", "str")]
    columns += [Column(name, least=low, most=high) for name, low, high in NEEDED]
    columns += [Column(name, least=low, most=high, optional=not every_metric) for name, low, high in METRICS]
    columns += [Column(name, least=low, most=high, optional=True) for name, low, high in FURTHER]
    table = read_table(path, columns, row_limit=MOST_ROWS)
    return _numbered(table, None if not hosts else read_hosts(hosts))


def _numbered(table: Table, known: Hosts | None) -> MetricTable:
    vm, vms = table.numbered("vm")
    host, named = table.numbered("host")
    if len(vms) > MOST_TABLE_VMS:
        raise InputError(f"found {len(vms):,} VMs; expected at most {MOST_TABLE_VMS:,}", where=table.path)
    if len(named) > MOST_HOSTS:
        raise InputError(f"found {len(named):,} hosts; expected at most {MOST_HOSTS:,}", where=table.path)
    time = table["time"]
    order = np.lexsort((time, vm))
    twice = np.flatnonzero((np.diff(vm[order]) == 0) & (np.diff(time[order]) == 0))
    if len(twice):
        a, b = sorted((int(order[twice[0]]), int(order[twice[0] + 1])))
        if host[a] != host[b]:
            both = [one_line(str(named[host[row]]), 40) for row in (a, b)]
            found = f'found "{one_line(str(vms[vm[b]]), 40)}" on {both[0]} and {both[1]}'
            raise table.error(b, f"{found} at one time; expected one host", "vm")
        raise table.error(b, f'found "{one_line(str(vms[vm[b]]), 40)}" twice at one time; expected one row', "vm")
    if known is None:
        kinds = built_in(1)
        fields = {f: np.repeat(getattr(kinds, f), len(named)) for f in Hosts.__dataclass_fields__ if f != "names"}
        known = Hosts(tuple(map(str, named)), **fields)
        place = np.arange(len(named))
    else:
        number = {name: i for i, name in enumerate(known.names)}
        strange = next((i for i, name in enumerate(named) if name not in number), None)
        if strange is not None:
            row = int(np.argmax(host == strange))
            raise table.error(row, f'found "{one_line(str(named[strange]), 40)}"; expected a host of the table of hosts', "host")
        place = np.array([number[name] for name in named], np.int64)
    columns = {name: np.asarray(table[name], np.float64) for name, *_ in (*NEEDED, *METRICS, *FURTHER) if name in table}
    return MetricTable(np.asarray(time, np.float64), vm, place[host], columns, tuple(map(str, vms)), known)


def read_hosts(path: str | Path) -> Hosts:
    """The hosts in a table: `host`, and if you know them sockets, cores, threads, speed, llc_mb, memory_gb and bandwidth_gbps."""
    usual = built_in(1)
    bounds: tuple[tuple[str, Any, float, float], ...] = (
        ("sockets", "int", 1, 64), ("cores", "int", 1, 4096), ("threads", "int", 1, 4096), ("speed", "float", 0.01, 100),
        ("llc_mb", "float", 0, 1e5), ("memory_gb", "float", 0.001, 1e6), ("bandwidth_gbps", "float", 0.001, 1e6),
    )  # fmt: skip
    columns = [Column("host", "str")]
    columns += [Column(name, kind, least=low, most=high, default=getattr(usual, name)[0].item()) for name, kind, low, high in bounds]
    table = read_table(path, columns, row_limit=MOST_HOSTS, unique=("host",))
    fields: dict[str, Any] = {name: np.asarray(table[name], np.int64 if kind == "int" else np.float64) for name, kind, _, _ in bounds}
    try:
        return Hosts(tuple(map(str, table["host"])), **fields)
    except InputError as error:
        raise InputError(error.message, where=str(path)) from None
