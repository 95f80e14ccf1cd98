"""Hestia beside running servers: who is where, where a new instance should go, and why.

A `Live` keeps the servers that it was told about. A question about one more instance then costs a look-up over all servers and a few
predictions, and changes nothing; `started` and `stopped` tell it what happened.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from armillary.errors import InputError, one_line, unknown
from armillary.learn import Model
from armillary.scheduling.colocation.placement.by_tables import TableScheduler
from armillary.scheduling.colocation.placement.packing import Packing
from armillary.scheduling.colocation.placement.scheduler import Scene
from armillary.scheduling.colocation.workload import MBPS
from armillary.scheduling.contention import Fleet, Topology, parse_cpu_list
from armillary.scheduling.contention.topology import MOST_INSTANCES, MOST_THREADS

if TYPE_CHECKING:
    from armillary.scheduling.colocation.hestia import Hestia

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Instance:
    """A container. cpu_cores: its CPU alone at this rate on a server of speed 1; half of its threads if it is not known.

    cpi, mpki, mem_gbps, net_mbps: what monitoring reads, the last two of the whole instance. Without them the application must be
    known from other instances. cpuset: the CPUs that it has, empty for one that is to be placed.
    """

    name: str
    app: str
    threads: int
    cpu_cores: float | None = None
    rps: float = 0.0
    cpi: float | None = None
    mpki: float | None = None
    mem_gbps: float | None = None
    net_mbps: float | None = None
    cpuset: str = ""

    def check(self) -> None:
        """Raises InputError for numbers that make no sense."""
        if not 1 <= self.threads <= MOST_THREADS:
            raise InputError(f"found {self.threads} threads; expected 1 to {MOST_THREADS:,}", where=one_line(self.name, 60))
        for name, least in (("cpu_cores", 1e-6), ("rps", 0.0), ("cpi", 1e-6), ("mpki", 0.0), ("mem_gbps", 0.0), ("net_mbps", 0.0)):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and least <= value <= 1e9):
                raise InputError(f"found {name} {value!r}; expected at least {least:g}", where=one_line(self.name, 60))

    @property
    def cpu(self) -> float:
        """The CPU alone in cores."""
        return min(0.5 * self.threads if self.cpu_cores is None else self.cpu_cores, float(self.threads))

    def readings(self) -> Floats | None:
        """CPI, MPKI, GB/s and MB/s per busy core; None unless the first three are known."""
        if self.cpi is None or self.mpki is None or self.mem_gbps is None:
            return None
        network = MBPS[0] + 0.4 * MBPS[1] if self.net_mbps is None else self.net_mbps / self.cpu
        return np.array([self.cpi, self.mpki, self.mem_gbps / self.cpu, network])


@dataclass(frozen=True)
class Server:
    """A server, its topology, and the instances on it, each with its cpuset."""

    name: str
    topology: Topology
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True)
class Placement:
    """Where an instance should go. `why` says in words what decided."""

    server: str
    cpuset: str
    why: tuple[str, ...] = ()


@dataclass
class Live:
    """Servers as they are now. Made by `Hestia.load`."""

    technique: Hestia
    model: Model
    servers: dict[str, Server] = field(default_factory=dict)
    _held: _Held | None = field(default=None, init=False, repr=False)

    @classmethod
    def of(cls, technique: Hestia, model: Model, servers: Iterable[Server] = ()) -> Live:
        """A live Hestia with a model and servers."""
        made = cls(technique, model)
        made.observe(servers)
        return made

    def observe(self, servers: Iterable[Server]) -> None:
        """Takes servers as they are now; those of the same names are replaced."""
        for server in servers:
            for instance in server.instances:
                instance.check()
            self.servers[server.name] = server
        self._held = None

    def started(self, instance: Instance, placement: Placement) -> None:
        """An instance has started where it was placed."""
        server, there = self._server(placement.server), replace(instance, cpuset=placement.cpuset)
        held = self._ready(there)
        if len(held.instances) + 1 < len(held.scheduler.scene.app):
            held.started(there, server)
        else:
            self._held = None
        self.servers[server.name] = replace(server, instances=(*server.instances, there))

    def stopped(self, server: str, instance: str) -> None:
        """An instance has ended."""
        there = self._server(server)
        if self._held is not None:
            self._held.stopped(server, instance)
        self.servers[server] = replace(there, instances=tuple(i for i in there.instances if i.name != instance))

    def _server(self, name: str) -> Server:
        if name not in self.servers:
            raise unknown("server", name, self.servers)
        return self.servers[name]

    def place(self, instance: Instance, servers: Sequence[Server] | None = None) -> Placement:
        """The server and the CPUs for an instance; `servers`, where given, are observed first and are the only ones."""
        if servers is not None:
            self.servers = {}
            self.observe(servers)
        held = self._ready(instance)
        options = held.scheduler.options(held.asked(instance))
        best = options[0]
        server = held.names[best.server]
        topology = self.servers[server].topology
        return Placement(server, topology.cpuset(best.rows), tuple(held.why(best, instance, len(options))))

    def scores(self, instance: Instance, servers: Sequence[str]) -> dict[str, float]:
        """The score of the best thread set on each of these servers that has room; lower is better."""
        held = self._ready(instance)
        places = np.array([held.number[name] for name in servers if name in held.number], np.int64)
        found = held.scheduler.best_by_server(held.asked(instance), places)
        return {held.names[m]: score for m, score in found.items()}

    def score(self, a: str, b: str, share: Literal["core", "socket"] = "core") -> float:
        """The predicted log-inflation of application a beside b, on one core or on one socket of the first kind of server."""
        if share not in ("core", "socket"):
            raise unknown("share", share, ("core", "socket"))
        held = self._ready()
        for name in (a, b):
            if name not in held.apps:
                raise unknown("application", name, held.apps)
        return float(held.scheduler.tables[0][0 if share == "core" else 1][held.apps[a], held.apps[b]])

    def _ready(self, asking: Instance | None = None) -> _Held:
        if asking is not None:
            asking.check()
        if self._held is None or (asking is not None and asking.app not in self._held.apps):
            if not self.servers:
                raise InputError("found no server; expected at least one")
            self._held = _Held.of(self, asking)
        return self._held


#: Places that a scene keeps free for instances that start, before it is made anew.
SPARE = 256


@dataclass
class _Held:
    """The scene of all servers, with free places at the end for instances that ask and start."""

    scheduler: TableScheduler
    names: list[str]
    number: dict[str, int]
    apps: dict[str, int]
    #: By their places in the scene; None where one has stopped.
    instances: list[Instance | None]
    means: Floats

    @staticmethod
    def of(live: Live, asking: Instance | None) -> _Held:
        fleet = _fleet(live.servers.values())
        instances = [i for server in live.servers.values() for i in server.instances]
        if len(instances) + SPARE > MOST_INSTANCES:
            raise InputError(f"found {len(instances):,} instances; expected at most {MOST_INSTANCES - SPARE:,}")
        everyone = [*instances, asking] if asking is not None else instances
        apps = {name: a for a, name in enumerate(dict.fromkeys(i.app for i in everyone))}
        if not apps:
            raise InputError("found no instance on any server; expected one, or one that asks")
        means = _means(everyone, apps)
        scene = _scene(fleet, instances, apps, means, SPARE)
        at = 0
        for m, server in enumerate(live.servers.values()):
            for instance in server.instances:
                where = f"{one_line(server.name, 40)}: {one_line(instance.name, 40)}"
                rows = server.topology.threads_of(parse_cpu_list(instance.cpuset, where=where), where=where)
                try:
                    scene.packing.put(at, m, rows)
                except InputError as error:
                    raise InputError(error.message, where=where) from None
                at += 1
        scheduler = live.technique.scheduler(scene, model=live.model, known=_scene(fleet, everyone, apps, means, 0))
        names = list(live.servers)
        return _Held(scheduler, names, {name: m for m, name in enumerate(names)}, apps, list(instances), means)

    def asked(self, instance: Instance) -> int:
        """Puts the instance into the first free place of the scene, and returns its number."""
        scene = self.scheduler.scene
        packing, i = scene.packing, len(self.instances)
        packing.k[i] = instance.threads
        packing.offsets[i + 1] = packing.offsets[i] + instance.threads
        packing.held = np.concatenate([packing.held[: packing.offsets[i]], np.full(instance.threads, -1, np.int64)])
        own = instance.readings()
        scene.app[i] = self.apps[instance.app]
        scene.readings[i] = self.means[scene.app[i]] if own is None else own
        scene.cpu[i], scene.rps[i] = instance.cpu, instance.rps
        self.scheduler.reread(i)
        return i

    def started(self, instance: Instance, server: Server) -> None:
        """The instance holds its threads from now on."""
        i, m = self.asked(instance), self.number[server.name]
        self.scheduler.scene.packing.put(i, m, server.topology.threads_of(parse_cpu_list(instance.cpuset)))
        self.instances.append(instance)
        self.scheduler.changed(m)

    def stopped(self, server: str, instance: str) -> None:
        """Its threads are free from now on."""
        m, packing = self.number[server], self.scheduler.scene.packing
        for i in np.flatnonzero(packing.server[: len(self.instances)] == m).tolist():
            held = self.instances[i]
            if held is not None and held.name == instance:
                packing.take(i)
                self.instances[i] = None
        self.scheduler.changed(m)

    def why(self, best: Any, instance: Instance, tried: int) -> list[str]:
        """In words: the score, what is expected, and who becomes a neighbour."""
        scene, scheduler = self.scheduler.scene, self.scheduler
        said = [f"the score by the tables is {best.score:.3f}; {tried} thread sets were re-scored by the network"]
        if scheduler.top:
            own = float(best.expected[list(best.touched).index(len(self.instances))])
            said.append(f"{instance.name} is expected to use {own:.2f} cores, and {best.added:.2f} cores are added in all")
            if best.beyond > 1e-9:
                said.append(f"no thread set keeps all threads below 85 %; this one exceeds that by {best.beyond:.2f} cores")
        topology = scene.fleet.topology(best.server)
        siblings = {
            int(g) for h in best.rows for g in topology.members[topology.core[h]] if g >= 0 and g not in set(best.rows.tolist())
        }
        beside = dict.fromkeys(int(i) for g in sorted(siblings) if (i := scene.packing.owner[best.server, g]) >= 0)
        table = scheduler.tables[int(scene.fleet.kind[best.server])][0]
        for i in list(beside)[:5]:
            a, b = int(scene.app[len(self.instances)]), int(scene.app[i])
            held = self.instances[i]
            name = held.name if held is not None else ""
            said.append(f"shares cores with {name}: inflation {table[a, b]:.2f} by it, {table[b, a]:.2f} on it")
        return said if beside else [*said, "shares no core with another instance"]


def _equal(one: Topology, other: Topology) -> bool:
    same = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("cpu", "core", "socket"))
    return same and (one.speed, one.llc_bytes, one.model) == (other.speed, other.llc_bytes, other.model)


def _fleet(servers: Iterable[Server]) -> Fleet:
    """The servers as a fleet; equal topologies are one kind."""
    known: dict[int, int] = {}
    topologies: list[Topology] = []
    kind = []
    for server in servers:
        own = server.topology
        if id(own) not in known:
            same = next((k for k, t in enumerate(topologies) if _equal(t, own)), len(topologies))
            if same == len(topologies):
                topologies.append(own)
            known[id(own)] = same
        kind.append(known[id(own)])
    return Fleet(tuple(topologies), np.array(kind))


def _scene(fleet: Fleet, instances: Sequence[Instance], apps: dict[str, int], means: Floats, spare: int) -> Scene:
    """A scene of instances without places, and `spare` free places behind them."""
    own = [i.readings() for i in instances]
    readings = np.empty((len(instances) + spare, 4))
    for row, (instance, values) in enumerate(zip(instances, own)):
        readings[row] = means[apps[instance.app]] if values is None else values
    readings[len(instances) :] = means[0]
    return Scene(
        fleet, np.array([*(apps[i.app] for i in instances), *[0] * spare], np.int64), readings,
        Packing(fleet, np.array([*(i.threads for i in instances), *[1] * spare])), np.array([*(i.cpu for i in instances), *[0.5] * spare]),
        np.array([*(i.rps for i in instances), *[0.0] * spare]), 12.0,
    )  # fmt: skip


def _means(instances: Sequence[Instance], apps: dict[str, int]) -> Floats:
    """The mean readings of each application; one without any raises InputError."""
    sums, counts = np.zeros((len(apps), 4)), np.zeros(len(apps))
    for instance in instances:
        own = instance.readings()
        if own is not None:
            sums[apps[instance.app]] += own
            counts[apps[instance.app]] += 1
    if (counts == 0).any():
        name = list(apps)[int(np.argmin(counts))]
        raise InputError(f"found no metrics of the application {one_line(name, 60)}; expected cpi, mpki and mem_gbps of an instance")
    return sums / counts[:, None]
