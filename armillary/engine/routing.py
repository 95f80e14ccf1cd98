"""Finds one route at a time through a graph, from distances that are cached for each vertex where routes end.

Among several shortest routes, `first` takes the lowest edge number at each hop. `spread` is D-mod-k: the i-th choice of a route to endpoint
d is d / (product of the earlier numbers of choices) modulo its number of choices, so that on a fat tree routes to neighbours use different
roots. `ecmp` takes a hash of (source, destination, flow number, seed).
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from armillary.cluster import Graph
from armillary.errors import InputError
from armillary.kernels import loop

FIRST, SPREAD, ECMP = 0, 1, 2
#: The bytes of distances that are cached.
_MOST_BYTES = 256_000_000


class Router:
    """The routes of one graph; distances are cached as far as they fit."""

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
        """The directed links from one endpoint to another, in order; empty if they are the same."""
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


@loop
def measure(first, neighbour, weight, root, distance):  # type: ignore[no-untyped-def]
    """Writes the weight of the shortest path from each vertex to `root` into `distance`, or -1 if there is none."""
    # Labels are corrected until none changes, which takes few rounds because weights differ little.
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


@loop
def walk(first, neighbour, link, weight, distance, x, goal, choice, source, target, flow, seed, out):  # type: ignore[no-untyped-def]
    """Writes the directed links downhill from x to `goal` into `out`, and returns their number."""
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


@loop
def _mixed(z):  # type: ignore[no-untyped-def]
    # splitmix64.
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
