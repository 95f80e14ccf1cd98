"""Neighbour sampling as GNN training does it, really executed.

A minibatch starts from seed vertices. Each layer, from the last one to the first, draws at most its fan-out of distinct neighbours of
every vertex that is in the minibatch already, uniformly. The features of all vertices that were reached are the minibatch's input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from armillary.kernels import loop, part

from .graph import Graph, Ints, Vertices


@dataclass
class Sampler:
    """Draws minibatches from a graph; `fan_outs` are those of the layers from the first to the last, as DGL lists them."""

    graph: Graph
    fan_outs: tuple[int, ...]
    seed: int

    def __post_init__(self) -> None:
        self._state = np.array([self.seed], np.uint64)
        #: The last minibatch in which each vertex was reached.
        self._mark = np.zeros(self.graph.vertices, np.int64)
        self._reached = np.zeros(self.graph.vertices, np.int32)
        self._number = 0
        self._fan_outs = np.asarray(self.fan_outs[::-1], np.int64)

    def minibatch(self, seeds: npt.NDArray[np.integer]) -> tuple[Vertices, int]:
        """(input vertices, the seeds first, in the order in which they were reached; the number of edges along which they were)."""
        self._number += 1
        count, edges = _minibatch(
            self.graph.indptr, self.graph.indices, seeds.astype(np.int32), self._fan_outs, self._state, self._mark, self._reached,
            self._number,
        )  # fmt: skip
        return self._reached[:count].copy(), int(edges)


def reach(graph: Graph, seeds: npt.NDArray[np.integer], hops: int) -> npt.NDArray[np.bool_]:
    """Whether each vertex is at most `hops` edges away from a seed, (vertices,)."""
    found: npt.NDArray[np.bool_] = _reach(graph.indptr, graph.indices, seeds.astype(np.int64), hops)
    return found


def local_degree(graph: Graph, owner: npt.NDArray[np.int16], mine: int) -> Ints:
    """The number of neighbours of each vertex that the part `mine` holds, (vertices,)."""
    found: Ints = _local_degree(graph.indptr, graph.indices, owner, mine)
    return found


@part
def _below(state, bound):  # type: ignore[no-untyped-def]
    """A number from 0 to bound - 1, by SplitMix64; the error of the multiplication is bound / 2**32."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return np.int64(((z >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@loop
def _minibatch(indptr, indices, seeds, fan_outs, state, mark, reached, number):  # type: ignore[no-untyped-def]
    chosen = np.empty(fan_outs.max(), np.int64)
    count, edges = 0, 0
    for v in seeds:
        if mark[v] != number:
            mark[v] = number
            reached[count] = v
            count += 1
    for fan_out in fan_outs:
        before = count
        for i in range(before):
            v = reached[i]
            first, degree = indptr[v], indptr[v + 1] - indptr[v]
            take = min(degree, fan_out)
            for k in range(take):
                if degree <= fan_out:
                    at = k
                else:
                    # Floyd: a uniform subset without a list of all neighbours.
                    last = degree - take + k
                    at = _below(state, last + 1)
                    for j in range(k):
                        if chosen[j] == at:
                            at = last
                            break
                    chosen[k] = at
                w = indices[first + at]
                if mark[w] != number:
                    mark[w] = number
                    reached[count] = w
                    count += 1
            edges += take
    return count, edges


@loop
def _reach(indptr, indices, seeds, hops):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    seen = np.zeros(n, np.bool_)
    queue = np.empty(n, np.int64)
    count = 0
    for v in seeds:
        if not seen[v]:
            seen[v] = True
            queue[count] = v
            count += 1
    first = 0
    for _ in range(hops):
        last = count
        for i in range(first, last):
            for e in range(indptr[queue[i]], indptr[queue[i] + 1]):
                w = indices[e]
                if not seen[w]:
                    seen[w] = True
                    queue[count] = w
                    count += 1
        first = last
    return seen


@loop
def _local_degree(indptr, indices, owner, mine):  # type: ignore[no-untyped-def]
    found = np.zeros(len(indptr) - 1, np.int64)
    for v in range(len(indptr) - 1):
        if owner[v] == mine:
            for e in range(indptr[v], indptr[v + 1]):
                found[indices[e]] += 1
    return found
