"""A dragonfly of `armillary.cluster` as it is: its graph, groups and attachment; groups may differ in size."""

from __future__ import annotations

import numpy as np

from armillary.cluster import Cluster
from armillary.cluster.graph import HOST
from armillary.errors import InputError

from .network import MOST_LATENCY, Network

FLIT_BYTES = 64


def network_of(cluster: Cluster, name: str | None = None, *, cycle_ns: float | None = None, flit_bytes: int = FLIT_BYTES) -> Network:
    """The network of a cluster; `name` where it has several dragonflies.

    A cycle is the time in which a link carries one flit of `flit_bytes`, unless `cycle_ns` says otherwise. Latencies are rounded to whole
    cycles, 1 at least. The links of endpoints count as one flit per cycle too.
    """
    graph = cluster.graph(dragonfly_of(cluster, name))
    where = f"network.{graph.name}"
    inner = np.flatnonzero(graph.link_kind != HOST)
    rate = graph.rate[inner]
    if cycle_ns is None:
        if not len(rate) or not np.isfinite(rate).all():
            raise InputError("the rate of its links is unknown; expected rate, or cycle_ns", where=where)
        cycle_ns = cycle_of(cluster, name, flit_bytes=flit_bytes)
    if not (len(inner) == 0 or np.isfinite(graph.latency[inner]).all()):
        raise InputError("the latency of its links is unknown; expected latency = {nic, switch, metre}", where=where)
    cycles = np.maximum(1, np.rint(graph.latency[inner] * 1e9 / cycle_ns)).astype(np.int64)
    if len(cycles) and cycles.max() > MOST_LATENCY:
        raise InputError(f"a link takes {int(cycles.max()):,} cycles; expected at most {MOST_LATENCY:,}", where=where)
    first = int(np.count_nonzero(graph.kind == 0))
    roots, _ = graph.attachment
    return Network(
        graph.group[first:].astype(np.int64), roots.astype(np.int64) - first, graph.u[inner].astype(np.int64) - first,
        graph.v[inner].astype(np.int64) - first, cycles, np.zeros(len(inner), bool), f"{cluster.name or 'cluster'}:{graph.name}",
    )  # fmt: skip


def cycle_of(cluster: Cluster, name: str | None = None, *, flit_bytes: int = FLIT_BYTES) -> float:
    """Nanoseconds in which the cluster's slowest link between switches carries one flit."""
    graph = cluster.graph(dragonfly_of(cluster, name))
    return float(flit_bytes / graph.rate[graph.link_kind != HOST].min() * 1e9)


def dragonfly_of(cluster: Cluster, name: str | None = None) -> str:
    """The name of the cluster's only dragonfly, or the given one, checked."""
    found = [one for one, network in cluster.networks.items() if network.topology == "dragonfly"]
    if name is not None and name in found:
        return name
    if name is not None or len(found) != 1:
        there = ", ".join(f"{one} ({network.topology})" for one, network in cluster.networks.items()) or "none"
        asked = f'found no dragonfly "{name}"' if name is not None else f"found {len(found)} dragonflies"
        raise InputError(f"{asked} among the networks of the cluster: {there}; expected one", where=cluster.name or "cluster")
    return found[0]
