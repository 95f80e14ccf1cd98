"""Static advice for real caches: which copies pay at given rates, and what a change of hardware would save."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from armillary.errors import InputError
from armillary.kernels import loop

from ..cost_based import CostBased
from ..pricing.prices import Prices, Tier
from ..simulation.replay import tables
from ..simulation.topology import Topology
from ..workload import Catalogue, Network, Requests


def placement(
    topology: Topology, rates: np.ndarray, sizes: np.ndarray, prices: Prices | None = None, *, capacity: np.ndarray, stay: float = 3600.0,
    services: np.ndarray | None = None, origins: np.ndarray | None = None,
) -> Any:  # fmt: skip
    """A Polars table of the copies that pay (content, node, tier, balance in $/s), the best value for its bytes first.

    `rates` float64[nodes, contents] are requests/s that arrive at each node, `sizes` bytes, `capacity` int64[nodes, tiers] bytes. Each copy
    is judged given those above it in the table, and the cost of writing is spread over `stay` seconds. Written as CSV, the table is an
    admission table for a cache server.
    """
    import polars as pl

    prices = prices or Prices()
    n, m = len(topology), len(sizes)
    if rates.shape != (n, m) or (rates < 0).any() or not np.isfinite(rates).all():
        raise InputError(f"rates: found the shape {rates.shape} or a number below 0; expected ({n}, {m}) and none below 0")
    zeros = np.zeros(m, np.int32)
    catalogue = Catalogue(
        np.asarray(sizes, np.int64), np.asarray(zeros if services is None else services, np.int8), zeros if origins is None else origins
    )
    nothing = Requests(np.empty(0), np.empty(0, np.int32), np.empty(0, np.int32))
    network = Network(topology, catalogue, nothing, prices, np.asarray(capacity, np.int64))
    links, _ = tables(network)
    each, free = prices.per_byte(), network.capacity.copy()
    penalty, hop = np.array([c.penalty for c in prices.classes]), prices.hop_energy * prices.joule
    on = np.full((m, n), -1, np.int8)

    def best(content: int) -> tuple[float, int, int]:
        found: tuple[float, int, int] = _best(
            content, n + int(catalogue.origin[content]), float(sizes[content]), int(catalogue.service[content]), rates, on[content], free,
            links, each.hold + each.write / stay, each.serve, penalty, hop,
        )  # fmt: skip
        return found

    heap = [(-value / float(sizes[content]), content) for content in range(m) if (value := best(content)[0]) > 0]
    heapq.heapify(heap)
    rows = []
    while heap:
        promised, content = heapq.heappop(heap)
        value, node, tier = best(content)
        if value <= 0:
            continue
        density = value / float(sizes[content])
        if density < -promised * (1 - 1e-12) and heap and density < -heap[0][0]:
            heapq.heappush(heap, (-density, content))
            continue
        on[content, node] = tier
        free[node, tier] -= int(sizes[content])
        rows.append((content, topology.names[node], prices.tiers[tier].name, value))
        heapq.heappush(heap, (-density, content))
    return pl.DataFrame(rows, schema={"content": pl.Int64, "node": pl.String, "tier": pl.String, "balance": pl.Float64}, orient="row")


@loop
def _best(content, origin, size, service, rates, on, free, links, hold, serve, penalty, hop):
    """(balance in $/s, node, tier) of the best further copy of a content, given the existing ones."""
    nodes, tiers = free.shape
    gain = np.zeros((nodes, tiers))
    for receiver in range(nodes):
        rate = rates[receiver, content]
        if rate <= 0:
            continue
        # The receiver now pays for a delivery from the first copy on its path, or from the origin.
        at, moved, far, wide = receiver, 0.0, 0.0, np.inf
        while at != origin and on[at] < 0:
            after = links.toward[at, origin]
            moved += size * (links.price[at, after] + hop)
            far += 2.0 * links.latency[at, after]
            wide = min(wide, links.bandwidth[at, after])
            at = after
        now = moved
        if at == origin:
            latency = far + size / wide
        else:
            t = on[at]
            latency = far + links.tier_latency[t] + size / min(wide, links.tier_bandwidth[t])
            now += serve[t] * size
        if latency > links.deadline[service]:
            now += penalty[service]
        stop = at
        at, moved, far, wide = receiver, 0.0, 0.0, np.inf
        while at != stop:
            for t in range(tiers):
                latency = far + links.tier_latency[t] + size / min(wide, links.tier_bandwidth[t])
                then = moved + serve[t] * size + (penalty[service] if latency > links.deadline[service] else 0.0)
                gain[at, t] += rate * (now - then)
            after = links.toward[at, origin]
            moved += size * (links.price[at, after] + hop)
            far += 2.0 * links.latency[at, after]
            wide = min(wide, links.bandwidth[at, after])
            at = after
    best, where, tier = 0.0, -1, -1
    for v in range(nodes):
        for t in range(tiers):
            if on[v] < 0 and size <= free[v, t] and gain[v, t] - hold[t] * size > best:
                best, where, tier = gain[v, t] - hold[t] * size, v, t
    return best, where, tier


def what_if(network: Network, *, tiers: tuple[Tier, ...], capacity: np.ndarray | None = None, strategy: Any = None) -> Any:
    """A Polars table of the bills per GB, hit ratios and latencies with the present hardware and with another.

    `tiers` replace the network's, and so does `capacity` (bytes, [nodes, tiers]). Without it, every node keeps its bytes and divides them
    among the new tiers.
    """
    import polars as pl

    strategy = strategy or CostBased()
    prices = Prices.model_validate(network.prices.model_dump() | {"tiers": [tier.model_dump() for tier in tiers]})
    if capacity is None:
        whole = network.capacity.sum(axis=1) / max(sum(t.share for t in network.prices.tiers), 1e-12)
        capacity = np.stack([whole * tier.share for tier in tiers], axis=1).astype(np.int64)
    other = Network(network.topology, network.catalogue, network.requests, prices, capacity)
    found = [(name, strategy.simulate(work)) for name, work in (("now", network), ("then", other))]
    return pl.DataFrame(
        {
            "hardware": [name for name, _ in found],
            "cost_per_GB": [r.cost_per_GB for _, r in found],
            "hit_ratio": [r.hit_ratio for _, r in found],
            "latency_ms": [1e3 * float(r.usage.latency.mean()) if len(r.usage.latency) else 0.0 for _, r in found],
        }
    )
