"""Networks as a cluster file writes them, with one table per topology, and the number of endpoints that each offers."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import core_schema

from armillary.cluster import fields as f
from armillary.cluster.edges import EdgeList, read_edges
from armillary.cluster.fields import Table, bad
from armillary.cluster.traces import Trace, read_trace
from armillary.cluster.units import Count, Quantity
from armillary.wording import counted

#: The number of wirings of a fat tree that are tried before it counts as impossible.
_MOST_TRIES = 10_000


class Latency(Table):
    """Seconds in one NIC, through one switch and along one metre, or `path` seconds from end to end on any path."""

    nic: f.Delay | None = None
    switch: f.Delay | None = None
    metre: f.Delay | None = None
    path: f.Delay | None = None


class Lengths(Table):
    """Metres of cable inside a group (including those to the endpoints), and between groups."""

    local: f.Length | None = None
    world: f.Length | None = Field(default=None, alias="global")


class Aggregation(Table):
    """In-network reduction in one switch: packet slots, bytes per slot, and the types that its chip can add."""

    slots: f.Number
    payload_bytes: f.Number
    gbps: f.Factor | None = None
    rtt: f.Delay | None = None


class Switch(Table):
    """One switch: its ports, its total bytes/s, and the bytes/s that it can combine in flight (0 if it cannot)."""

    model: f.Name | None = None
    ports: f.Number | None = None
    capacity: f.Rate | None = None
    aggregate: f.RateOrNone | None = None
    aggregation: Aggregation | None = None


class Network(Table):
    """The keys of every network: `rate` in bytes/s per link and direction, latencies, lengths, and optional link properties."""

    rate: f.Rate | None = None
    latency: Latency = Latency()
    length: Lengths = Lengths()
    switch: Switch | None = None
    price: f.PricePerTransfer | None = None
    energy: f.EnergyPerBit | None = None
    trace: Trace | None = None
    #: For quantum links: entangled pairs per second, and their fidelity.
    epr_rate: f.Frequency | None = None
    fidelity: Annotated[Quantity, f.Shares(0.0, 1.0)] | None = None
    #: Whether fewer endpoints than the topology offers are intended (a slice of a torus).
    partial: f.Flag = False

    @field_validator("latency", mode="before")
    @classmethod
    def _whole_path(cls, found: object) -> object:
        if (isinstance(found, dict) and "value" not in found) or isinstance(found, Latency):
            return found
        return Latency(path=f.Reads("time", or_equal=True).value(found))

    @field_validator("trace", mode="before")
    @classmethod
    def _trace(cls, found: object, info: ValidationInfo) -> Trace | None:
        return None if found is None else read_trace(found, "bandwidth", info.context)

    @property
    def offers(self) -> int | None:
        """The number of endpoints that it has ports for, or None if it grows with its endpoints."""
        return None

    @property
    def exact(self) -> bool:
        """Whether the number of endpoints must equal what it offers."""
        return False


@dataclass(frozen=True)
class NumbersOfGroups:
    """Reads one count for all groups, or an array with one count per group."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.value)

    def value(self, found: object) -> tuple[Count, ...]:
        """The counts; a single count stands for all groups."""
        if not isinstance(found, list | tuple):
            return (f.Counts().value(found),)
        if not 1 <= len(found) <= 100_000:
            raise bad(f"found {len(found)} entries; expected 1 to 100,000")
        return tuple(f.Counts().value(x) for x in found)


