"""METIS: partition the graph of blocks, weighted by cost and by bytes, into one part per rank.

The partition minimises the bytes between parts and keeps the parts' costs within a tolerance. Parts come in no order, so they are
numbered by the mean position of their blocks on the curve, which keeps near parts on one node.

A Fast and High Quality Multilevel Scheme for Partitioning Irregular Graphs, SIAM Journal on Scientific Computing 1998.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from armillary import extras
from armillary.parameters import parameter

from .octree.mesh import Floats, Graph, Ints
from .placement.policy import Policy, Session, State, checked

#: The mean cost of a block as a whole number, which METIS needs.
UNIT = 1000


def symmetric(graph: Graph) -> tuple[Ints, Ints, Ints]:
    """The undirected graph as METIS wants it: starts, neighbours, and whole bytes of both directions."""
    from scipy.sparse import csr_array

    n = graph.blocks
    one_way = csr_array((graph.size, graph.target, graph.first), shape=(n, n))
    both = (one_way + one_way.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    both.sort_indices()
    weights = np.clip(np.rint(both.data), 1, 1 << 30).astype(np.int64)
    return both.indptr.astype(np.int64), both.indices.astype(np.int64), weights


def whole_costs(costs: Floats) -> Ints:
    """Costs as whole numbers of mean 1,000, at least 1, whose sum fits 31 bits."""
    scale = min(UNIT, (1 << 30) / len(costs))
    return np.maximum(np.rint(costs * (scale / costs.mean())), 1).astype(np.int64)


@dataclass(frozen=True)
class Metis(Policy):
    """A partition of the weighted graph of blocks (needs pymetis)."""

    tolerance: int = parameter(100, "thousandths by which a part may exceed the mean (METIS's ufactor)", range=(1, 10_000))
    recursive: bool = parameter(True, "recursive bisection instead of the direct k-way method")

    def place(self, state: State) -> Ints:
        """The rank of each block."""
        return self.partition(state, symmetric(state.graph))

    def partition(self, state: State, graph: tuple[Ints, Ints, Ints]) -> Ints:
        """The rank of each block, given the undirected graph."""
        pymetis = extras.need("pymetis")
        costs = checked(state.costs, state.ranks)
        if state.ranks == 1:
            return np.zeros(len(costs), np.int64)
        starts, neighbours, weights = graph
        _, part = pymetis.part_graph(
            state.ranks, pymetis.CSRAdjacency(starts, neighbours), vweights=self._weights(costs, state.ranks), eweights=weights,
            recursive=self.recursive, options=pymetis.Options(ufactor=self.tolerance, seed=1),
        )  # fmt: skip
        return _numbered_along_the_curve(np.asarray(part, np.int64), state.ranks)

    def _weights(self, costs: Floats, ranks: int) -> Ints:
        """Whole costs, none above the mean load: such a block fills its rank anyway, and METIS would leave other parts without blocks."""
        whole = whole_costs(costs)
        return np.minimum(whole, -(-int(whole.sum()) // ranks))

    def session(self) -> Session:
        """A run that has the undirected graph at hand."""
        return _MetisSession(self)


class _MetisSession(Session):
    policy: Metis
    _graph: tuple[Graph, tuple[Ints, Ints, Ints]] | None = None

    def prepare(self, state: State) -> None:
        if self._graph is None or self._graph[0] is not state.graph:
            self._graph = (state.graph, symmetric(state.graph))

    def answer(self, state: State) -> Ints:
        self.prepare(state)
        assert self._graph is not None
        return self.policy.partition(state, self._graph[1])


def _numbered_along_the_curve(part: Ints, ranks: int) -> Ints:
    counts = np.bincount(part, minlength=ranks)
    middle = np.bincount(part, np.arange(len(part)), minlength=ranks) / np.maximum(counts, 1)
    order = np.argsort(np.where(counts > 0, middle, np.inf), kind="stable")
    number = np.empty(ranks, np.int64)
    number[order] = np.arange(ranks)
    return number[part]
