"""A work: a network, what is sent over it, and for how long; the built-in ones, and those of a user's files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from armillary.cluster import Cluster, find
from armillary.errors import InputError
from armillary.files import column_names

from .fabric.dragonfly import PRESETS, Dragonfly, preset
from .fabric.from_cluster import FLIT_BYTES, cycle_of, network_of
from .fabric.from_edges import read_edges
from .fabric.network import Network
from .simulation.play import Played, replay, simulate
from .simulation.routing import Routing
from .traffic.messages import Messages
from .traffic.skeletons import skeleton
from .traffic.synthetic import traffic_of
from .traffic.traces import read_messages

#: Endings of tables of edges.
TABLES = (".csv", ".tsv", ".parquet", ".jsonl")


@dataclass(frozen=True, eq=False)
class RoutingWork:
    """What every technique meets: synthetic traffic at a load, or messages."""

    net: Network
    traffic: str = "uniform"
    load: float = 1.0
    cycles: int = 6000
    warm_up: int = 2000
    #: Whether latencies are wanted, so that the run goes on until the packets have arrived.
    until_arrived: bool = True
    status_cycles: int = 0
    flits: int = 1
    messages: Messages | None = None
    cycle_ns: float = 1.0
    seed: int = 0
    max_cycles: int = 20_000_000

    def play(self, routing: Routing) -> Played:
        """Plays it under a routing."""
        if self.messages is not None:
            return replay(
                self.net, routing, self.messages, seed=self.seed, flits=self.flits, max_cycles=self.max_cycles,
                status_cycles=self.status_cycles,
            )  # fmt: skip
        return simulate(
            self.net, routing, self.traffic, self.load, cycles=self.cycles, warm_up=self.warm_up, seed=self.seed, flits=self.flits,
            until_arrived=self.until_arrived, status_cycles=self.status_cycles,
        )  # fmt: skip


def built_in(facts: Mapping[str, Any], cluster: Cluster | None, rng: np.random.Generator) -> RoutingWork:
    """The work of a built-in case."""
    seed = int(rng.integers(1 << 62))
    net, cycle_ns = preset(facts["network"]) if cluster is None else network_of(cluster), 1.0
    if cluster is not None:
        cycle_ns = cycle_of(cluster)
    if facts.get("failed"):
        net = net.fail_share(facts["failed"], rng)
    if "skeleton" in facts:
        messages = skeleton(
            facts["skeleton"], net, placement=facts["placement"], load=facts["load"], iterations=facts["iterations"], rng=rng
        )
        return RoutingWork(net, "messages", facts["load"], messages=messages, flits=facts["flits"], cycle_ns=cycle_ns, seed=seed)
    cycles = facts["cycles"]
    if cluster is not None:
        # Longer links need longer runs, and many nodes allow shorter ones.
        cycles = min(cycles, max(1500, 6000 * 1056 // net.nodes)) + 20 * int(net.latency.max(initial=1))
    traffic_of(facts["traffic"], net)
    return RoutingWork(
        net, facts["traffic"], facts["load"], cycles, facts["warm_up"] * cycles // facts["cycles"], facts["until_arrived"],
        facts.get("status_cycles", 0), cycle_ns=cycle_ns, seed=seed,
    )  # fmt: skip


def read_network(name: str, nodes: str = "", per_router: int = 1, cycle_ns: float = 0.0, flit_bytes: int = FLIT_BYTES) -> Network:
    """A network by name: df-72 and its like, four numbers p,a,h,g, a table of edges, or a cluster (a preset or a file)."""
    if name in PRESETS:
        return preset(name)
    parts = name.split(",")
    if len(parts) in (3, 4) and all(part.strip().isdecimal() and len(part.strip()) < 10 for part in parts):
        return Dragonfly(*(int(part) for part in parts))
    suffix = Path(name).suffix.lower()
    if suffix in TABLES:
        return read_edges(name, nodes, per_router=per_router)
    try:
        return network_of(find(name), cycle_ns=cycle_ns or None, flit_bytes=flit_bytes)
    except InputError as error:
        raise InputError(f"{error.message} (or one of {', '.join(PRESETS)}, or p,a,h,g)", where=error.where or "--network") from None


@dataclass(frozen=True, eq=False)
class Read:
    """What a user's file holds: a network, or messages on one."""

    net: Network
    messages: Messages | None
    #: Whether the file is a table of edges.
    edges: bool = False


def read_work(path: Path, how: Any) -> Read:
    """A table of edges, a cluster file, or messages, told apart by their columns and endings."""
    found = _read_work(path, how)
    if how.nodes and not found.edges and Path(how.network).suffix.lower() not in TABLES:
        raise InputError(f'found "{how.nodes}" without a table of edges; expected one as --work or --network', where="--nodes")
    return found


def _read_work(path: Path, how: Any) -> Read:
    if path.suffix.lower() == ".toml":
        return Read(read_network(str(path), "", 1, how.cycle_ns_of_network, how.flit_bytes), None)
    if path.suffix.lower() == ".otf2":
        raise InputError("found the anchor of an OTF2 archive; expected its folder, because events stand in further files", where=str(path))
    if not path.is_dir() and "router_a" in column_names(path):
        return Read(read_edges(path, how.nodes, per_router=how.per_router), None, edges=True)
    messages = read_messages(path, cycle_ns=how.cycle_ns or 1.0, flit_bytes=how.flit_bytes)
    net = read_network(how.network, how.nodes, how.per_router, how.cycle_ns_of_network, how.flit_bytes)
    messages.checked(net, how.max_cycles)
    return Read(net, messages)


def own_works(read: Read, how: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The cases of a file, as a part of their names and what they do."""
    if read.messages is not None:
        yield "", {"messages": len(read.messages), "load": 0.0}
        return
    for name in how.traffic:
        traffic_of(name, read.net)
        for load in how.load:
            yield f"{name}-{load:g}", {"traffic": name, "load": load}


def own_work(read: Read, facts: Mapping[str, Any], rng: np.random.Generator) -> RoutingWork:
    """The work of a user's case."""
    made = RoutingWork(
        read.net, facts.get("traffic", "messages"), facts["load"] or 1.0, facts["cycles"], facts["cycles"] // 3, True,
        flits=facts["flits"], messages=read.messages, cycle_ns=facts["cycle_ns"], seed=int(rng.integers(1 << 62)),
        max_cycles=facts["max_cycles"],
    )  # fmt: skip
    return replace(made, net=made.net.fail_share(facts["failed"], rng)) if facts["failed"] else made
