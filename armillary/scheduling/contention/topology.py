"""Hardware threads, the cores that they share, and the sockets that cores share.

Read from `lscpu -p` text, from the node of a cluster file, or from this machine.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError

if TYPE_CHECKING:
    from armillary.cluster import Cluster, Node

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MOST_THREADS, MOST_SERVERS, MOST_FLEET_THREADS, MOST_INSTANCES = 4096, 100_000, 4_000_000, 200_000
_COLUMNS = ("cpu", "core", "socket", "node")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z")


@dataclass(frozen=True)
class Topology:
    """One kind of server. Row t is hardware thread t, in the order of CPU numbers; cores and sockets are numbered from 0.

    cpu: the CPU number that the operating system gives, [T]. core: [T], unique over sockets. socket: [T].
    speed: relative to 1 for the reference on which CPU-seconds per request were measured. llc_bytes: of one socket, 0 if not known.
    """

    cpu: Ints
    core: Ints
    socket: Ints
    speed: float = 1.0
    llc_bytes: float = 0.0
    model: str = ""

    def __post_init__(self) -> None:
        n = len(self.cpu)
        if not 1 <= n <= MOST_THREADS:
            raise InputError(f"found {n:,} hardware threads; expected 1 to {MOST_THREADS:,} per server")
        for name in ("cpu", "core", "socket"):
            found = np.ascontiguousarray(getattr(self, name), np.int64)
            if found.shape != (n,) or found.min() < 0:
                raise InputError(f"{name}: expected {n} whole numbers of 0 or more")
            object.__setattr__(self, name, found)
        if np.any(np.diff(self.cpu) <= 0):
            raise InputError("cpu: expected CPU numbers that increase")
        for name in ("core", "socket"):
            if len(np.unique(getattr(self, name))) != getattr(self, name).max() + 1:
                raise InputError(f"{name}: expected numbers from 0 on without a gap")
        lowest, highest = self.core_sockets
        if np.any(lowest != highest):
            raise InputError(f"core {int(np.argmax(lowest != highest))}: found threads on two sockets; expected one")
        if not 1e-3 <= self.speed <= 1e3 or not 0.0 <= self.llc_bytes <= 1e15:
            raise InputError(f"found speed {self.speed:g} and {self.llc_bytes:g} B of cache; expected 0.001 to 1,000 and 0 to 1e15")

    @property
    def core_sockets(self) -> tuple[Ints, Ints]:
        """The lowest and the highest socket among the threads of each core, which are the same."""
        cores = int(self.core.max()) + 1
        low, high = np.full(cores, len(self.cpu), np.int64), np.full(cores, -1, np.int64)
        np.minimum.at(low, self.core, self.socket)
        np.maximum.at(high, self.core, self.socket)
        return low, high

    @property
    def threads(self) -> int:
        """The number of hardware threads."""
        return len(self.cpu)

    @cached_property
    def cores(self) -> int:
        """The number of cores."""
        return int(self.core.max()) + 1

    @cached_property
    def sockets(self) -> int:
        """The number of sockets."""
        return int(self.socket.max()) + 1

    @cached_property
    def cores_per_socket(self) -> Floats:
        """The number of cores of each socket, [sockets]."""
        return np.bincount(self.core_sockets[0], minlength=self.sockets).astype(np.float64)

    @cached_property
    def threads_per_core(self) -> float:
        """The mean number of threads of a core."""
        return self.threads / self.cores

    @cached_property
    def members(self) -> Ints:
        """The threads of each core, [cores, most threads of a core], filled up with −1."""
        counts = np.bincount(self.core, minlength=self.cores)
        found = np.full((self.cores, int(counts.max())), -1, np.int64)
        filled = np.zeros(self.cores, np.int64)
        for t, c in enumerate(self.core.tolist()):
            found[c, filled[c]] = t
            filled[c] += 1
        return found

    def threads_of(self, cpus: Iterable[int], *, where: str | None = None) -> Ints:
        """The rows of these CPU numbers, ascending; one that the server does not have raises InputError."""
        wanted = np.unique(np.fromiter(cpus, np.int64))
        place = np.searchsorted(self.cpu, wanted)
        bad = (place >= self.threads) | (self.cpu[np.minimum(place, self.threads - 1)] != wanted)
        if bad.any():
            raise InputError(f"found CPU {int(wanted[np.argmax(bad)])}; expected one of {cpu_list(self.cpu)}", where=where)
        return place.astype(np.int64)

    def cpuset(self, threads: Iterable[int]) -> str:
        """The list of CPU numbers of some rows, as the kernel writes it: "0-3,32-35"."""
        return cpu_list(self.cpu[np.fromiter(threads, np.int64)])

    @staticmethod
    def regular(
        sockets: int, cores: int, threads_per_core: int = 1, *, speed: float = 1.0, llc_bytes: float = 0.0, model: str = ""
    ) -> Topology:  # fmt: skip
        """Equal sockets of `cores` cores, numbered as Linux does on most servers: first one thread of each core, then their siblings."""
        if not 1 <= sockets * cores * threads_per_core <= MOST_THREADS or min(sockets, cores, threads_per_core) < 1:
            raise InputError(f"found {sockets} × {cores} × {threads_per_core} threads; expected 1 to {MOST_THREADS:,}")
        core = np.tile(np.arange(sockets * cores), threads_per_core)
        return Topology(np.arange(len(core)), core, core // cores, speed, llc_bytes, model)

    @staticmethod
    def of_node(node: Node, *, model: str = "") -> Topology:
        """The topology of a cluster file's node; its sockets must say how many cores they have."""
        known = [s for s in node.sockets if s.cores]
        if not known or len(known) != len(node.sockets):
            raise InputError("found a node whose sockets do not say their cores; expected `cores` in each socket")
        first = known[0]
        if any((s.cores, s.threads_per_core, s.speed) != (first.cores, first.threads_per_core, first.speed) for s in known):
            raise InputError("found unlike sockets in one node; expected equal ones")
        llc = max(first.caches, key=lambda c: c.level, default=None)
        shares = max(1, int(first.cores or 1) // max(1, int(llc.shared_by or 1))) if llc else 1
        return Topology.regular(
            sum(int(s.count) for s in known), int(first.cores or 1), int(first.threads_per_core), speed=float(first.speed or 1.0),
            llc_bytes=float(llc.size or 0.0) * shares if llc else 0.0, model=model or str(first.model or ""),
        )  # fmt: skip

    @staticmethod
    def of_lscpu(text: str, *, speed: float = 1.0, llc_bytes: float = 0.0, model: str = "", where: str = "lscpu") -> Topology:
        """Parses `lscpu -p` or `lscpu -p=CPU,CORE,SOCKET,NODE` output; further columns are not used.

        The last comment line names the columns; without one, the order of `lscpu -p` holds. Offline CPUs have empty fields and are skipped.
        """
        columns = list(_COLUMNS)
        rows: list[tuple[int, int, int]] = []
        for number, line in enumerate(text.splitlines(), 1):
            at = f"{where}:{number}"
            if line.startswith("#"):
                named = [word.strip().lower() for word in line[1:].split(",")]
                if named[0] == "cpu":
                    columns = named
                continue
            if not line.strip():
                continue
            if not {"cpu", "core", "socket"} <= set(columns):
                raise InputError(f"found the columns {','.join(columns)[:80]}; expected CPU, Core and Socket", where=at)
            fields = line.split(",")
            values = [fields[columns.index(c)].strip() if columns.index(c) < len(fields) else None for c in ("cpu", "core", "socket")]
            if any(v is None for v in values):
                raise InputError(f"found {line[:60]!r}; expected CPU,CORE,SOCKET,NODE", where=at)
            if values[1] == "" or values[1] == "-":
                continue
            found = [int(v) if v and v.isascii() and v.isdigit() and len(v) < 10 else -1 for v in values]
            if min(found) < 0:
                raise InputError(f"found {line[:60]!r}; expected whole numbers for CPU, CORE and SOCKET", where=at)
            rows.append((found[0], found[1], found[2]))
            if len(rows) > MOST_THREADS:
                raise InputError(f"found more than {MOST_THREADS:,} hardware threads", where=at)
        return Topology._of_rows(rows, speed, llc_bytes, model, where)

    @staticmethod
    def _of_rows(rows: Sequence[tuple[int, int, int]], speed: float, llc_bytes: float, model: str, where: str) -> Topology:
        if not rows:
            raise InputError("found no CPU; expected one row per hardware thread", where=where)
        ordered = sorted(rows)
        cpus = [row[0] for row in ordered]
        twice = next((a for a, b in itertools.pairwise(cpus) if a == b), None)
        if twice is not None:
            raise InputError(f"found CPU {twice} twice; expected one row per hardware thread", where=where)
        sockets = {s: i for i, s in enumerate(sorted({row[2] for row in ordered}))}
        # Some kernels number cores anew in each socket, so that a core is its socket and its number.
        cores = {c: i for i, c in enumerate(sorted({(row[2], row[1]) for row in ordered}))}
        try:
            return Topology(
                np.array(cpus), np.array([cores[row[2], row[1]] for row in ordered]), np.array([sockets[row[2]] for row in ordered]),
                speed, llc_bytes, model,
            )  # fmt: skip
        except InputError as error:
            raise InputError(error.message, where=where) from None

    @staticmethod
    def here() -> Topology:
        """The CPUs of this machine on which this process may run (Linux)."""
        rows = []
        for cpu in sorted(os.sched_getaffinity(0)):
            folder = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
            try:
                rows.append((cpu, int((folder / "core_id").read_text()), int((folder / "physical_package_id").read_text())))
            except (OSError, ValueError):
                raise InputError("found no topology of the CPUs; expected Linux's /sys", where=str(folder)) from None
        return Topology._of_rows([(c, k, max(s, 0)) for c, k, s in rows], 1.0, 0.0, "", "this machine")


@dataclass(frozen=True)
class Fleet:
    """Servers of a few kinds: `kind[m]` is the index of server m's topology."""

    topologies: tuple[Topology, ...]
    kind: Ints

    def __post_init__(self) -> None:
        kind = np.ascontiguousarray(self.kind, np.int64)
        object.__setattr__(self, "kind", kind)
        if not 1 <= len(kind) <= MOST_SERVERS:
            raise InputError(f"found {len(kind):,} servers; expected 1 to {MOST_SERVERS:,}")
        if not self.topologies or kind.min() < 0 or kind.max() >= len(self.topologies):
            raise InputError(f"found kind {int(kind.max())}; expected 0 to {len(self.topologies) - 1}")
        if self.total_threads > MOST_FLEET_THREADS:
            raise InputError(f"found {self.total_threads:,} hardware threads; expected at most {MOST_FLEET_THREADS:,} in a fleet")

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def total_threads(self) -> int:
        """The hardware threads of all servers."""
        return int(self.threads.sum())

    @cached_property
    def threads(self) -> Ints:
        """Hardware threads of each server, [M]."""
        return np.array([t.threads for t in self.topologies], np.int64)[self.kind]

    @cached_property
    def speed(self) -> Floats:
        """The speed of each server, [M]."""
        return np.array([t.speed for t in self.topologies])[self.kind]

    def topology(self, server: int) -> Topology:
        """The topology of one server."""
        return self.topologies[int(self.kind[server])]

    @staticmethod
    def of(cluster: Cluster, servers: int | None = None) -> Fleet:
        """The nodes of a cluster, or `servers` of them in the proportions of its groups, kinds in turn."""
        kinds = tuple(Topology.of_node(group.node, model=group.name) for group in cluster.groups)
        counts = [int(group.count) for group in cluster.groups]
        if servers is None:
            return Fleet(kinds, np.repeat(np.arange(len(kinds)), counts))
        if not 1 <= servers <= MOST_SERVERS:
            raise InputError(f"found {servers:,} servers; expected 1 to {MOST_SERVERS:,}")
        total, given = sum(counts), [0] * len(kinds)
        kind = []
        for m in range(servers):
            # The group that lags furthest behind its share gets the next server.
            g = max(range(len(kinds)), key=lambda i: (counts[i] * (m + 1) - given[i] * total, -i))
            given[g] += 1
            kind.append(g)
        return Fleet(kinds, np.array(kind))


def cpu_list(cpus: Iterable[int]) -> str:
    """CPU numbers as the kernel's list format writes them: "0-3,32-35"."""
    ordered = sorted({int(c) for c in cpus})
    parts: list[str] = []
    start = 0
    for i in range(1, len(ordered) + 1):
        if i == len(ordered) or ordered[i] != ordered[i - 1] + 1:
            first, last = ordered[start], ordered[i - 1]
            parts.append(f"{first}" if first == last else f"{first}-{last}")
            start = i
    return ",".join(parts)


def parse_cpu_list(text: str, *, where: str | None = None) -> list[int]:
    """The CPU numbers of a list like "0-3,32-35", ascending; one that is named twice raises InputError."""
    found: list[int] = []
    for part in text.split(","):
        match = _RANGE.match(part.strip()) if part.isascii() else None
        first = int(match[1]) if match else -1
        last = int(match[2]) if match and match[2] else first
        if match is None or last < first or last - first >= MOST_THREADS or len(found) > MOST_THREADS:
            raise InputError(f"found {text[:60]!r}; expected a list of CPUs like 0-3,32-35", where=where)
        found.extend(range(first, last + 1))
    if len(set(found)) != len(found):
        raise InputError(f"found {text[:60]!r}, which names a CPU twice", where=where)
    return sorted(found)