class Dragonfly(Network):
    """Groups of switches that are joined all to all inside, with `links_between_groups` parallel links between each pair of groups."""

    topology: Literal["dragonfly"]
    groups: f.Number
    #: One number, or an array with one number per group.
    switches_per_group: Annotated[tuple[Count, ...], NumbersOfGroups()]
    endpoints_per_switch: f.Number
    links_between_groups: f.Number = Count(1)
    links_in_group: f.Number = Count(1)
    #: The ports of one switch for links to other groups, which are used to check the arithmetic.
    global_ports: f.Number | None = None
    world: Literal["absolute", "relative", "circulant", "palmtree"] = Field(default="absolute", alias="global")

    @property
    def offers(self) -> int:
        return self.switches * self.endpoints_per_switch

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of switches in each group."""
        given = self.switches_per_group
        return tuple(int(x) for x in given) if len(given) > 1 else (int(given[0]),) * int(self.groups)

    @property
    def switches(self) -> int:
        """The number of switches in all groups."""
        given = self.switches_per_group
        return sum(given) if len(given) > 1 else int(given[0]) * int(self.groups)


class Level(Table):
    """One level of a fat tree, leaves first: the ports down and up of each of its switches, and the `rate` of its uplinks if it differs."""

    down: f.Number
    up: f.NumberOrNone = Count(0)
    switches: f.Number
    rate: f.Rate | None = None


class FatTree(Network):
    """Either `k`, for the classic three levels of k-port switches with k³/4 hosts, or `levels`, with any taper."""

    topology: Literal["fat-tree"]
    k: Annotated[Count, f.Counts(2, 1000)] | None = None
    levels: Annotated[tuple[Level, ...], Field(min_length=1, max_length=8)] | None = None

    @property
    def shape(self) -> tuple[Level, ...]:
        """The levels, also for a tree that is given by k."""
        if self.levels is not None:
            return self.levels
        half = int(self.k or 2) // 2
        low = Level(down=Count(half), up=Count(half), switches=Count(2 * half * half))
        return (low, low, Level(down=Count(2 * half), up=Count(0), switches=Count(half * half)))

    @property
    def offers(self) -> int:
        return self.shape[0].down * self.shape[0].switches

    def tree(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | None:
        """(children m, parents w, parallel links p) of each level as a parallel-ports generalised fat tree, or None if none fits.

        Level i has ∏_{j>i} m_j · ∏_{j≤i} w_j switches; among several fits, the one with the fewest parallel links at the lowest levels is
        taken.
        """
        levels = self.shape
        m, w, p = [int(levels[0].down)], [1], [1]
        tries = 0

        def fits(i: int, children: int, parents: int) -> bool:
            nonlocal tries
            # Level i (0-based) is complete here: `children` leaves are below one of its switches, and `parents` switches are above one
            # leaf.
            if i == len(levels) - 1:
                return children == levels[0].switches and parents == levels[i].switches
            lower, upper = levels[i], levels[i + 1]
            for parallel in _divisors(math.gcd(int(lower.up), int(upper.down))):
                below, above = upper.down // parallel, lower.up // parallel
                tries += 1
                if tries > _MOST_TRIES or children * below > levels[0].switches:
                    continue
                for row, value in ((m, below), (w, above), (p, parallel)):
                    row.append(value)
                if fits(i + 1, children * below, parents * above):
                    return True
                for row in (m, w, p):
                    row.pop()
            return False

        return (tuple(m), tuple(w), tuple(p)) if fits(0, 1, 1) else None


def _divisors(number: int) -> list[int]:
    """All divisors in ascending order."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*low, *(number // d for d in low)})


Dims = Annotated[tuple[f.Number, ...], Field(min_length=1, max_length=10)]


class Torus(Network):
    """A grid of endpoints that wraps around; every endpoint is its own router."""

    topology: Literal["torus"]
    dims: Dims

    @property
    def offers(self) -> int:
        return math.prod(int(d) for d in self.dims)

    @property
    def exact(self) -> bool:
        return not self.partial


class Mesh(Torus):
    """A grid of endpoints without the wrap-around."""

    topology: Literal["mesh"]  # type: ignore[assignment]


class Hypercube(Network):
    """2^dimension endpoints, with a link between two endpoints whose numbers differ in one bit."""

    topology: Literal["hypercube"]
    dimension: Annotated[Count, f.Counts(1, 23)]

    @property
    def offers(self) -> int:
        return 1 << int(self.dimension)

    @property
    def exact(self) -> bool:
        return not self.partial


