"""Requests walk to the first node that holds their content, the data walks back, and an on-path strategy decides where copies stay.

All on-path strategies share one loop and differ in the rule by which a node keeps a copy. Copies enter a node's first tier; the least
recently used copy of a full tier sinks to the next and falls out of the last. `rises` lifts a copy that is hit back to the first tier.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from armillary.kernels import kernel, part

from ..pricing import billing as columns
from ..pricing.billing import Report, Usage, bill
from ..workload import Network
from .caches import empty, given_back, link, refreshed, taken, unlink

EVERYWHERE, ONE_DOWN, CHANCE, PROBCACHE, CENTRAL, EDGE, HOME, PRICE, NOWHERE = range(9)
_REQUESTS, _HITS, _DELIVERED, _HIT_BYTES, _ORIGIN, _HOPS = (
    columns.REQUESTS, columns.HITS, columns.DELIVERED, columns.HIT_BYTES, columns.ORIGIN_BYTES, columns.HOP_BYTES,
)  # fmt: skip
_OWN, _INTERNAL, _TRANSIT, _WRITES = columns.OWN_DOLLARS, columns.INTERNAL_BYTES, columns.TRANSIT_BYTES, columns.WRITES
_COPIES, _CACHED = columns.COPIES, columns.CACHED
#: ProbCache's target time window: seconds of traffic for which a path should have room.
_WINDOW = 10.0


class Tally(NamedTuple):
    """Counts while requests run: `total` bytes by tier over all nodes, `number` of copies of each content, `live` (copies, contents)."""

    held: np.ndarray
    written: np.ndarray
    read: np.ndarray
    late: np.ndarray
    counts: np.ndarray
    latency: np.ndarray
    total: np.ndarray
    number: np.ndarray
    live: np.ndarray
    #: [time of the last account]; [1 while billed].
    clock: np.ndarray
    billed: np.ndarray


class Links(NamedTuple):
    """Tables of links, and the tiers' times."""

    toward: np.ndarray
    latency: np.ndarray
    bandwidth: np.ndarray
    price: np.ndarray
    #: 0: the usual internal price, 1: transit, 2: a price of its own.
    kind: np.ndarray
    tier_latency: np.ndarray
    tier_bandwidth: np.ndarray
    deadline: np.ndarray


def tables(network: Network) -> tuple[Links, Tally]:
    """The arrays of a network that both loops need."""
    prices, t = network.prices, network.topology
    routes, each = t.routes(prices), prices.per_byte()
    kind = np.where(routes.transit, 1, 0).astype(np.int8)
    for (a, b), own in zip(t.ends.tolist(), t.price):
        if not np.isnan(own):
            kind[a, b] = kind[b, a] = 2
    links = Links(
        routes.toward, routes.latency, routes.bandwidth, routes.price, kind, each.latency, each.bandwidth,
        np.array([c.deadline for c in prices.classes]),
    )  # fmt: skip
    tiers = len(prices.tiers)
    measured = max(0, len(network.requests) - network.requests.warm)
    tally = Tally(
        np.zeros(tiers), np.zeros(tiers), np.zeros(tiers), np.zeros(len(prices.classes)), np.zeros(12), np.zeros(measured, np.float32),
        np.zeros(tiers, np.int64), np.zeros(len(network.catalogue), np.int32), np.zeros(2, np.int64), np.zeros(1), np.zeros(1, np.int64),
    )  # fmt: skip
    return links, tally


def report(network: Network, tally: Tally) -> Report:
    """The counts as a report, billed at the network's prices."""
    used = Usage(tally.held, tally.written, tally.read, tally.late, tally.counts, tally.latency)
    return Report(network, used, bill(used, network.prices))


def on_path(
    network: Network, decides: int, *, chance: float = 0.0, rises: bool = False, nearest: bool = False, pending: bool = False,
    seed: int = 0, placed: Any = None,
) -> Report:  # fmt: skip
    """Runs an on-path strategy. `placed` = (contents, nodes, tiers) are initial copies, which only NOWHERE keeps for good."""
    links, tally = tables(network)
    size, c, r = network.catalogue.size, network.catalogue, network.requests
    caches = empty(network.capacity, size)
    n = len(network.topology)
    if placed is not None:
        for content, node, tier in zip(*placed):
            stored(caches, tally, node, content, tier, size[content])
    homes = home_of(len(c), n, seed)
    _on_path(
        decides, chance, rises, nearest, pending, np.uint64(2 * seed + 1), n, links, tally, caches, r.time, r.receiver, r.content, r.warm,
        size, c.service, c.origin, network.topology.betweenness, network.capacity.sum(axis=1).astype(np.float64), homes,
        np.full((n, len(c)) if pending else (1, 1), -np.inf), np.empty(4 * len(links.toward) + 4, np.int32),
        np.empty((3, network.capacity.shape[1]), np.int64),
    )  # fmt: skip
    return report(network, tally)


