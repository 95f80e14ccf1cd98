"""Tiers of nodes and the links between them, from a cluster file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from armillary.cluster import Cluster
from armillary.errors import InputError
from armillary.llm.cost.device import Chip, chip

from .rate import Rate

#: The share of a device's memory that a program may use, and the bytes of its context.
USABLE, CONTEXT_BYTES = 0.95, 1e9


@dataclass(frozen=True)
class Tier:
    """Nodes of one level, nearest to the users first, and each one's link to the next level.

    `left` [nodes] is the share of each device that others leave, over time. `uplink` is the rate of one node's link upwards in bytes per
    second, and `latency_s` its latency one way; the last tier needs none.
    """

    name: str
    chips: tuple[Chip, ...]
    left: tuple[Rate, ...]
    uplink: Rate | None = None
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.chips or len(self.left) != len(self.chips):
            raise InputError(f"tier {self.name}: found {len(self.chips)} nodes and {len(self.left)} loads; expected at least one node")
        if not 0 <= self.latency_s < float("inf"):
            raise InputError(f"tier {self.name}: latency_s: found {self.latency_s:g}; expected seconds, 0 or more")

    def __len__(self) -> int:
        return len(self.chips)

    @property
    def memory(self) -> float:
        """The bytes that every node of the tier has, because each holds the tier's whole segment."""
        return min(USABLE * one.memory - CONTEXT_BYTES for one in self.chips)


@dataclass(frozen=True)
class Hierarchy:
    """Tiers from the users' side up."""

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        if not self.tiers:
            raise InputError("found no tier; expected at least one")
        for tier in self.tiers[:-1]:
            if tier.uplink is None:
                raise InputError(f"tier {tier.name}: found no link to the next tier")

    def __len__(self) -> int:
        return len(self.tiers)

    @classmethod
    def of_cluster(cls, cluster: Cluster) -> Hierarchy:
        """Returns the tiers of a cluster whose network has the topology `tiers`; each node has one GPU, on which nothing else runs."""
        network = cluster.network()
        if getattr(network, "topology", "") != "tiers":
            raise InputError(f"cluster {cluster.name}: expected a network of topology tiers")
        groups = {group.name: group for group in cluster.groups}
        found, start = [], {}
        at = 0
        for group in cluster.groups:
            start[group.name] = at
            at += group.count
        for layer in network.layers:
            if layer.name not in groups:
                continue
            nodes = [cluster.node(start[layer.name] + i) for i in range(groups[layer.name].count)]
            chips = tuple(_chip(node.devices, layer.name) for node in nodes)
            free = tuple(Rate.constant(1.0) for _ in chips)
            found.append(Tier(layer.name, chips, free, Rate.constant(float(layer.rate)), float(layer.latency)))
        if not found:
            raise InputError(f"cluster {cluster.name}: no layer of its network is named like a group of nodes")
        return cls(tuple(found))

    def with_links(self, rates: Sequence[Rate], latencies_s: Sequence[float | None] | None = None) -> Hierarchy:
        """Returns the same tiers with links of these rates, from the lowest up."""
        if len(rates) != len(self) - 1:
            raise InputError(f"found {len(rates)} links; expected {len(self) - 1}, one between two tiers")
        late = [None] * len(rates) if latencies_s is None else list(latencies_s)
        changed = [
            replace(tier, uplink=rate, latency_s=tier.latency_s if seconds is None else seconds)
            for tier, rate, seconds in zip(self.tiers, rates, late, strict=False)
        ]
        return Hierarchy((*changed, self.tiers[-1]))

    def with_load(self, left: Sequence[Sequence[Rate]]) -> Hierarchy:
        """Returns the same tiers with other work on their nodes; `left[tier][node]` is the share that stays free."""
        return Hierarchy(tuple(replace(tier, left=tuple(rates)) for tier, rates in zip(self.tiers, left, strict=True)))


def _chip(devices: Sequence[object], where: str) -> Chip:
    gpus = [d for d in devices if getattr(d, "kind", "") == "gpu"]
    if len(gpus) != 1:
        raise InputError(f"tier {where}: found {len(gpus)} GPUs on a node; expected one")
    return chip(str(gpus[0].model))  # type: ignore[attr-defined]
