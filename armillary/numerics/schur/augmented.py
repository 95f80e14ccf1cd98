"""Augmented factors [[K, Bᵀ], [B, 0]] up to the last unknown of K and reads −F in the corner, as sparse direct solvers offer it.

The rows of B take part in the elimination as rows of the factor do: each supernode of K holds exactly those rows that the elimination tree
leads to it, solves for them, passes them on to the rows below that it touches and adds their product to the corner. So it uses the exact
sparsity at the grain of supernodes, where `stepped` keeps an envelope.

An augmented incomplete factorization approach for computing the Schur complement in stochastic optimization, SIAM J. Sci. Comput. 2014.
The elimination of K's own part is SuperLU's; supernodes, and small subtrees taken together as one, are our design.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from armillary import arrays
from armillary.parameters import parameter

from .complement.elimination import reached, supernodes
from .complement.factor import Factor, Ordering
from .complement.method import Method, Work, moved


@dataclass(frozen=True)
class Supernode:
    """Columns [start, end) of the factor, the rows below that they touch, and the rows of B that reach them."""

    start: int
    end: int
    rows: np.ndarray
    sides: np.ndarray


@dataclass(frozen=True)
class Plan:
    """The supernodes in the order of elimination."""

    ordering: Ordering
    nodes: list[Supernode]
    sides: int


@dataclass(frozen=True)
class Augmented(Method):
    """Partial elimination of the augmented matrix by supernodes, on the host."""

    on_device = False

    subtree: int = parameter(128, "the largest number of columns of a subtree that becomes one supernode", range=(1, 100_000))

    def plan(self, ordering: Ordering, b: sparse.csr_array) -> Plan:
        starts = supernodes(ordering.parent, np.diff(ordering.indptr), self.subtree)
        groups = len(starts) - 1
        group_of = np.repeat(np.arange(groups), np.diff(starts))
        indptr, found = reached(ordering.parent, ordering.position[b.indices], b.indptr, group_of, groups)
        sides = np.repeat(np.arange(b.shape[0]), np.diff(indptr))
        by_group = np.argsort(found, kind="stable")
        cuts = np.searchsorted(found[by_group], np.arange(groups + 1))
        nodes = []
        for g, (start, end) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist())):
            rows = ordering.rows[ordering.indptr[start] : ordering.indptr[end]]
            nodes.append(Supernode(start, end, np.unique(rows[rows >= end]), sides[by_group[cuts[g] : cuts[g + 1]]]))
        return Plan(ordering, nodes, b.shape[0])

    def assemble(self, factor: Factor, b: sparse.csr_array, plan: Plan, like: arrays.Array) -> arrays.Array:
        lower, n = factor.lower, plan.ordering.n
        f = np.zeros((plan.sides, plan.sides))
        # Row j is row j of the augmented factor's lower left block: B's rows lie along memory.
        x = np.zeros((n, plan.sides))
        x[plan.ordering.position[b.indices], np.repeat(np.arange(plan.sides), np.diff(b.indptr))] = b.data
        target = np.zeros(n, np.int64)
        columns = np.repeat(np.arange(n), np.diff(lower.indptr))
        for node in plan.nodes:
            if not len(node.sides):
                continue
            width = node.end - node.start
            target[node.start : node.end] = np.arange(width)
            target[node.rows] = np.arange(width, width + len(node.rows))
            entries = slice(lower.indptr[node.start], lower.indptr[node.end])
            panel = np.zeros((width + len(node.rows), width))
            panel[target[lower.indices[entries]], columns[entries] - node.start] = lower.data[entries]
            solved = arrays.solve_triangular(panel[:width], x[node.start : node.end, node.sides])
            if len(node.rows):
                x[np.ix_(node.rows, node.sides)] -= panel[width:] @ solved
            f[np.ix_(node.sides, node.sides)] += arrays.syrk(solved, trans="t")
        return moved(f, like)

    def work(self, plan: Plan) -> Work:
        solve = product = updates = 0
        for node in plan.nodes:
            width, sides = node.end - node.start, len(node.sides)
            solve += width * (width + 2 * len(node.rows)) * sides
            product += width * sides * (sides + 1)
            updates += int(sides > 0 and len(node.rows) > 0)
        return Work(solve, product, updates)
