"""Which trainer's machine holds which vertex."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from armillary import extras
from armillary.errors import InputError
from armillary.kernels import loop

from .graph import Graph

Owners = npt.NDArray[np.int16]
PARTITIONERS = ("greedy", "metis")
MOST_PARTS = 1024


def partition(graph: Graph, parts: int, how: str = "greedy") -> Owners:
    """The part of each vertex, (vertices,): by our greedy stream, or by METIS where the package pymetis is installed."""
    if not 1 <= parts <= min(MOST_PARTS, graph.vertices):
        raise InputError(f"found {parts} parts for {graph.vertices} vertices; expected from 1 to {min(MOST_PARTS, graph.vertices)}")
    if how == "metis":
        return metis(graph, parts)
    return greedy(graph, parts)


def greedy(graph: Graph, parts: int) -> Owners:
    """Linear deterministic greedy: each vertex, in its order, joins the part with most of its neighbours, weighed by the room left.

    A part holds at most ceil(vertices / parts). Ties go to the emptiest part, then to the first. Stanton and Kliot, Streaming graph
    partitioning for large distributed graphs, KDD 2012.
    """
    found: Owners = _greedy(graph.indptr, graph.indices, parts)
    return found


def metis(graph: Graph, parts: int) -> Owners:
    """METIS's k-way partition (the package pymetis)."""
    pymetis = extras.need("pymetis")
    if parts == 1:
        return np.zeros(graph.vertices, np.int16)
    _, found = pymetis.part_graph(parts, adjacency=pymetis.CSRAdjacency(graph.indptr, graph.indices))
    return np.asarray(found, np.int16)


def cut_edges(graph: Graph, owner: Owners) -> int:
    """The number of edges whose ends lie in different parts."""
    source = np.repeat(np.arange(graph.vertices), graph.degree)
    return int((owner[source] != owner[graph.indices]).sum()) // 2


@loop
def _greedy(indptr, indices, parts):  # type: ignore[no-untyped-def]
    n = len(indptr) - 1
    capacity = (n + parts - 1) // parts
    owner = np.full(n, -1, np.int16)
    size = np.zeros(parts, np.int64)
    near = np.zeros(parts, np.int64)
    for v in range(n):
        near[:] = 0
        for e in range(indptr[v], indptr[v + 1]):
            there = owner[indices[e]]
            if there >= 0:
                near[there] += 1
        best, most = -1, np.int64(-1)
        for p in range(parts):
            # Whole numbers, so that every machine decides alike: neighbours × room left.
            score = near[p] * (capacity - size[p])
            if size[p] < capacity and (score > most or (score == most and size[p] < size[best])):
                best, most = p, score
        owner[v] = best
        size[best] += 1
    return owner
