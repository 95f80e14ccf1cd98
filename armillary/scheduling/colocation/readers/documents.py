"""Instances and their servers: our table, or Alibaba's cluster-trace-v2018.

Our table: `instance,app,server,cpuset,cpu_cores,cpi,mpki,mem_gbps,rps`, and `threads` and `net_mbps` if wanted. `cpu_cores` is the CPU of
the instance alone at this rate, `mem_gbps` and `net_mbps` are those of the whole instance. Without a cpuset, `threads` says how many
it gets.

Files say what monitoring reads and not why. The judge takes the pressures and sensitivities that would give these readings
(`workload.inferred`), so that a compare on a file is only as good as that map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line
from armillary.files import Column, Table, read_table, read_text
from armillary.scheduling.colocation.workload import GBPS, MBPS, ColocationWork, inferred
from armillary.scheduling.contention import Fleet, Topology, parse_cpu_list
from armillary.scheduling.contention.topology import MOST_INSTANCES, MOST_THREADS

from .alibaba import read_alibaba

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
COLUMNS = [
    Column("instance", "str"), Column("app", "str"), Column("server", "str", default=""), Column("cpuset", "str", default=""),
    Column("cpu_cores", unit="cores", above=0, most=MOST_THREADS), Column("cpi", above=0, most=1000), Column("mpki", least=0, most=1e6),
    Column("mem_gbps", unit="GB/s", least=0, most=1e6), Column("rps", unit="requests", least=0, most=1e9),
    Column("threads", "int", least=1, most=MOST_THREADS, optional=True), Column("net_mbps", unit="MB/s", least=0, most=1e9, optional=True),
]  # fmt: skip


@dataclass(frozen=True)
class Read:
    """What a file says. readings: CPI, MPKI, GB/s and MB/s per busy core, [n, 4]. start: the server and threads of instances that have."""

    fleet: Fleet
    server_names: tuple[str, ...]
    names: tuple[str, ...]
    app: Ints
    app_names: tuple[str, ...]
    threads: Ints
    cpu: Floats
    rps: Floats
    readings: Floats
    start: tuple[tuple[int, Ints] | None, ...]
    skipped: int = 0


def read_instances(path: str | Path, *, usage: str = "", topology: str = "smt-2x16x2", servers: int = 0) -> Read:
    """Reads a file or a folder on servers of one topology. servers: how many there are, 0 for those that the file names."""
    machine = read_topology(topology)
    place = Path(path)
    if place.is_dir() or usage or place.name.startswith("container_meta"):
        found = read_alibaba(place, usage)
        return _alibaba(found, machine, servers, str(path))
    table = read_table(path, COLUMNS, row_limit=MOST_INSTANCES, unique=("instance",))
    return _own(table, machine, servers)


def read_topology(source: str) -> Topology:
    """A topology from `lscpu -p` text, or the first node of a cluster file or preset."""
    from armillary import cluster

    if not source.endswith(".toml") and Path(source).is_file():
        return Topology.of_lscpu(read_text(source, limit=1 << 20), where=source)
    found = cluster.find(source)
    return Topology.of_node(found.groups[0].node, model=found.groups[0].name)


def _own(table: Table, machine: Topology, servers: int) -> Read:
    number, apps = table.numbered("app")
    named = [str(v) for v in table["server"]]
    known = {name: m for m, name in enumerate(dict.fromkeys(name for name in named if name))}
    fleet = _fleet(machine, max(servers, len(known)), table.path)
    threads, start = [], []
    taken: dict[tuple[int, int], int] = {}
    for row, (server, cpuset) in enumerate(zip(named, table["cpuset"].tolist())):
        if cpuset and not server:
            raise table.error(row, "found a cpuset without a server", "server")
        rows = None
        if cpuset:
            try:
                rows = machine.threads_of(parse_cpu_list(cpuset))
            except InputError as error:
                raise table.error(row, error.message, "cpuset") from None
            for t in rows.tolist():
                other = taken.setdefault((known[server], t), row)
                if other != row:
                    cpu = int(machine.cpu[t])
                    found = f"found CPU {cpu} of {one_line(server, 40)}, which {one_line(str(table['instance'][other]), 40)} has too"
                    raise table.error(row, f"{found}; expected every CPU in one cpuset", "cpuset")
        if rows is None and "threads" not in table:
            raise table.error(row, "found no cpuset; expected one, or a column of threads", "cpuset")
        if rows is not None and "threads" in table and int(table["threads"][row]) != len(rows):
            raise table.error(row, f"found {int(table['threads'][row])} with a cpuset of {len(rows)} CPUs", "threads")
        threads.append(len(rows) if rows is not None else int(table["threads"][row]))
        start.append((known[server], rows) if rows is not None else None)
    busy = np.maximum(table["cpu_cores"], 1e-3)
    # Without a network column, an application is taken to be as sensitive on the core as the training's mean.
    network = table["net_mbps"] / busy if "net_mbps" in table else np.full(table.rows, MBPS[0] + 0.4 * MBPS[1])
    readings = np.column_stack([table["cpi"], table["mpki"], table["mem_gbps"] / busy, network])
    names = tuple(str(v) for v in table["instance"])
    server_names = (*known, *(f"spare-{m}" for m in range(len(fleet) - len(known))))
    return Read(
        fleet, server_names, names, number, tuple(str(a) for a in apps), np.array(threads, np.int64), np.array(table["cpu_cores"]),
        np.array(table["rps"]), readings, tuple(start),
    )  # fmt: skip


def _alibaba(found: Mapping[str, Any], machine: Topology, servers: int, where: str) -> Read:
    fleet = _fleet(machine, servers or len(found["machines"]), where)
    threads = np.maximum(1, np.ceil(found["request"] - 1e-9)).astype(np.int64)
    large = np.flatnonzero(threads > machine.threads)
    if len(large):
        name = one_line(found["names"][int(large[0])], 40)
        found_here = f"found {name} with {threads[large[0]]} cores"
        raise InputError(f"{found_here}; expected at most the {machine.threads} threads of a server", where=where)
    readings = np.column_stack([
        found["cpi"], found["mpki"], GBPS[0] + GBPS[1] * found["mem_gps"] / 100, MBPS[0] + MBPS[1] * found["net"] / 100,
    ])  # fmt: skip
    n = len(threads)
    return Read(
        fleet, tuple(found["machines"]) if not servers else tuple(f"s{m}" for m in range(servers)), tuple(found["names"]), found["app"],
        tuple(found["app_names"]), threads, found["cpu"], np.full(n, 0.0), readings, (None,) * n, int(found["skipped"]),
    )  # fmt: skip


def _fleet(machine: Topology, servers: int, where: str) -> Fleet:
    if not servers:
        raise InputError("found no server; expected a column of servers, or --servers", where=where)
    return Fleet((machine,), np.zeros(servers, np.int64))


def own_work(found: Read, how: Mapping[str, Any], seed: int) -> ColocationWork:
    """The work of a file. Applications have the mean readings of their instances."""
    counts = np.maximum(np.bincount(found.app, minlength=len(found.app_names)), 1)
    mean = np.column_stack([np.bincount(found.app, found.readings[:, c], len(counts)) / counts for c in range(4)])
    rps = np.bincount(found.app, found.rps, len(counts))
    cpu = np.bincount(found.app, found.cpu, len(counts))
    # CPU-seconds per request by application; a file without rates gets those of the built-in median.
    cpu_s = np.where(rps > 0, cpu / np.maximum(rps, 1e-9), 0.004)
    apps = inferred(mean, np.clip(cpu_s, 1e-6, 1e3), float(how["cv"]))
    n = len(found.app)
    # The file's figure is that of its own hour.
    return ColocationWork(
        found.fleet, apps, found.app, found.threads, np.minimum(found.cpu, found.threads), np.full(n, float(how["hour"]) + 2.0),
        found.readings, np.ones(n), start=found.start, swing=float(how["swing"]), requests=int(how["requests"]), seed=seed,
        names=found.names, app_names=found.app_names, server_names=found.server_names,
    )  # fmt: skip
