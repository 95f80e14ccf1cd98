"""One route at a time through a graph, from distances that are kept for each vertex where routes end.

Which of several shortest ways a route takes:
`first`: the one with the lowest edge number at each hop. `spread`: D-mod-k, the i-th choice of a route to endpoint d is d / (product of
the earlier numbers of choices) modulo its number of choices, so that on a fat tree routes to neighbours go by different roots. `ecmp`: a
hash of (source, destination, flow number, seed).
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numba import njit

from armillary.cluster import Graph
from armillary.errors import InputError

FIRST, SPREAD, ECMP = 0, 1, 2
#: Bytes of distances that are kept.
_MOST_BYTES = 256_000_000


class Router:
    """Routes of one graph; what is found is kept, as much as fits."""

    def __init__(self, graph: Graph, choice: int = FIRST, seed: int = 0) -> None:
        self.graph = graph
        self.choice = choice
        self.seed = seed
        self._distances: OrderedDict[int, np.ndarray] = OrderedDict()
        self._root, self._up = graph.attachment
        core = graph.core
        self._core = (core.start, core.neighbour, core.link, graph.weight[core.link >> 1].astype(np.int32))
        self._most = max(8, _MOST_BYTES // max(4 * graph.vertices, 1))
        self._out = np.empty(64, np.int64)

    def route(self, source: int, target: int, flow: int = 0) -> list[int]:
        """Directed links from one endpoint to another, in order; none when they are the same."""
        if source == target:
            return []
        goal = int(self._root[target])
        distance = self._distances.get(goal)
        if distance is None:
            distance = np.empty(self.graph.vertices, np.int32)
            measure(self._core[0], self._core[1], self._core[3], goal, distance)
            self._distances[goal] = distance
            if len(self._distances) > self._most:
                self._distances.popitem(last=False)
        start = int(self._root[source])
        if distance[start] < 0:
            raise InputError(f"endpoint {source} cannot reach endpoint {target}: no links join them", where=f"network.{self.graph.name}")
        if distance[start] > len(self._out):
            self._out = np.empty(2 * int(distance[start]), np.int64)
        hops = walk(*self._core, distance, start, goal, self.choice, source, target, flow, self.seed, self._out)
        up, down = int(self._up[source]), int(self._up[target])
        inner: list[int] = self._out[:hops].tolist()
        return [*([up] if up >= 0 else []), *inner, *([down ^ 1] if down >= 0 else [])]


@njit(nogil=True, cache=True)
def measure(first, neighbour, weight, root, distance):  # type: ignore[no-untyped-def]
    """Put the weight of the shortest way from each vertex to `root` into `distance`, -1 where there is none."""
    # A label is corrected until none can be: few rounds, as weights differ little.
    distance[:] = -1
    distance[root] = 0
    queue = np.empty(len(distance), np.int64)
    waiting = np.zeros(len(distance), np.bool_)
    queue[0] = root
    head, size = 0, 1
    while size > 0:
        x = queue[head]
        head = (head + 1) % len(queue)
        size -= 1
        waiting[x] = False
        for e in range(first[x], first[x + 1]):
            y = neighbour[e]
            d = distance[x] + weight[e]
            if distance[y] < 0 or d < distance[y]:
                distance[y] = d
                if not waiting[y]:
                    waiting[y] = True
                    queue[(head + size) % len(queue)] = y
                    size += 1


@njit(nogil=True, cache=True)
def walk(first, neighbour, link, weight, distance, x, goal, choice, source, target, flow, seed, out):  # type: ignore[no-untyped-def]
    """Directed links downhill from x to `goal`, into `out`; how many."""
    hops = 0
    digits = target
    state = _mixed(np.uint64(seed) ^ _mixed(np.uint64(source) ^ _mixed(np.uint64(target) ^ _mixed(np.uint64(flow)))))
    while x != goal:
        options, chosen = 0, -1
        for e in range(first[x], first[x + 1]):
            y = neighbour[e]
            if distance[y] >= 0 and distance[y] + weight[e] == distance[x]:
                if chosen < 0:
                    chosen = e
                options += 1
                if choice == FIRST:
                    break
        if options > 1:
            if choice == SPREAD:
                pick = digits % options
                digits //= options
            else:
                state = _mixed(state + np.uint64(1))
                pick = np.int64(state % np.uint64(options))
            for e in range(chosen, first[x + 1]):
                y = neighbour[e]
                if distance[y] >= 0 and distance[y] + weight[e] == distance[x]:
                    if pick == 0:
                        chosen = e
                        break
                    pick -= 1
        out[hops] = link[chosen]
        hops += 1
        x = neighbour[chosen]
    return hops


@njit(nogil=True, cache=True)
def _mixed(z):  # type: ignore[no-untyped-def]
    # splitmix64.
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