def home_of(contents: int, nodes: int, seed: int) -> np.ndarray:
    """int32[contents]: the one node that may keep each content, by a hash."""
    mixed = (np.arange(contents, dtype=np.uint64) + np.uint64(seed)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    return ((mixed >> np.uint64(33)) % np.uint64(nodes)).astype(np.int32)


@part
def draw(state):
    """A number in [0, 1) and the next state (splitmix)."""
    state += np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)) * (1.0 / 9007199254740992.0), state


@part
def accounted(a, now, warm_over):
    """Adds the byte-seconds up to now."""
    if a.billed[0]:
        for t in range(a.total.shape[0]):
            a.held[t] += a.total[t] * (now - a.clock[0])
        a.counts[_COPIES] += a.live[0]
        a.counts[_CACHED] += a.live[1]
    a.clock[0] = now
    a.billed[0] = warm_over


@part
def stored(k, a, node, content, tier, size):
    """Makes a copy on a tier that has room for it; returns its slot."""
    s = taken(k, node, content)
    link(k, s, node, tier, size)
    k.since[s] = a.clock[0]
    a.total[tier] += size
    a.live[0] += 1
    a.live[1] += a.number[content] == 0
    a.number[content] += 1
    if a.billed[0]:
        a.written[tier] += size
        a.counts[_WRITES] += 1
    return s


@part
def dropped(k, a, s, size):
    """Removes a copy."""
    a.total[k.tier[s]] -= size
    unlink(k, s, size)
    content = k.content[s]
    a.live[0] -= 1
    a.number[content] -= 1
    a.live[1] -= a.number[content] == 0
    given_back(k, s)


@part
def moved(k, a, s, tier, size):
    """Moves a copy to another tier, which has room for it."""
    a.total[k.tier[s]] -= size
    unlink(k, s, size)
    link(k, s, k.node[s], tier, size)
    k.since[s] = a.clock[0]
    a.total[tier] += size
    if a.billed[0]:
        a.written[tier] += size
        a.counts[_WRITES] += 1


@kernel
def sunk(k, a, waits, node, tier, size, sizes):
    """Makes room for `size` bytes on a tier by sinking its oldest copies; False where it is too small for that."""
    tiers = k.room.shape[1]
    if k.room[node, tier] < size:
        return False
    # The rows of `waits` are tiers, bytes, and the copies that will go there; a victim stays where it is until there is room below.
    at, needs, comes = waits[0], waits[1], waits[2]
    depth = 0
    at[0], needs[0] = tier, size
    while True:
        now = at[depth]
        if k.used[node, now] + needs[depth] <= k.room[node, now]:
            if depth == 0:
                return True
            moved(k, a, comes[depth], now, needs[depth])
            depth -= 1
            continue
        s = k.tail[node, now]
        mine = sizes[k.content[s]]
        below = now + 1
        while below < tiers and k.room[node, below] < mine:
            below += 1
        if below < tiers:
            depth += 1
            at[depth], needs[depth], comes[depth] = below, mine, s
        else:
            dropped(k, a, s, mine)


@part
def kept(k, a, waits, node, content, sizes):
    """A copy enters a node at its first tier that is large enough."""
    size = sizes[content]
    for tier in range(k.room.shape[1]):
        if sunk(k, a, waits, node, tier, size, sizes):
            stored(k, a, node, content, tier, size)
            return


@part
def way(links, path, length, goal):
    """Extends `path` along the shortest path to `goal`; returns the new length."""
    while path[length - 1] != goal:
        path[length] = links.toward[path[length - 1], goal]
        length += 1
    return length


@part
def delivered(links, a, path, served, size, tier, service, index, extra):
    """Counts one delivery from path[served] (on `tier`, or −1 for an origin) to path[0]; returns its latency in seconds."""
    latency, slowest = extra, np.inf
    billed = a.billed[0]
    for i in range(served):
        x, y = path[i], path[i + 1]
        latency += 2.0 * links.latency[x, y]
        slowest = min(slowest, links.bandwidth[x, y])
        if billed:
            a.counts[_HOPS] += size
            kind = links.kind[x, y]
            if kind == 0:
                a.counts[_INTERNAL] += size
            elif kind == 1:
                a.counts[_TRANSIT] += size
            else:
                a.counts[_OWN] += size * links.price[x, y]
    if tier >= 0:
        latency += links.tier_latency[tier]
        slowest = min(slowest, links.tier_bandwidth[tier])
    latency += size / slowest
    if billed:
        a.counts[_REQUESTS] += 1
        a.counts[_DELIVERED] += size
        if tier >= 0:
            a.counts[_HITS] += 1
            a.counts[_HIT_BYTES] += size
            a.read[tier] += size
        else:
            a.counts[_ORIGIN] += size
        if latency > links.deadline[service]:
            a.late[service] += 1
        if index >= 0:
            a.latency[index] = latency
    return latency


