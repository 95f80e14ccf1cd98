"""Many routes at once, as a Numba loop over the arrays of a graph.

For each vertex at which some route ends, one search from there gives every vertex its distance, and a route then walks downhill. Routes are
sorted by their end, so one search serves all routes that end there.
"""

from __future__ import annotations

import numpy as np

from armillary.cluster.graph import SWITCH, Graph
from armillary.errors import InputError
from armillary.kernels import loop


def routes(graph: Graph, sources: np.ndarray, targets: np.ndarray, algorithm: str, seed: int) -> np.ndarray:
    """See `Graph.routes`; endpoints are checked."""
    roots, up = graph.attachment
    away = np.flatnonzero(sources != targets)
    a, b = sources[away], targets[away]
    none = np.full(len(a), -1, np.int32)
    down = np.where(up[b] >= 0, up[b] ^ 1, -1).astype(np.int32)
    if algorithm == "valiant":
        middle = _middles(graph, len(a), seed)
        first = _walks(graph, roots[a], middle, up[a], none, (a, b), 0, 0)
        second = _walks(graph, middle, roots[b], none, down, (a, b), 0, 0)
        found = _joined(first, second)
    else:
        found = _walks(graph, roots[a], roots[b], up[a], down, (a, b), int(algorithm == "ecmp"), seed)
    if len(away) == len(sources):
        return found
    out = np.full((len(sources), found.shape[1]), -1, np.int32)
    out[away] = found
    return out


def _middles(graph: Graph, count: int, seed: int) -> np.ndarray:
    """A random intermediate vertex for each route: a switch, or any vertex if endpoints are the routers."""
    candidates = np.flatnonzero(graph.kind == SWITCH)
    if len(candidates) == 0:
        candidates = graph.endpoints
    return candidates[np.random.default_rng(seed).integers(0, len(candidates), count)].astype(np.int32)


def _joined(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Joins rows of padded links, with the padding moved to the end."""
    wide = np.concatenate([first, second], axis=1)
    wide = np.take_along_axis(wide, np.argsort(wide < 0, axis=1, kind="stable"), axis=1)
    return np.ascontiguousarray(wide[:, : max(int((wide >= 0).sum(axis=1).max(initial=1)), 1)])


def _walks(
    graph: Graph,
    start: np.ndarray,
    goal: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    spread: int,
    seed: int,
) -> np.ndarray:
    """Routes between vertices, each with the link `up` before it and `down` after it (−1 for none)."""
    core = graph.core
    weight = graph.core_weight
    order = np.argsort(goal, kind="stable")
    width = max(graph.reach, 1)
    while True:
        out = np.full((len(start), width), -1, np.int32)
        longest, lost = _trace(core.start, core.neighbour, core.link, weight, start, goal, up, down, order, spread, np.uint64(seed), out)
        if lost >= 0:
            raise InputError(
                f"endpoint {ends[0][lost]} cannot reach endpoint {ends[1][lost]}: no links join them", where=f"network.{graph.name}"
            )
        if longest <= width:
            return np.ascontiguousarray(out[:, : max(longest, 1)])
        width = longest


@loop
def _trace(first, neighbour, link, weight, start, goal, up, down, order, spread, seed, out):  # type: ignore[no-untyped-def]
    # Invariant: before a route is walked, distance[x] is the weight of the shortest path from x to `settled`, or −1 if there is none.
    vertices = len(first) - 1
    distance = np.full(vertices, -1, np.int32)
    span = 1
    for w in weight:
        span = max(span, w + 1)
    bucket = np.empty((span, vertices), np.int32)
    held = np.zeros(span, np.int64)
    settled, longest, width = -1, 0, out.shape[1]
    reachable = 0
    for x in range(vertices):
        reachable += first[x + 1] > first[x]
    for i in order:
        if goal[i] != settled:
            settled = goal[i]
            _distances(first, neighbour, weight, settled, distance, bucket, held, reachable)
        x = start[i]
        if distance[x] < 0:
            return longest, i
        hops = 0
        if up[i] >= 0:
            out[i, 0] = up[i]
            hops = 1
        state = seed ^ (np.uint64(i + 1) * np.uint64(0x9E3779B97F4A7C15))
        while x != settled:
            chosen, choices = -1, 0
            for e in range(first[x], first[x + 1]):
                if distance[neighbour[e]] + weight[e] == distance[x] and distance[neighbour[e]] >= 0:
                    choices += 1
                    if chosen < 0:
                        chosen = e
                        if spread == 0:
                            break
                    else:
                        state = _next(state)
                        if state % np.uint64(choices) == 0:
                            chosen = e
            if hops < width:
                out[i, hops] = link[chosen]
            hops += 1
            x = neighbour[chosen]
        if down[i] >= 0:
            if hops < width:
                out[i, hops] = down[i]
            hops += 1
        longest = max(longest, hops)
    return longest, -1


@loop
def _next(state):  # type: ignore[no-untyped-def]
    # splitmix64 of the route's own number, so that a route does not depend on the others.
    state = state + np.uint64(0x9E3779B97F4A7C15)
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@loop
def _distances(first, neighbour, weight, root, distance, bucket, held, reachable):  # type: ignore[no-untyped-def]
    # Dial's algorithm: vertices wait in the bucket of their distance, modulo one more than the largest weight. A vertex is put in again
    # only at a smaller distance, so it stands at most once in a bucket. Once every vertex has a distance and none waits farther than the
    # current one, no distance can become shorter. Most vertices are at that distance, and their edges need not be examined.
    span = len(held)
    distance[:] = -1
    held[:] = 0
    distance[root] = 0
    bucket[0, 0] = root
    held[0] = 1
    waiting, now, reached = 1, 0, 1
    while waiting > 0:
        slot = now % span
        if reached == reachable:
            farther = False
            for d in range(now + 1, now + span):
                for i in range(held[d % span]):
                    farther = farther or distance[bucket[d % span, i]] == d
            if not farther:
                return
        for i in range(held[slot]):
            x = bucket[slot, i]
            waiting -= 1
            if distance[x] != now:
                continue
            for e in range(first[x], first[x + 1]):
                y = neighbour[e]
                d = now + weight[e]
                if distance[y] < 0 or d < distance[y]:
                    reached += distance[y] < 0
                    distance[y] = d
                    s = d % span
                    bucket[s, held[s]] = y
                    held[s] += 1
                    waiting += 1
        held[slot] = 0
        now += 1


@loop
def farthest(first, neighbour, roots):  # type: ignore[no-untyped-def]
    """The most hops from any of `roots` to any other, or −1 if one cannot be reached."""
    vertices = len(first) - 1
    distance = np.empty(vertices, np.int32)
    queue = np.empty(vertices, np.int32)
    most = 0
    for root in roots:
        distance[:] = -1
        distance[root] = 0
        queue[0] = root
        head, tail = 0, 1
        while head < tail:
            x = queue[head]
            head += 1
            for e in range(first[x], first[x + 1]):
                y = neighbour[e]
                if distance[y] < 0:
                    distance[y] = distance[x] + 1
                    queue[tail] = y
                    tail += 1
        for other in roots:
            if distance[other] < 0:
                return -1
            most = max(most, distance[other])
    return most
