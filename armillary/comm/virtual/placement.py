"""Placement: the node on which each rank runs, the device if it runs on one, and how fast it computes there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from armillary.errors import InputError, unknown

if TYPE_CHECKING:
    from armillary.cluster import Cluster

PLACEMENTS = ("block", "round-robin")
#: The cluster if none is named; it gets more nodes if the ranks need them.
DEFAULT = "slingshot-200"
_PLACE = re.compile(r"n([0-9]{1,9})(?:/device:([0-9]{1,9}))?")


@dataclass(frozen=True)
class Place:
    """The number of a node, and the number of one of its devices, or None for a core."""

    node: int
    device: int | None = None


def machine(cluster: Cluster | str | None, ranks: int) -> Cluster:
    """Return the cluster itself, the preset or file of that name, or the default one with as many nodes as the ranks need."""
    from armillary import cluster as clusters

    if cluster is None:
        one = clusters.preset(DEFAULT)
        return one if one.cores >= ranks else one.scale(-(-ranks // one.node(0).cores))
    if isinstance(cluster, str):
        return clusters.preset(cluster) if cluster in clusters.presets() else clusters.load(cluster)
    if not isinstance(cluster, clusters.Cluster):
        raise InputError(f"cluster: found {type(cluster).__name__}; expected a Cluster, or the name of a preset or file")
    return cluster


def places(cluster: Cluster, placement: Any, ranks: int) -> list[Place]:
    """Return the place of each rank.

    `block` fills the cores of a node before it goes on to the next. `round-robin` deals one rank to each node in turn. A list names a node
    for each rank by number, by name (`node-17`), or as `n17` or `n17/device:3`.
    """
    if isinstance(placement, str):
        if placement not in PLACEMENTS:
            raise unknown("placement", placement, PLACEMENTS)
        return _dealt(cluster, placement, ranks)
    if not isinstance(placement, Sequence | np.ndarray):
        raise InputError(f"placement: found {type(placement).__name__}; expected block, round-robin, or a list with a node for each rank")
    if len(placement) != ranks:
        raise InputError(f"placement: found {len(placement)} nodes; expected one for each of the {ranks} ranks")
    known: dict[Any, Place] = {}
    names: dict[str, int] = {}
    found = []
    for entry in placement:
        if not isinstance(entry, str | int | np.integer):
            raise InputError(f"placement: found {entry!r}; expected the number or name of a node")
        if entry not in known:
            if isinstance(entry, str) and not names:
                names = {cluster.node(i).name: i for i in range(cluster.nodes)}
            known[entry] = _named(cluster, entry, names)
        found.append(known[entry])
    return found


def _dealt(cluster: Cluster, placement: str, ranks: int) -> list[Place]:
    room = [max(1, cluster.node(i).cores) for i in range(min(cluster.nodes, ranks))]
    total = sum(max(1, sum(int(s.cores or 0) * s.count for s in g.node.sockets)) * g.count for g in cluster.groups)
    if total < ranks:
        raise InputError(
            f"ranks: found {ranks}; expected at most the {total} cores of {cluster.name}, or a placement list that says where they go"
        )
    numbers: list[int] = []
    if placement == "block":
        for node, cores in enumerate(room):
            numbers += [node] * min(cores, ranks - len(numbers))
    else:
        turn = 0
        while len(numbers) < ranks:
            numbers += [node for node, cores in enumerate(room) if cores > turn][: ranks - len(numbers)]
            turn += 1
    made = {node: Place(node) for node in set(numbers)}
    return [made[node] for node in numbers]


def _named(cluster: Cluster, entry: Any, names: dict[str, int]) -> Place:
    device = None
    if not isinstance(entry, str):
        node = int(entry)
    else:
        match = _PLACE.fullmatch(entry)
        if entry in names:
            node = names[entry]
        elif match:
            node = int(match.group(1))
            device = None if match.group(2) is None else int(match.group(2))
        else:
            raise unknown("node", entry, names, where="placement")
    if not 0 <= node < cluster.nodes:
        raise InputError(f"placement: found node {node}; expected 0 to {cluster.nodes - 1} of {cluster.name}")
    if device is not None:
        cluster.node(node).device(device)
    return Place(node, device)


@dataclass(frozen=True)
class Roofline:
    """The flop/s and the bytes/s of the core or device of a rank; None where the cluster gives no figure."""

    flops: float | None
    bandwidth: float | None
    what: str

    def seconds(self, flops: float | None, nbytes: float | None) -> float:
        """Return the seconds for the operations or for the bytes, whichever take longer."""
        longest = 0.0
        for amount, rate, name in ((flops, self.flops, "flop/s"), (nbytes, self.bandwidth, "memory bandwidth")):
            if amount:
                if not rate:
                    raise InputError(f"compute: found no {name} of {self.what}; expected a cluster that gives it, or seconds instead")
                longest = max(longest, amount / rate)
        return longest


def roofline(cluster: Cluster, place: Place, sharing: int) -> Roofline:
    """Return the roofline of a rank: a whole device, or one core and its share of the node's memory among `sharing` ranks."""
    node = cluster.node(place.node)
    if place.device is not None:
        device = node.device(place.device)
        peak = next((float(device.peak[p]) for p in ("fp64", "fp32", "fp16") if device.peak[p]), None)
        memory = device.memory
        rate = None if memory is None or memory.bandwidth is None else float(memory.bandwidth) * memory.count
        return Roofline(peak, rate, f"device {place.device} of node {node.name}")
    socket = node.sockets[0] if node.sockets else None
    peak = None
    if socket is not None and socket.cores:
        whole = socket.peak("fp64")
        peak = None if whole is None else float(whole) / int(socket.cores)
    tier = node.memories[0] if node.memories else None
    rate = None if tier is None or tier.bandwidth is None else float(tier.bandwidth) * tier.count / max(1, sharing)
    return Roofline(peak, rate, f"a core of node {node.name}")