@part
def nearest_copy(k, links, nodes, start, content, origin, path):
    """Fills `path` with the way from start to the nearest vertex that has the content; returns its length."""
    best, at = np.inf, origin
    for v in range(nodes):
        if k.where[v, content] >= 0:
            x, far = start, 0.0
            while x != v and far < best:
                y = links.toward[x, v]
                far += links.latency[x, y]
                x = y
            if far < best:
                best, at = far, v
    x, far = start, 0.0
    while x != origin:
        y = links.toward[x, origin]
        far += links.latency[x, y]
        x = y
    if far < best:
        at = origin
    path[0] = start
    return way(links, path, 1, at)


@kernel
def _on_path(decides, chance, rises, nearest, pending, state, nodes, links, a, k, times, receivers, contents, warm, sizes, services,
             origins, betweenness, cached, homes, arrives, path, room):  # fmt: skip
    dearest = 0.0
    for x in range(links.price.shape[0]):
        for y in range(links.price.shape[0]):
            if links.latency[x, y] < np.inf:
                dearest = max(dearest, links.price[x, y])
    for r in range(times.shape[0]):
        now, content, start = times[r], contents[r], receivers[r]
        size, service, origin = sizes[content], services[content], nodes + origins[content]
        accounted(a, now, r >= warm)
        path[0] = start
        home = -1
        if decides == HOME:
            home = homes[content]
            length = way(links, path, 1, home)
            turn = length - 1
            length = way(links, path, length, origin)
        elif nearest:
            length = nearest_copy(k, links, nodes, start, content, origin, path)
            turn = -1
        else:
            length = way(links, path, 1, origin)
            turn = -1
        served, tier = length - 1, -1
        for i in range(length - 1 if not nearest else length):
            v = path[i]
            if v < nodes and (turn < 0 or i == turn) and k.where[v, content] >= 0:
                served, tier = i, k.tier[k.where[v, content]]
                break
        waits = 0.0
        if pending and tier >= 0:
            # A request for a copy that is still on its way joins the request that fetches it.
            waits = max(0.0, arrives[path[served], content] - now)
        latency = delivered(links, a, path, served, size, tier, service, r - warm, waits)
        if tier >= 0:
            s = k.where[path[served], content]
            if rises and tier > 0 and size <= k.room[path[served], 0]:
                # The copy is taken out first, because making room could otherwise sink or drop it.
                node = path[served]
                dropped(k, a, s, size)
                kept(k, a, room, node, content, sizes)
            else:
                refreshed(k, s)
        top, best = -1, -1.0
        if decides == CENTRAL:
            for i in range(served):
                if path[i] < nodes and betweenness[path[i]] > best:
                    top, best = i, betweenness[path[i]]
        ahead = 0.0
        for i in range(served - 1, -1, -1):
            v = path[i]
            if v >= nodes or k.where[v, content] >= 0:
                continue
            here = False
            if decides == EVERYWHERE:
                here = True
            elif decides == ONE_DOWN:
                here = i == served - 1
            elif decides == CHANCE:
                u, state = draw(state)
                here = u < chance
            elif decides == PROBCACHE:
                # The room on the rest of the path over a time window, times the share of the path that the data has come.
                hops, come = served, served - i
                ahead = 0.0
                for j in range(i + 1):
                    ahead += cached[path[j]]
                weight = ahead / (_WINDOW * cached[v]) if cached[v] > 0 else 0.0
                u, state = draw(state)
                here = u < weight * come / hops
            elif decides == CENTRAL:
                here = i == top
            elif decides == EDGE:
                here = i == 0
            elif decides == HOME:
                here = v == home and i == turn
            elif decides == PRICE:
                u, state = draw(state)
                here = u < links.price[path[i], path[i + 1]] / dearest if dearest > 0 else False
            if here:
                kept(k, a, room, v, content, sizes)
                if pending:
                    arrives[v, content] = now + latency
    if times.shape[0] > 0:
        accounted(a, times[times.shape[0] - 1], 0)