class Rail(Network):
    """NIC r of every node is on a leaf switch of rail r; the rails meet at the spines, or not at all if there are none.

    If there are spines, half of the `leaf_ports` of a leaf go down and half go up.
    """

    topology: Literal["rail"]
    rails: f.Number
    leaf_ports: f.Number
    spines: f.NumberOrNone = Count(0)
    spine_ports: f.Number | None = None

    @property
    def leaf_down(self) -> int:
        """The ports of a leaf switch that endpoints can use."""
        return self.leaf_ports if self.spines == 0 else max(1, self.leaf_ports // 2)

    @property
    def offers(self) -> int | None:
        if self.spines == 0:
            return self.rails * self.leaf_ports
        if self.spine_ports is None:
            return None
        up = self.leaf_ports - self.leaf_down
        return (self.spines * self.spine_ports // up) * self.leaf_down if up else None


class Nvl(Network):
    """Domains of `domain` devices, where each device has `links_per_device` links, spread over the `switches` of its domain."""

    topology: Literal["nvl"]
    domain: f.Number
    switches: f.Number
    links_per_device: f.Number


class Star(Network):
    """One switch that all endpoints are attached to."""

    topology: Literal["star"]
    ports: f.Number | None = None

    @property
    def offers(self) -> int | None:
        return self.ports


class Full(Network):
    """A link between each pair of endpoints, without a switch."""

    topology: Literal["full"]


class Layer(Table):
    """One layer of `tiers`: `count` vertices, each with an uplink to the next. A layer named like a group holds its nodes."""

    name: f.Name
    count: f.Number
    rate: f.Rate | None = None
    latency: f.Delay | None = None


class Tiers(Network):
    """Ordered layers (edge, fog, cloud): neighbours share a parent in the next layer, and the last layer is joined all to all."""

    topology: Literal["tiers"]
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=20)]


class File(Network):
    """Edges from a CSV (`from,to,rate,latency`) or GraphML file.

    `endpoints` is the prefix of the names of endpoint vertices; without it, the vertices with one edge are the endpoints, or all vertices
    if there are none.
    """

    topology: Literal["file"]
    edges: EdgeList
    endpoints: f.Name | None = None

    @field_validator("edges", mode="before")
    @classmethod
    def _edges(cls, found: object, info: ValidationInfo) -> EdgeList:
        return read_edges(found, info.context)

    @property
    def offers(self) -> int:
        return len(self.edges.endpoint_vertices(self.endpoints))


AnyNetwork = Annotated[
    Dragonfly | FatTree | Torus | Mesh | Hypercube | Rail | Nvl | Star | Full | Tiers | File, Field(discriminator="topology")
]


def arithmetic(network: Network) -> Any:
    """The errors in the numbers of one network, as (key, message) pairs."""
    if isinstance(network, Dragonfly):
        yield from _dragonfly(network)
    elif isinstance(network, FatTree):
        yield from _fat_tree(network)
    elif isinstance(network, Rail) and network.spines and network.leaf_ports < 2:
        yield "leaf_ports", f"found {network.leaf_ports}; a leaf with spines above it needs at least 2 ports"
    elif isinstance(network, Tiers) and len({layer.name for layer in network.layers}) < len(network.layers):
        yield "layers", "two layers have the same name"
    if network.offers is not None and network.offers > 100_000_000:
        yield "", f"offers {network.offers:,} endpoints; at most 100,000,000 can be handled"


def _dragonfly(network: Dragonfly) -> Any:
    if len(network.switches_per_group) not in (1, network.groups):
        yield (
            "switches_per_group",
            f"found {len(network.switches_per_group)} entries; expected one for each of the {network.groups} groups",
        )
        return
    needed = network.links_between_groups * (network.groups - 1)
    least, most = min(network.switches_per_group), max(network.switches_per_group)
    if network.global_ports is not None and needed > least * network.global_ports:
        yield (
            "groups",
            f"found {network.groups}; {counted(network.links_between_groups, 'link')} to each of {network.groups - 1} other groups"
            f" need {needed} global ports, a group has {least * network.global_ports} ({least} switches × {network.global_ports})",
        )
    if network.switch and network.switch.ports is not None:
        used = network.endpoints_per_switch + network.links_in_group * (most - 1) + -(-needed // least)
        if used > network.switch.ports:
            yield "switch.ports", f"found {network.switch.ports}; endpoints, local and global links need up to {used}"


def _fat_tree(network: FatTree) -> Any:
    if (network.k is None) == (network.levels is None):
        yield "", "a fat tree has either k or levels"
    elif network.k is not None and network.k % 2:
        yield "k", f"found {network.k}; expected an even number"
    elif network.levels is not None:
        levels = network.levels
        for i, (low, high) in enumerate(itertools.pairwise(levels)):
            if low.switches * low.up != high.switches * high.down:
                yield (
                    f"levels[{i}].up",
                    f"{low.switches} switches × {low.up} ports up are {low.switches * low.up} links, the level above takes "
                    f"{high.switches} × {high.down} = {high.switches * high.down}",
                )
                return
        if levels[-1].up:
            yield f"levels[{len(levels) - 1}].up", f"found {levels[-1].up}; the top level has nothing above it"
        elif network.tree() is None:
            yield "levels", "no wiring of these ports and switches connects every leaf to every other"
